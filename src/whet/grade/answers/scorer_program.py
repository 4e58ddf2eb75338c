"""Call the scoring function of a benchmark's author, as a program of its own, and print its result as JSON.

The program imports nothing of whet, so it starts quickly.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def main() -> int:
    """Read a request from standard input, call the function, and write its result to standard output as JSON."""
    answer = os.dup(1)
    # Standard output is for the result, so what the function prints goes to standard error.
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    sys.path.insert(0, request["folder"])
    function = getattr(_load(request), request["function"])
    context = request["context"]
    arguments = (context["output"], context["expected"], context)
    result = function(*arguments[: _count_arguments(function)])
    with os.fdopen(answer, "w", encoding="utf-8") as out:
        json.dump(result, out, allow_nan=False)
    return 0


def _load(request: dict[str, Any]) -> ModuleType:
    if "module" in request:
        return importlib.import_module(request["module"])
    file = request["file"]
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _count_arguments(function: Callable[..., Any]) -> int:
    """Return how many of output, expectation and context the function takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return 3
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(3, sum(parameter.kind in positional for parameter in parameters))


if __name__ == "__main__":
    sys.exit(main())

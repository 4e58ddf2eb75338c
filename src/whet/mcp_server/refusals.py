"""What a caller reads when a tool refuses or fails: one message that says where, what and what to do."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from whet.errors import ConfigError, SuiteError, WhetError
from whet.reading.text import did_you_mean, listed, one_line, shorten

_LONGEST = 4000
_MOST_PROBLEMS = 20
# The problems of pydantic that are about the kind of a value, in the words of JSON.
_KINDS = {
    "missing": "is missing",
    "string_type": "should be a string",
    "tuple_type": "should be a list",
    "model_type": "should be an object",
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "should be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
}
# Options of `whet run`, and the arguments that stand for them.
_ARGUMENTS = {
    "--add-trials": "add_trials",
    "--arm": "arms",
    "--case": "cases",
    "--effect": "effect_points",
    "--max-cost": "max_cost_usd",
    "--model": "model",
    "--resume": "resume",
    "--runner": "runners",
    "--skill": "skill",
    "--strict-judge": "strict_judge",
    "--tag": "tags",
    "--trials": "trials",
    "--until-decided": "until_decided",
}
_OPTION = re.compile(rf"(?<![\w-])(?:{'|'.join(_ARGUMENTS)})(?![\w-])")
_PREFIX = re.compile(r"^error\[[a-z]+\]: ", re.MULTILINE)


def explain(cause: BaseException | None, arguments: Mapping[str, Any]) -> str | None:
    """Return what is wrong and what to do, if somebody can correct it; *arguments* describes those of the tool."""
    match cause:
        case ValidationError():
            text = "; ".join(_invalid_arguments(cause, arguments))
        case SuiteError() | ConfigError():
            text = "\n".join(filter(None, (cause.message, cause.hint)))
        case WhetError():
            text = f"{cause.message} ({cause.hint})" if cause.hint else cause.message
        case OSError(filename=str() as path, strerror=str() as reason):
            text = f"{path}: {reason}"
        case _:
            return None
    return shorten(text, _LONGEST)


def _invalid_arguments(error: ValidationError, arguments: Mapping[str, Any]) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_input=False)[:_MOST_PROBLEMS]:
        place = ".".join(shorten(str(part)) for part in problem["loc"])
        kind = _KINDS.get(problem["type"])
        if kind is None:
            yield f"{place}: {problem['msg'].removeprefix('Input ').removeprefix('Value ')}"
            continue
        # A range says by itself what to give; what a value is for, only its description says.
        description = arguments.get(str(problem["loc"][0]), {}).get("description")
        hint = f" ({description[0].lower()}{description[1:].rstrip('.')})" if description else ""
        yield f"{place}: {kind}{hint}"


def in_arguments(printed: str) -> str:
    """Return what `whet run` *printed* as its error in the words of the tool, whose caller typed no options."""
    return _OPTION.sub(lambda option: _ARGUMENTS[option[0]], _PREFIX.sub("", printed))


def explain_bug(tool: str, cause: BaseException | None) -> str:
    """Return one line about an error that nobody foresaw, with its place, so that it can be reported."""
    if cause is None:
        return f"{tool} failed, and nothing says why"
    frames = traceback.extract_tb(cause.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    error = f"{type(cause).__name__}{place}: {one_line(str(cause))}"
    return f"{tool} failed by a mistake of whet: {error} (please report it)"


def explain_unknown(what: str, name: str, known: Sequence[str]) -> str:
    """Return that there is no *what* called *name*, and which there are."""
    word = shorten(name)
    return f'{what} "{word}" ({did_you_mean(word, known) or f"known: {listed(known, len(known))}"})'

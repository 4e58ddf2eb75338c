"""A skill's answer as evaluators see it: the value that is meant, and a text of it."""

from __future__ import annotations

import json
from typing import Any

# Many skills wrap what they have to say; the first of these is meant.
WRAPPERS = ("result", "output", "answer")


def unwrapped(output: Any) -> Any:
    """What stands under `result`, `output` or `answer`, one level deep; anything else as it is."""
    if isinstance(output, dict):
        for name in WRAPPERS:
            if name in output:
                return output[name]
    return output


def as_text(value: Any) -> str:
    """A string as it is, anything else as JSON; 25.0 is written 25, as most languages do."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def searchable(output: Any) -> str:
    """The text in which words are looked for; the names of a wrapped answer's fields are no part of it.

    A skill that answers `{"result": ""}` has not said the word "result".
    """
    if isinstance(output, dict) and any(name in output for name in WRAPPERS):
        return "\n".join(as_text(value) for value in output.values())
    return as_text(output)


def shortened(value: Any, most: int = 200) -> str:
    """For a reason that people read."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 3]}..."

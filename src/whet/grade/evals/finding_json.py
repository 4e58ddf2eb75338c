"""The JSON in an agent's answer: all of it, or the first block that is some."""

from __future__ import annotations

import json
import re
from typing import Any

_FENCE = re.compile(r"^[ \t]*```[\w-]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"[{\[]")
_MOST_TRIES = 1000


class NoJson(ValueError):
    """There is none."""


def whole_json(text: str) -> Any:
    """The value that *text* is."""
    try:
        return json.loads(text.strip())
    except (ValueError, RecursionError) as error:
        raise NoJson(f"the answer is no JSON: {error}") from None


def first_json(text: str) -> Any:
    """The value in the first fence that holds one, else the first object or list that stands in the text."""
    for fenced in _FENCE.findall(text):
        try:
            return whole_json(fenced)
        except NoJson:
            continue
    decoder = json.JSONDecoder()
    for number, found in enumerate(_OPENING.finditer(text)):
        if number >= _MOST_TRIES:
            break
        try:
            return decoder.raw_decode(text, found.start())[0]
        except (ValueError, RecursionError):
            continue
    raise NoJson("the answer holds no JSON")


def any_json(text: str) -> Any:
    """The whole as JSON, else the first block of it."""
    try:
        return whole_json(text)
    except NoJson:
        return first_json(text)


def at_pointer(value: Any, pointer: str) -> Any:
    """What stands at a JSON pointer; a `KeyError` where nothing does."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]{0,8}", name) and int(name) < len(value):
            value = value[int(name)]
        else:
            raise KeyError(pointer)
    return value

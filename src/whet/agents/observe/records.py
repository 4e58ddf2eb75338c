"""Read values from what an agent printed: it may be anything, so each function checks the type of what it returns."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from whet.model.events import MOST, SkillSignal, TroubleKind

_decode = msgspec.json.Decoder().decode


class LineSplitter:
    """Makes whole lines out of pieces of output."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def held(self) -> int:
        """How much of a line has come that is not whole yet."""
        return len(self._rest)

    def take(self, chunk: bytes) -> list[bytes]:
        """Return the lines that *chunk* ends."""
        self._rest += chunk
        # Look only at whole lines: looking at a long line again with each piece of it takes too long.
        if b"\n" not in chunk:
            return []
        *lines, last = bytes(self._rest).split(b"\n")
        self._rest[:] = last
        return lines


def parse(record: bytes) -> dict[str, Any]:
    """Parse one line of JSON as an object; empty if it is anything else."""
    try:
        value = _decode(record)
    except (ValueError, RecursionError):
        # Half of a surrogate pair, because a program cut its text: the rest of the record counts.
        try:
            loose = json.loads(record.decode("utf-8", "replace"), strict=False)
            value = msgspec.json.decode(json.dumps(loose, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def look(value: Any, *names: str) -> Any:
    """Return the value at *names* in nested objects, or None.

    `text` and `table` repeat this, because they are called many times for every record.
    """
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text(value: Any, *names: str) -> str | None:
    """A text that is not empty, or none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else None


def table(value: Any, *names: str) -> dict[str, Any]:
    """An object, or an empty one."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def rows(value: Any, *names: str) -> list[Any]:
    """A list, or an empty one."""
    item = look(value, *names)
    return item if isinstance(item, list) else []


def number(value: Any, *names: str) -> int | None:
    """A whole number of at most 63 bits, or none."""
    item = look(value, *names) if names else value
    whole = isinstance(item, int) and not isinstance(item, bool) and abs(item) <= MOST
    return item if whole else None


def amount(value: Any, *names: str) -> float | None:
    """A number that may have a fraction, and is as large as a whole one at most, or none."""
    item = look(value, *names)
    return item if isinstance(item, float) and abs(item) < MOST else number(item)


def as_text(value: Any) -> str:
    """Return the result of a tool as text: the texts of a list of blocks, or JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        return "\n".join(as_text(table(item).get("text", item)) for item in value)
    return json.dumps(value, ensure_ascii=False)


_STATUSES: dict[int, TroubleKind] = {
    400: "bad-request",
    401: "auth",
    402: "auth",
    403: "auth",
    404: "model-rejected",
    408: "network",
    413: "bad-request",
    422: "bad-request",
    429: "rate-limit",
    503: "overloaded",
    529: "overloaded",
}
_SERVER_ERRORS = range(500, 600)


def status_kind(status: int | None) -> TroubleKind:
    """Return the kind of trouble of a provider's answer; 404 is about the model, the only thing asked for by name."""
    if status is None:
        return "other"
    return _STATUSES.get(status, "server" if status in _SERVER_ERRORS else "other")


def plus(first: int | None, *more: int | None) -> int | None:
    """A sum whose first part has to be known."""
    return None if first is None else number(first + sum(part for part in more if part is not None))


def input_figures(rest: int | None, cached: int | None, written: int | None) -> dict[str, int | None]:
    """Return the whole input of an agent whose own figure, *rest*, leaves out what a cache read or wrote."""
    return {"input_tokens": plus(rest, cached, written), "cached_tokens": cached, "cache_write_tokens": written}


_YEAR_10000 = 253_402_300_800_000


def moment(milliseconds: Any) -> str | None:
    """Return the text for a time in milliseconds since 1970."""
    known = number(milliseconds)
    if known is None or not 0 <= known < _YEAR_10000:
        return None
    seconds, rest = divmod(known, 1000)
    return f"{_second(seconds)}.{rest:03}+00:00"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    # Many records come within one second, and this takes as long as reading one of them.
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


# As the programs read them. `/usr/bin` is a path, and so is `/usr`, unless a skill has that name.
_AT_THE_START = re.compile(r"/([\w:-]+)(?=\s|\Z)", re.ASCII)
# `$HOME` is a variable, unless a skill has that name; `${x}` always is.
_ANYWHERE = re.compile(r"\$([\w:-]+)", re.ASCII)


def slash_invoked(prompt: str, skills: Collection[str]) -> list[SkillSignal]:
    """Return the one of *skills* that a prompt such as `/release-notes for 2.0` begins with."""
    match = _AT_THE_START.match(prompt)
    return [SkillSignal(skill=match[1], signal=f"prompt:/{match[1]}")] if match and match[1] in skills else []


def dollar_invoked(prompt: str, skills: Collection[str]) -> list[SkillSignal]:
    """Return those of *skills* that a prompt such as `write $release-notes for 2.0` names, each once."""
    named = dict.fromkeys(match[1] for match in _ANYWHERE.finditer(prompt))
    return [SkillSignal(skill=name, signal=f"prompt:${name}") for name in named if name in skills]

"""JSON-RPC 2.0 as skills speak it: a request on one line, and an answer somewhere among what is printed."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from whet.errors import SkillFailed
from whet.skills.answers import BadAnswer, read_answer
from whet.skills.base import compact

_SHOWN = 500
_METHOD_UNKNOWN = -32601
# By which a line that cannot be read is known to be meant as an answer.
_MARK = b'"jsonrpc"'


class MethodUnknown(SkillFailed):
    """The skill knows no such method."""


def request(method: str, params: Any, number: int) -> bytes:
    """One line."""
    return compact({"jsonrpc": "2.0", "method": method, "params": params, "id": number})


def read_line(line: bytes, number: int) -> dict[str, Any] | None:
    """The answer to request *number*, if *line* is one; log lines between answers are none.

    A `SkillFailed` where it is meant as one and holds what JSON cannot.
    """
    text = line.strip()
    if not text.startswith(b"{"):
        return None
    try:
        answer = read_answer(text)
    except BadAnswer as error:
        if _MARK in text and text.endswith(b"}") and not isinstance(error.__cause__, json.JSONDecodeError):
            raise SkillFailed(f"its answer {error}") from error
        return None
    fits = isinstance(answer, dict) and answer.get("jsonrpc") == "2.0" and ("result" in answer or "error" in answer)
    return answer if fits and answer.get("id") in (number, None) else None


def other_id(line: bytes, number: int) -> str | None:
    """The id that *line* answers instead of *number*, for whoever wonders why nothing came."""
    with contextlib.suppress(BadAnswer):
        answer = read_answer(line) if line.strip().startswith(b"{") else None
        if isinstance(answer, dict) and answer.get("jsonrpc") == "2.0" and answer.get("id") not in (number, None):
            return _short(answer["id"]) if "result" in answer or "error" in answer else None
    return None


def find_answer(printed: bytes, number: int) -> dict[str, Any] | None:
    """The last answer in all that was printed; also one that stands over several lines, if nothing else does."""
    for line in reversed(printed.splitlines()):
        found = read_line(line, number)
        if found is not None:
            return found
    return read_line(printed, number)


def result_of(answer: dict[str, Any]) -> Any:
    """What the answer gives; a `SkillFailed` where it is an error."""
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    if not isinstance(error, dict):
        raise SkillFailed(f"JSON-RPC error: {_short(error)}")
    kind = MethodUnknown if error.get("code") == _METHOD_UNKNOWN else SkillFailed
    raise kind(f"JSON-RPC error {error.get('code')}: {_short(error.get('message'))}")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."

"""JSON-RPC 2.0 as skills speak it: a request on one line, and an answer somewhere among what is printed."""

from __future__ import annotations

import json
from typing import Any

from whet.errors import SkillFailed
from whet.skills.base import compact

_SHOWN = 500
_METHOD_UNKNOWN = -32601


class MethodUnknown(SkillFailed):
    """The skill knows no such method."""


def request(method: str, params: Any, number: int) -> bytes:
    """One line."""
    return compact({"jsonrpc": "2.0", "method": method, "params": params, "id": number})


def read_line(line: bytes, number: int) -> dict[str, Any] | None:
    """The answer to request *number*, if *line* is one; log lines between answers are none."""
    text = line.strip()
    if not text.startswith(b"{"):
        return None
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    fits = isinstance(answer, dict) and answer.get("jsonrpc") == "2.0" and ("result" in answer or "error" in answer)
    return answer if fits and answer.get("id") in (number, None) else None


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

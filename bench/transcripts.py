"""Long transcripts: recorded sessions over and over, each time with other ids, names and numbers.

A recording is small and its tools say little, so there are two mixes: "short" leaves every record as long as it was
recorded, which is the hardest to read for its size, and "mixed" lets what tools and models say grow, as it does in use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parents[1] / "tests" / "transcripts"
# What the recorded sessions do: talk, run commands, read, write, load a skill.
_SESSIONS = ("tools", "skill", "skill_read", "command_failed", "function", "plain")
# A session has one of each, however long it is.
_ONCE = frozenset(
    {
        "init", "system/init", "thread.started", "turn.started", "session.skills_loaded", "session.tools_updated",
        "session.mcp_servers_loaded", "user", "user.message", "message/user", "turn.completed", "result",
        "result/success", "result/error",
    }
)  # fmt: skip
# How many times as long texts become; most of what tools print is short, and some of it is very long.
_GROWTH = {"short": (1,), "mixed": (1, 1, 1, 2, 2, 5, 10, 20, 50, 100)}
MIXES = tuple(_GROWTH)
_NUMBER = "\x01"
_VARIED = re.compile(r"\b(?:(?:notes|report|out)(?=\.)|Looking|alpha|should)")


def blocks(agent: str, mix: str, *, size: int, block: int = 1 << 20) -> Iterator[bytes]:
    """A transcript of *size* bytes in blocks of whole lines."""
    sessions = [_session(agent, times) for times in _GROWTH[mix]]
    made = number = 0
    while made < size:
        lines: list[bytes] = []
        length = 0
        while length < block:
            # By a stride, so that no two sessions of one length stand together.
            lines.append(sessions[number * 7 % len(sessions)].replace(b"\\u0001", b"%d" % number))
            length += len(lines[-1])
            number += 1
        made += length
        yield b"".join(lines)


def _session(agent: str, times: int) -> bytes:
    """What happens in the recorded sessions, with a place for a number in all that should differ."""
    paths = [path for name in _SESSIONS if (path := RECORDINGS / agent / name / "stdout.jsonl").exists()]
    records = [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]
    lasting = [record for record in records if _kind(record) not in _ONCE]
    return b"".join(_line(_varied(record, times)) for record in lasting)


def _kind(record: dict[str, Any]) -> str:
    kind = "/".join(str(record[name]) for name in ("type", "subtype", "role") if name in record)
    # Claude Code gives the results of tools as words of the user, as often as there are tools.
    return "tool_result" if kind == "user" and "tool_use_result" in record else kind


def _line(record: Any) -> bytes:
    # As the programs print it, but for the mark, which stays an escape.
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _varied(value: Any, times: int, name: str = "") -> Any:
    match value:
        case dict():
            return {key: _varied(item, times, key) for key, item in value.items()}
        case list():
            return [_varied(item, times, name) for item in value]
        case str() if name.lower().endswith("id") and not name.lower().startswith("session"):
            return f"{value}-{_NUMBER}"
        case str():
            told = _VARIED.sub(rf"\g<0>{_NUMBER}", value)
            return told * times if name != "command" and ("\n" in told or " " in told) else told
        case _:
            return value

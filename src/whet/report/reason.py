"""Why a trial did not pass, as the line that says most and what follows it."""

from __future__ import annotations

import re

from whet.reading.text import one_line

_MOST_READ = 1600
_MOST_REST = 400
# What says only that there is more below, and where a line came from.
_EMPTY_HEAD = re.compile(r"\d+ expectations do not hold:?$")
_NUMBER = re.compile(r"^\d+\. ")
_PLACE = re.compile(r"^(?:[\w./-]+\.\w+:\d+: )")
# What a program printed before it ended: its last line says most.
_ENDED = re.compile(r"\bended with .*:$")
_TRACEBACK = re.compile(r"(?:\w+: )?Traceback \(most recent call last\):$")


def parted_reason(message: str) -> tuple[str, str]:
    """Return the line of *message* that says most, and the rest as one line; both empty if there is none."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return "", ""
    if len(lines) > 1 and _EMPTY_HEAD.match(lines[0]):
        del lines[0]
    head, rest = _head(lines)
    return one_line(head[:_MOST_READ], _MOST_READ), one_line(" ".join(rest)[:_MOST_REST], _MOST_REST)


def _head(lines: list[str]) -> tuple[str, list[str]]:
    first, last = lines[0], lines[-1]
    if len(lines) > 1 and _ENDED.search(first):
        return f"{first} {last}", lines[1:-1]
    if len(lines) > 1 and _TRACEBACK.match(first):
        return last, lines[:-1]
    return _PLACE.sub("", _NUMBER.sub("", first)), lines[1:]

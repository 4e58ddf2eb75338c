"""The traceback of what a check raised, as its author needs it: from the check on, without the lines of whet."""

from __future__ import annotations

import asyncio
import traceback
from itertools import dropwhile
from pathlib import Path

from whet.grade.mistakes import traceback_of

_OURS = f"{Path(__file__).parents[1]}/"
# An async check is run to its end by these.
_RUNNING = f"{Path(asyncio.__file__).parent}/"
_MOST_FRAMES = 12


def told_traceback(error: BaseException) -> str | None:
    """The traceback of *error* and of what led to it; none where all of it happened in whet."""
    found = traceback.TracebackException(type(error), error, traceback_of(error), compact=True)
    chain = list(_chain(found))
    for each in chain:
        each.stack[:] = _own_frames(each.stack)
    return "".join(found.format()) if any(each.stack for each in chain) else None


def _chain(found: traceback.TracebackException) -> list[traceback.TracebackException]:
    """*found* and all that it came from or holds."""
    waiting, seen = [found], []
    while waiting:
        current = waiting.pop()
        seen.append(current)
        inner = (current.__cause__, current.__context__, *(current.exceptions or ()))
        waiting += [each for each in inner if each is not None]
    return seen


def _own_frames(stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """What begins with the author's first line; libraries that it calls say more, and whet does not."""
    begun = dropwhile(lambda frame: frame.filename.startswith((_OURS, _RUNNING)), stack)
    return [frame for frame in begun if not frame.filename.startswith(_OURS)][-_MOST_FRAMES:]

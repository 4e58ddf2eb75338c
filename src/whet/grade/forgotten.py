"""What a check began and did not await: nothing in it ran to its end, so nothing that it asks was asked."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CoroutineType
from typing import Any

from whet.model.grade import Location

_WHET = str(Path(__file__).parents[1])
# How many callers of a coroutine are noted: enough to find the author's line behind ours.
_CALLERS = 6


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A coroutine that was never awaited, and the line that made it."""

    name: str
    location: Location | None
    ours: bool


class NeverAwaited(RuntimeError):
    """A check ended, and something that it began did not."""

    def __init__(self, message: str, location: Location | None = None) -> None:
        super().__init__(message)
        self.location = location


@contextmanager
def noticing() -> Iterator[list[Forgotten]]:
    """Collect the coroutines that are made inside and never awaited; the list is whole when the block has ended well.

    Python tells `warnings` of each as it is removed, so that no filter of the author's hides one.
    """
    found: list[Forgotten] = []
    module: Any = warnings
    before, depth = module._warn_unawaited_coroutine, sys.get_coroutine_origin_tracking_depth()  # noqa: SLF001
    module._warn_unawaited_coroutine = lambda coroutine: found.append(_forgotten(coroutine))  # noqa: SLF001
    sys.set_coroutine_origin_tracking_depth(_CALLERS)
    try:
        yield found
        found += _kept()
    finally:
        sys.set_coroutine_origin_tracking_depth(depth)
        module._warn_unawaited_coroutine = before  # noqa: SLF001


def complaint(found: list[Forgotten]) -> NeverAwaited | None:
    """What to say of *found*, if there is anything to say."""
    # `expect.classify` wraps what it is given: the author knows the inner name.
    told = [each for each in found if not each.ours] or found
    if not told:
        return None
    names = list(dict.fromkeys(each.name for each in told))
    were, it = ("was", "it") if len(names) == 1 else ("were", "them")
    located = next((each.location for each in found if each.location), None)
    return NeverAwaited(
        f"{', '.join(names)} {were} never awaited, so nothing in {it} ran: make the check async and await {it}", located
    )


async def finish(awaitable: Any) -> Any:
    """What *awaitable* gives; raises where a task that it began failed unseen, or has not ended."""
    lost: list[BaseException] = []

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            lost.append(error)

    asyncio.get_running_loop().set_exception_handler(note)
    value = await awaitable
    # A task that failed is told of when it is removed, and its traceback may hold it.
    gc.collect()
    if lost:
        raise lost[0]
    running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.cancelling()]
    if running:
        names = ", ".join(getattr(task.get_coro(), "__qualname__", task.get_name()) for task in running)
        raise NeverAwaited(f"the check ended before its task {names} did: await the task, or cancel it")
    return value


def _kept() -> list[Forgotten]:
    """Coroutines that something still holds, or that hold themselves."""
    begun = [each for each in gc.get_objects() if isinstance(each, CoroutineType)]
    found = [each for each in begun if inspect.getcoroutinestate(each) == inspect.CORO_CREATED]
    told = [_forgotten(each) for each in found]
    for each in found:
        each.close()
    return told


def _forgotten(coroutine: CoroutineType[Any, Any, Any]) -> Forgotten:
    callers = [(file, line) for file, line, _ in coroutine.cr_origin or () if not _is_whets(file)]
    location = Location(file=callers[0][0], line=callers[0][1]) if callers else None
    return Forgotten(coroutine.__qualname__, location, _is_whets(coroutine.cr_code.co_filename))


def _is_whets(file: str) -> bool:
    return file.startswith(_WHET)

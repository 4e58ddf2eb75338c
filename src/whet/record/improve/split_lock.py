"""Write the lock of a split: the parts of new cases, and that held-out cases have met one more confirm step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whet.decide.improve.spending import error_of_step
from whet.errors import UsageError
from whet.model import codec
from whet.model.suite import Suite
from whet.reading.text import shown
from whet.record.folder import alone_in, write_atomically, writing
from whet.suites.split.lock import SplitLock, drawn_lock, find_lock, held_out_in, with_confirm

_HINT = "the parts are kept beside the suite, so its folder has to be writable"


def draw_parts(
    suite: Suite, seed: str | None = None, *, write: bool = True
) -> tuple[Path, SplitLock | None, SplitLock]:
    """Draw the parts of new cases of *suite*, and *write* them; return where, what the lock said, and what it says."""
    with _alone_with_lock(suite) as (path, earlier):
        lock = drawn_lock(suite, earlier, seed)
        if lock != earlier and write:
            _write(path, lock)
    return path, earlier, lock


def count_confirm(suite: Suite) -> tuple[int, float]:
    """Count one more confirm step on the held-out cases of *suite*; return its number, and the error that it may make.

    It is counted before anybody looks, and stays counted whatever comes of it: a look cannot be taken back. Who
    counts at the same time gets another number.
    """
    with _alone_with_lock(suite) as (path, lock):
        if lock is None:
            raise UsageError(f"{shown(suite.name)} has no {path.name}", hint="draw its parts with whet split")
        counted_lock, step = with_confirm(lock, held_out_in(suite, lock))
        _write(path, counted_lock)
    return step, error_of_step(step)


@contextmanager
def _alone_with_lock(suite: Suite) -> Iterator[tuple[Path, SplitLock | None]]:
    """Yield the lock as it is when it is our turn, with what another whet has written meanwhile."""
    with alone_in(suite.source if suite.source.is_dir() else suite.source.parent):
        yield find_lock(suite)


def _write(path: Path, lock: SplitLock) -> None:
    with writing(path, hint=_HINT):
        write_atomically(path, codec.encode_pretty(lock))

"""Failures in threads that a check starts: a new thread knows nothing of the check, and what it raises is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# The lists of all scopes that are open in this process, in which a check is alone.
_open: list[list[AssertionError]] = []
_lock = threading.Lock()


@contextmanager
def threads_may_fail(failures: list[AssertionError]) -> Iterator[None]:
    """Collect in *failures* what fails in threads that are started inside."""
    with _lock:
        _open.append(failures)
    before = threading.excepthook

    def take(args: threading.ExceptHookArgs) -> None:
        if isinstance(args.exc_value, AssertionError):
            failures.append(args.exc_value)
        else:
            before(args)

    # Of scopes in several threads none could tell whose thread it was.
    alone = of_a_thread() is failures
    if alone:
        threading.excepthook = take
    try:
        yield
    finally:
        if alone:
            threading.excepthook = before
        with _lock:
            # By identity: two scopes in which nothing failed are equal lists.
            _open[:] = [other for other in _open if other is not failures]


def of_a_thread() -> list[AssertionError] | None:
    """Where a thread without a scope of its own collects: the only scope that is open, or nowhere."""
    return _open[0] if len(_open) == 1 else None

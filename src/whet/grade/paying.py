"""Who pays for what a judge or a user takes: the attempt at hand, even if the answer cannot be read.

The payer belongs to the task that asks, so that no grader has to pass it on, and none can forget to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from whet.model.session import Usage
from whet.model.spending import Bill

_payer: ContextVar[Callable[[Bill], None] | None] = ContextVar("payer", default=None)


@contextmanager
def charge_to(payer: Callable[[Bill], None]) -> Iterator[None]:
    """Let *payer* get the bill of all that is asked inside, also in tasks that begin there."""
    token = _payer.set(payer)
    try:
        yield
    finally:
        _payer.reset(token)


def pay(usage: Usage, *, free: bool = False) -> None:
    """Give the bill for one answer to who pays; its cost is unknown unless the usage says it, or it was *free*."""
    payer = _payer.get()
    if payer is not None:
        payer(Bill(usage=usage, unknown=int(usage.cost_usd is None and not free)))

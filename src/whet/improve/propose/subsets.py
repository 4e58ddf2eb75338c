"""Which failures each proposer is shown: others for each, so that the candidates differ."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

# With fewer failures, everybody gets all of them.
_FEW = 3
_MOST = 8
Shown = TypeVar("Shown")


def subset(failures: Sequence[Shown], place: int, *, of: int, seed: int) -> tuple[Shown, ...]:
    """Return the failures for candidate number *place*, from 0, *of* so many.

    After a shuffle by *seed*, which is the same for all candidates, it gets those whose place is its own or the next
    one, modulo the number of candidates.
    """
    in_order = shuffled(failures, seed)
    if len(in_order) < _FEW:
        return in_order
    wanted = {place % of, (place + 1) % of}
    own_failures = tuple(failure for number, failure in enumerate(in_order) if number % of in wanted)
    # With more candidates than failures, some would get none.
    return own_failures[:_MOST] or in_order[place % len(in_order) :][:1]


def shuffled(items: Sequence[Shown], seed: int) -> tuple[Shown, ...]:
    """Return *items* in the order that *seed* gives them."""
    return tuple(random.Random(seed).sample(items, len(items)))  # noqa: S311 - order, not secrecy

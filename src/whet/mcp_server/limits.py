"""What the operator of a server allows its runs: money for all of them together, and time for each."""

from __future__ import annotations

from msgspec import Struct

from whet.errors import UsageError
from whet.reading.text import duration, money

MOST_COST_USD = 5.0
MOST_TIME_S = 1800.0


class OperatorLimits(Struct):
    """The limits of one server, and what its runs have cost so far, as far as that is known."""

    max_cost_usd: float = MOST_COST_USD
    max_time_s: float = MOST_TIME_S
    spent_usd: float = 0.0

    @property
    def left_usd(self) -> float:
        """What runs of this server may still cost."""
        return max(0.0, self.max_cost_usd - self.spent_usd)

    def bound(self, cost_usd: float | None, minutes: float | None, settings_usd: float | None) -> RunBounds:
        """Return what one run gets of what it asked for; refuses one that names no bound, and one when all is spent."""
        if cost_usd is None and minutes is None:
            raise UsageError(
                "a run needs a bound: max_cost_usd, max_minutes or both",
                hint=f"left on this server: {money(self.left_usd)} for all runs, {duration(self.max_time_s)} for each",
            )
        if self.left_usd <= 0:
            raise UsageError(
                f"the runs of this server have spent {money(self.spent_usd)} of {money(self.max_cost_usd)}, "
                "so no more can start",
                hint="ask the operator to start the server again with another --max-cost",
            )
        costs = [cost for cost in (cost_usd, settings_usd, self.left_usd) if cost is not None]
        seconds = self.max_time_s if minutes is None else min(60 * minutes, self.max_time_s)
        return RunBounds(cost_usd=min(costs), seconds=seconds)


class RunBounds(Struct, frozen=True):
    """The most that one run may cost and take."""

    cost_usd: float
    seconds: float

"""What a run pays for: who asked models, what that cost, and how often the cost is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from msgspec import Struct, field

from whet.model.session import Usage

# The agents under test, the judge of their trials, the models that play users, attempts that a signal ended, and
# questions that agents are asked after the run.
Spender = Literal["agents", "judge", "users", "interrupted", "explain"]
SPENDERS: tuple[Spender, ...] = get_args(Spender)
# The beginning of the note that a budget was not enforced, because the agent reports no cost.
BUDGET_NOT_ENFORCED = "the budget was not enforced"


class Bill(Struct, frozen=True, kw_only=True):
    """What one spender took of providers; `unknown` counts the requests whose cost is unknown."""

    usage: Usage = field(default_factory=Usage)
    unknown: int = 0

    @property
    def cost_usd(self) -> float | None:
        """The known part of the cost; None if none of it is known."""
        return self.usage.cost_usd

    def __add__(self, other: Bill) -> Bill:
        """Add two bills."""
        return Bill(usage=self.usage + other.usage, unknown=self.unknown + other.unknown)


class Spending(Struct, frozen=True, kw_only=True):
    """The bills of all who spend. What was answered by a cassette or a cache is in none of them."""

    agents: Bill = field(default_factory=Bill)
    judge: Bill = field(default_factory=Bill)
    users: Bill = field(default_factory=Bill)
    interrupted: Bill = field(default_factory=Bill)
    explain: Bill = field(default_factory=Bill)

    def bills(self) -> Iterator[tuple[Spender, Bill]]:
        """Every bill, with who it is for."""
        return ((who, getattr(self, who)) for who in SPENDERS)

    @property
    def cost_usd(self) -> float | None:
        """The sum of all known costs; None if none is known."""
        return sum((bill.usage for _, bill in self.bills()), Usage()).cost_usd

    @property
    def unknown(self) -> int:
        """How many costs are not known."""
        return sum(bill.unknown for _, bill in self.bills())

    def __add__(self, other: Spending) -> Spending:
        """Add what two spent, bill by bill."""
        return Spending(**{who: bill + getattr(other, who) for who, bill in self.bills()})

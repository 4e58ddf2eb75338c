"""What was spent, in words: who spent how much, and how many costs are not known."""

from __future__ import annotations

from collections.abc import Mapping

from whet.model.spending import Bill, Spender, Spending
from whet.reading.text import count, money

_NAMES: Mapping[Spender, str] = {"interrupted": "interrupted attempts"}


def spending_text(spending: Spending, *, agents: str = "agents") -> str:
    """Return costs by spender, such as "agents $0.165 and 1 unknown cost, judge $0.099"; "" if no cost is known.

    Agents that alone spend have no name.
    """
    if spending.cost_usd is None:
        return ""
    bills = {who: bill for who, bill in spending.bills() if bill.unknown or bill.cost_usd}
    if not bills or list(bills) == ["agents"]:
        return _bill_text(spending.agents)
    names = {**_NAMES, "agents": agents}
    return ", ".join(f"{names.get(who, who)} {_bill_text(bill)}" for who, bill in bills.items())


def _bill_text(bill: Bill) -> str:
    cost = None if bill.cost_usd is None and bill.unknown else money(bill.cost_usd or 0.0)
    unknown = count(bill.unknown, "unknown cost") if bill.unknown else None
    return " and ".join(filter(None, (cost, unknown)))

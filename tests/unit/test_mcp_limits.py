"""What the operator of a server allows its runs."""

from __future__ import annotations

import pytest

from whet.errors import UsageError
from whet.mcp_server.limits import OperatorLimits, RunBounds


@pytest.mark.parametrize(
    ("cost_usd", "minutes", "settings_usd", "bounds"),
    [
        (1, 2, None, RunBounds(1, 120)),
        (9, 99, None, RunBounds(3, 600)),
        (None, 2, None, RunBounds(3, 120)),
        (1, None, None, RunBounds(1, 600)),
        (1, 1, 0.5, RunBounds(0.5, 60)),
        (1, 1, 70.0, RunBounds(1, 60)),
    ],
)
def test_a_run_gets_the_least_of_what_it_its_settings_and_the_operator_say(
    cost_usd: float | None, minutes: float | None, settings_usd: float | None, bounds: RunBounds
) -> None:
    limits = OperatorLimits(max_cost_usd=4, max_time_s=600, spent_usd=1)

    assert limits.bound(cost_usd, minutes, settings_usd) == bounds


@pytest.mark.parametrize(("spent_usd", "cost_usd"), [(0.0, None), (4.0, 1.0), (5.0, 1.0)])
def test_no_run_starts_without_a_bound_or_without_money(spent_usd: float, cost_usd: float | None) -> None:
    limits = OperatorLimits(max_cost_usd=4, spent_usd=spent_usd)

    with pytest.raises(UsageError):
        limits.bound(cost_usd, None, None)

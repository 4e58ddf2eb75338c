"""Prices: what tokens cost by a table, and unknown wherever that cannot be known."""

from __future__ import annotations

from typing import Any

import pytest

from whet.agents.prices import priced
from whet.model.session import Usage, guessed

MODEL = "claude-sonnet-4-5"


def cost(model: str | None = MODEL, **tokens: Any) -> float | None:
    return priced(Usage(**{"input_tokens": 1000, "output_tokens": 10, **tokens}), model).cost_usd


def test_tokens_have_a_price_and_the_usage_says_whence() -> None:
    usage = priced(Usage(input_tokens=1000, output_tokens=10), f"anthropic/{MODEL}")

    assert usage.cost_usd == pytest.approx(1000 * 3e-6 + 10 * 15e-6)
    assert usage.cost_source == "prices"


def test_reading_from_a_cache_costs_less_and_writing_to_it_more() -> None:
    plain, read, written = cost(), cost(cached_tokens=300), cost(cache_write_tokens=300)

    assert plain == pytest.approx(0.00315)
    assert read == pytest.approx(0.00315 - 300 * (3e-6 - 0.3e-6))
    assert written == pytest.approx(0.00315 + 300 * (3.75e-6 - 3e-6))


def test_where_the_table_has_no_price_for_writing_to_a_cache_it_is_that_of_input() -> None:
    assert cost("gpt-5.5", cache_write_tokens=300) == cost("gpt-5.5")


def test_parts_that_do_not_fit_into_the_input_do_not_make_it_cheaper_than_free() -> None:
    assert cost(cached_tokens=900, cache_write_tokens=900) == cost(cached_tokens=900, cache_write_tokens=100)


def test_more_from_a_cache_than_was_read_at_all_counts_as_all_of_it() -> None:
    assert cost(cached_tokens=5000) == cost(cached_tokens=1000)


@pytest.mark.parametrize(
    ("usage", "model"),
    [
        (Usage(input_tokens=5), MODEL),
        (Usage(output_tokens=5), MODEL),
        (Usage(input_tokens=5, output_tokens=5), None),
        (Usage(input_tokens=5, output_tokens=5), "nobody-knows-it"),
        (guessed(4000, 400), MODEL),
    ],
)
def test_what_cannot_be_known_stays_unknown(usage: Usage, model: str | None) -> None:
    assert priced(usage, model) == usage


def test_what_the_agent_says_counts() -> None:
    usage = Usage(input_tokens=5, output_tokens=5, cost_usd=7.0, cost_source="agent")

    assert priced(usage, MODEL) == usage

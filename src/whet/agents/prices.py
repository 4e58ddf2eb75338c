"""What tokens cost if the agent does not say: by a dated table of prices, and unknown for a model that is not in it."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache, lru_cache

from whet.model.session import Usage


def priced(usage: Usage, model: str | None) -> Usage:
    """Return *usage* with its cost, if it can be known; what an agent reports itself stays.

    A guess from characters has no price.
    """
    if usage.cost_usd is not None or model is None or usage.reported("total_tokens") is None:
        return usage
    read, written = usage.input_tokens or 0, usage.output_tokens or 0
    cached = min(usage.cached_tokens or 0, read)
    cost = _cost(model, read, cached, min(usage.cache_write_tokens or 0, read - cached), written)
    return usage if cost is None else replace(usage, cost_usd=cost, cost_source="prices")


@cache
def load_prices() -> None:
    """Load the table on a thread, so that it is ready when a session ends: this takes a third of a second."""
    threading.Thread(target=_load, name="prices", daemon=True).start()


def _load() -> None:
    import genai_prices.data  # noqa: PLC0415, F401


@lru_cache(maxsize=1024)
def _cost(model: str, input_tokens: int, cached: int, cache_write: int, output_tokens: int) -> float | None:
    # Only here: most runs never ask.
    from genai_prices import Usage as Tokens  # noqa: PLC0415
    from genai_prices import calc_price  # noqa: PLC0415

    # If the table has no price for reading from or writing to a cache, it counts as any other input.
    tokens = Tokens(
        input_tokens=input_tokens, cache_read_tokens=cached, cache_write_tokens=cache_write, output_tokens=output_tokens
    )
    # "anthropic/claude-..." and "claude-..." are one model: some services put the provider in front.
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        try:
            return float(calc_price(tokens, model_ref=name).total_price)
        except LookupError:
            continue
    return None

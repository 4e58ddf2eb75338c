"""What tokens cost if the agent does not say: by a dated table of prices, and unknown for a model that is not in it."""

from __future__ import annotations

import threading
from functools import cache
from types import ModuleType

from msgspec.structs import replace

from whet.model.session import Usage


def priced(usage: Usage, model: str | None) -> Usage:
    """Return *usage* with its cost, if it can be known; what an agent reports itself stays.

    A guess from characters has no price.
    """
    if usage.cost_usd is not None or model is None or usage.reported("total_tokens") is None:
        return usage
    read, written = usage.input_tokens or 0, usage.output_tokens or 0
    cached = min(usage.cached_tokens or 0, read)
    cost = _load().cost_of(model, read, cached, min(usage.cache_write_tokens or 0, read - cached), written)
    return usage if cost is None else replace(usage, cost_usd=cost, cost_source="prices")


@cache
def load_prices() -> None:
    """Load the table on a thread, so that it is ready when a session ends: this takes a third of a second."""
    threading.Thread(target=_load, name="prices", daemon=True).start()


def _load() -> ModuleType:
    from whet.agents import _price_table

    return _price_table

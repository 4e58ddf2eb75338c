"""The dated table of prices. It takes a third of a second to import, so only `prices` imports it, on a thread."""

from __future__ import annotations

from functools import lru_cache

import genai_prices.data  # noqa: F401
from genai_prices import Usage as Tokens
from genai_prices import calc_price


@lru_cache(maxsize=1024)
def cost_of(model: str, input_tokens: int, cached: int, cache_write: int, output_tokens: int) -> float | None:
    """Return what these tokens of *model* cost; None if the model is not in the table."""
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

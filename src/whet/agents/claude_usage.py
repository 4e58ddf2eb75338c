"""What a run of Claude Code took: its last record tells it three times, and each time counts something else."""

from __future__ import annotations

from typing import Any, TypeAlias

from whet.agents.records import amount, number, plus, table
from whet.model.session import Usage

Figures: TypeAlias = dict[str, float]
_TOKENS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")


def read_tokens(usage: dict[str, Any]) -> dict[str, int | None]:
    """Its input is told without what was read from and written to the cache."""
    read, written = number(usage, "cache_read_input_tokens"), number(usage, "cache_creation_input_tokens")
    gross = plus(number(usage, "input_tokens"), read, written)
    return {"input_tokens": gross, "cached_tokens": read, "cache_write_tokens": written}


class Bill:
    """Reads `usage`, which leaves sub-agents out, and `modelUsage`, which counts all, in some versions all runs.

    `before` is what a session had taken when it was resumed, where it was.
    """

    def __init__(self, before: Usage | None = None) -> None:
        self._before = before
        # What totals have counted by the last result; none before the first.
        self._counted: Figures | None = None

    def spent(self, seen: dict[str, Any]) -> dict[str, float | None]:
        """The figures of a `result` since the one before."""
        usage = table(seen, "usage")
        told = read_tokens(usage) | {"output_tokens": number(usage, "output_tokens")}
        thoughts = number(usage, "output_tokens_details", "thinking_tokens")
        recent = _over_models(table(seen, "model_usage_since_last_result"))
        if recent:
            return {**_most(told, recent), "reasoning_tokens": thoughts, "cost_usd": recent["cost_usd"]}
        whole, total = _over_models(table(seen, "modelUsage")), amount(seen, "total_cost_usd")
        counted = self._earlier(whole, told) if self._counted is None else self._counted
        self._counted = whole | ({} if total is None else {"cost_usd": total})
        spent = {} if counted is None else {name: value - counted.get(name, 0) for name, value in whole.items()}
        cost = None if total is None else total - (counted or {}).get("cost_usd", 0)
        return {**_most(told, spent), "reasoning_tokens": thoughts, "cost_usd": cost}

    def _earlier(self, whole: Figures, told: dict[str, int | None]) -> Figures | None:
        """What of the totals was spent before the session was resumed; none where that cannot be told."""
        if self._before is None:
            return {}
        earlier = {name: self._before.told(name) for name in _TOKENS}
        if earlier["output_tokens"] is None or not whole:
            return None
        if any(whole[name] < (told[name] or 0) + (earlier[name] or 0) for name in ("input_tokens", "output_tokens")):
            # It began to count anew.
            return {}
        paid = self._before.cost_usd if self._before.cost_source == "agent" else None
        return {name: value for name, value in (earlier | {"cost_usd": paid}).items() if value is not None}


def _most(told: dict[str, int | None], spent: Figures) -> dict[str, float | None]:
    """The larger ones: what is counted over all models leaves out nothing that the session itself tells."""
    return {name: max(value or 0, spent[name]) if name in spent else value for name, value in told.items()}


def _over_models(models: dict[str, Any]) -> Figures:
    """The totals over all models, by our names; none where none is told."""
    if not models:
        return {}
    read, cost = [_model(usage) for usage in models.values()], [amount(usage, "costUSD") for usage in models.values()]
    tokens: Figures = {name: sum(figures[name] or 0 for figures in read) for name in _TOKENS}
    return tokens | {"cost_usd": sum(value or 0 for value in cost)}


def _model(usage: Any) -> dict[str, int | None]:
    read, written = number(usage, "cacheReadInputTokens"), number(usage, "cacheCreationInputTokens")
    return {
        "input_tokens": plus(number(usage, "inputTokens"), read, written),
        "cached_tokens": read,
        "cache_write_tokens": written,
        "output_tokens": number(usage, "outputTokens"),
    }

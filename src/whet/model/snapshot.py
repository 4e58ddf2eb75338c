"""A stored usage figure that later runs are held to, and how an execution compares with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Metric = Literal[
    "total_tokens",
    "uncached_tokens",
    "input_tokens",
    "uncached_input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cost_usd",
    "duration_s",
]
METRICS: tuple[Metric, ...] = get_args(Metric)


def figure(value: float) -> str:
    """A number for people: whole ones with their thousands set apart, others with six digits."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.6g}"


SnapshotStatus = Literal["held", "exceeded", "created", "updated", "missing", "unavailable", "mismatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One figure, and what it was taken of."""

    metric: str
    value: float
    agent: str
    model: str | None
    trials: int
    updated_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOutcome:
    """How an execution compares with its snapshot; `key` is the name of its entry in the snapshot file."""

    key: str
    status: SnapshotStatus
    metric: Metric
    value: float | None
    baseline: float | None
    allowed: float | None
    message: str

    @property
    def new(self) -> bool:
        """Whether a figure was taken."""
        return self.status in {"created", "updated"}

    @property
    def verdict(self) -> Literal["failed", "errored"] | None:
        """What it makes of an execution that went as expected otherwise; only more usage is the agent's doing."""
        if self.status == "exceeded":
            return "failed"
        return "errored" if self.status in {"missing", "unavailable", "mismatch"} else None

"""What deciding a claim comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Whether the claim holds, why or why not, and what was seen; undecided where nobody can tell."""

    state: Literal["passed", "failed", "undecided"]
    reason: str
    evidence: str | None = None


def passed(reason: str, evidence: str | None = None) -> Outcome:
    """It holds."""
    return Outcome(state="passed", reason=reason, evidence=evidence)


def failed(reason: str, evidence: str | None = None) -> Outcome:
    """It does not hold."""
    return Outcome(state="failed", reason=reason, evidence=evidence)


def undecided(reason: str, evidence: str | None = None) -> Outcome:
    """Nobody can tell, and that is not the agent's doing."""
    return Outcome(state="undecided", reason=reason, evidence=evidence)


def shortened(text: str, most: int = _SHOWN) -> str:
    """The beginning of *text*."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters)"

"""Expectations over what a session took: tokens, money, steps and time."""

from __future__ import annotations

from math import isnan
from typing import Literal, get_args

from whet.expectations.group import Group, Report, session_of
from whet.model.snapshot import figure

TokenKind = Literal["total", "input", "output", "cached", "cache_write", "reasoning"]


_KINDS: tuple[TokenKind, ...] = get_args(TokenKind)


class UsageGroup(Group):
    """Ceilings; a figure that nobody told, or that is a guess, does not hold, because it cannot be known to."""

    def tokens(
        self,
        report: Report,
        *,
        at_most: int,
        kind: TokenKind = "total",
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """So many tokens of this kind, or fewer."""
        if kind not in _KINDS:
            raise ValueError(f'kind is one of {", ".join(_KINDS)}, not "{kind}"')
        seen = session_of(report).usage.told(f"{kind}_tokens")
        self._ceiling(seen, at_most, f"{kind.replace('_', ' ')} tokens", message, explain)

    def cost(self, report: Report, *, at_most: float, message: str | None = None, explain: str | None = None) -> None:
        """So many US dollars, or fewer."""
        self._ceiling(session_of(report).usage.cost_usd, at_most, "US dollars", message, explain)

    def steps(self, report: Report, *, at_most: int, message: str | None = None, explain: str | None = None) -> None:
        """So many model rounds, or fewer."""
        self._ceiling(session_of(report).steps, at_most, "steps", message, explain)

    def duration(
        self, report: Report, *, at_most_s: float, message: str | None = None, explain: str | None = None
    ) -> None:
        """So many seconds, or fewer."""
        self._ceiling(session_of(report).duration_s, at_most_s, "seconds", message, explain)

    def _ceiling(self, seen: float | None, most: float, unit: str, message: str | None, explain: str | None) -> None:
        foreign: object = most
        if isinstance(foreign, bool) or not isinstance(foreign, int | float) or isnan(foreign):
            raise TypeError(f"a ceiling is a number, not {most!r}")
        wanted = f"at most {figure(most)} {unit.removesuffix('s') if most == 1 else unit}"
        if seen is None:
            self._say(f"expected {wanted}, but the agent did not tell", message=message, explain=explain)
        elif seen > most:
            self._say(f"expected {wanted}, observed {figure(seen)}", message=message, explain=explain)

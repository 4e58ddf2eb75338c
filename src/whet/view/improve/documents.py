"""The documents of the pages about improve runs."""

from __future__ import annotations

from msgspec import Struct, field

from whet.record.improve.document import ImproveDocument, Outcome, Phase
from whet.report.improve.words import AcceptedVersion
from whet.view.documents import ViewDocument


class ShownImprove(Struct, kw_only=True):
    """An improve run in a list."""

    id: str
    skill: str | None = None
    suite: str | None = None
    runner: str | None = None
    # None while it is under way, and if it was killed.
    outcome: Outcome | None = None
    phase: Phase | None = None
    # Whether a process works on it now, or will as soon as a service has time for it.
    running: bool = False
    waiting: bool = False
    headline: str = ""
    began_at: str | None = None
    ended_at: str | None = None
    candidates: int = 0
    accepted: AcceptedVersion | None = None
    cost_usd: float | None = None
    problem: str | None = None


class ImproveList(ViewDocument, kw_only=True):
    """The improve runs that there are, newest first."""

    project: str
    runs: tuple[ShownImprove, ...]


class RoundWords(Struct, kw_only=True):
    """What a round comes to, in the words of the terminal."""

    number: int
    parent: str
    decision: str | None = None
    like_these: str | None = None
    moved: str | None = None
    effort: str | None = None


class ImprovePage(ViewDocument, kw_only=True):
    """An improve run with all its candidates."""

    shown: ShownImprove
    record: ImproveDocument
    rounds: tuple[RoundWords, ...]
    spent: tuple[tuple[str, str], ...]
    sealed: str | None = None
    # The ids of the runs of its phases, by where they are in its folder.
    runs: dict[str, str] = field(default_factory=dict)

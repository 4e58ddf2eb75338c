"""The document of a suite over time."""

from __future__ import annotations

from msgspec import Struct, field

from whet.model.comparison import Decision
from whet.model.suite import Part
from whet.report.decisions.case_history import CaseHistory
from whet.view.documents import ShownBill, ShownRate, ViewDocument


class DecidedChange(Struct, kw_only=True):
    """How a run differs from the last one on other content, or from those before it on the same one."""

    verdict: Decision
    difference: float
    low: float
    high: float
    run: str
    # If it was run on several.
    runner: str | None = None
    # Nothing of the suite or the skill changed, so that the provider or the machine may have.
    same_content: bool = False


class HistoryPoint(Struct, kw_only=True):
    """One run of a suite."""

    run: str
    started_at: str | None
    commit: str | None
    skill: str | None
    # The improve run that accepted this version of the skill, if one has.
    accepted_by: str | None = None
    rate: ShownRate | None
    # The arms that the rate is of, and how many of the suite's cases ran.
    arms: tuple[str, ...]
    cases: int
    cases_of_suite: int
    # How many of these cases are of each part, if the suite was split.
    splits: dict[Part, int] = field(default_factory=dict)
    counts: dict[str, int]
    cost_usd: float | None
    spent: tuple[ShownBill, ...] = ()
    changed: DecidedChange | None
    content: str
    problem: str | None = None


class FlakyCase(Struct, kw_only=True):
    """An execution whose trials end differently on the same content: `changes` of `runs` pairs of runs."""

    case: str
    runner: str
    arm: str
    changes: int
    runs: int


class HistoryDocument(ViewDocument, kw_only=True):
    """The runs of a suite, oldest first."""

    suite: str
    points: tuple[HistoryPoint, ...]
    flaky: tuple[FlakyCase, ...] = ()
    cases: tuple[CaseHistory, ...] = ()
    cases_left_out: int = 0


class HistoriesDocument(Struct, kw_only=True, tag_field="schema", tag="whet/histories/1"):
    """The histories of several suites."""

    histories: tuple[HistoryDocument, ...]

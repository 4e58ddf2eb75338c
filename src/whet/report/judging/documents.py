"""The document of `whet judge report --json`, and the lock with what was found, which is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from whet.decide.judging.agreement import ArmDifference, Ceiling, JudgeRates, PeopleAgreement, Quality, ThresholdRates
from whet.decide.judging.units import LabelWord, VerdictWord
from whet.model.callable import Interval
from whet.model.comparison import CountedDifference

LOCK_FORMAT: Literal["whet/judge-lock/1"] = "whet/judge-lock/1"


class StaleCount(Struct, frozen=True, kw_only=True):
    """How many labels do not count, and why."""

    reason: str
    labels: int


class ArmAgreement(Struct, frozen=True, kw_only=True):
    """A judge against people in one arm; `unsure` are the labels that no person was sure of."""

    arm: str
    units: int
    labels: int
    unsure: int
    rates: JudgeRates


class ArmsApart(Struct, frozen=True, kw_only=True):
    """Two arms: how much more the judge passes of what is true (`tpr`), and of what is false, in the candidate."""

    baseline: str
    candidate: str
    tpr: ArmDifference | None
    failures_passed: ArmDifference | None


class StatementAgreement(Struct, frozen=True, kw_only=True):
    """One statement: how many labels it has, and on how many the judge agrees; `few` are too few to say more."""

    statement_id: str
    statement: str
    labels: int
    right: int
    false_passes: int
    false_fails: int
    few: bool


class Disagreement(Struct, frozen=True, kw_only=True):
    """A statement on a trial that the judge decides otherwise than people; `folder` has its evidence."""

    run: str
    case: str
    runner: str
    arm: str
    trial: int
    statement: str
    verdict: VerdictWord
    rating: float
    label: LabelWord
    by: str
    note: str | None
    reason: str
    folder: str


class CountedComparison(Struct, frozen=True, kw_only=True):
    """Two arms on one runner: the difference counted by labels, and as Rogan-Gladen corrects it.

    The second assumes that the judge errs alike in both arms, and is null if it is not known to beat a coin.
    """

    baseline: str
    candidate: str
    runner: str | None
    raw: Interval
    counted: CountedDifference | None
    rogan_gladen: Interval | None


class SuggestedThreshold(Struct, frozen=True, kw_only=True):
    """The rating at which both rates together are highest on these labels, and what they are at the present one."""

    rating: int
    j: float
    present: float
    present_j: float | None


class JudgeReport(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/judge-report/1"):
    """What `whet judge report --json` prints; shares are from 0 to 1.

    So many `units` are in the runs, of which `labels` have a label that counts; `elsewhere` are current labels of other
    runs, which count for the judge too. `more_true` and `more_false` labels would make its rates known to be good
    if it is as good as it looks; null if more would not.
    """

    runs: tuple[str, ...]
    labels_file: str
    judges: Mapping[str, Mapping[str, Any]]
    people: tuple[str, ...]
    units: int
    labels: int
    unsure: int
    elsewhere: int
    stale: tuple[StaleCount, ...]
    agreement: PeopleAgreement | None
    quality: Quality
    more_true: int | None
    more_false: int | None
    ceiling: Ceiling | None
    arms: tuple[ArmAgreement, ...]
    apart: tuple[ArmsApart, ...]
    statements: tuple[StatementAgreement, ...]
    disagreements: tuple[Disagreement, ...]
    counted: tuple[CountedComparison, ...]
    thresholds: tuple[ThresholdRates, ...]
    suggested: SuggestedThreshold | None
    policy: str | None
    warnings: tuple[str, ...]


class JudgeLock(Struct, frozen=True, kw_only=True):
    """`judge.lock.json`: what labels said of a judge, so that a gate needs no labels while the judge is the same."""

    schema: Literal["whet/judge-lock/1"]
    at: str
    judges: Mapping[str, Mapping[str, Any]]
    labels: int
    tpr: float | None
    tpr_limits: tuple[float, float] | None
    tnr: float | None
    tnr_limits: tuple[float, float] | None
    policy: str | None = None
    statements: tuple[str, ...] = field(default_factory=tuple)

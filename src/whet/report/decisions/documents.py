"""The documents that `whet compare`, `gate` and `plan` print with `--json`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, convert
from msgspec.structs import replace

from whet.decide.gate import Answer, GateAnswer, MoreTrials
from whet.model.callable import Interval
from whet.model.comparison import Comparison
from whet.model.suite import Part
from whet.record.contents.differences import ContentDifference
from whet.report.failed_cases import FailedCase


class ComparisonDocument(Comparison, frozen=True, kw_only=True, tag_field="schema", tag="whet/comparison/1"):
    """What `whet compare --json` prints of two arms; shares and their differences are from -1 to 1.

    `failed` are the cases of the candidate that failed, if it is of a single run, and `differences` what the candidate
    has that the baseline has not, and the other way round.
    """

    failed: tuple[FailedCase, ...] = ()
    differences: tuple[ContentDifference, ...] = ()


class ComparisonsDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/comparisons/1"):
    """What `whet compare --json` prints of several candidates or runners."""

    comparisons: tuple[ComparisonDocument, ...]


class GateDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/gate/1"):
    """What `whet gate --json` prints: the answer of everything together, its parts, and what would decide it.

    `rates` and `scores` are those of `arm@runner`, if they were asked for.
    """

    answer: Answer
    exit_code: int
    gated: tuple[GateAnswer, ...]
    rates: dict[str, Interval] | None
    scores: dict[str, Interval] | None
    comparison: ComparisonDocument | ComparisonsDocument | None
    more: MoreTrials | None
    notes: tuple[str, ...]


class StoredBaseline(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/stored-baseline/1"):
    """What `whet baseline save --json` prints: where the trials of which arms are now."""

    name: str
    file: str
    run: str
    arms: tuple[str, ...]
    trials: int


class CostRange(Struct, frozen=True, kw_only=True):
    """Dollars for the fewest and for the most trials."""

    low: float
    high: float


class PlanDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/plan/1"):
    """What `whet plan --json` prints of a suite: trials per case and arm, with their range, and what they take.

    `effect` and `power` are shares. `level` says how sure the range is; null without a `pilot`, a run to learn from.
    `splits` are the parts of the suite that the cases are of; empty for all.
    """

    suite: str
    effect: float
    power: float
    cases: int
    arms: int
    runners: int
    level: float | None
    trials: int
    low: int
    high: int
    cost_usd: CostRange | None
    seconds: float | None
    pilot: str | None
    splits: tuple[Part, ...]


class PlansDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/plans/1"):
    """What `whet plan --json` prints of several suites."""

    plans: tuple[PlanDocument, ...]


def comparison_document(
    comparison: Comparison, failed: Sequence[FailedCase] = (), differences: Sequence[ContentDifference] = ()
) -> ComparisonDocument:
    """Return one comparison as a document, with the cases that *failed* in its candidate, and its *differences*."""
    document = convert(comparison, ComparisonDocument, from_attributes=True)
    return replace(document, failed=tuple(failed), differences=tuple(differences))


def comparisons_document(
    comparisons: Sequence[Comparison],
    failed: Sequence[Sequence[FailedCase]],
    differences: Sequence[Sequence[ContentDifference]],
) -> ComparisonDocument | ComparisonsDocument:
    """Return the document of one comparison, or one that holds several; *failed* and *differences* are for each."""
    documents = tuple(map(comparison_document, comparisons, failed, differences))
    return documents[0] if len(documents) == 1 else ComparisonsDocument(comparisons=documents)

"""Say in words what labels of people say of a judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from whet.decide.judging.agreement import GOOD, JudgeRates, PeopleAgreement, Quality
from whet.decide.judging.units import VerdictWord
from whet.model.callable import Interval
from whet.model.comparison import Comparison, CountedDifference, Judging
from whet.reading.text import count, listed, one_line, percent, percent_range, points
from whet.report.judging.documents import (
    ArmsApart,
    CountedComparison,
    Disagreement,
    JudgeReport,
    StatementAgreement,
)
from whet.report.screen import Screen, Style

_QUALITY_STYLES: dict[Quality, Style] = {"good": "good", "poor": "bad", "not known": "warn"}
_VERBS: dict[VerdictWord, str] = {"pass": "passes", "fail": "fails"}
_SHOWN = 10
_LONGEST = 100
_ALL = 0.995
_SOME = 0.005
_SCALE = 10


def report_lines(report: JudgeReport, screen: Screen) -> Iterator[str]:
    """Yield all that a report says, the judge first."""
    for facts in report.judges.values():
        yield f"{screen.paint('judge', 'bold')}: {judge_text(facts)}"
    yield f"labels: {_labels_text(report)}"
    for stale in report.stale:
        yield screen.paint(f"  stale: {count(stale.labels, 'label')}: {stale.reason}", "warn")
    if report.agreement is None:
        yield f"no label counts yet: whet judge label {' '.join(report.runs)}"
        return
    yield ""
    yield f"  {'quality':10}  {screen.paint(_quality_text(report), _QUALITY_STYLES[report.quality])}"
    yield from _agreement_lines(report.agreement)
    if report.ceiling is not None:
        kappa = "" if report.ceiling.kappa is None else f", kappa {report.ceiling.kappa:.2f}"
        alike = f"{report.ceiling.alike} of {count(report.ceiling.pairs, 'statement')}"
        yield f"  {'people':10}  two of them agree on {alike}{kappa}: no judge can be known to do better"
    yield from _arm_lines(report)
    yield from map(_counted_line, report.counted)
    yield from _statement_lines(report.statements)
    yield from _threshold_lines(report)
    yield from _disagreement_lines(report.disagreements)
    yield from (f"  {screen.paint('note', 'warn'):10}  {warning}" for warning in report.warnings)


def judge_text(facts: Mapping[str, Any]) -> str:
    """Return a judge in words: its model, its votes and its threshold."""
    model = facts.get("model") or "its own model"
    who = f"the agent {facts['runner']} with {model}" if facts.get("runner") else f"{model} ({facts.get('provider')})"
    temperature = "" if facts.get("temperature") is None else f", temperature {facts['temperature']:g}"
    threshold = float(facts.get("threshold") or 0.0) * _SCALE
    majority = " by majority" if facts.get("majority") else ""
    votes = count(int(facts.get("votes") or 1), "vote")
    return f"{who}, {votes}{majority}{temperature}, passes from {threshold:g} of {_SCALE} on"


def _labels_text(report: JudgeReport) -> str:
    by = f" by {listed(list(report.people))}" if report.people else ""
    unsure = f"; {report.unsure} unsure, which are left out" if report.unsure else ""
    elsewhere = f"; and {report.elsewhere} of other runs" if report.elsewhere else ""
    statements = f"{report.labels} of {count(report.units, 'statement')} of {', '.join(report.runs)}"
    return f"{statements}{by}{elsewhere}{unsure}"


def _quality_text(report: JudgeReport) -> str:
    if report.quality != "not known":
        return report.quality
    lacking = [
        f"{count(more, 'more label')} that {'is' if more == 1 else 'are'} {kind}"
        for kind, more in (("true", report.more_true), ("false", report.more_false))
        if more
    ]
    if lacking:
        return f"not known: {listed(lacking)} would tell, if the judge is as good as it looks"
    return f"not known: a judge that looks like this is hardly known to be right in {percent(GOOD)}"


def _agreement_lines(agreement: PeopleAgreement) -> Iterator[str]:
    yield f"  {'true':10}  people say {percent(agreement.base_people)}, the judge {percent(agreement.base_judge)}"
    yield f"  {'TPR':10}  {_tpr_text(agreement)}"
    yield f"  {'TNR':10}  {_tnr_text(agreement)}"
    if agreement.precision is not None:
        yield f"  {'precision':10}  of what it passes, {_share(agreement.precision)} is true"
    yield f"  {'agreement':10}  {_share(agreement.agreement)}"
    if agreement.kappa is not None:
        kappa = agreement.kappa
        yield f"  {'kappa':10}  {kappa.value:.2f} ({kappa.low:.2f} to {kappa.high:.2f})"


def _tpr_text(rates: JudgeRates) -> str:
    return f"it passes {_rate(rates.tpr, rates.tpr_limits)} of what is true, by {count(rates.true, 'label')}"


def _tnr_text(rates: JudgeRates) -> str:
    return f"it fails {_rate(rates.tnr, rates.tnr_limits)} of what is false, by {count(rates.false, 'label')}"


def _rate(rate: float | None, limits: tuple[float, float] | None) -> str:
    if rate is None:
        return "an unknown part"
    return percent(rate) if limits is None else f"{percent(rate)} ({percent_range(*limits)})"


def _share(interval: Interval) -> str:
    return f"{percent(interval.value)} ({percent_range(interval.low, interval.high)})"


def _arm_lines(report: JudgeReport) -> Iterator[str]:
    if len(report.arms) < len(("one", "two")):
        return
    for arm in report.arms:
        unsure = f"; {arm.unsure} unsure" if arm.unsure else ""
        yield f"  {'arm':10}  {arm.arm}: {_tpr_text(arm.rates)}; {_tnr_text(arm.rates)}{unsure}"
    yield from map(_apart_line, report.apart)


def _apart_line(apart: ArmsApart) -> str:
    difference = apart.failures_passed
    if difference is None:
        return f"  {'apart':10}  too few labels say whether it passes more of {apart.candidate}'s failures"
    interval = f"{points(difference.low)} to {points(difference.high)}"
    more = f"{points(abs(difference.value), sign=False)} points {'more' if difference.value >= 0 else 'less'}"
    doubt = "" if difference.low > 0 or difference.high < 0 else ", which may be chance"
    return f"  {'apart':10}  it passes {more} of {apart.candidate}'s failures ({interval}){doubt}"


def _counted_line(entry: CountedComparison) -> str:
    runner = f" on {entry.runner}" if entry.runner else ""
    raw = f"raw {points(entry.raw.value)} ({points(entry.raw.low)} to {points(entry.raw.high)})"
    counted = "no label is about it" if entry.counted is None else counted_text(entry.counted)
    correction = ""
    if entry.rogan_gladen is not None:
        alike = entry.rogan_gladen
        interval = f"{points(alike.low)} to {points(alike.high)}"
        correction = f"; {points(alike.value)} ({interval}) if the judge errs alike in both"
    return f"  {'difference':10}  {entry.candidate} against {entry.baseline}{runner}: {raw}; {counted}{correction}"


def counted_text(counted: CountedDifference) -> str:
    """Return the difference as labels count it, or how many are missing."""
    labels = count(counted.labels, "label")
    if counted.value is None or counted.low is None or counted.high is None:
        return f"{labels} are too few to count by: {counted.missing} more are needed"
    interval = f"{points(counted.low)} to {points(counted.high)}"
    more = "" if counted.more is None else f"; about {counted.more} more would decide"
    return f"counted {points(counted.value)} ({interval}), {labels}{more}"


def judge_line(judging: Judging, comparison: Comparison) -> str:
    """Return how much of a difference rests on the judge, and what people say of it; or else where it would tip."""
    tipping = tipping_text(judging, comparison) if judging.counted is None else None
    return f"{_checked_text(judging)}{f'; {tipping}' if tipping else ''}"


def _checked_text(judging: Judging) -> str:
    rests = "" if judging.share is None else f"{_part(judging.share)} rests on it; "
    if judging.check == "stale":
        return f"{rests}the labels are stale: whet judge report"
    if judging.counted is None:
        return f"{rests}not checked by people"
    return f"{rests}{counted_text(judging.counted)}"


def _part(share: float) -> str:
    if share >= _ALL:
        return "all of the difference"
    return "none of the difference" if share <= _SOME else f"{percent(share)} of the difference"


def tipping_text(judging: Judging, comparison: Comparison) -> str | None:
    """Return how wrong a judge would have to be for a decision not to hold, in failures that it passes."""
    if judging.of_failures is None:
        return None
    arms = (comparison.candidate, comparison.baseline)
    favoured, against = arms if comparison.difference >= 0 else reversed(arms)
    if judging.of_failures > 1:
        return f"it could not explain that, even if it passed all failures of {favoured}"
    more = points(judging.of_failures, sign=False)
    return f"to explain that, it would have to pass {more} points more of {favoured}'s failures than of {against}'s"


def _statement_lines(statements: tuple[StatementAgreement, ...]) -> Iterator[str]:
    wrong = [entry for entry in statements if entry.right < entry.labels]
    for entry in wrong[:_SHOWN]:
        few = ", too few to say more" if entry.few else ""
        sides = f"{entry.false_passes} false passed, {entry.false_fails} true failed{few}"
        text = one_line(entry.statement, _LONGEST)
        yield f"  {'statement':10}  {entry.right} of {entry.labels} right ({sides}): {text}"
    if len(wrong) > _SHOWN:
        yield f"  {'':10}  and {count(len(wrong) - _SHOWN, 'more statement')}"


def _threshold_lines(report: JudgeReport) -> Iterator[str]:
    if report.suggested is None:
        return
    for entry in report.thresholds:
        rates = f"TPR {_rate(entry.tpr, None)}, TNR {_rate(entry.tnr, None)}"
        yield f"  {'from ' + str(entry.rating):10}  {rates}"
    suggested = report.suggested
    present = "" if suggested.present_j is None else f", and {suggested.present_j:.2f} at {suggested.present:g}"
    best = f"{suggested.rating} does best on these labels (TPR + TNR - 1 = {suggested.j:.2f}{present})"
    yield f"  {'threshold':10}  {best}; that is optimistic, since the same labels chose it"


def _disagreement_lines(entries: tuple[Disagreement, ...]) -> Iterator[str]:
    for entry in entries[:_SHOWN]:
        place = f"{entry.case}@{entry.runner}/{entry.arm}#{entry.trial}"
        note = f" ({one_line(entry.note, _LONGEST)})" if entry.note else ""
        yield f"  {'disagree':10}  {place}: the judge {_VERBS[entry.verdict]} it, {entry.by} says {entry.label}{note}"
        yield f"  {'':10}    {one_line(entry.statement, _LONGEST)}; see {entry.folder}"
    if len(entries) > _SHOWN:
        yield f"  {'':10}  and {count(len(entries) - _SHOWN, 'more disagreement')} (--json)"

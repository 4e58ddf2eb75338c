"""Ask of a gate that its judge is known to be good, or that the difference holds as people count it."""

from __future__ import annotations

from collections.abc import Sequence

from whet.decide.comparison import decide
from whet.decide.gate import Answer, GateAnswer, gate_comparison
from whet.decide.judging.agreement import JudgeRates, rates_against_people
from whet.model.comparison import Comparison
from whet.reading.text import percent
from whet.record.judging.judged import judged_units
from whet.record.judging.labels_file import labels_path, policy_of
from whet.record.read.run import RecordedRun
from whet.report.judging.checked import matching_of
from whet.report.judging.documents import JudgeLock
from whet.report.judging.lock import read_lock, staleness_of
from whet.report.judging.strata import strata_of_labels
from whet.report.judging.words import counted_text

_NONE = 0.005


def rests_on_judge(comparison: Comparison) -> bool:
    """Return whether a model has a part in a decision."""
    judging = comparison.judging
    return judging is not None and (judging.share is None or judging.share > _NONE)


def gate_counted(comparison: Comparison) -> GateAnswer:
    """Return what the difference says as people count it."""
    counted = comparison.judging.counted if comparison.judging else None
    names = f"judge: {comparison.candidate} against {comparison.baseline}"
    if counted is None:
        return _about_judge("unknown", f"{names}: not checked by people")
    if counted.low is None or counted.high is None:
        return _about_judge("unknown", f"{names}: {counted_text(counted)}")
    words: dict[str, Answer] = {"better": "pass", "not-worse": "pass", "worse": "fail", "inconclusive": "unknown"}
    answer = words[decide(counted.low, counted.high, comparison.margin)]
    return _about_judge(answer, f"{names}: {counted_text(counted)}")


def counted_instead(comparison: Comparison, decision: GateAnswer) -> tuple[GateAnswer, ...]:
    """Return the parts of a gate that goes by labels: what no model judged still has to hold as it is."""
    if not rests_on_judge(comparison):
        return (decision,)
    judging = comparison.judging
    is_all = judging is not None and judging.share is not None and judging.share >= 1 - _NONE
    return (gate_counted(comparison),) if is_all else (decision, gate_counted(comparison))


def gate_agreement(comparisons: Sequence[Comparison], runs: Sequence[RecordedRun], least: float) -> GateAnswer | None:
    """Return whether the judge is known to reach *least*; None if no pass rests on it."""
    if not any(gate_comparison(item) == "pass" and rests_on_judge(item) for item in comparisons):
        return None
    if not runs:
        return _about_judge("unknown", "judge: no record holds what it decided, so no label can be held against it")
    matching = matching_of(*runs)
    rates = rates_against_people(strata_of_labels(matching).strata)
    if rates.true + rates.false:
        return _gate_rates(rates, least, "labels")
    lock = read_lock(labels_path(runs[-1].suite))
    if lock is not None:
        return _gate_lock(lock, runs, least)
    stale = f"the labels are stale: {matching.stale[0].why}" if matching.stale else "not checked by people"
    return _about_judge("unknown", f"judge: {stale}")


def _gate_lock(lock: JudgeLock, runs: Sequence[RecordedRun], least: float) -> GateAnswer:
    staleness = staleness_of(lock, judged_units(*runs), policy_of(labels_path(runs[-1].suite)))
    if staleness is not None:
        return _about_judge("unknown", f"judge: judge.lock.json is stale: {staleness}")
    return _gate_rates(_rates_of(lock), least, "judge.lock.json")


def _rates_of(lock: JudgeLock) -> JudgeRates:
    return JudgeRates(
        true=lock.labels, false=0, tpr=lock.tpr, tpr_limits=lock.tpr_limits, tnr=lock.tnr, tnr_limits=lock.tnr_limits
    )


def _gate_rates(rates: JudgeRates, least: float, source: str) -> GateAnswer:
    ending = f"and {percent(least)} is asked for, by {source}"
    if rates.tpr_limits is None or rates.tnr_limits is None:
        return _about_judge("unknown", f"judge: fewer than 10 labels are true, or false, {ending}")
    lows = rates.tpr_limits[0], rates.tnr_limits[0]
    text = (
        f"judge: passes at least {percent(lows[0])} of what is true and fails at least {percent(lows[1])} of the rest"
    )
    return _about_judge("pass" if min(lows) >= least else "unknown", f"{text}, {ending}")


def _about_judge(answer: Answer, reason: str) -> GateAnswer:
    return GateAnswer(answer=answer, reason=reason, about="judge")

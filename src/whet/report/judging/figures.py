"""Put together what labels of people say of the judge of recorded runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import isclose
from typing import Any

from whet.decide.comparison import comparisons_of
from whet.decide.judging.agreement import (
    ThresholdRates,
    agreement_with_people,
    ceiling_of,
    more_labels_for,
    rate_difference,
    rates_against_people,
    rates_by_threshold,
)
from whet.decide.judging.counted import better_than_coin, counted_difference, raw_difference, rogan_gladen
from whet.decide.judging.units import LabelledUnit, LabelLine, Matching
from whet.decide.quantiles import z_of
from whet.errors import UsageError
from whet.model.callable import Interval
from whet.model.comparison import Comparison
from whet.reading.text import percent
from whet.record.judging.labels_file import policy_of
from whet.record.judging.runs import JudgedRuns
from whet.record.read.run import RecordedRun
from whet.report.judging.checked import units_of_side
from whet.report.judging.documents import (
    ArmAgreement,
    ArmsApart,
    CountedComparison,
    Disagreement,
    JudgeReport,
    StaleCount,
    StatementAgreement,
    SuggestedThreshold,
)
from whet.report.judging.strata import LabelStrata, strata_of_labels, truths_of

# Fewer labels say nothing of a single statement.
_FEW = 5
# So many are needed to say which threshold is best on them.
FEWEST_TO_SUGGEST = 60
_RATINGS = range(1, 11)
_UNSURE_APART = 0.1
_SCALE = 10


def judge_report(runs: JudgedRuns, *, suggest: bool = False) -> JudgeReport:
    """Return what the labels of *runs* say; with *suggest*, the threshold too at which it would do best on them."""
    matching = runs.matching
    labels = strata_of_labels(matching)
    agreement = agreement_with_people(labels.strata)
    arms = tuple(_arms(runs, labels))
    thresholds = tuple(
        rates_by_threshold([(label.rating, label.truth, label.weight) for label in labels.labels], _RATINGS)
    )
    return JudgeReport(
        runs=runs.run_names,
        labels_file=str(runs.labels),
        judges=_judges(matching),
        people=tuple(sorted({line.label.by for line in _lines(matching)})),
        units=len(matching.units),
        labels=len(matching.labelled),
        unsure=sum(arm.unsure for arm in arms),
        elsewhere=len(matching.elsewhere),
        stale=tuple(
            StaleCount(reason=reason, labels=stale_count)
            for reason, stale_count in Counter(stale.why for stale in matching.stale).most_common()
        ),
        agreement=agreement,
        quality=agreement.quality if agreement else "not known",
        more_true=more_labels_for(agreement.tpr, agreement.true) if agreement else None,
        more_false=more_labels_for(agreement.tnr, agreement.false) if agreement else None,
        ceiling=ceiling_of(list(_pairs(matching))),
        arms=arms,
        apart=tuple(_apart(arms)),
        statements=tuple(_statements(matching)),
        disagreements=tuple(_disagreements(runs)),
        counted=tuple(_counted(runs, labels)),
        thresholds=thresholds,
        suggested=_suggested(runs, thresholds, len(labels.labels)) if suggest else None,
        policy=policy_of(runs.labels),
        warnings=tuple(_warnings(runs, labels, arms)),
    )


def _judges(matching: Matching) -> dict[str, Mapping[str, Any]]:
    """Return the judges of the runs; without any unit there, those that labels are about."""
    judges = {unit.judge_id: unit.judge for unit in matching.units}
    return judges or {line.label.judge_id: line.label.judge for line in matching.elsewhere}


def _lines(matching: Matching) -> Iterator[LabelLine]:
    for entry in matching.labelled:
        yield from entry.lines
    yield from matching.elsewhere


def _pairs(matching: Matching) -> Iterator[tuple[bool, bool]]:
    """Yield what the first two people say who are sure of the same unit."""
    for entry in matching.labelled:
        sure = [line.label.label == "true" for line in entry.lines if line.label.label != "unsure"]
        if len(sure) > 1:
            yield sure[0], sure[1]


def _arms(runs: JudgedRuns, labels: LabelStrata) -> Iterator[ArmAgreement]:
    """Yield each arm, the baseline first."""
    matching, arm_labels, unsure = runs.matching, Counter[str](), Counter[str]()
    for entry in matching.labelled:
        arm_labels[entry.unit.key.arm] += 1
        unsure[entry.unit.key.arm] += entry.truth is None
    for line in matching.elsewhere:
        arm_labels[line.label.arm] += 1
        unsure[line.label.arm] += line.label.label == "unsure"
    sizes = Counter(unit.key.arm for unit in matching.units)
    names = [name for run in runs.runs for name in run.samples().names]
    for arm in dict.fromkeys((*names, *arm_labels)):
        yield ArmAgreement(
            arm=arm,
            units=sizes[arm],
            labels=arm_labels[arm],
            unsure=unsure[arm],
            rates=rates_against_people(labels.of_arm(arm)),
        )


def _apart(arms: Sequence[ArmAgreement]) -> Iterator[ArmsApart]:
    """Yield how the judge differs between the first arm and each other one."""
    for candidate in arms[1:]:
        first, second = arms[0].rates, candidate.rates
        tnr = rate_difference(second.tnr, second.tnr_limits, first.tnr, first.tnr_limits)
        yield ArmsApart(
            baseline=arms[0].arm,
            candidate=candidate.arm,
            tpr=rate_difference(first.tpr, first.tpr_limits, second.tpr, second.tpr_limits),
            # What the judge does not fail of the false ones, it passes.
            failures_passed=tnr,
        )


def _statements(matching: Matching) -> Iterator[StatementAgreement]:
    """Yield each statement that has a label, those first on which the judge is wrong most often."""
    by_statement: dict[str, list[LabelledUnit]] = {}
    for entry in matching.labelled:
        if entry.truth is not None:
            by_statement.setdefault(entry.unit.statement_id, []).append(entry)
    yield from sorted(map(_statement, by_statement.values()), key=lambda row: (row.right - row.labels, row.statement))


def _statement(entries: Sequence[LabelledUnit]) -> StatementAgreement:
    outcomes = Counter((entry.unit.passed, entry.truth) for entry in entries)
    return StatementAgreement(
        statement_id=entries[0].unit.statement_id,
        statement=entries[0].unit.statement,
        labels=len(entries),
        right=outcomes[True, True] + outcomes[False, False],
        false_passes=outcomes[True, False],
        false_fails=outcomes[False, True],
        few=len(entries) < _FEW,
    )


def _disagreements(runs: JudgedRuns) -> Iterator[Disagreement]:
    folders = {run.run_dir.name: run.run_dir for run in runs.runs}
    for entry in runs.matching.labelled:
        unit, truth = entry.unit, entry.truth
        if truth is None or truth == unit.passed:
            continue
        line = next(line for line in entry.lines if line.label.label != "unsure")
        yield Disagreement(
            run=unit.run,
            case=unit.key.case,
            runner=unit.key.runner,
            arm=unit.key.arm,
            trial=unit.key.trial,
            statement=unit.statement,
            verdict=unit.verdict,
            rating=unit.rating,
            label=line.label.label,
            by=line.label.by,
            note=line.label.note,
            reason=unit.reason,
            folder=str(folders[unit.run] / unit.artifact_dir),
        )


def _counted(runs: JudgedRuns, labels: LabelStrata) -> Iterator[CountedComparison]:
    """Yield each comparison of the arms of a run, with what labels make of it."""
    j = better_than_coin(rates_against_people(labels.strata))
    for run in runs.runs:
        for comparison in _comparisons(run):
            z = z_of(1 - comparison.level)
            mine = [unit for unit in runs.units if unit.run == run.run_dir.name]
            before, after = (
                units_of_side(mine, arm, comparison.runner) for arm in (comparison.baseline, comparison.candidate)
            )
            raw = raw_difference(before, after, runs.cases, z=z)
            if raw is None:
                continue
            interval = Interval(value=raw.value, low=raw.low, high=raw.high)
            yield CountedComparison(
                baseline=comparison.baseline,
                candidate=comparison.candidate,
                runner=comparison.runner,
                raw=interval,
                counted=counted_difference(
                    before, after, truths_of(runs.matching), runs.cases, z=z, stretch=comparison.stretch
                ),
                rogan_gladen=rogan_gladen(interval, j),
            )


def _comparisons(run: RecordedRun) -> tuple[Comparison, ...]:
    samples = run.samples()
    return comparisons_of(samples) if len(samples.names) > 1 else ()


def _suggested(runs: JudgedRuns, thresholds: Sequence[ThresholdRates], labels: int) -> SuggestedThreshold | None:
    if labels < FEWEST_TO_SUGGEST:
        raise UsageError(
            f"{labels} labels are too few to suggest a threshold", hint=f"label at least {FEWEST_TO_SUGGEST} statements"
        )
    best = max(thresholds, key=lambda entry: -1.0 if entry.j is None else entry.j)
    present = Counter(unit.threshold for unit in runs.units).most_common(1)[0][0] * _SCALE
    if best.j is None:
        return None
    nearest = next((entry.j for entry in thresholds if isclose(entry.rating, present)), None)
    return SuggestedThreshold(rating=best.rating, j=best.j, present=round(present, 6), present_j=nearest)


def _warnings(runs: JudgedRuns, labels: LabelStrata, arms: Sequence[ArmAgreement]) -> Iterator[str]:
    """Yield what a reader must know before relying on the figures."""
    for arm, verdict, size in labels.silent:
        yield f"no label on the {size:,} statements of {arm} whose verdict is {verdict}: they are left out"
    for first, second in combinations(arms, 2):
        here, there = (arm.unsure / max(1, arm.labels) for arm in (first, second))
        if first.labels and second.labels and abs(here - there) > _UNSURE_APART:
            yield (
                f"people are unsure of {percent(here)} in {first.arm} and of {percent(there)} in {second.arm}: "
                "what they left out may not be alike"
            )
    policies = {line.label.policy for line in _lines(runs.matching)}
    if len(policies) > 1:
        yield "labelling.md changed while people labelled: what counts as true may not be the same in all labels"

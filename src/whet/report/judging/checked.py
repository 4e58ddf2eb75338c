"""Put what people say of the judge beside a decision: the difference counted by labels, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from whet.decide.judging.counted import counted_difference
from whet.decide.judging.units import JudgedUnit, Matching, Place, UnitKey, match_labels
from whet.decide.quantiles import z_of
from whet.errors import StoreError
from whet.model.comparison import Comparison, JudgeCheck, Judging
from whet.record.baselines import Baseline, Statements, StoredStatement
from whet.record.batches import RecordedBatch
from whet.record.judging.judged import judged_units
from whet.record.judging.labels_file import labels_path, read_labels
from whet.record.judging.pairs import with_pairs_of_run
from whet.record.read.run import RecordedRun, read_trials
from whet.report.judging.strata import truths_of

# What a side of a comparison is an arm of: a run, the runs of a batch together, or a stored baseline.
Judged: TypeAlias = RecordedRun | RecordedBatch | Baseline
Side: TypeAlias = tuple[Judged, str]


class JudgedTruths(Struct, frozen=True, kw_only=True):
    """What a judge decided on both sides of a comparison, and what people say of it, where they are sure."""

    units: tuple[JudgedUnit, ...]
    truths: Mapping[Place, bool]
    is_stale: bool


def checked_in_run(comparisons: Sequence[Comparison], run: RecordedRun) -> tuple[Comparison, ...]:
    """Return comparisons of arms of one run with what people say of its judge."""
    return checked_by_people(comparisons, lambda comparison: ((run, comparison.baseline), (run, comparison.candidate)))


def checked_in_folder(comparisons: Sequence[Comparison], run_dir: Path, suite: Path | None) -> tuple[Comparison, ...]:
    """Return the same for a run that is in *run_dir*, with pairs; it is read only if there are labels beside its suite.

    Labels that cannot be read say nothing here: `whet judge report` says what is wrong with them.
    """
    comparisons = with_pairs_of_run(comparisons, run_dir)
    try:
        if suite is None or not any(map(_is_judged, comparisons)) or not labels_path(suite).is_file():
            return comparisons
        return checked_in_run(comparisons, read_trials(run_dir))
    except (StoreError, OSError):
        return comparisons


def checked_by_people(
    comparisons: Sequence[Comparison], sides_of: Callable[[Comparison], tuple[Side, Side]]
) -> tuple[Comparison, ...]:
    """Return *comparisons* with what people say of the judge; *sides_of* says which arms of what they compare."""
    truths: dict[tuple[int, int], JudgedTruths] = {}
    results: list[Comparison] = []
    for comparison in comparisons:
        if not _is_judged(comparison):
            results.append(comparison)
            continue
        before, after = sides_of(comparison)
        records = id(before[0]), id(after[0])
        if records not in truths:
            truths[records] = truths_in(before[0], after[0])
        results.append(_check(comparison, before, after, truths[records]))
    return tuple(results)


def truths_in(*records: Judged) -> JudgedTruths:
    """Return what was judged in *records* beside what people say: labels of runs, and those that were stored."""
    runs = {record.run_dir: record for record in records if isinstance(record, RecordedRun)}
    parts = [_of_matching(matching_of(*runs.values()))] if runs else []
    for record in records:
        if isinstance(record, RecordedBatch):
            parts += [_in_batch(name, _of_matching(matching_of(run))) for name, run in record.runs]
        elif isinstance(record, Baseline):
            parts.append(_of_baseline(record))
    return JudgedTruths(
        units=tuple({unit.place: unit for part in parts for unit in part.units}.values()),
        truths={place: truth for part in parts for place, truth in part.truths.items()},
        is_stale=any(part.is_stale for part in parts),
    )


def _of_matching(matching: Matching) -> JudgedTruths:
    return JudgedTruths(units=matching.units, truths=truths_of(matching), is_stale=bool(matching.stale))


def _in_batch(name: str, part: JudgedTruths) -> JudgedTruths:
    """Return the same with the names that cases have in a batch."""

    def of_batch(key: UnitKey) -> UnitKey:
        return key._replace(case=f"{name}/{key.case}")

    return JudgedTruths(
        units=tuple(replace(unit, key=of_batch(unit.key)) for unit in part.units),
        truths={(run, of_batch(key)): truth for (run, key), truth in part.truths.items()},
        is_stale=part.is_stale,
    )


def _of_baseline(baseline: Baseline) -> JudgedTruths:
    """Return what a judge had decided on stored trials, with what people said when they were stored."""
    run = _run_of(baseline)
    units = tuple(
        JudgedUnit(
            run=run,
            suite=baseline.suite,
            key=key,
            attempt=1,
            statement="",
            passed=stored.passed,
            rating=stored.rating,
            threshold=stored.threshold,
            ratings=(stored.rating,),
            reason="",
            flags=(),
            statement_id="",
            answer_id="",
            judge_id="",
            judge={},
            artifact_dir="",
            weight=baseline.weights.get(key.case, 1.0),
        )
        for key, stored in baseline.statements()
    )
    truths = {(run, key): stored.truth for key, stored in baseline.statements() if stored.truth is not None}
    return JudgedTruths(units=units, truths=truths, is_stale=False)


def _run_of(baseline: Baseline) -> str:
    return f"baseline {baseline.name}"


def runs_of_judges(records: Iterable[Judged]) -> list[list[RecordedRun]]:
    """Return the runs whose judges labels are held against, those of one suite together; stored trials have none."""
    groups: dict[str, dict[Path, RecordedRun]] = {}
    for record in records:
        if isinstance(record, RecordedRun):
            groups.setdefault("", {})[record.run_dir] = record
        elif isinstance(record, RecordedBatch):
            for name, run in record.runs:
                if judged_units(run):
                    groups.setdefault(name, {})[run.run_dir] = run
    return [list(runs.values()) for runs in groups.values()]


def stored_statements(record: RecordedRun | RecordedBatch) -> Statements:
    """Return what a judge decided in *record* and what people say of it, as a baseline keeps it."""
    judged = truths_in(record)
    statements: dict[tuple[str, str, str, int], tuple[StoredStatement, ...]] = {}
    for unit in judged.units:
        key = unit.key
        stored = StoredStatement(
            check=key.check,
            item=key.item,
            passed=unit.passed,
            rating=unit.rating,
            threshold=unit.threshold,
            truth=judged.truths.get(unit.place),
        )
        trial = (key.arm, key.runner, key.case, key.trial)
        statements[trial] = (*statements.get(trial, ()), stored)
    return statements


def matching_of(*runs: RecordedRun) -> Matching:
    """Return what was judged in *runs* beside the labels of their suite, which is that of the last."""
    folders = {run.run_dir: run for run in runs}
    labels = read_labels(labels_path(runs[-1].suite))
    units = judged_units(*folders.values()) if labels else []
    return match_labels(units, labels)


def units_of_side(units: Iterable[JudgedUnit], arm: str, runner: str | None) -> list[JudgedUnit]:
    """Return the units of an arm on *runner*; of the only one that it ran on, if that is another."""
    of_arm = [unit for unit in units if unit.key.arm == arm]
    return [unit for unit in of_arm if runner in (None, unit.key.runner)] or of_arm


def _is_judged(comparison: Comparison) -> bool:
    return comparison.judging is not None


def _check(comparison: Comparison, before: Side, after: Side, judged: JudgedTruths) -> Comparison:
    assert comparison.judging is not None
    weights = {change.case: change.weight for change in comparison.cases}
    baseline, candidate = _units_of(before, comparison, judged), _units_of(after, comparison, judged)
    places = {unit.place for unit in (*baseline, *candidate)}
    truths = {place: truth for place, truth in judged.truths.items() if place in places}
    if not truths:
        return _with(comparison, comparison.judging, "stale" if judged.is_stale else "not-checked")
    z = z_of(1 - comparison.level)
    counted = counted_difference(baseline, candidate, truths, weights, z=z, stretch=comparison.stretch)
    state: JudgeCheck = "counted" if counted is not None and counted.value is not None else "too-few"
    return _with(comparison, replace(comparison.judging, counted=counted), state)


def _units_of(side: Side, comparison: Comparison, judged: JudgedTruths) -> list[JudgedUnit]:
    """Return the units of a side on the cases that are compared."""
    record, arm = side
    cases, runs = {change.case for change in comparison.cases}, _runs_of(record)
    units = (unit for unit in judged.units if unit.run in runs and unit.key.case in cases)
    return units_of_side(units, arm, comparison.runner)


def _runs_of(record: Judged) -> frozenset[str]:
    if isinstance(record, Baseline):
        return frozenset((_run_of(record),))
    runs = [run for _, run in record.runs] if isinstance(record, RecordedBatch) else [record]
    return frozenset(run.run_dir.name for run in runs)


def _with(comparison: Comparison, judging: Judging, state: JudgeCheck) -> Comparison:
    return replace(comparison, judging=replace(judging, check=state))

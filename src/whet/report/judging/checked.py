"""Put what people say of the judge beside a decision: the difference counted by labels, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from whet.decide.judging.counted import counted_difference
from whet.decide.judging.units import JudgedUnit, Matching, match_labels
from whet.decide.quantiles import z_of
from whet.errors import StoreError
from whet.model.comparison import Comparison, JudgeCheck, Judging
from whet.record.judging.judged import judged_units
from whet.record.judging.labels_file import labels_path, read_labels
from whet.record.judging.pairs import with_pairs_of_run
from whet.record.read.run import RecordedRun, read_trials
from whet.report.judging.strata import truths_of

# The run and the arm there that a side of a comparison is.
Side: TypeAlias = tuple[RecordedRun, str]


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
    """Return *comparisons* with what people say of the judge; *sides_of* says which arms of which runs they compare."""
    matchings: dict[tuple[Path, Path], Matching] = {}
    results: list[Comparison] = []
    for comparison in comparisons:
        if not _is_judged(comparison):
            results.append(comparison)
            continue
        before, after = sides_of(comparison)
        folders = before[0].run_dir, after[0].run_dir
        if folders not in matchings:
            matchings[folders] = matching_of(before[0], after[0])
        results.append(_check(comparison, before, after, matchings[folders]))
    return tuple(results)


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


def _check(comparison: Comparison, before: Side, after: Side, matching: Matching) -> Comparison:
    assert comparison.judging is not None
    weights = {change.case: change.weight for change in comparison.cases}
    baseline, candidate = _units_of(before, comparison, matching), _units_of(after, comparison, matching)
    places = {unit.place for unit in (*baseline, *candidate)}
    truths = {place: truth for place, truth in truths_of(matching).items() if place in places}
    if not truths:
        state: JudgeCheck = "stale" if matching.stale else "not-checked"
        return _with(comparison, comparison.judging, state)
    z = z_of(1 - comparison.level)
    counted = counted_difference(baseline, candidate, truths, weights, z=z, stretch=comparison.stretch)
    state = "counted" if counted is not None and counted.value is not None else "too-few"
    return _with(comparison, replace(comparison.judging, counted=counted), state)


def _units_of(side: Side, comparison: Comparison, matching: Matching) -> list[JudgedUnit]:
    """Return the units of a side on the cases that are compared."""
    run, arm = side
    cases = {change.case for change in comparison.cases}
    units = (unit for unit in matching.units if unit.run == run.run_dir.name and unit.key.case in cases)
    return units_of_side(units, arm, comparison.runner)


def _with(comparison: Comparison, judging: Judging, state: JudgeCheck) -> Comparison:
    return replace(comparison, judging=replace(judging, check=state))

"""Compare two runs, or a run with a stored baseline: trials that ran at different times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from whet.decide.comparison import comparisons_of
from whet.errors import UsageError
from whet.model.comparison import ArmSamples, Comparison, Goal, RunSamples, merge_parts
from whet.model.suite import Part
from whet.reading.text import count
from whet.record.baselines import Baseline
from whet.record.batches import RecordedBatch
from whet.record.contents.differences import (
    ContentDifference,
    differences_of_arms,
    differences_of_runs,
)
from whet.record.read.run import RecordedRun
from whet.report.decisions.case_table import Reasons
from whet.report.decisions.documents import ComparisonDocument, ComparisonsDocument, comparisons_document
from whet.report.decisions.words import differing_lines, painted_lines
from whet.report.failed_cases import FailedCase, failed_cases
from whet.report.screen import Screen, plain_screen

_NAMES_SHOWN = 5
_AT_DIFFERENT_TIMES = (
    "the arms ran at different times, so a change of the provider or the machine between them counts too"
)


class RunComparison(Struct, frozen=True, kw_only=True):
    """What was compared: the trials, and what came of it."""

    samples: RunSamples
    comparisons: tuple[Comparison, ...]
    # If the arms are of one run.
    run: RecordedRun | None = None
    # The run of the candidates, and that of the baselines if it is another one.
    candidate_run: RecordedRun | None = None
    baseline_run: RecordedRun | None = None
    # What was compared, also if it is a batch or a stored baseline.
    records: tuple[RecordedRun | RecordedBatch | Baseline, ...] = ()

    def lines(self, screen: Screen | None = None) -> Iterator[str]:
        """Yield the comparisons of two runs, in words."""
        screen = screen or plain_screen()
        for number, comparison in enumerate(self.comparisons):
            yield from ("",) if number else ()
            yield from painted_lines(comparison, self._reasons(comparison), screen)
            yield from differing_lines(self._differences(comparison), screen)

    def document(self) -> ComparisonDocument | ComparisonsDocument:
        """Return what was found as a document."""
        return comparisons_document(
            self.comparisons,
            tuple(map(self._failed_cases, self.comparisons)),
            tuple(map(self._differences, self.comparisons)),
        )

    def _differences(self, comparison: Comparison) -> tuple[ContentDifference, ...]:
        """Return what differs between both sides, as far as their records say it."""
        before, after = self.baseline_run or self.run, self.candidate_run
        if before is None or after is None:
            return ()
        arms = arm_in(before, comparison.baseline), arm_in(after, comparison.candidate)
        if self.baseline_run is None:
            return differences_of_arms(after.run_dir, after.asked, *arms)
        return differences_of_runs((before.run_dir, before.asked), (after.run_dir, after.asked), [arms])

    def _reasons(self, comparison: Comparison) -> Reasons:
        """Return why cases of the candidate failed."""
        return {(comparison.candidate, failed.case): failed.reason for failed in self._failed_cases(comparison)}

    def _failed_cases(self, comparison: Comparison) -> tuple[FailedCase, ...]:
        """Return the cases of the candidate that failed."""
        run = self.candidate_run
        if run is None:
            return ()
        arm = arm_in(run, comparison.candidate)
        results = (
            result
            for result in run.results.values()
            if result.key.arm == arm
            and comparison.runner in (None, result.key.runner)
            and result.key.case not in run.asked.voided
        )
        return failed_cases(results)


def arm_in(run: RecordedRun, side: str) -> str:
    """Return the arm of *run* that a side of a comparison is; of two runs, it may have the name of the run."""
    return _arm_of(run.run_dir.name, tuple(run.asked.arm_facts), side)


def arm_of_side(record: RecordedRun | RecordedBatch | Baseline, side: str) -> str:
    """Return the same for the runs of a batch together, or for a stored baseline."""
    if isinstance(record, RecordedRun):
        return arm_in(record, side)
    samples = record.samples()
    return _arm_of(samples.name, samples.names, side)


def _arm_of(name: str, arms: Sequence[str], side: str) -> str:
    arm = side.removeprefix(f"{name} ")
    return arms[0] if arm == name and len(arms) == 1 else arm


def some_of(comparisons: tuple[Comparison, ...], samples: RunSamples) -> tuple[Comparison, ...]:
    """Return what was compared; refuses to say nothing."""
    if not comparisons:
        raise UsageError(f"no case of {samples.name} has a trial that counts in both arms")
    return comparisons


def of_parts(samples: RunSamples, splits: Sequence[Part]) -> RunSamples:
    """Return the trials of the cases of these *splits*; refuses if there are none."""
    part_samples = samples.of_parts(splits)
    if splits and not part_samples.cases:
        drawn_later = "its cases had no parts when it ran: draw them with whet split, and run it again"
        raise UsageError(
            f"no trial of {samples.name} is of a case that is {' or '.join(splits)}",
            hint=None if samples.splits else drawn_later,
        )
    return part_samples


def refuse_selected(before: RunSamples, after: RunSamples) -> None:
    """Refuse two runs if the failures of one selected the cases of the other: that alone makes a difference."""
    for part, full_run in ((after, before), (before, after)):
        if not set(part.selected_from).isdisjoint(full_run.runs):
            raise UsageError(
                f"{part.name} ran only what failed in {full_run.name}: compared with it, whatever failed by chance "
                "looks better",
                hint="run the same cases in both, best as arms of one run: whet run SUITE --arm old=... --arm new=...",
            )


def on_shared_cases(before: RunSamples, after: RunSamples) -> tuple[RunSamples, RunSamples]:
    """Return both runs without the cases that ask or check something else by now: they share only a name."""
    shared_cases = before.digests.keys() & after.digests.keys()
    changed_cases = [
        case for case in after.weights if case in shared_cases and before.digests[case] != after.digests[case]
    ]
    if not changed_cases:
        return before, after
    if len(changed_cases) == len(before.weights.keys() & after.weights.keys()):
        raise UsageError(
            f"every case of {before.name} and {after.name} has changed between them: there is nothing to compare"
        )
    note = f"changed between them, so not compared: {', '.join(changed_cases)}"
    samples = (
        replace(before, arms=_without(before, changed_cases)),
        replace(after, arms=_without(after, changed_cases)),
    )
    return samples[0], replace(samples[1], notes=(note, *after.notes))


def _without(samples: RunSamples, cases: Sequence[str]) -> tuple[ArmSamples, ...]:
    return tuple(
        replace(arm, trials=tuple(trial for trial in arm.trials if trial.case not in cases)) for arm in samples.arms
    )


def compare_across(
    before: RunSamples,
    after: RunSamples,
    *,
    margin: float,
    shared: bool,
    per_runner: bool = False,
    goal: Goal | None = None,
) -> RunComparison:
    """Compare two sets of trials that ran at different times, arm by arm; of one suite, or on what they share."""
    refuse_selected(before, after)
    if shared:
        before, after = on_shared_cases(before, after)
    pairs = [(name, name) for name in after.names if name in before.names]
    if not pairs and len(before.names) == len(after.names) == 1:
        pairs = [(before.names[0], after.names[0])]
    if not pairs:
        arms_text = "; ".join(f"{run.name} has {', '.join(run.names) or 'none'}" for run in (before, after))
        raise UsageError(f"{before.name} and {after.name} have no arm of the same name", hint=arms_text)
    alone = len(pairs) == 1
    old_name, new_name = (
        {name: run.name if alone else f"{run.name} {name}" for name in run.names} for run in (before, after)
    )
    # All in one: several pairs are several chances to be wrong, and share one error.
    samples = RunSamples(
        name=after.name,
        arms=(
            *(replace(arm, arm=old_name[arm.arm]) for arm in before.arms if arm.arm in dict(pairs)),
            *(replace(arm, arm=new_name[arm.arm]) for arm in after.arms if arm.arm in dict(pairs).values()),
        ),
        weights={**before.weights, **after.weights},
        splits=merge_parts(before.splits, after.splits),
        edited=tuple(dict.fromkeys((*before.edited, *after.edited))),
        grown_from=tuple(sorted({*before.grown_from, *after.grown_from})),
        rounds_planned=max(before.rounds_planned or 0, after.rounds_planned or 0) or None,
        error=min(before.error, after.error),
        interleaved=False,
        judge_error=after.judge_error,
        unfinished=(*before.unfinished, *after.unfinished),
        notes=(_AT_DIFFERENT_TIMES, *_only_in_one(before, after, pairs), *before.notes, *after.notes),
    )
    comparisons = comparisons_of(
        samples,
        pairs=[(old_name[old], new_name[new]) for old, new in pairs],
        margin=margin,
        per_runner=per_runner,
        goal=goal,
    )
    return RunComparison(samples=replace(after, unfinished=samples.unfinished), comparisons=some_of(comparisons, after))


def _only_in_one(before: RunSamples, after: RunSamples, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the arms and cases that one of two has alone: nothing is decided about them."""
    for run, second_run, names in (
        (before, after, {old for old, _ in pairs}),
        (after, before, {new for _, new in pairs}),
    ):
        arms = [name for name in run.names if name not in names]
        cases_here, cases_there = (
            {trial.case for arm in samples.arms for trial in arm.trials} for samples in (run, second_run)
        )
        cases = [case for case in run.weights if case in cases_here - cases_there]
        for noun, names_found in (("arm", arms), ("case", cases)):
            if names_found:
                shown_names = [
                    *names_found[:_NAMES_SHOWN],
                    *((f"{len(names_found) - _NAMES_SHOWN} more",) * (len(names_found) > _NAMES_SHOWN)),
                ]
                yield f"only in {run.name}, so not compared: {count(len(names_found), noun)} ({', '.join(shown_names)})"

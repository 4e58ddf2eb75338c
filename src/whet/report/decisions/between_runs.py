"""Compare two runs, or a run with a stored baseline: trials that ran at different times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.grade.comparison import comparisons_of
from whet.model.comparison import ArmSamples, Comparison, RunSamples
from whet.reading.text import count
from whet.record.recorded_run import RecordedRun
from whet.report.comparison import comparison_lines, comparisons_document

_NAMES_SHOWN = 5
_AT_DIFFERENT_TIMES = (
    "the arms ran at different times, so a change of the provider or the machine between them counts too"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What was compared: the trials, and what came of it."""

    samples: RunSamples
    comparisons: tuple[Comparison, ...]
    # If the arms are of one run.
    run: RecordedRun | None = None

    def lines(self) -> Iterator[str]:
        """Yield all that was found, in words."""
        for number, found in enumerate(self.comparisons):
            yield from ("",) if number else ()
            yield from comparison_lines(found)

    def document(self) -> dict[str, Any]:
        """Return what was found as JSON."""
        return comparisons_document(self.comparisons)


def some_of(found: tuple[Comparison, ...], samples: RunSamples) -> tuple[Comparison, ...]:
    """Return what was compared; refuses to say nothing."""
    if not found:
        raise UsageError(f"no case of {samples.name} has a trial that counts in both arms")
    return found


def refuse_selected(before: RunSamples, after: RunSamples) -> None:
    """Refuse two runs if the failures of one selected the cases of the other: that alone makes a difference."""
    for selected, whole in ((after, before), (before, after)):
        if not set(selected.selected_from).isdisjoint(whole.runs):
            raise UsageError(
                f"{selected.name} ran only what failed in {whole.name}: compared with it, whatever failed by chance "
                "looks better",
                hint="run the same cases in both, best as arms of one run: whet run SUITE --arm old=... --arm new=...",
            )


def on_shared_cases(before: RunSamples, after: RunSamples) -> tuple[RunSamples, RunSamples]:
    """Return both without the cases that ask or check something else by now: they share no more than a name."""
    both = before.digests.keys() & after.digests.keys()
    changed = [case for case in after.weights if case in both and before.digests[case] != after.digests[case]]
    if not changed:
        return before, after
    if len(changed) == len(before.weights.keys() & after.weights.keys()):
        raise UsageError(
            f"every case of {before.name} and {after.name} has changed between them: there is nothing to compare"
        )
    note = f"changed between them, so not compared: {', '.join(changed)}"
    kept = (replace(before, arms=_without(before, changed)), replace(after, arms=_without(after, changed)))
    return kept[0], replace(kept[1], notes=(note, *after.notes))


def _without(samples: RunSamples, cases: Sequence[str]) -> tuple[ArmSamples, ...]:
    return tuple(
        replace(arm, trials=tuple(trial for trial in arm.trials if trial.case not in cases)) for arm in samples.arms
    )


def compare_across(
    before: RunSamples, after: RunSamples, *, margin: float, shared: bool, per_runner: bool = False
) -> Compared:
    """Compare two sets of trials that ran at different times, arm by arm; of one suite, or on what they share."""
    refuse_selected(before, after)
    if shared:
        before, after = on_shared_cases(before, after)
    pairs = [(name, name) for name in after.names if name in before.names]
    if not pairs and len(before.names) == len(after.names) == 1:
        pairs = [(before.names[0], after.names[0])]
    if not pairs:
        known = "; ".join(f"{run.name} has {', '.join(run.names) or 'none'}" for run in (before, after))
        raise UsageError(f"{before.name} and {after.name} have no arm of the same name", hint=known)
    alone = len(pairs) == 1
    old_name, new_name = (
        {name: run.name if alone else f"{run.name} {name}" for name in run.names} for run in (before, after)
    )
    # All in one: several pairs are several chances to be wrong, and share one error.
    both = RunSamples(
        name=after.name,
        arms=(
            *(replace(each, arm=old_name[each.arm]) for each in before.arms if each.arm in dict(pairs)),
            *(replace(each, arm=new_name[each.arm]) for each in after.arms if each.arm in dict(pairs).values()),
        ),
        weights={**before.weights, **after.weights},
        grown_from=tuple(sorted({*before.grown_from, *after.grown_from})),
        rounds_planned=max(before.rounds_planned or 0, after.rounds_planned or 0) or None,
        interleaved=False,
        judge_error=after.judge_error,
        unfinished=(*before.unfinished, *after.unfinished),
        notes=(_AT_DIFFERENT_TIMES, *_only_in_one(before, after, pairs), *before.notes, *after.notes),
    )
    found = comparisons_of(
        both, pairs=[(old_name[old], new_name[new]) for old, new in pairs], margin=margin, per_runner=per_runner
    )
    return Compared(samples=replace(after, unfinished=both.unfinished), comparisons=some_of(found, after))


def _only_in_one(before: RunSamples, after: RunSamples, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the arms and cases that one of two has alone: nothing is decided about them."""
    for run, other, names in ((before, after, {old for old, _ in pairs}), (after, before, {new for _, new in pairs})):
        arms = [name for name in run.names if name not in names]
        own, others = ({trial.case for arm in each.arms for trial in arm.trials} for each in (run, other))
        cases = [case for case in run.weights if case in own - others]
        for noun, found in (("arm", arms), ("case", cases)):
            if found:
                shown = [*found[:_NAMES_SHOWN], *((f"{len(found) - _NAMES_SHOWN} more",) * (len(found) > _NAMES_SHOWN))]
                yield f"only in {run.name}, so not compared: {count(len(found), noun)} ({', '.join(shown)})"

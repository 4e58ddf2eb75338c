"""The document of a suite over time: its rate run by run, where a change is decided, and which cases are flaky."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise

from whet.errors import UsageError, WhetError
from whet.grade.comparison import comparisons_of
from whet.model.comparison import ArmSamples, Decision, RunSamples, Sampled
from whet.model.grade import AS_EXPECTED, PASSED
from whet.record.past_runs import content_of
from whet.record.recorded_run import read_trials
from whet.report.between_runs import on_shared_cases
from whet.report.view_documents import DecidedChange, FlakyCase, HistoryDocument, HistoryPoint
from whet.report.view_run import RunView

# Older runs are of less interest, and reading them takes long.
MOST_POINTS = 200
_Execution = tuple[str, str, str]
_FIRST_TOLD: tuple[Decision, ...] = ("worse", "better", "inconclusive", "not-worse")


def of_suite(views: Sequence[RunView], suite: str) -> list[RunView]:
    """Return the runs of the suite with that path, or of the one with that name that was run last."""
    named = [view for view in views if suite in (view.asked.suite_path, view.asked.suite)]
    path = next((view.asked.suite_path for view in reversed(named)), None)
    return [view for view in named if view.asked.suite_path == path]


def history_document(suite: str, views: Iterable[RunView]) -> HistoryDocument:
    """Return the history of *suite*; *views* are its runs, oldest first."""
    readable = [view for view in views if view.status != "unreadable" and _has_ended_trials(view)]
    # The trials of shards that were merged are in the run that they were merged into.
    merged = {each.run for view in readable for each in view.asked.merged}
    found = [view for view in readable if view.id not in merged][-MOST_POINTS:]
    contents = {view.id: content_of(view.run_dir, view.asked) for view in found}
    changes = _changes([view for view in found if view.head.rate is not None], contents)
    points = [_point(view, contents[view.id], changes.get(view.id)) for view in found]
    return HistoryDocument(suite=suite, points=tuple(points), flaky=tuple(_flaky(found, contents)))


def _has_ended_trials(view: RunView) -> bool:
    """Return whether anything of a run ended; if all of it errored, it has no rate and was paid for all the same."""
    return view.head.rate is not None or view.head.counts["errored"] > 0


def _point(view: RunView, content: str, changed: DecidedChange | None) -> HistoryPoint:
    head, candidate = view.head, _candidate(view)
    skill = view.asked.arm_facts.get(candidate, {}).get("skill") or view.asked.skill_digest
    return HistoryPoint(
        run=view.id,
        started_at=head.started_at,
        commit=view.asked.commits.get(candidate),
        skill=None if skill == "none" else skill,
        rate=head.rate,
        arms=tuple(arm for arm in view.arms if arm != view.baseline),
        cases=len({key.case for key in view.rows.rows}),
        cases_of_suite=len(view.asked.weights),
        counts=head.counts,
        cost_usd=head.cost_usd,
        spent=head.spent,
        changed=changed,
        content=content,
        problem=head.problem,
    )


def _candidate(view: RunView) -> str:
    return view.arms[-1] if view.arms else ""


def _segments(views: Sequence[RunView], contents: Mapping[str, str]) -> Iterator[list[RunSamples]]:
    """Yield for each arm what its runs say, those on the same content together, oldest first."""
    for arm in dict.fromkeys(map(_candidate, views)):
        own = [view for view in views if _candidate(view) == arm]
        segments = (_together(list(alike)) for _, alike in groupby(own, key=lambda view: contents[view.id]))
        yield [segment for segment in segments if segment is not None]


def _changes(views: Sequence[RunView], contents: Mapping[str, str]) -> dict[str, DecidedChange]:
    """Return how the first run on each content differs from what was before it, with all runs on either content.

    Only runs of the same arm are compared: what another arm has is no change. All comparisons share one error: who
    looks at many changes finds some of them by chance.
    """
    known = list(_segments(views, contents))
    arms: list[ArmSamples] = []
    pairs: dict[tuple[str, str], tuple[str, str, str]] = {}
    for before, after in chain.from_iterable(map(pairwise, known)):
        try:
            both = on_shared_cases(before, after)
        except UsageError:
            # Nothing is left of the suite as it was.
            continue
        for runner, of_both in _runners(*both).items():
            # Each pair has arms of its own: what it has in common is not what the next one has.
            names = (f"{before.name} before {after.name} on {runner}", f"{after.name} after {before.name} on {runner}")
            pairs[names] = (before.name, after.name, runner)
            # Not on their runners: comparisons on different ones would not share one error.
            arms += (replace(arm, arm=name, runner="") for name, arm in zip(names, of_both, strict=True))
    if not pairs:
        return {}
    weights = {case: weight for own in known for each in own for case, weight in each.weights.items()}
    samples = RunSamples(name="history", arms=tuple(arms), weights=weights, interleaved=False)
    changes: dict[str, DecidedChange] = {}
    runners = Counter(run for _, run, _ in pairs.values())
    compared = comparisons_of(samples, pairs=tuple(pairs))
    # With several runners, one that got worse is shown, and it is not worse only if it is so on all.
    for found in sorted(compared, key=lambda each: _FIRST_TOLD.index(each.verdict)):
        before_run, run, runner = pairs[found.baseline, found.candidate]
        changes.setdefault(
            run,
            DecidedChange(
                verdict=found.verdict,
                difference=found.difference,
                low=found.low,
                high=found.high,
                run=before_run,
                runner=runner if runners[run] > 1 else None,
            ),
        )
    return changes


def _runners(before: RunSamples, after: RunSamples) -> dict[str, tuple[ArmSamples, ArmSamples]]:
    """Return the trials of both on each runner that both have, or on the only one of each."""
    old, new = ({each.runner: each for each in samples.arms} for samples in (before, after))
    if len(old) == len(new) == 1:
        return {runner: (next(iter(old.values())), each) for runner, each in new.items()}
    return {runner: (old[runner], each) for runner, each in new.items() if runner in old}


def _together(views: Sequence[RunView]) -> RunSamples | None:
    """Return the trials of the candidates of several runs as those of one, which has the name of the first."""
    trials: dict[str, list[Sampled]] = {}
    weights: dict[str, float] = {}
    digests: dict[str, str] = {}
    for view in views:
        try:
            samples = read_trials(view.run_dir).samples()
        except (WhetError, OSError):
            # Its point shows what is wrong with it.
            continue
        weights |= samples.weights
        digests |= samples.digests
        for arm in samples.arms:
            if arm.arm == samples.names[-1]:
                trials.setdefault(arm.runner, []).extend(arm.trials)
    name = views[0].id
    arms = tuple(ArmSamples(arm=name, runner=runner, trials=tuple(own)) for runner, own in trials.items())
    return RunSamples(name=name, arms=arms, weights=weights, digests=digests) if arms else None


def _flaky(views: Sequence[RunView], contents: Mapping[str, str]) -> Iterator[FlakyCase]:
    """Yield the executions that end differently on the same content, those that change most often first."""
    ends: dict[tuple[str, _Execution], list[bool]] = {}
    for view in views:
        for execution, passed in _ends(view).items():
            ends.setdefault((contents[view.id], execution), []).append(passed)
    changes: dict[_Execution, FlakyCase] = {}
    for (_, (case, runner, arm)), own in ends.items():
        found = changes.setdefault((case, runner, arm), FlakyCase(case=case, runner=runner, arm=arm, changes=0, runs=0))
        found.changes += sum(one != other for one, other in pairwise(own))
        found.runs += len(own)
    yield from sorted(
        (found for found in changes.values() if found.changes), key=lambda found: (-found.changes, found.case)
    )


def _ends(view: RunView) -> dict[_Execution, bool]:
    """Return whether all trials of each execution passed that did not error."""
    passed: dict[_Execution, bool] = {}
    for key, row in view.rows.rows.items():
        if row.status != "errored" and key.case not in view.asked.voided:
            successes = PASSED if key.arm == view.baseline else AS_EXPECTED
            execution = (key.case, key.runner, key.arm)
            passed[execution] = passed.get(execution, True) and row.status in successes
    return passed

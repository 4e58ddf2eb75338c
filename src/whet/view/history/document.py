"""The document of a suite over time: its rate run by run, where a change is decided, and which cases are flaky."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter

from msgspec.structs import replace

from whet.decide.comparison import comparisons_of
from whet.errors import UsageError, WhetError
from whet.model.comparison import ArmSamples, Comparison, Decision, RunSamples, Sampled, count_parts
from whet.model.grade import AS_EXPECTED, PASSED
from whet.record.read.past_runs import content_of
from whet.record.read.run import read_trials
from whet.report.decisions.between_runs import on_shared_cases
from whet.report.decisions.case_history import MOST_CASES, case_histories
from whet.view.history.documents import DecidedChange, FlakyCase, HistoryDocument, HistoryPoint
from whet.view.run import RunView

# Older runs are of less interest, and reading them takes long.
MOST_POINTS = 200
# So many of the newest runs on one content are looked at for a change: more of them take long.
_MOST_OF_CONTENT = 20
_Execution = tuple[str, str, str]
# A run, after the content that it tried.
_OnContent = tuple[str, RunSamples]
_FIRST_TOLD: tuple[Decision, ...] = ("worse", "better", "inconclusive", "not-worse")


def of_suite(views: Sequence[RunView], suite: str) -> list[RunView]:
    """Return the runs of the suite with that path, or of the one with that name that was run last."""
    matches = [view for view in views if suite in (view.asked.suite_path, view.asked.suite)]
    path = next((view.asked.suite_path for view in reversed(matches)), None)
    return [view for view in matches if view.asked.suite_path == path]


def history_document(
    suite: str, views: Iterable[RunView], versions: Mapping[str, str] | None = None
) -> HistoryDocument:
    """Return the history of *suite*; *views* are its runs, oldest first.

    *versions* says by the digest of a skill which improve run has accepted it.
    """
    readable = [view for view in views if view.status != "unreadable" and _has_ended_trials(view)]
    # The trials of shards that were merged are in the run that they were merged into.
    parts = {part.run for view in readable for part in view.asked.merged}
    shown_views = [view for view in readable if view.id not in parts][-MOST_POINTS:]
    contents = {view.id: content_of(view.run_dir, view.asked) for view in shown_views}
    runs_by_arm = list(_runs_by_arm([view for view in shown_views if view.head.rate is not None], contents))
    changes = decided_changes(list(map(_segments, map(_unselected, runs_by_arm))))
    points = [_point(view, contents[view.id], changes.get(view.id)) for view in shown_views]
    for point in points:
        point.accepted_by = (versions or {}).get((point.skill or "").rpartition(":")[2])
    cases = case_histories(list(map(_segments, runs_by_arm)), [view.id for view in shown_views])
    return HistoryDocument(
        suite=suite,
        points=tuple(points),
        flaky=tuple(_flaky(shown_views, contents)),
        cases=cases[:MOST_CASES],
        cases_left_out=max(0, len(cases) - MOST_CASES),
    )


def _has_ended_trials(view: RunView) -> bool:
    """Return whether anything of a run ended; if all of it errored, it has no rate and was paid for all the same."""
    return view.head.rate is not None or view.head.counts["errored"] > 0


def _point(view: RunView, content: str, change: DecidedChange | None) -> HistoryPoint:
    head, candidate = view.head, _candidate(view)
    cases = {key.case for key in view.rows.rows}
    skill = view.asked.arm_facts.get(candidate, {}).get("skill") or view.asked.skill_digest
    return HistoryPoint(
        run=view.id,
        started_at=head.started_at,
        commit=view.asked.commits.get(candidate),
        skill=None if skill == "none" else skill,
        rate=head.rate,
        arms=tuple(arm for arm in view.arms if arm != view.baseline),
        cases=len(cases),
        splits=count_parts(view.asked.splits, cases),
        cases_of_suite=len(view.asked.weights),
        counts=head.counts,
        cost_usd=head.cost_usd,
        spent=head.spent,
        changed=change,
        content=content,
        problem=head.problem,
    )


def _candidate(view: RunView) -> str:
    return view.arms[-1] if view.arms else ""


def _runs_by_arm(views: Sequence[RunView], contents: Mapping[str, str]) -> Iterator[list[_OnContent]]:
    """Yield for each arm what its runs say, oldest first, and on which content."""
    for arm in dict.fromkeys(map(_candidate, views)):
        arm_views = [view for view in views if _candidate(view) == arm]
        yield [(contents[samples.name], samples) for samples in _read(arm_views)]


def _unselected(runs: Sequence[_OnContent]) -> list[_OnContent]:
    """Return the runs that were not selected by failures: what failed by chance looks better the second time."""
    return [(content, samples) for content, samples in runs if not samples.selected_from]


def _segments(runs: Sequence[_OnContent]) -> list[list[RunSamples]]:
    """Return what runs say, those on the same content as one list."""
    return [[samples for _, samples in alike] for _, alike in groupby(runs, key=itemgetter(0))]


def _pairs(segments: Sequence[Sequence[RunSamples]]) -> Iterator[tuple[RunSamples, RunSamples, bool]]:
    """Yield what is compared: each content with the one before it, and runs on the same content before and after each
    place, since a provider may change by itself; and whether the content is the same."""
    for before, after in pairwise(segments):
        yield *_pools(before, after), False
    for runs in segments:
        newest = runs[-_MOST_OF_CONTENT:]
        for place in range(1, len(newest)):
            yield *_pools(newest[:place], newest[place:]), True


def decided_changes(samples_by_view: Sequence[Sequence[Sequence[RunSamples]]]) -> dict[str, DecidedChange]:
    """Return how a run differs from what was before it, with all runs on either side; runs come by arm and content.

    Only runs of the same arm are compared: what another arm has is no change. All comparisons share one error: who
    looks at many changes finds some of them by chance. Of the places on one content, only the plainest is a change.
    """
    arms: list[ArmSamples] = []
    pairs: dict[tuple[str, str], tuple[str, str, str]] = {}
    within: set[tuple[str, str]] = set()
    for before, after, is_same in chain.from_iterable(map(_pairs, samples_by_view)):
        try:
            shared_samples = on_shared_cases(before, after)
        except UsageError:
            # Nothing is left of the suite as it was.
            continue
        for runner, of_both in _runners(*shared_samples).items():
            # Each pair has arms of its own: what it has in common is not what the next one has.
            names = (f"{before.name} before {after.name} on {runner}", f"{after.name} after {before.name} on {runner}")
            pairs[names] = (before.name, after.name, runner)
            within |= {names} if is_same else set()
            # Not on their runners: comparisons on different ones would not share one error.
            arms += (replace(arm, arm=name, runner="") for name, arm in zip(names, of_both, strict=True))
    if not pairs:
        return {}
    every = list(chain.from_iterable(chain.from_iterable(samples_by_view)))
    weights = {case: weight for run_samples in every for case, weight in run_samples.weights.items()}
    judge_error = every[-1].judge_error
    samples = RunSamples(name="history", arms=tuple(arms), weights=weights, interleaved=False, judge_error=judge_error)
    changes: dict[str, DecidedChange] = {}
    runners = Counter(run for _, run, _ in pairs.values())
    comparisons = _plainest(comparisons_of(samples, pairs=tuple(pairs)), pairs, within)
    # With several runners, one that got worse is shown, and it is not worse only if it is so on all.
    for comparison in sorted(comparisons, key=lambda run_samples: _FIRST_TOLD.index(run_samples.verdict)):
        before_run, run, runner = pairs[comparison.baseline, comparison.candidate]
        changes.setdefault(
            run,
            DecidedChange(
                verdict=comparison.verdict,
                difference=comparison.difference,
                low=comparison.low,
                high=comparison.high,
                run=before_run,
                runner=runner if runners[run] > 1 else None,
                same_content=(comparison.baseline, comparison.candidate) in within,
            ),
        )
    return changes


def _plainest(
    comparisons: Sequence[Comparison],
    pairs: Mapping[tuple[str, str], tuple[str, str, str]],
    within: Collection[tuple[str, str]],
) -> list[Comparison]:
    """Return all comparisons of two contents, and the plainest decided change of each content on each runner."""
    others_first = [
        comparison for comparison in comparisons if (comparison.baseline, comparison.candidate) not in within
    ]
    plainest: dict[tuple[str, str], Comparison] = {}
    for comparison in comparisons:
        names = (comparison.baseline, comparison.candidate)
        if names in within and comparison.verdict in {"better", "worse"}:
            before, _, runner = pairs[names]
            before_best = plainest.get((before, runner))
            if before_best is None or _plainness(comparison) > _plainness(before_best):
                plainest[before, runner] = comparison
    return [*others_first, *plainest.values()]


def _plainness(comparison: Comparison) -> float:
    return abs(comparison.difference) / (comparison.high - comparison.low)


def _runners(before: RunSamples, after: RunSamples) -> dict[str, tuple[ArmSamples, ArmSamples]]:
    """Return the trials of both on each runner that both have, or on the only one of each."""
    old, new = ({arm.runner: arm for arm in samples.arms} for samples in (before, after))
    if len(old) == len(new) == 1:
        return {runner: (next(iter(old.values())), arm) for runner, arm in new.items()}
    return {runner: (old[runner], arm) for runner, arm in new.items() if runner in old}


def _read(views: Sequence[RunView]) -> Iterator[RunSamples]:
    """Yield the trials of the candidate of each run."""
    for view in views:
        try:
            samples = read_trials(view.run_dir).samples()
        except (WhetError, OSError):
            # The point of that run shows what is wrong with it.
            continue
        arms = tuple(arm for arm in samples.arms if arm.arm == samples.names[-1])
        if arms:
            yield RunSamples(
                name=view.id,
                arms=arms,
                weights=samples.weights,
                digests=samples.digests,
                judge_error=samples.judge_error,
                selected_from=samples.selected_from,
            )


def _pools(before: Sequence[RunSamples], after: Sequence[RunSamples]) -> tuple[RunSamples, RunSamples]:
    """Return both as one run each; of several runs, each is a round, because a provider may be in a mood in each."""
    if len(before) == len(after) == 1:
        return _pool(before), _pool(after)
    rounds = range(len(before) + len(after))
    return _pool(list(map(_as_round, before, rounds))), _pool(list(map(_as_round, after, rounds[len(before) :])))


def _as_round(run: RunSamples, number: int) -> RunSamples:
    arms = (replace(arm, trials=tuple(replace(trial, round=number) for trial in arm.trials)) for arm in run.arms)
    return replace(run, arms=tuple(arms))


def _pool(runs: Sequence[RunSamples]) -> RunSamples:
    """Return the trials of several runs as those of one, which has the name of the first."""
    trials: dict[str, list[Sampled]] = {}
    for run in runs:
        for arm in run.arms:
            trials.setdefault(arm.runner, []).extend(arm.trials)
    name = runs[0].name
    return RunSamples(
        name=name,
        arms=tuple(
            ArmSamples(arm=name, runner=runner, trials=tuple(arm_trials)) for runner, arm_trials in trials.items()
        ),
        weights={case: weight for run in runs for case, weight in run.weights.items()},
        digests={case: digest for run in runs for case, digest in run.digests.items()},
    )


def _flaky(views: Sequence[RunView], contents: Mapping[str, str]) -> Iterator[FlakyCase]:
    """Yield the executions that end differently on the same content, those that change most often first."""
    ends: dict[tuple[str, _Execution], list[bool]] = {}
    for view in views:
        for execution, has_passed in _ends(view).items():
            ends.setdefault((contents[view.id], execution), []).append(has_passed)
    changes: dict[_Execution, FlakyCase] = {}
    for (_, (case, runner, arm)), outcomes in ends.items():
        flaky_case = changes.setdefault(
            (case, runner, arm), FlakyCase(case=case, runner=runner, arm=arm, changes=0, runs=0)
        )
        flaky_case.changes += sum(earlier != later for earlier, later in pairwise(outcomes))
        flaky_case.runs += len(outcomes)
    yield from sorted(
        (flaky_case for flaky_case in changes.values() if flaky_case.changes),
        key=lambda flaky_case: (-flaky_case.changes, flaky_case.case),
    )


def _ends(view: RunView) -> dict[_Execution, bool]:
    """Return whether all trials of each execution passed that did not error."""
    outcomes: dict[_Execution, bool] = {}
    for key, row in view.rows.rows.items():
        if row.status != "errored" and key.case not in view.asked.voided:
            successes = PASSED if key.arm == view.baseline else AS_EXPECTED
            execution = (key.case, key.runner, key.arm)
            outcomes[execution] = outcomes.get(execution, True) and row.status in successes
    return outcomes

"""Answer `whet compare`, `gate` and `baseline` from recorded runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from whet.decide.comparison import MARGIN, comparisons_of, each_its_own, margin_of
from whet.decide.doubts import error_of_judge
from whet.decide.gate import (
    GateAnswer,
    MoreTrials,
    asked_arms,
    cost_ratio,
    count_passes_only,
    gate_comparison,
    gate_cost,
    gate_like_these,
    gate_rate,
    more_for_aim,
    more_for_cost,
    more_for_rate,
    more_to_decide,
    most_of,
    rates_of,
    rates_sharing,
)
from whet.errors import StoreError, UsageError
from whet.model.callable import Interval
from whet.model.comparison import MOST_ROUNDS, USUAL_ERROR, Goal, RunSamples, Sampled, notes_on_parts
from whet.model.request import Settings
from whet.model.suite import Part
from whet.reading.text import count, path_for_people
from whet.record.baselines import baseline_path, read_baseline, save_baseline
from whet.record.batches import RecordedBatch, find_runs, read_recorded
from whet.record.judging.pairs import with_pairs_of_run
from whet.record.read.past_runs import runs_before
from whet.record.read.run import RecordedRun
from whet.report.decisions.between_runs import RunComparison, arm_of_side, compare_across, of_parts, some_of
from whet.report.decisions.documents import StoredBaseline
from whet.report.decisions.outcome import HARDLY, GateOutcome
from whet.report.decisions.words import rate_words, score_words, sentence
from whet.report.judging.checked import Judged, checked_by_people, runs_of_judges, stored_statements
from whet.report.judging.gates import counted_instead, gate_agreement
from whet.report.judging.pairs import NOT_ASKED, gate_all_pairs, gate_references
from whet.report.judging.words import judge_line

_RUN_AND_ARMS, _TWO = 3, 2
_Recorded: TypeAlias = RecordedRun | RecordedBatch
_MONEY = "run.max_cost_usd"
_OTHER_CASES = "to decide it, add cases like these: more trials of these cases say little about others"
_ERRORED = "more trials would error too: mend what made them error, and run it again"
_UNTOLD = (
    "more trials would not say what they take either: let the agent report its cost or its tokens, "
    "and name a model that has a price"
)
_MORE_PAIRS = "more cases may decide it, or a question that tells more of the answers apart"
_TOGETHER = (
    "to decide it, run both with more trials, best as arms of one run: whet run SUITE --arm old=... --arm new=..."
)


def compare(
    names: Sequence[str],
    settings: Settings,
    *,
    margin: float | None = None,
    shared: bool = False,
    per_runner: bool = False,
    goal: Goal | None = None,
    splits: Sequence[Part] = (),
) -> RunComparison:
    """Compare what *names* say: arms of the newest run or of a run, or two runs.

    A run until decided is asked for its own goal and margin, unless others are given.
    """
    if len(names) > _RUN_AND_ARMS:
        raise UsageError("name a run and two arms at most", hint="whet compare RUN A B")
    if len(names) == _TWO and all(_is_run(name, settings) for name in names):
        before, after = (run_with_trials(name, settings) for name in names)
        usual = MARGIN if margin is None else margin
        how = {"margin": usual, "shared": shared, "per_runner": per_runner, "goal": goal}
        return _compare_runs(before, after, settings, splits, **how)
    names_run = len(names) in {1, _RUN_AND_ARMS} or (names and _is_run(names[0], settings))
    run, *arms = names if names_run else ("latest", *names)
    run_record = run_with_trials(run, settings)
    samples = _samples(run_record, settings, splits)
    if len(arms) == 1 or len(set(arms)) < len(arms):
        raise UsageError("name two arms to compare", hint=f"the arms of {samples.name} are {', '.join(samples.names)}")
    _must_know(arms, samples)
    if len(samples.names) < _TWO:
        raise UsageError(
            f"{samples.name} has one arm, so there is nothing to compare",
            hint="run it with --arm old=... --arm new=..., name two runs, or ask for a rate with gate --min-rate",
        )
    recorded_run = run_record if isinstance(run_record, RecordedRun) else None
    until = recorded_run.asked.until if recorded_run else None
    comparisons = comparisons_of(
        samples,
        baseline=arms[0] if arms else None,
        candidates=tuple(arms[1:]),
        margin=margin_of(until) if margin is None else margin,
        per_runner=per_runner,
        goal=goal or (until.goal if until else None),
    )
    comparison = RunComparison(
        samples=samples, comparisons=some_of(comparisons, samples), run=recorded_run, candidate_run=recorded_run
    )
    return with_labels(comparison, run_record, run_record)


def _must_know(arms: Sequence[str], samples: RunSamples) -> None:
    unknown = [arm for arm in arms if arm not in samples.names]
    if unknown:
        arm_names = ", ".join(samples.names)
        raise UsageError(f'{samples.name} has no arm or run called "{unknown[0]}"', hint=f"its arms are {arm_names}")


def _is_run(name: str, settings: Settings) -> bool:
    try:
        find_runs(name, settings.output_dir)
    except (UsageError, StoreError):
        return False
    return True


def run_with_trials(name: str, settings: Settings) -> _Recorded:
    """Read a run by its folder, id or `latest`; refuses one without a trial."""
    run = read_recorded(name, settings.output_dir)
    run.refuse_empty()
    return run


def _samples(run: _Recorded, settings: Settings, splits: Sequence[Part] = ()) -> RunSamples:
    """Return what a run says on those *splits*; what the settings say of the judge by now outranks what they said."""
    samples, error = of_parts(run.samples(), splits), error_of_judge(settings.judge)
    return samples if error is None else replace(samples, judge_error=error)


def _compare_runs(
    before: _Recorded, after: _Recorded, settings: Settings, splits: Sequence[Part], **how: Any
) -> RunComparison:
    """Compare the arms of the same name of two runs, or their only ones."""
    if before.run_dir == after.run_dir:
        raise UsageError(f"{before.run_dir.name} is one run", hint="name another one to compare it with")
    if not how["shared"]:
        _refuse_other_suite(before, after)
    comparison = compare_across(_samples(before, settings, splits), _samples(after, settings, splits), **how)
    comparison = replace(
        comparison,
        candidate_run=after if isinstance(after, RecordedRun) else None,
        baseline_run=before if isinstance(before, RecordedRun) else None,
    )
    return with_labels(comparison, before, after)


def with_labels(compared: RunComparison, before: Judged, after: _Recorded) -> RunComparison:
    """Return the same with what labels of people say of the judge, who decided in *before* and *after*."""
    checked = checked_by_people(
        compared.comparisons if compared.run is None else with_pairs_of_run(compared.comparisons, compared.run.run_dir),
        lambda item: ((before, arm_of_side(before, item.baseline)), (after, arm_of_side(after, item.candidate))),
    )
    return replace(compared, comparisons=checked, records=(before, after))


def _refuse_other_suite(before: _Recorded, after: _Recorded) -> None:
    if before.asked.suite_digest != after.asked.suite_digest:
        raise UsageError(
            f"{before.run_dir.name} and {after.run_dir.name} are not of the same suite, or it has changed between them",
            hint="--shared compares them on the cases that both have",
        )


def gate(
    names: Sequence[str],
    settings: Settings,
    *,
    margin: float | None = None,
    shared: bool = False,
    per_runner: bool = False,
    goal: Goal | None = None,
    like_these: bool = False,
    max_cost_ratio: float | None = None,
    min_rate: float | None = None,
    min_score: float | None = None,
    baseline: str | None = None,
    splits: Sequence[Part] = (),
    judge_agreement: float | None = None,
    judge_counted: bool = False,
    pairwise: bool = False,
) -> GateOutcome:
    """Decide whether a candidate may take the place of its baseline, or whether a rate is high enough."""
    if min_rate is not None or min_score is not None:
        return _gate_rates(names, settings, min_rate, min_score, splits, per_runner=per_runner, pairwise=pairwise)
    if baseline is not None:
        usual = MARGIN if margin is None else margin
        how = {"margin": usual, "shared": shared, "per_runner": per_runner, "goal": goal}
        comparison = _compare_with_baseline(names, settings, baseline, splits, **how)
    else:
        comparison = compare(
            names, settings, margin=margin, shared=shared, per_runner=per_runner, goal=goal, splits=splits
        )
    parts = _judged_parts(comparison, judge_agreement, judge_counted=judge_counted)
    others = list(map(gate_like_these, comparison.comparisons)) if like_these else []
    parts += others
    if pairwise:
        parts += gate_all_pairs(comparison.comparisons, comparison.run)
    if max_cost_ratio is not None:
        parts += (gate_cost(item, max_cost_ratio) for item in comparison.comparisons)
    # More trials of one run say little if the other side does not grow with it.
    are_interleaved = all(item.interleaved for item in comparison.comparisons)
    is_open = any(item.errored.decisive and gate_comparison(item) == "unknown" for item in comparison.comparisons)
    more, otherwise = None, _ERRORED if is_open else _otherwise(comparison, max_cost_ratio, parts)
    if "unknown" in (part.answer for part in others):
        otherwise = _OTHER_CASES
    elif are_interleaved and not is_open:
        more = _more_of(comparison, max_cost_ratio, settings.max_parallel)
    return GateOutcome(
        gated=tuple(parts),
        compared=comparison,
        more=more,
        otherwise=otherwise,
        run=comparison.samples.name,
        command=comparison.samples.command,
        notes=(
            *(f"judge: {judge_line(item.judging, item)}" for item in comparison.comparisons if item.judging),
            *dict.fromkeys(note for item in comparison.comparisons for note in item.notes),
            *_before(comparison.run),
        ),
        unfinished=comparison.samples.unfinished,
        limited=_is_limited(comparison.run),
        afresh=_afresh(comparison.run, more),
    )


def _judged_parts(comparison: RunComparison, judge_agreement: float | None, *, judge_counted: bool) -> list[GateAnswer]:
    """Return what comparisons say to a gate: as they were judged, or as people count them."""
    parts: list[GateAnswer] = []
    for item in comparison.comparisons:
        decision = GateAnswer(answer=gate_comparison(item), reason=sentence(item))
        parts += counted_instead(item, decision) if judge_counted else (decision,)
    if judge_agreement is None:
        return parts
    groups = runs_of_judges(comparison.records)
    answers = (gate_agreement(comparison.comparisons, runs, judge_agreement) for runs in groups)
    return [*parts, *(answer for answer in dict.fromkeys(answers) if answer is not None)]


def _otherwise(comparison: RunComparison, max_cost_ratio: float | None, parts: Sequence[GateAnswer]) -> str:
    """Return what to do if more trials of the run would not decide it."""
    comparisons = comparison.comparisons
    if {part.about for part in parts if part.answer == "unknown"} == {"judge"}:
        return f"more labels may decide it: whet judge label {comparison.samples.name}"
    if {part.about for part in parts if part.answer == "unknown"} == {"pairs"}:
        is_asked = not any(part.about == "pairs" and NOT_ASKED in part.reason for part in parts)
        return _MORE_PAIRS if is_asked else f"ask a judge: whet judge pairs {comparison.samples.name}"
    if not all(item.interleaved for item in comparisons):
        return _TOGETHER
    is_untold = any(item.aim is not None and item.aim.amount is None for item in comparisons)
    if max_cost_ratio is not None:
        is_untold = is_untold or any(cost_ratio(item) is None for item in comparisons)
    return _UNTOLD if is_untold else HARDLY


def _more_of(comparison: RunComparison, max_cost_ratio: float | None, parallel: int) -> MoreTrials | None:
    """Return how many more trials would answer all that is open; None if they would not."""
    samples = comparison.samples
    counts = [
        (more_for_aim if item.aim else more_to_decide)(item, samples, parallel=parallel)
        for item in comparison.comparisons
        if gate_comparison(item) == "unknown"
    ]
    if max_cost_ratio is not None:
        counts += (
            more_for_cost(item, max_cost_ratio, samples, parallel=parallel)
            for item in comparison.comparisons
            if gate_cost(item, max_cost_ratio).answer == "unknown"
        )
    return most_of(counts)


def _afresh(run: RecordedRun | None, more: MoreTrials | None) -> str | None:
    """Return the command that starts *run* anew with so many rounds, if it ran until decided."""
    # No command asks for less error than usual.
    if run is None or run.asked.until is None or run.asked.until.error != USUAL_ERROR or more is None:
        return None
    until, words = run.asked.until, run.asked.typed.again or (path_for_people(run.suite, Path.cwd()),)
    start = ("whet", run.asked.command or "run", *words)
    if more.trials > MOST_ROUNDS:
        return shlex.join((*start, "--trials", str(more.trials)))
    margin = () if until.margin is None else ("--margin", f"{100 * until.margin:g}")
    effect = ("--effect", f"{100 * until.effect:g}")
    goal = () if until.goal is None else ("--goal", until.goal)
    return shlex.join((*start, "--until-decided", *goal, *effect, *margin, "--max-rounds", str(more.trials)))


def _gate_rates(
    names: Sequence[str],
    settings: Settings,
    min_rate: float | None,
    min_score: float | None,
    splits: Sequence[Part],
    *,
    per_runner: bool,
    pairwise: bool,
) -> GateOutcome:
    """Ask for the share of trials that pass, for the mean score, or for both."""
    if len(names) > 1:
        raise UsageError("--min-rate and --min-score look at one run", hint="whet gate RUN --min-rate 80")
    run_record = run_with_trials(names[0] if names else "latest", settings)
    samples = _samples(run_record, settings, splits)
    rates = [
        *(
            _ask_rates(count_passes_only(samples), min_rate, rate_words, per_runner=per_runner)
            if min_rate is not None
            else ()
        ),
        *(_ask_rates(samples, min_score, score_words, per_runner=per_runner) if min_score is not None else ()),
    ]
    is_apart = per_runner and len({arm.runner for arm in asked_arms(samples)}) > 1
    silent = any(rate.silent for rate in rates)
    more = most_of(
        [
            more_for_rate(rate.rate, rate.least, samples, parallel=settings.max_parallel, sharing=rate.sharing)
            for rate in rates
            if rate.gated.answer == "unknown"
        ]
    )
    about_pairs = gate_references(run_record) if pairwise else ()
    return GateOutcome(
        gated=(*(rate.gated for rate in rates), *about_pairs),
        rates=None if min_rate is None else _name_arm(rates_of(count_passes_only(samples), per_runner=per_runner)),
        scores=None if min_score is None else _name_arm(rates_of(samples, per_runner=per_runner)),
        more=None if silent else more,
        otherwise=_ERRORED if silent else HARDLY,
        run=samples.name,
        command=samples.command,
        notes=(
            *((each_its_own(samples.error),) * is_apart),
            *samples.notes,
            *notes_on_parts(samples, samples.cases),
            *_before(run_record),
        ),
        unfinished=samples.unfinished,
        limited=_is_limited(run_record),
    )


class _RateGate(Struct, frozen=True, kw_only=True):
    """The rate or mean score of an arm on a runner, and what is asked of it.

    The gate says too how many share its error, and whether all of its trials errored.
    """

    rate: Interval
    least: float
    gated: GateAnswer
    sharing: int
    silent: bool


def _ask_rates(
    samples: RunSamples, least: float, words: Callable[[Interval, float], str], *, per_runner: bool
) -> Iterator[_RateGate]:
    every = rates_of(samples, per_runner=per_runner)
    asked = [(arm.arm, arm.runner) for arm in asked_arms(samples)]
    rates = {key: every[key] for key in asked if key in every}
    if not rates:
        raise UsageError(f"no trial of {samples.name} counts, so it has no rate")
    for (arm, runner), rate in rates.items():
        trials = samples.of_arm(arm)[runner]
        reason = f"{arm} on {runner}: {words(rate, least)}{_errors_text(trials)}"
        yield _RateGate(
            rate=rate,
            least=least,
            gated=GateAnswer(answer=gate_rate(rate, least), reason=reason),
            sharing=rates_sharing(samples, runner, per_runner=per_runner),
            silent=all(trial.value is None for trial in trials),
        )


def _name_arm(rates: dict[tuple[str, str], Interval]) -> dict[str, Interval]:
    return {f"{arm}@{runner}": rate for (arm, runner), rate in rates.items()}


def _before(run: _Recorded | None) -> Iterator[str]:
    """Yield how many earlier runs asked the same: who runs again until a gate passes has found luck."""
    earlier = runs_before(run) if isinstance(run, RecordedRun) else ()
    if earlier:
        runs, are = count(len(earlier), "earlier run"), "is" if len(earlier) == 1 else "are"
        yield f"{runs} of the same arms {are} not counted; make a run longer (--add-trials) instead of repeating it"


def _is_limited(run: _Recorded | None) -> bool:
    """Return whether money may have ended a run."""
    return isinstance(run, RecordedRun) and run.asked.setting(_MONEY) not in (None, "unlimited")


def _errors_text(trials: Sequence[Sampled]) -> str:
    errors = sum(trial.value is None for trial in trials)
    return f"; {errors} of {count(len(trials), 'trial')} errored, and count both ways" if errors else ""


def _compare_with_baseline(
    names: Sequence[str], settings: Settings, baseline: str, splits: Sequence[Part], **how: Any
) -> RunComparison:
    if len(names) > 1:
        raise UsageError("--baseline compares one run with what is stored", hint="whet gate RUN --baseline NAME")
    run = run_with_trials(names[0] if names else "latest", settings)
    baseline_file = read_baseline(baseline_path(_project(settings), baseline))
    if not how["shared"] and baseline_file.suite_digest != run.asked.suite_digest:
        raise UsageError(
            f"the suite has changed since the baseline {baseline} was stored",
            hint=f"store it again: whet baseline save {baseline}; or compare the cases that both have with --shared",
        )
    samples = _samples(run, settings, splits)
    if baseline_file.run_id == samples.name:
        itself = f"the baseline {baseline} is of this run, which is compared with itself"
        samples = replace(samples, notes=(itself, *samples.notes))
    compared = compare_across(of_parts(baseline_file.samples(), splits), samples, **how)
    return with_labels(compared, baseline_file, run)


def _project(settings: Settings) -> Path:
    return settings.file.parent if settings.file else Path.cwd()


def store_baseline(name: str, run: str, settings: Settings) -> StoredBaseline:
    """Store every arm of *run* under *name*; returns what was stored, and where."""
    run_record = run_with_trials(run, settings)
    samples = run_record.samples()
    if samples.unfinished:
        raise UsageError(
            f"{samples.name} is not finished, and the trials that are missing may be those that go otherwise",
            hint=f"finish it first: whet {samples.command} --resume {samples.name}",
        )
    if all(trial.value is None for arm in samples.arms for trial in arm.trials):
        raise UsageError(
            f"all trials of {samples.name} errored, so that nothing can be compared with them",
            hint="mend what made them error, and run it again",
        )
    path = baseline_path(_project(settings), name)
    save_baseline(
        path,
        samples,
        suite=run_record.asked.suite or "",
        digest=run_record.asked.suite_digest,
        saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
        statements=stored_statements(run_record),
    )
    return StoredBaseline(
        name=name,
        file=str(path),
        run=samples.name,
        arms=tuple(samples.names),
        trials=sum(len(arm.trials) for arm in samples.arms),
    )

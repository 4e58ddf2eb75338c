"""Answer `whet compare`, `gate` and `baseline` from recorded runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from whet.dataclass import dataclass
from whet.errors import StoreError, UsageError
from whet.grade.comparison import comparisons_of
from whet.grade.doubts import error_of_judge
from whet.grade.gate import (
    EXIT_CODES,
    Answer,
    Gated,
    More,
    gate_comparison,
    gate_cost,
    gate_like_these,
    gate_rate,
    more_for_cost,
    more_for_rate,
    more_to_decide,
    passing,
    rates_of,
    worst,
)
from whet.model import wire
from whet.model.benchmark import Interval
from whet.model.comparison import MOST_ROUNDS, RunSamples, Sampled
from whet.model.request import Settings
from whet.reading.text import count, duration, money, path_for_people, percent
from whet.record.baselines import baseline_path, read_baseline, save_baseline
from whet.record.batches import RecordedBatch, find_runs, read_recorded
from whet.record.past_runs import runs_before
from whet.record.recorded_run import RecordedRun
from whet.report.between_runs import Compared, compare_across, some_of
from whet.report.comparison import sentence

_RUN_AND_ARMS, _TWO = 3, 2
_Recorded: TypeAlias = RecordedRun | RecordedBatch
_MONEY = "run.max_cost_usd"
_HARDLY = "more trials of this run would hardly decide it"
_ERRORED = "more trials would error too: mend what made them error, and run it again"
_TOGETHER = (
    "to decide it, run both with more trials, best as arms of one run: whet run SUITE --arm old=... --arm new=..."
)


def compare(
    names: Sequence[str], settings: Settings, *, margin: float, shared: bool = False, per_runner: bool = False
) -> Compared:
    """Compare what *names* say: arms of the newest run or of a run, or two runs."""
    if len(names) > _RUN_AND_ARMS:
        raise UsageError("name a run and two arms at most", hint="whet compare RUN A B")
    if len(names) == _TWO and all(_is_run(name, settings) for name in names):
        before, after = (run_with_trials(name, settings) for name in names)
        return _compare_runs(before, after, settings, margin=margin, shared=shared, per_runner=per_runner)
    named = len(names) in {1, _RUN_AND_ARMS} or (names and _is_run(names[0], settings))
    run, *arms = names if named else ("latest", *names)
    recorded = run_with_trials(run, settings)
    samples = _samples(recorded, settings)
    if len(arms) == 1 or len(set(arms)) < len(arms):
        raise UsageError("name two arms to compare", hint=f"the arms of {samples.name} are {', '.join(samples.names)}")
    _must_know(arms, samples)
    if len(samples.names) < _TWO:
        raise UsageError(
            f"{samples.name} has one arm, so there is nothing to compare",
            hint="run it with --arm old=... --arm new=..., name two runs, or ask for a rate with gate --min-rate",
        )
    own = recorded if isinstance(recorded, RecordedRun) else None
    found = comparisons_of(
        samples, baseline=arms[0] if arms else None, candidates=tuple(arms[1:]), margin=margin, per_runner=per_runner
    )
    return Compared(samples=samples, comparisons=some_of(found, samples), run=own)


def _must_know(arms: Sequence[str], samples: RunSamples) -> None:
    unknown = [arm for arm in arms if arm not in samples.names]
    if unknown:
        known = ", ".join(samples.names)
        raise UsageError(f'{samples.name} has no arm or run called "{unknown[0]}"', hint=f"its arms are {known}")


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


def _samples(run: _Recorded, settings: Settings) -> RunSamples:
    """Return what a run says; what the settings say of the judge by now outranks what they said then."""
    samples, error = run.samples(), error_of_judge(settings.judge)
    return samples if error is None else replace(samples, judge_error=error)


def _compare_runs(before: _Recorded, after: _Recorded, settings: Settings, **how: Any) -> Compared:
    """Compare the arms of the same name of two runs, or their only ones."""
    if before.run_dir == after.run_dir:
        raise UsageError(f"{before.run_dir.name} is one run", hint="name another one to compare it with")
    if not how["shared"]:
        _refuse_other_suite(before, after)
    return compare_across(_samples(before, settings), _samples(after, settings), **how)


def _refuse_other_suite(before: _Recorded, after: _Recorded) -> None:
    if before.asked.suite_digest != after.asked.suite_digest:
        raise UsageError(
            f"{before.run_dir.name} and {after.run_dir.name} are not of the same suite, or it has changed between them",
            hint="--shared compares them on the cases that both have",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOutcome:
    """What a gate answers, and why."""

    gated: tuple[Gated, ...]
    compared: Compared | None = None
    # The shares of trials that pass, and the mean scores, if they were asked for.
    rates: dict[str, Interval] | None = None
    scores: dict[str, Interval] | None = None
    more: More | None = None
    # If no more trials of the run would decide, what would.
    otherwise: str = _HARDLY
    run: str | None = None
    # What makes it longer: `whet run` or `whet eval`.
    command: str = "run"
    # What a reader must know before relying on it, and the runs of which trials are missing.
    notes: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    # Whether money may have ended it.
    limited: bool = False
    # The command of a new run, for one until decided that has made its looks.
    afresh: str | None = None

    @property
    def answer(self) -> Answer:
        """The answer of everything together; a run that was cut short lets nothing pass: no look was planned there."""
        found = worst(each.answer for each in self.gated)
        return "unknown" if found == "pass" and self.unfinished else found

    @property
    def code(self) -> int:
        """The exit code."""
        return EXIT_CODES[self.answer]

    def lines(self) -> Iterator[str]:
        """Yield the answer, why, and what would decide it."""
        words: dict[Answer, str] = {"pass": "pass", "fail": "fail", "unknown": "not known yet"}
        yield f"gate: {words[self.answer]}"
        # Both the answer and the sentence begin with that.
        reasons = (each.reason.removeprefix(f"{words['unknown']} ") for each in self.gated)
        yield from (f"  {words[each.answer]:13}  {why}" for each, why in zip(self.gated, reasons, strict=True))
        yield from (f"  {'note':13}  {note}" for note in self.notes)
        if self.answer == "unknown":
            yield f"  {self.advice}"

    @property
    def advice(self) -> str:
        """What would decide it, and what that costs."""
        if self.unfinished:
            limit = " --max-cost USD" if self.limited else ""
            return f"finish the run first: whet {self.command} --resume {self.unfinished[0]}{limit}"
        if self.more is None or self.run is None:
            return self.otherwise
        cost = "" if self.more.cost_usd is None else f", about {money(self.more.cost_usd)}"
        hours = "" if self.more.hours is None else f", about {duration(self.more.hours * 3600)}"
        if self.afresh is not None:
            return f"to decide it in 8 of 10 such runs, start a new one: {self.afresh}{cost}{hours}"
        longer = f"whet {self.command} --resume {self.run} --add-trials {self.more.trials}"
        return f"to decide it in 8 of 10 such runs: {longer}{cost}{hours}"

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {
            "schema": "whet/gate/1",
            "answer": self.answer,
            "exit_code": self.code,
            "gated": self.gated,
            "rates": self.rates,
            "scores": self.scores,
            "comparison": self.compared.document() if self.compared else None,
            "more": self.more,
            "notes": self.notes,
        }


def gate(
    names: Sequence[str],
    settings: Settings,
    *,
    margin: float,
    shared: bool = False,
    per_runner: bool = False,
    like_these: bool = False,
    max_cost_ratio: float | None = None,
    min_rate: float | None = None,
    min_score: float | None = None,
    baseline: str | None = None,
) -> GateOutcome:
    """Decide whether a candidate may take the place of its baseline, or whether a rate is high enough."""
    if min_rate is not None or min_score is not None:
        return _gate_rates(names, settings, min_rate, min_score)
    if baseline is not None:
        compared = _compare_with_baseline(
            names, settings, baseline, margin=margin, shared=shared, per_runner=per_runner
        )
    else:
        compared = compare(names, settings, margin=margin, shared=shared, per_runner=per_runner)
    gated = [Gated(answer=gate_comparison(found), reason=sentence(found)) for found in compared.comparisons]
    if like_these:
        gated += map(gate_like_these, compared.comparisons)
    if max_cost_ratio is not None:
        gated += (gate_cost(found, max_cost_ratio) for found in compared.comparisons)
    # More trials of one run say little if the other side does not grow with it.
    own = all(found.interleaved for found in compared.comparisons)
    errored = any(found.errored.decisive and gate_comparison(found) == "unknown" for found in compared.comparisons)
    more = _more_of(compared, max_cost_ratio, settings.max_parallel) if own and not errored else None
    return GateOutcome(
        gated=tuple(gated),
        compared=compared,
        more=more,
        otherwise=_ERRORED if errored else _HARDLY if own else _TOGETHER,
        run=compared.samples.name,
        command=compared.samples.command,
        notes=(*dict.fromkeys(note for found in compared.comparisons for note in found.notes), *_before(compared.run)),
        unfinished=compared.samples.unfinished,
        limited=_limited(compared.run),
        afresh=_afresh(compared.run, more),
    )


def _more_of(compared: Compared, max_cost_ratio: float | None, parallel: int) -> More | None:
    """Return how many more trials would answer all that is open; None if they would not."""
    samples = compared.samples
    needed = [
        more_to_decide(found, samples, parallel=parallel)
        for found in compared.comparisons
        if gate_comparison(found) == "unknown"
    ]
    if max_cost_ratio is not None:
        needed += (
            more_for_cost(found, max_cost_ratio, samples, parallel=parallel)
            for found in compared.comparisons
            if gate_cost(found, max_cost_ratio).answer == "unknown"
        )
    return _most(needed)


def _most(needed: Sequence[More | None]) -> More | None:
    known = [each for each in needed if each is not None]
    return max(known, key=lambda each: each.trials) if known and len(known) == len(needed) else None


def _afresh(run: RecordedRun | None, more: More | None) -> str | None:
    """Return the command that starts *run* anew with so many rounds, if it ran until decided."""
    if run is None or run.asked.until is None or more is None:
        return None
    until, typed = run.asked.until, run.asked.typed.again or (path_for_people(run.suite, Path.cwd()),)
    start = ("whet", run.asked.command or "run", *typed)
    if more.trials > MOST_ROUNDS:
        return shlex.join((*start, "--runs" if run.asked.command == "bench" else "--trials", str(more.trials)))
    margin = () if until.margin is None else ("--margin", f"{100 * until.margin:g}")
    effect = ("--effect", f"{100 * until.effect:g}")
    return shlex.join((*start, "--until-decided", *effect, *margin, "--max-rounds", str(more.trials)))


def _gate_rates(
    names: Sequence[str], settings: Settings, min_rate: float | None, min_score: float | None
) -> GateOutcome:
    """Ask for the share of trials that pass, for the mean score, or for both."""
    if len(names) > 1:
        raise UsageError("--min-rate and --min-score look at one run", hint="whet gate RUN --min-rate 80")
    recorded = run_with_trials(names[0] if names else "latest", settings)
    samples = _samples(recorded, settings)
    asked = [
        *(_ask_rates(passing(samples), min_rate, _rate_words) if min_rate is not None else ()),
        *(_ask_rates(samples, min_score, _score_words) if min_score is not None else ()),
    ]
    silent = any(each.silent for each in asked)
    more = _most(
        [
            more_for_rate(each.rate, each.least, samples, parallel=settings.max_parallel)
            for each in asked
            if each.gated.answer == "unknown"
        ]
    )
    return GateOutcome(
        gated=tuple(each.gated for each in asked),
        rates=None if min_rate is None else _named(rates_of(passing(samples))),
        scores=None if min_score is None else _named(rates_of(samples)),
        more=None if silent else more,
        otherwise=_ERRORED if silent else _HARDLY,
        run=samples.name,
        command=samples.command,
        notes=(*samples.notes, *_before(recorded)),
        unfinished=samples.unfinished,
        limited=_limited(recorded),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _AskedRate:
    """The rate or mean score of an arm on a runner, what is asked of it, and whether all of its trials errored."""

    rate: Interval
    least: float
    gated: Gated
    silent: bool


def _ask_rates(samples: RunSamples, least: float, words: Callable[[Interval, float], str]) -> Iterator[_AskedRate]:
    # What a baseline does is no reason to hold a candidate back.
    rates = {
        key: rate for key, rate in rates_of(samples).items() if len(samples.names) == 1 or key[0] != samples.names[0]
    }
    if not rates:
        raise UsageError(f"no trial of {samples.name} counts, so it has no rate")
    for (arm, runner), rate in rates.items():
        trials = samples.of_arm(arm)[runner]
        reason = f"{arm} on {runner}: {words(rate, least)}{_errored(trials)}"
        yield _AskedRate(
            rate=rate,
            least=least,
            gated=Gated(answer=gate_rate(rate, least), reason=reason),
            silent=all(trial.value is None for trial in trials),
        )


def _rate_words(rate: Interval, least: float) -> str:
    seen = f"{percent(rate.value)} of trials pass ({percent(rate.low)} to {percent(rate.high)} on these cases)"
    return f"{seen}, and {percent(least)} is asked for"


def _score_words(rate: Interval, least: float) -> str:
    seen = f"the mean score is {rate.value:.2f} ({rate.low:.2f} to {rate.high:.2f} on these cases)"
    return f"{seen}, and {least:g} is asked for"


def _named(rates: dict[tuple[str, str], Interval]) -> dict[str, Interval]:
    return {f"{arm}@{runner}": rate for (arm, runner), rate in rates.items()}


def _before(run: _Recorded | None) -> Iterator[str]:
    """Yield how many earlier runs asked the same: who runs again until a gate passes has found luck."""
    earlier = runs_before(run) if isinstance(run, RecordedRun) else ()
    if earlier:
        runs, are = count(len(earlier), "earlier run"), "is" if len(earlier) == 1 else "are"
        yield f"{runs} of the same arms {are} not counted; make a run longer (--add-trials) instead of repeating it"


def _limited(run: _Recorded | None) -> bool:
    """Return whether money may have ended a run."""
    return isinstance(run, RecordedRun) and run.asked.setting(_MONEY) not in (None, "unlimited")


def _errored(trials: Sequence[Sampled]) -> str:
    errored = sum(trial.value is None for trial in trials)
    return f"; {errored} of {count(len(trials), 'trial')} errored, and count both ways" if errored else ""


def _compare_with_baseline(
    names: Sequence[str], settings: Settings, baseline: str, *, margin: float, shared: bool, per_runner: bool
) -> Compared:
    if len(names) > 1:
        raise UsageError("--baseline compares one run with what is stored", hint="whet gate RUN --baseline NAME")
    run = run_with_trials(names[0] if names else "latest", settings)
    stored = read_baseline(baseline_path(_project(settings), baseline))
    if not shared and stored.suite_digest != run.asked.suite_digest:
        raise UsageError(
            f"the suite has changed since the baseline {baseline} was stored",
            hint=f"store it again: whet baseline save {baseline}; or compare the cases that both have with --shared",
        )
    samples = _samples(run, settings)
    if stored.run_id == samples.name:
        itself = f"the baseline {baseline} is of this run, which is compared with itself"
        samples = replace(samples, notes=(itself, *samples.notes))
    return compare_across(stored.samples(), samples, margin=margin, shared=shared, per_runner=per_runner)


def _project(settings: Settings) -> Path:
    return settings.file.parent if settings.file else Path.cwd()


def store_baseline(name: str, run: str, settings: Settings) -> str:
    """Store every arm of *run* under *name*; returns what was done, in a sentence."""
    recorded = run_with_trials(run, settings)
    samples = recorded.samples()
    if samples.unfinished:
        raise UsageError(
            f"{samples.name} is not finished, and the trials that are missing may be those that go otherwise",
            hint=f"finish it first: whet {samples.command} --resume {samples.name}",
        )
    if all(trial.value is None for each in samples.arms for trial in each.trials):
        raise UsageError(
            f"all trials of {samples.name} errored, so that nothing can be compared with them",
            hint="mend what made them error, and run it again",
        )
    path = baseline_path(_project(settings), name)
    save_baseline(
        path,
        samples,
        suite=recorded.asked.suite or "",
        digest=recorded.asked.suite_digest,
        saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    trials = sum(len(each.trials) for each in samples.arms)
    return f"{path}: {count(len(samples.names), 'arm')}, {count(trials, 'trial')} of {samples.name}"


def encode(document: dict[str, Any]) -> str:
    """Return a document as JSON text."""
    return wire.encode_pretty(document).decode()

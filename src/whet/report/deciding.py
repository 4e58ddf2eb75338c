"""Answer `whet compare`, `gate`, `plan` and `baseline` from recorded runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import floor
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import StoreError, UsageError
from whet.grade.comparison import comparisons_of
from whet.grade.gate import (
    EXIT_CODES,
    Answer,
    Gated,
    More,
    gate_comparison,
    gate_cost,
    gate_rate,
    more_to_decide,
    rates_of,
    worst,
)
from whet.grade.sequential import USUAL_SPREAD, Needed, effect_within_reach, trials_needed
from whet.model import wire
from whet.model.comparison import Comparison, RunSamples
from whet.model.request import Settings
from whet.reading.text import count, duration, money, percent
from whet.record.baselines import baseline_path, read_baseline, save_baseline
from whet.record.folder import find_run_folder
from whet.record.recorded_run import RecordedRun, newest_run, read_run
from whet.report.comparison import comparison_lines, comparisons_document, points, sentence
from whet.suites.format import load_suite

_RUN_AND_ARMS, _TWO = 3, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What was compared: the trials, and what came of it."""

    samples: RunSamples
    comparisons: tuple[Comparison, ...]

    def lines(self) -> Iterator[str]:
        """Yield all that was found, in words."""
        for number, found in enumerate(self.comparisons):
            yield from ("",) if number else ()
            yield from comparison_lines(found)

    def document(self) -> dict[str, Any]:
        """Return what was found as JSON."""
        return comparisons_document(self.comparisons)


def compare(names: Sequence[str], settings: Settings, *, margin: float, shared: bool = False) -> Compared:
    """Compare what *names* say: arms of the newest run or of a run, or two runs."""
    if len(names) > _RUN_AND_ARMS:
        raise UsageError("name a run and two arms at most", hint="whet compare RUN A B")
    if len(names) == _TWO and all(_is_run(name, settings) for name in names):
        return _compare_runs(*(_run(name, settings) for name in names), margin=margin, shared=shared)
    named = len(names) in {1, _RUN_AND_ARMS} or (names and _is_run(names[0], settings))
    run, *arms = names if named else ("latest", *names)
    samples = _run(run, settings).samples()
    if len(arms) == 1 or len(set(arms)) < len(arms):
        raise UsageError("name two arms to compare", hint=f"the arms of {samples.name} are {', '.join(samples.names)}")
    _must_know(arms, samples)
    if len(samples.names) < _TWO:
        raise UsageError(
            f"{samples.name} has one arm, so there is nothing to compare",
            hint="run it with --arm old=... --arm new=..., name two runs, or ask for a rate with gate --min-rate",
        )
    found = comparisons_of(samples, baseline=arms[0] if arms else None, candidates=tuple(arms[1:]), margin=margin)
    return Compared(samples=samples, comparisons=_some(found, samples))


def _some(found: tuple[Comparison, ...], samples: RunSamples) -> tuple[Comparison, ...]:
    if not found:
        raise UsageError(f"no case of {samples.name} has a trial that counts in both arms")
    return found


def _must_know(arms: Sequence[str], samples: RunSamples) -> None:
    unknown = [arm for arm in arms if arm not in samples.names]
    if unknown:
        known = ", ".join(samples.names)
        raise UsageError(f'{samples.name} has no arm or run called "{unknown[0]}"', hint=f"its arms are {known}")


def _is_run(name: str, settings: Settings) -> bool:
    try:
        find_run_folder(name, settings.output_dir)
    except (UsageError, StoreError):
        return False
    return True


def _run(name: str, settings: Settings) -> RecordedRun:
    run = read_run(find_run_folder(name, settings.output_dir))
    run.refuse_empty()
    return run


def _compare_runs(before: RecordedRun, after: RecordedRun, *, margin: float, shared: bool) -> Compared:
    """Compare the arms of the same name of two runs, or their only ones."""
    if before.run_dir == after.run_dir:
        raise UsageError(f"{before.run_dir.name} is one run", hint="name another one to compare it with")
    if not shared:
        _refuse_other_suite(before, after)
    return _across(before.samples(), after.samples(), margin=margin)


def _refuse_other_suite(before: RecordedRun, after: RecordedRun) -> None:
    if before.asked.suite_digest != after.asked.suite_digest:
        raise UsageError(
            f"{before.run_dir.name} and {after.run_dir.name} are not of the same suite, or it has changed between them",
            hint="--shared compares them on the cases that both have",
        )


def _across(before: RunSamples, after: RunSamples, *, margin: float) -> Compared:
    """Compare two sets of trials that ran at different times, arm by arm."""
    pairs = [(name, name) for name in after.names if name in before.names]
    if not pairs and len(before.names) == len(after.names) == 1:
        pairs = [(before.names[0], after.names[0])]
    if not pairs:
        raise UsageError(f"{before.name} and {after.name} have no arm of the same name")
    found: list[Comparison] = []
    notes = ("the arms ran at different times, so a change of the provider or the machine between them counts too",)
    for old, new in pairs:
        names = (before.name, after.name) if len(pairs) == 1 else (f"{before.name} {old}", f"{after.name} {new}")
        both = RunSamples(
            name=after.name,
            arms=(
                *(replace(each, arm=names[0]) for each in before.arms if each.arm == old),
                *(replace(each, arm=names[1]) for each in after.arms if each.arm == new),
            ),
            weights={**before.weights, **after.weights},
            grown_from=before.grown_from or after.grown_from,
            interleaved=False,
            notes=(*notes, *before.notes, *after.notes),
        )
        found += comparisons_of(both, margin=margin)
    return Compared(samples=after, comparisons=_some(tuple(found), after))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOutcome:
    """What a gate answers, and why."""

    gated: tuple[Gated, ...]
    compared: Compared | None = None
    rates: dict[str, Any] | None = None
    more: More | None = None
    run: str | None = None
    unfinished: bool = False

    @property
    def answer(self) -> Answer:
        """The answer of everything together."""
        return worst(each.answer for each in self.gated)

    @property
    def code(self) -> int:
        """The exit code."""
        return EXIT_CODES[self.answer]

    def lines(self) -> Iterator[str]:
        """Yield the answer, why, and what would decide it."""
        words: dict[Answer, str] = {"pass": "pass", "fail": "fail", "unknown": "not known yet"}
        yield f"gate: {words[self.answer]}"
        yield from (f"  {words[each.answer]:13}  {each.reason}" for each in self.gated)
        if self.answer == "unknown":
            yield f"  {self.advice}"

    @property
    def advice(self) -> str:
        """What would decide it, and what that costs."""
        if self.unfinished:
            return f"finish the run first: whet run --resume {self.run}"
        if self.more is None or self.run is None:
            return "more trials of this run would hardly decide it"
        cost = "" if self.more.cost_usd is None else f", about {money(self.more.cost_usd)}"
        hours = "" if self.more.hours is None else f", about {duration(self.more.hours * 3600)}"
        return f"to decide it: whet run --resume {self.run} --add-trials {self.more.trials}{cost}{hours}"

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {
            "schema": "whet/gate/1",
            "answer": self.answer,
            "exit_code": self.code,
            "gated": self.gated,
            "rates": self.rates,
            "comparison": self.compared.document() if self.compared else None,
            "more": self.more,
        }


def gate(
    names: Sequence[str],
    settings: Settings,
    *,
    margin: float,
    shared: bool = False,
    max_cost_ratio: float | None = None,
    min_rate: float | None = None,
    baseline: str | None = None,
) -> GateOutcome:
    """Decide whether a candidate may take the place of its baseline, or whether a rate is high enough."""
    if min_rate is not None:
        return _gate_rate(names, settings, min_rate)
    if baseline is not None:
        compared = _compare_with_baseline(names, settings, baseline, margin=margin, shared=shared)
    else:
        compared = compare(names, settings, margin=margin, shared=shared)
    gated = [Gated(answer=gate_comparison(found), reason=sentence(found)) for found in compared.comparisons]
    if max_cost_ratio is not None:
        gated += (gate_cost(found, max_cost_ratio) for found in compared.comparisons)
    open_ones = [found for found in compared.comparisons if found.verdict == "inconclusive"]
    more = [more_to_decide(found, compared.samples, parallel=settings.max_parallel) for found in open_ones]
    known = [each for each in more if each is not None]
    own = all(found.interleaved for found in compared.comparisons)
    return GateOutcome(
        gated=tuple(gated),
        compared=compared,
        # More trials of one run say little if the other side does not grow with it.
        more=max(known, key=lambda each: each.trials) if known and len(known) == len(more) and own else None,
        run=compared.samples.name,
        unfinished=any("not finished" in note for found in compared.comparisons for note in found.notes),
    )


def _gate_rate(names: Sequence[str], settings: Settings, least: float) -> GateOutcome:
    if len(names) > 1:
        raise UsageError("--min-rate looks at one run", hint="whet gate RUN --min-rate 80")
    samples = _run(names[0] if names else "latest", settings).samples()
    rates = rates_of(samples)
    if not rates:
        raise UsageError(f"no trial of {samples.name} counts, so it has no rate")
    gated = tuple(
        Gated(
            answer=gate_rate(rate, least),
            reason=f"{arm} on {runner}: {percent(rate.value)} ({percent(rate.low)} to {percent(rate.high)}), "
            f"and {percent(least)} is asked for",
        )
        for (arm, runner), rate in rates.items()
    )
    shown = {f"{arm}@{runner}": rate for (arm, runner), rate in rates.items()}
    return GateOutcome(gated=gated, rates=shown, run=samples.name)


def _compare_with_baseline(
    names: Sequence[str], settings: Settings, baseline: str, *, margin: float, shared: bool
) -> Compared:
    if len(names) > 1:
        raise UsageError("--baseline compares one run with what is stored", hint="whet gate RUN --baseline NAME")
    run = _run(names[0] if names else "latest", settings)
    stored = read_baseline(baseline_path(_project(settings), baseline))
    if not shared and stored.suite_digest != run.asked.suite_digest:
        raise UsageError(
            f"the suite has changed since the baseline {baseline} was stored",
            hint=f"store it again: whet baseline save {baseline}; or compare the cases that both have with --shared",
        )
    return _across(stored.samples(), run.samples(), margin=margin)


def _project(settings: Settings) -> Path:
    return settings.file.parent if settings.file else Path.cwd()


def store_baseline(name: str, run: str, settings: Settings) -> str:
    """Store every arm of *run* under *name*; returns what was done, in a sentence."""
    recorded = _run(run, settings)
    samples = recorded.samples()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """What a decision takes: trials per case and arm, and per trial dollars and seconds as far as they are known."""

    suite: Path
    effect: float
    power: float
    cases: int
    arms: int
    needed: Needed
    parallel: int
    pilot: str | None
    cost_usd: float | None
    seconds: float | None
    max_cost: float | None
    spread: float

    def lines(self) -> Iterator[str]:
        """Yield the plan in words."""
        effect = f"{points(self.effect, sign=False)} points"
        yield f"To find a difference of {effect} in {count(self.cases, 'case')} in {percent(self.power)} of runs:"
        whole = count(self._trials(self.needed.trials), "trial")
        trials = f"{_range(str(self.needed.least), str(self.needed.most))} trials per case and arm"
        yield f"  {trials}; plan {self.needed.trials}, which is {whole} in {self.arms} arms"
        if self.cost_usd is not None:
            yield f"  {_range(money(self._cost(self.needed.least)), money(self._cost(self.needed.most)))}"
        if self.seconds is not None:
            hours = [
                duration(self._trials(n) * self.seconds / self.parallel) for n in (self.needed.least, self.needed.most)
            ]
            yield f"  {_range(*hours)}, with {self.parallel} at a time"
        if self.pilot:
            yield f"  learned from {self.pilot}"
        else:
            yield "  no run to learn from yet: this is for cases that pass 70 % of the time"
        if self.max_cost is not None:
            yield self._affordable()
        yield f"  next: whet run {self.suite} --trials {self.needed.trials} --arm old=... --arm new=..."

    def _trials(self, each: int) -> int:
        return each * self.cases * self.arms

    def _cost(self, each: int) -> float:
        assert self.cost_usd is not None
        return self._trials(each) * self.cost_usd

    def _affordable(self) -> str:
        assert self.max_cost is not None
        if not self.cost_usd:
            return "  what the money can decide is not known: no run says what a trial costs"
        trials = floor(self.max_cost / (self.cases * self.arms * self.cost_usd))
        if trials < 1:
            return f"  {money(self.max_cost)} does not pay for one trial of each case in each arm"
        reach = effect_within_reach(self.cases, self.spread, trials, power=self.power)
        paid = f"{money(self.max_cost)} pays for {count(trials, 'trial')} per case and arm"
        return f"  {paid}, which find {points(reach, sign=False)} points or more"

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        cost = (
            None
            if self.cost_usd is None
            else {"low": self._cost(self.needed.least), "high": self._cost(self.needed.most)}
        )
        return {
            "schema": "whet/plan/1",
            "effect": self.effect,
            "power": self.power,
            "cases": self.cases,
            "arms": self.arms,
            "trials": self.needed.trials,
            "low": self.needed.least,
            "high": self.needed.most,
            "cost_usd": cost,
            "seconds": None
            if self.seconds is None
            else self._trials(self.needed.trials) * self.seconds / self.parallel,
            "pilot": self.pilot,
        }


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def plan_trials(
    suite: Path,
    settings: Settings,
    *,
    effect: float,
    power: float,
    arms: int,
    pilot: str | None,
    max_cost: float | None,
) -> TrialPlan:
    """Plan a comparison on *suite*, from the run *pilot* or else the newest of the suite."""
    cases = sum(case.weight > 0 for case in load_suite(suite).cases)
    if not cases:
        raise UsageError(f"{suite} has no cases to compare")
    run = _run(pilot, settings) if pilot is not None else _newest(suite, settings)
    trials = [trial for arm in run.samples().arms for trial in arm.trials] if run else []
    costs = [trial.cost_usd for trial in trials if trial.cost_usd is not None]
    times = [trial.seconds for trial in trials if trial.seconds is not None]
    spread, seen = _spread(run.samples()) if run else (USUAL_SPREAD, None)
    return TrialPlan(
        suite=suite,
        effect=effect,
        power=power,
        cases=cases,
        arms=arms,
        needed=trials_needed(cases, spread, effect, power=power, seen=seen),
        parallel=settings.max_parallel,
        pilot=run.run_dir.name if run else None,
        cost_usd=sum(costs) / len(costs) if costs else None,
        seconds=sum(times) / len(times) if times else None,
        max_cost=max_cost,
        spread=spread,
    )


def _newest(suite: Path, settings: Settings) -> RecordedRun | None:
    try:
        return newest_run(settings.output_dir, suite.resolve())
    except UsageError:
        return None


def _spread(samples: RunSamples) -> tuple[float, int | None]:
    """Return the variance within cases of two arms, and from how many trials it is known."""
    names = samples.names
    found = comparisons_of(samples)[:1] if len(names) > 1 else comparisons_of(_twice(samples))[:1]
    if not found:
        return USUAL_SPREAD, None
    trials = sum(trial.value is not None for arm in samples.arms for trial in arm.trials)
    return found[0].spread, trials


def _twice(samples: RunSamples) -> RunSamples:
    """Return a run of one arm as two that are alike."""
    again = tuple(replace(each, arm=f"{each.arm} again") for each in samples.arms)
    return replace(samples, arms=(*samples.arms, *again))


def encode(document: dict[str, Any]) -> str:
    """Return a document as JSON text."""
    return wire.encode_pretty(document).decode()

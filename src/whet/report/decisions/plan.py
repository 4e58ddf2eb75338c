"""Answer `whet plan`: how many trials a decision takes, and what they cost."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from math import ceil, floor
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whet.decide.comparison import comparisons_of
from whet.decide.sequential import (
    RANGE_LEVEL,
    USUAL_SPREAD,
    TrialEstimate,
    alpha_of_each,
    effect_within_reach,
    trials_needed,
)
from whet.errors import SuiteError, UsageError
from whet.model.comparison import MOST_ROUNDS, RunSamples
from whet.model.request import Settings
from whet.model.suite import Part, Suite
from whet.plan.plan import refuse_unsplit
from whet.reading.text import count, duration, money, percent, points
from whet.record.read.run import RecordedRun, newest_run
from whet.report.decisions.compare import run_with_trials
from whet.report.decisions.documents import CostRange, PlanDocument
from whet.report.decisions.words import counts
from whet.report.screen import Screen, unbroken
from whet.suites.benchmark import as_suite, find_benchmark, read_benchmark
from whet.suites.format import load_suite

# A run that looks after each round needs so many times the rounds at most, and hardly saves any if there are few.
ROUNDS_AHEAD, _WORTH_LOOKING = 1.25, 5


class TrialPlan(Struct, frozen=True, kw_only=True):
    """What a decision takes: trials per case and arm, and per trial dollars and seconds as far as they are known."""

    suite: Path
    command: str
    effect: float
    power: float
    cases: int
    arms: int
    runners: int
    needed: TrialEstimate
    parallel: int
    pilot: str | None
    # As they were typed: none, if the suite or the settings have them.
    pilot_arms: tuple[str, ...] | None
    # How many of the cases the pilot ran.
    seen_cases: int
    cost_usd: float | None
    seconds: float | None
    max_cost: float | None
    spread: float
    # The parts of the suite that the cases are of; nothing: all.
    splits: tuple[Part, ...] = ()

    def lines(self, screen: Screen) -> Iterator[str]:
        """Yield the plan in words."""
        effect = f"{points(self.effect, sign=False)} points"
        cases = count(self.cases, f"{' or '.join(self.splits)} case".strip())
        yield f"To find a difference of {effect} in {cases} in {percent(self.power)} of runs:"
        total = count(self._trials(self.needed.trials), "trial")
        trials = f"{_range(str(self.needed.least), str(self.needed.most))} trials per case and arm"
        where = f"{self.arms} arms" + (f" on {self.runners} runners" if self.runners > 1 else "")
        sure = "in 8 of 10 such pilots the truth is within" if self.pilot else "for easier and harder cases"
        yield f"  {trials} ({sure}); {screen.paint(f'plan {self.needed.trials}', 'bold')}, which is {total} in {where}"
        if self.cost_usd is not None:
            yield f"  {_range(money(self._cost(self.needed.least)), money(self._cost(self.needed.most)))}"
        if self.seconds is not None:
            hours = [
                duration(self._trials(n) * self.seconds / self.parallel) for n in (self.needed.least, self.needed.most)
            ]
            yield f"  {_range(*hours)}, with {self.parallel} at a time"
        if self.pilot:
            part = f", in which {self.seen_cases} of them ran" if self.seen_cases < self.cases else ""
            yield f"  learned from {self.pilot}{part}"
        else:
            yield "  no run to learn from yet: this is for cases that pass 70 % of the time"
        if self.max_cost is not None:
            yield self._affordable()
        start = "whet run {} --trials {}" if self.command == "run" else "whet eval --benchmark {} --trials {}"
        command = f"{start.format(self._quoted_suite, self.needed.trials)}{self._split_options}{self._arm_options}"
        yield f"  next: {unbroken(command)}"
        rounds = ceil(ROUNDS_AHEAD * self.needed.trials)
        if self.command == "run" and _WORTH_LOOKING <= rounds <= MOST_ROUNDS:
            until = f"--until-decided --effect {points(self.effect, sign=False)} --max-rounds {rounds}"
            command = f"whet run {self._quoted_suite} {until}{self._split_options}{self._arm_options}"
            yield f"  or, fewer trials as a rule: {unbroken(command)}"

    @property
    def _quoted_suite(self) -> str:
        return shlex.quote(str(self.suite))

    @property
    def _arm_options(self) -> str:
        """Return the arms as the pilot was given them, or else names with a place for what they are."""
        if self.pilot_arms is not None:
            return "".join(f" --arm {shlex.quote(arm)}" for arm in self.pilot_arms)
        more = (f"new-{number}" for number in range(2, self.arms))
        return "".join(f" --arm {name}=..." for name in ("old", "new", *more))

    @property
    def _split_options(self) -> str:
        return "".join(map(" --split {}".format, self.splits))

    def _trials(self, per_case: int) -> int:
        return per_case * self.cases * self.arms * self.runners

    def _cost(self, per_case: int) -> float:
        assert self.cost_usd is not None
        return self._trials(per_case) * self.cost_usd

    def _affordable(self) -> str:
        assert self.max_cost is not None
        if not self.cost_usd:
            return "  what the money can decide is not known: no run says what a trial costs"
        trials = floor(self.max_cost / (self._trials(1) * self.cost_usd))
        if trials < 1:
            return f"  {money(self.max_cost)} does not pay for one trial of each case in each arm"
        reach = effect_within_reach(
            self.cases, self.spread, trials, power=self.power, alpha=_alpha(self.arms, self.runners)
        )
        text = f"{money(self.max_cost)} pays for {count(trials, 'trial')} per case and arm"
        precision = (
            "too few to find any difference" if reach >= 1 else f"which find {points(reach, sign=False)} points or more"
        )
        return f"  {text}, {precision}"

    def document(self) -> PlanDocument:
        """Return the plan as a document."""
        cost, seconds = None, None
        if self.cost_usd is not None:
            cost = CostRange(low=self._cost(self.needed.least), high=self._cost(self.needed.most))
        if self.seconds is not None:
            seconds = self._trials(self.needed.trials) * self.seconds / self.parallel
        return PlanDocument(
            suite=str(self.suite),
            effect=self.effect,
            power=self.power,
            cases=self.cases,
            arms=self.arms,
            runners=self.runners,
            level=RANGE_LEVEL if self.pilot else None,
            trials=self.needed.trials,
            low=self.needed.least,
            high=self.needed.most,
            cost_usd=cost,
            seconds=seconds,
            pilot=self.pilot,
            splits=self.splits,
        )


def _alpha(arms: int, runners: int) -> float:
    """Return the error of the first candidate to be decided: all of them, on all runners, share one (Holm)."""
    return alpha_of_each(arms - 1, runners)


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
    splits: tuple[Part, ...] = (),
) -> TrialPlan:
    """Plan a comparison on *suite*, from the run *pilot* or else the newest of the suite."""
    suite_cases, command = _load(suite)
    refuse_unsplit(suite_cases, splits)
    cases = sum(case.weight > 0 for case in suite_cases.cases if not splits or case.split in splits)
    if not cases:
        part = f"{' or '.join(splits)} cases" if splits else "cases"
        raise UsageError(f"{suite} has no {part} to compare")
    run = run_with_trials(pilot, settings) if pilot is not None else _newest(suite, settings)
    trials = [trial for arm in run.samples().arms for trial in arm.trials if trial.value is not None] if run else []
    if run and not trials:
        # Nothing is to be learned from it.
        _refuse_errored(run.run_dir.name, pilot)
        run = None
    # The command that is printed runs on all of them.
    runners = max(1, len(settings.runners)) if command == "run" else 1
    costs = [trial.cost_usd for trial in trials if trial.cost_usd is not None]
    times = [trial.seconds for trial in trials if trial.seconds is not None]
    spread, source = spread_of(run.samples()) if run else (USUAL_SPREAD, None)
    return TrialPlan(
        suite=suite,
        command=command,
        effect=effect,
        power=power,
        cases=cases,
        arms=arms,
        runners=runners,
        needed=trials_needed(cases, spread, effect, power=power, alpha=_alpha(arms, runners), pilot_trials=source),
        parallel=settings.max_parallel,
        pilot=run.run_dir.name if run else None,
        # Other arms need to be named by you.
        pilot_arms=run.asked.arms if run and len(run.asked.arm_facts) == arms else None,
        seen_cases=len({trial.case for trial in trials}),
        cost_usd=sum(costs) / len(costs) if costs else None,
        seconds=sum(times) / len(times) if times else None,
        max_cost=max_cost,
        spread=spread,
        splits=splits,
    )


def _refuse_errored(run: str, pilot: str | None) -> None:
    if pilot is not None:
        raise UsageError(
            f"all trials of {run} errored, so there is nothing to learn from it",
            hint="name another run, or leave out --from",
        )


def _load(suite: Path) -> tuple[Suite, str]:
    """Return a suite, or the benchmark at that path as one, and the command that runs it."""
    try:
        return load_suite(suite), "run"
    except SuiteError:
        # What is no benchmark either is a suite with these mistakes.
        with suppress(SuiteError, UsageError):
            return as_suite(read_benchmark(find_benchmark(str(suite), [])).benchmark, {}), "eval"
        raise


def _newest(suite: Path, settings: Settings) -> RecordedRun | None:
    """Return the newest run of *suite*; one of what failed last time if there is no other: it is no fair sample."""
    for of_failed in (False, True):
        with suppress(UsageError):
            return newest_run(settings.output_dir, suite.resolve(), of_failed=of_failed)
    return None


def spread_of(samples: RunSamples) -> tuple[float, int | None]:
    """Return the variance within cases of two arms, and from how many trials it is known."""
    names = samples.names
    comparisons = comparisons_of(samples)[:1] if len(names) > 1 else comparisons_of(_twice(samples))[:1]
    if not comparisons or not counts(comparisons[0]):
        return USUAL_SPREAD, None
    trials = sum(trial.value is not None for arm in samples.arms for trial in arm.trials)
    return comparisons[0].spread, trials


def _twice(samples: RunSamples) -> RunSamples:
    """Return a run of one arm as two that are alike."""
    again = tuple(replace(arm, arm=f"{arm.arm} again") for arm in samples.arms)
    return replace(samples, arms=(*samples.arms, *again))

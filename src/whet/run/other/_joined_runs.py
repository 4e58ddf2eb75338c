"""Several runs as one, for those who watch: one plan, one stream of events, one set of results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from os.path import commonpath
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whet.decide.loads.figures import figures_of
from whet.model.comparison import PairFigures, RoundAnalysis, Stop
from whet.model.grade import QueryLoads, TriggerFigures
from whet.model.run import AttemptResult, Execution, ExecutionKey, Plan, Trial, TrialKey, TrialResult
from whet.model.run_events import (
    ExecutionSummary,
    Notice,
    RunEnded,
    RunEvent,
    RunStarted,
    SessionSeen,
    TrialEnded,
    TrialStarted,
)
from whet.model.session import Usage
from whet.model.skills import SkillLoads
from whet.model.spending import Spending
from whet.model.suite import Suite
from whet.plan.load import PlannedRun
from whet.reading.text import count
from whet.record.document import RecordFacts
from whet.record.results import JournalResults
from whet.report.contract import Reporters


class Part(Struct, frozen=True, kw_only=True):
    """One run of several; `name` comes before the names of its cases."""

    name: str
    planned: PlannedRun
    # The name of the folder that all of them lie in.
    home: str

    def case(self, case: str) -> str:
        """Return what *case* is called beside the cases of other suites."""
        return f"{self.name}/{case}"

    def execution(self, execution: Execution) -> Execution:
        """Return *execution* under the name of its case."""
        return replace(execution, case=replace(execution.case, id=self.case(execution.case.id)))


def parts_of(planned_runs: Sequence[PlannedRun]) -> tuple[Part, ...]:
    """Give each run a name: that of its suite; if several have the same, with that of its skill or folder."""
    names = Counter(planned_run.suite.name for planned_run in planned_runs)
    run_names = (
        _dealt_name(planned_run)
        or (planned_run.suite.name if names[planned_run.suite.name] == 1 else _longer_name(planned_run))
        for planned_run in planned_runs
    )
    uses: Counter[str] = Counter()
    parts = []
    home = Path(commonpath([planned_run.suite.source for planned_run in planned_runs])).name or "suites"
    for name, planned_run in zip(run_names, planned_runs, strict=True):
        uses[name] += 1
        parts.append(Part(name=name if uses[name] == 1 else f"{name}~{uses[name]}", planned=planned_run, home=home))
    return tuple(parts)


def _dealt_name(planned_run: PlannedRun) -> str | None:
    """Return what a shard was called among all suites, which is the same in every shard."""
    pile = planned_run.earlier.run.asked.pile if planned_run.earlier else planned_run.origin.pile
    return pile.suite if pile else None


def _longer_name(planned_run: PlannedRun) -> str:
    source, skill = planned_run.suite.source, planned_run.suite.skill
    return f"{skill.source.name if skill else source.parent.name}/{source.stem}"


def join_plans(parts: Sequence[Part]) -> Plan:
    """Return the plans of all *parts* as one."""
    plans = [part.planned.plan for part in parts]
    first = plans[0]
    sources = [str(plan.suite.source) for plan in plans]
    # Suites without arms have no part in a comparison, and those that do not compare the same are not put together.
    comparing_plans = [plan for plan in plans if plan.baseline is not None]
    baselines = {plan.baseline for plan in comparing_plans}
    arms = {arm.name: arm for plan in comparing_plans or plans for arm in plan.arms}
    return replace(
        first,
        suite=Suite(
            name=count(len(parts), "suite"), cases=(), source=Path(commonpath(sources)), digest=first.suite.digest
        ),
        executions=tuple(part.execution(execution) for part in parts for execution in part.planned.plan.executions),
        schedule=first.schedule if len({plan.schedule for plan in plans}) == 1 else "serial",
        max_parallel=max(plan.max_parallel for plan in plans),
        retries=max(plan.retries for plan in plans),
        arms=tuple(arms.values()),
        voided={part.case(case): by for part in parts for case, by in part.planned.plan.voided.items()},
        warnings=tuple(dict.fromkeys(warning for part in parts for warning in part.planned.plan.warnings)),
        baseline=baselines.pop() if len(baselines) == 1 else None,
        whole=(),
    )


class Joining:
    """Takes the events of several runs and passes them on as those of one."""

    def __init__(self, reporters: Reporters) -> None:
        self.reporters = reporters
        self.done = 0
        self._begun = False
        # What runs say before they begin, and which of them.
        self._early: dict[Notice, list[str]] = {}
        self._parts: set[str] = set()

    def begin(self, run_start: RunStarted, notices: Iterable[str]) -> None:
        """Say what begins, with *notices*, and what the runs had to say before that; what several say is said once."""
        self._begun = True
        self.reporters(run_start)
        for text in notices:
            self.reporters(Notice(level="warning", message=text))
        for notice, names in self._early.items():
            self.reporters(notice if len(names) == len(self._parts) else _add_suite_names(notice, *names))

    def take(self, part: Part, event: RunEvent, *, place: str) -> None:
        """Pass on *event* of *part*, whose run is at *place*; each run begins and ends without a word."""
        match event:
            case RunStarted(done=done):
                self.done += done
                self._parts.add(part.name)
            case RunEnded():
                pass
            case Notice() if not self._begun:
                names = self._early.setdefault(event, [])
                names += [part.name] if part.name not in names else []
            case Notice(about_all=False) if len(self._parts) > 1:
                self.reporters(_add_suite_names(event, part.name))
            case TrialStarted(trial=trial):
                self.reporters(TrialStarted(trial=_trial(part, trial)))
            case SessionSeen(trial=trial, event=seen):
                self.reporters(SessionSeen(trial=_trial(part, trial), event=seen))
            case TrialEnded(trial=trial, result=result):
                self.reporters(TrialEnded(trial=_trial(part, trial), result=_result(part, result, place)))
            case _:
                self.reporters(event)


def _add_suite_names(notice: Notice, *names: str) -> Notice:
    """Return *notice* with the suites that it is about."""
    return replace(notice, message=f"{', '.join(names)}: {notice.message}")


def _trial(part: Part, trial: Trial) -> Trial:
    return Trial(key=_key(part, trial.key), execution=part.execution(trial.execution))


def _key(part: Part, key: TrialKey) -> TrialKey:
    """Return *key* as it is called in the batch, by the folder of all suites."""
    return replace(key, suite=part.home, case=part.case(key.case))


def _result(part: Part, result: TrialResult, place: str) -> TrialResult:
    """Return *result* under the name of its case, with paths that begin at the folder of the batch."""

    def moved(attempt: AttemptResult) -> AttemptResult:
        return replace(
            attempt,
            artifact_dir=f"{place}/{attempt.artifact_dir}",
            workspace_dir=attempt.workspace_dir and f"{place}/{attempt.workspace_dir}",
        )

    return replace(
        result,
        key=_key(part, result.key),
        artifact_dir=f"{place}/{result.artifact_dir}",
        workspace_dir=result.workspace_dir and f"{place}/{result.workspace_dir}",
        attempts=tuple(map(moved, result.attempts)),
    )


class JoinedResults:
    """Implements `Results` for several runs, of which none runs until decided."""

    looks: tuple[RoundAnalysis, ...] = ()
    stopped: Stop | None = None
    pairwise: tuple[PairFigures, ...] = ()

    def __init__(self, plan: Plan, runs: Sequence[tuple[Part, JournalResults, str]], duration_s: float) -> None:
        self.plan = plan
        self.duration_s = duration_s
        self._runs = runs
        self._homes: dict[ExecutionKey, tuple[Part, JournalResults, str, Execution]] = {
            part.execution(execution).key: (part, results, place, execution)
            for part, results, place in runs
            for execution in results.plan.executions
        }

    @property
    def counts(self) -> dict[str, int]:
        """How many trials ended with each status."""
        totals: Counter[str] = Counter()
        for _, results, _ in self._runs:
            totals.update(results.counts)
        return {status: totals[status] for status in self._runs[0][1].counts}

    @property
    def passed(self) -> bool:
        """Whether every planned trial ended as expected, in every run."""
        return all(results.passed for _, results, _ in self._runs)

    @property
    def check_mistakes(self) -> int:
        """How many trials failed by a mistake in a check, in all of them."""
        return sum(results.check_mistakes for _, results, _ in self._runs)

    @property
    def exceeded(self) -> bool:
        """Whether an execution used more than its snapshot allows."""
        return any(results.exceeded for _, results, _ in self._runs)

    @property
    def total_usage(self) -> Usage:
        """What all runs used together."""
        return sum((results.total_usage for _, results, _ in self._runs), Usage())

    @property
    def user_usage(self) -> Usage:
        """The known usage of the models that played users, in all of them."""
        return sum((results.user_usage for _, results, _ in self._runs), Usage())

    @property
    def spending(self) -> Spending:
        """What was paid for, by who asked for it, in all of them."""
        return sum((results.spending for _, results, _ in self._runs), Spending())

    @property
    def skill_loads(self) -> tuple[SkillLoads, ...]:
        """How often skills were loaded, in all of them together."""
        loads_by_key: dict[tuple[str, str], SkillLoads] = {}
        for entry in (loads for _, results, _ in self._runs for loads in results.skill_loads):
            key = (entry.arm, entry.runner)
            loads_by_key[key] = loads_by_key[key] + entry if key in loads_by_key else entry
        return tuple(loads_by_key.values())

    @property
    def triggers(self) -> tuple[TriggerFigures, ...]:
        """How well skills were loaded, in all of them together."""
        queries_by_pair: dict[tuple[str, str], list[QueryLoads]] = {}
        for part, results, _ in self._runs:
            for figures in results.triggers:
                queries = (replace(query, case=part.case(query.case)) for query in figures.queries)
                queries_by_pair.setdefault((figures.arm, figures.runner), []).extend(queries)
        return tuple(figures_of(arm, runner, queries) for (arm, runner), queries in queries_by_pair.items())

    @property
    def unpaid_usage(self) -> Usage:
        """What no provider was asked for, in all of them."""
        return sum((results.unpaid_usage for _, results, _ in self._runs), Usage())

    @property
    def cut_short(self) -> Usage:
        """What trials used that were interrupted."""
        return sum((results.cut_short for _, results, _ in self._runs), Usage())

    @property
    def record(self) -> RecordFacts:
        """Nothing of its own: each run has its record."""
        return RecordFacts(lines=0, hash=None, run=None)

    def summaries(self) -> Iterator[ExecutionSummary]:
        """Every execution, run after run."""
        for part, results, _ in self._runs:
            for summary in results.summaries():
                yield replace(summary, execution=part.execution(summary.execution))

    def trials(self, execution: Execution) -> Iterator[TrialResult]:
        """The finished trials of one execution, in order."""
        part, results, place, original = self._homes[execution.key]
        for result in results.trials(original):
            yield _result(part, result, place)

"""Ask a judge about a sample of statements, probe by probe, through the graders that decided them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from whet.decide.judging.probes import PROBES, ProbeAnswer, ProbeName, TriedUnit
from whet.decide.judging.units import JudgedUnit, UnitKey
from whet.errors import GraderError, JudgeRefused
from whet.grade.evidence import Evidence
from whet.grade.judge_settings import judge_settings
from whet.grade.paying import charge_to
from whet.model.grade import Grade
from whet.model.run import Trial, TrialResult
from whet.model.spending import Bill
from whet.model.suite import Check, WorkspaceSpec
from whet.plan.judge import judged_checks
from whet.record.judging.judged import units_of_trial
from whet.record.read.run import RecordedRun
from whet.run.attempt.grading import evidence_of
from whet.run.attempt.record import AttemptRecord
from whet.run.context import RunContext
from whet.run.judging._probes import ORDERS, SHRUGS, applies, show_more, show_nothing, show_order
from whet.run.judging._targets import StatementTarget
from whet.run.other.regrade import restore_workspace
from whet.run.pairing.asking import NO_PRICE

_NO_ORDER = "order: a model is asked about each statement alone, so no order could matter"
_ALWAYS: tuple[ProbeName, ...] = ("again", "order")


class _Stopped(Exception):
    """Nothing more is asked."""


class _TrialTargets(Struct, frozen=True, kw_only=True):
    """The sampled statements on one trial."""

    number: int
    trial: Trial
    targets: tuple[StatementTarget, ...]


class Asking(Struct, kw_only=True, dict=True):
    """The sample, what the judge said so far, and what that took."""

    context: RunContext
    record: RecordedRun
    targets: Sequence[StatementTarget]
    # Where the sessions of an agent that judges are kept.
    folder: Path
    probes: Sequence[ProbeName] = PROBES
    # Says why nothing more may be asked.
    refusal: Callable[[Bill], str | None] = lambda _: None
    is_limited: bool = False
    bill: Bill = field(default_factory=Bill)
    answers: dict[UnitKey, list[ProbeAnswer]] = field(default_factory=dict)
    # The same statements as the judge of today decides them.
    again: dict[UnitKey, JudgedUnit] = field(default_factory=dict)
    stopped: str | None = None
    interrupted: bool = False
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def by_agent(self) -> bool:
        """Whether an agent judges, which decides all statements of a trial in one session."""
        return self.context.judge is not None

    def interrupt(self) -> None:
        """Note that a signal asked to end."""
        self.interrupted, self.stopped = True, "interrupted"

    def units(self) -> tuple[TriedUnit, ...]:
        """Return every statement that was asked about, with what was said."""
        return tuple(
            TriedUnit.of(target.unit, self.answers[target.unit.key])
            for target in self.targets
            if target.unit.key in self.answers
        )

    def notes(self) -> Iterator[str]:
        """Yield what a reader must know."""
        if not self.by_agent:
            yield _NO_ORDER
        if self.is_limited and self.bill.unknown:
            yield NO_PRICE

    async def ask_all(self) -> None:
        """Ask about every trial, some at a time, in all probes."""
        groups: dict[str, list[StatementTarget]] = {}
        for target in self.targets:
            groups.setdefault(str(target.trial.key), []).append(target)
        room = anyio.CapacityLimiter(judge_settings(self.context.suite.judge).max_parallel)
        async with anyio.create_task_group() as group:
            for number, targets in enumerate(groups.values()):
                on_trial = _TrialTargets(number=number, trial=targets[0].trial, targets=tuple(targets))
                group.start_soon(self._ask_on_trial, on_trial, room)

    async def _ask_on_trial(self, on_trial: _TrialTargets, room: anyio.CapacityLimiter) -> None:
        async with room:
            if self.stopped:
                return
            evidence = await self._restore(on_trial.trial)
            for probe in self.probes:
                try:
                    await self._ask_in(probe, on_trial, evidence)
                except _Stopped:
                    return

    async def _ask_in(self, probe: ProbeName, on_trial: _TrialTargets, evidence: Evidence) -> None:
        targets = [target for target in on_trial.targets if applies(probe, target.unit)]
        checks = self._checks(probe, on_trial, targets)
        probe_evidence, targets = await self._show(probe, on_trial, targets, evidence)
        if not targets or not checks:
            return
        grades = await self._ask(
            checks, replace(probe_evidence, artifact_dir=self.folder / f"{on_trial.number + 1}-{probe}")
        )
        result = self.record.result(on_trial.trial.key)
        assert result is not None
        for target in targets:
            grade = grades.get(target.check.label)
            if probe == "again" and isinstance(grade, Grade):
                units = units_of_trial(self.record.run_dir.name, replace(result, grades=(grade,)))
                self.again |= {unit.key: unit for unit in units if unit.key == target.unit.key}
            answer = _answer_in(probe, target, grades, self.record.run_dir.name, result)
            if answer is not None:
                self.answers.setdefault(target.unit.key, []).append(answer)

    def _checks(self, probe: ProbeName, on_trial: _TrialTargets, targets: Sequence[StatementTarget]) -> list[Check]:
        """Return the checks to ask; an agent is asked about all of a trial, as it was before."""
        if not self.by_agent:
            choice = [] if probe == "order" else [target.check for target in targets]
            return list({check.label: check for check in choice}.values())
        checks = [check for check in judged_checks([on_trial.trial.execution]) if check.turn is None]
        if probe != "order":
            return checks
        return checks[::-1] if len(checks) > 1 else []

    async def _show(
        self, probe: ProbeName, on_trial: _TrialTargets, targets: list[StatementTarget], evidence: Evidence
    ) -> tuple[Evidence, list[StatementTarget]]:
        """Return what the judge is shown in *probe*, and the statements that this says something about."""
        number = on_trial.number
        match probe:
            case "empty":
                return show_nothing(evidence, self._new_folder()), targets
            case "shrug":
                return show_nothing(evidence, self._new_folder(), SHRUGS[number % len(SHRUGS)]), targets
            case "inject":
                return show_order(evidence, ORDERS[number % len(ORDERS)]), targets
            case "longer":
                return show_more(evidence), targets
            case "other":
                return await self._show_other(on_trial, targets, evidence)
            case _:
                return evidence, targets

    async def _show_other(
        self, on_trial: _TrialTargets, targets: list[StatementTarget], evidence: Evidence
    ) -> tuple[Evidence, list[StatementTarget]]:
        """Return the answer of another case, and the statements that this case does not have."""
        trial = on_trial.trial
        statements = self._statements
        cases = [case for case in statements if case != trial.key.case]
        start = on_trial.number % len(cases) if cases else 0
        best: tuple[list[StatementTarget], str] = ([], "")
        for case in (*cases[start:], *cases[:start]):
            targets_here = [target for target in targets if target.unit.statement not in statements[case]]
            best = max(best, (targets_here, case), key=lambda choice: len(choice[0]))
        targets_here, case = best
        other = self._trial_of(case, trial) if targets_here else None
        if other is None:
            return evidence, []
        other_evidence = await self._restore(other)
        return replace(
            evidence,
            session=other_evidence.session,
            changes=other_evidence.changes,
            workspace=other_evidence.workspace,
            events_path=other_evidence.events_path,
        ), targets_here

    @cached_property
    def _statements(self) -> Mapping[str, set[str]]:
        """Return the judged statements of each case."""
        statements: dict[str, set[str]] = {}
        for (case, *_), result in self.record.results.items():
            units = units_of_trial(self.record.run_dir.name, result)
            statements.setdefault(case, set()).update(unit.statement for unit in units)
        return statements

    def _trial_of(self, case: str, like: Trial) -> Trial | None:
        """Return a trial of *case* with an answer: of the same runner and arm, if there is one."""
        plan, key = self.context.plan, like.key
        executions = sorted(
            (execution for execution in plan.executions if execution.case.id == case),
            key=lambda execution: (execution.runner.id != key.runner, execution.arm != key.arm),
        )
        for execution in executions:
            for number in range(1, execution.trials + 1):
                trial = Trial(key=plan.key(execution, number), execution=execution)
                result = self.record.result(trial.key)
                if result is not None and self.record.session(result) is not None:
                    return trial
        return None

    async def _restore(self, trial: Trial) -> Evidence:
        """Return what *trial* left, as its checks saw it."""
        result = self.record.result(trial.key)
        session = None if result is None else self.record.session(result)
        assert result is not None
        assert session is not None
        workspace = self.context.scratch / f"j{next(self._numbers)}"
        _, changes = await anyio.to_thread.run_sync(restore_workspace, self.record, result, workspace)
        attempt = AttemptRecord(runner=trial.key.runner, number=1, artifact_dir=result.artifact_dir)
        attempt.session, attempt.changes = session, changes
        # No package is fetched: nothing of it is shown to a judge.
        plain = replace(trial, execution=replace(trial.execution, workspace=WorkspaceSpec()))
        return await evidence_of(self.context, plain, attempt, workspace)

    def _new_folder(self) -> Path:
        folder = self.context.scratch / f"j{next(self._numbers)}"
        folder.mkdir()
        return folder

    async def _ask(self, checks: Sequence[Check], evidence: Evidence) -> dict[str, Grade | GraderError]:
        """Return the grade of each check by its label, or why there is none; raises `_Stopped`."""
        grades: dict[str, Grade | GraderError] = {}
        by_grader: dict[str, list[Check]] = {}
        for check in checks:
            by_grader.setdefault(check.grader, []).append(check)
        for name, checks_of_it in by_grader.items():
            for part in [checks_of_it] if self.by_agent else [[check] for check in checks_of_it]:
                self._refuse_spent()
                grades |= await self._ask_grader(name, part, evidence)
        return grades

    async def _ask_grader(
        self, name: str, checks: Sequence[Check], evidence: Evidence
    ) -> dict[str, Grade | GraderError]:
        grades: dict[str, Grade | GraderError] = {}
        with charge_to(self._pay):
            try:
                async for grade in self.context.graders[name].grade_all(checks, evidence):
                    grades[grade.check] = grade
            except JudgeRefused as error:
                self.stopped = error.message
                raise _Stopped from error
            except GraderError as error:
                grades |= {check.label: error for check in checks if check.label not in grades}
        return grades

    def _refuse_spent(self) -> None:
        self.stopped = self.stopped or self.refusal(self.bill)
        if self.stopped:
            raise _Stopped

    def _pay(self, bill: Bill) -> None:
        self.bill += bill


def _answer_in(
    probe: ProbeName, target: StatementTarget, grades: Mapping[str, Grade | GraderError], run: str, result: TrialResult
) -> ProbeAnswer | None:
    """Return what was said of the statement of *target*; None if the judge was shown the same as before."""
    grade = grades.get(target.check.label)
    if isinstance(grade, GraderError):
        return ProbeAnswer(probe=probe, problem=grade.message)
    unit = None if grade is None else _same_unit(target.unit, units_of_trial(run, replace(result, grades=(grade,))))
    if unit is None:
        return None
    if probe not in _ALWAYS and unit.answer_id == target.unit.answer_id:
        return None
    return ProbeAnswer(probe=probe, passed=unit.passed, rating=unit.rating)


def _same_unit(unit: JudgedUnit, found: Sequence[JudgedUnit]) -> JudgedUnit | None:
    return next((other for other in found if other.key == unit.key), None)

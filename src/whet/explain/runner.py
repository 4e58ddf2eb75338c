"""Who is asked: the runner as its settings are now, as far as that can still go on with the session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from whet.config import Settings
from whet.doctor.runners import look_at_runner
from whet.engine.state import SessionState
from whet.errors import UsageError
from whet.expectations.failure import Asked
from whet.explain.subject import Subject
from whet.model.run import Execution, Runner
from whet.model.session import SessionSummary
from whet.model.suite import Case, Limits, WorkspaceSpec
from whet.store.folder import read_run_file


def find_runner(subject: Subject, session: SessionSummary, state: SessionState, settings: Settings) -> Runner:
    """The runner of the attempt; an error where there is none by now, or another agent or home behind its name."""
    name = subject.result.key.runner
    where = str(settings.file) if settings.file else "the settings"
    runner = next((each for each in settings.runners if each.id == name), None)
    if runner is None:
        raise UsageError(
            f'{subject.name} is of runner "{name}", which is not in {where}',
            hint="put it back, or name the settings file that has it with --config",
        )
    if runner.agent != session.agent:
        raise UsageError(
            f'runner "{name}" is of type "{runner.agent}" in {where}, and the session is one of "{session.agent}"',
            hint="only the same agent can resume its session: undo the change, or name another file with --config",
        )
    if bool(runner.options.get("inherit_home")) == state.own_home:
        lies = "a home of its own" if state.own_home else "your own home"
        raise UsageError(
            f'the session lies in {lies}, and inherit_home of runner "{name}" in {where} says otherwise',
            hint="undo the change, or name another settings file with --config",
        )
    return runner


def execution_of(subject: Subject, runner: Runner, settings: Settings) -> Execution:
    """What an asking is held to: the limits of the settings, since those of the case are for its task."""
    limits = Limits(timeout_s=settings.timeout_s, budget_usd=settings.budget_usd, max_steps=settings.max_steps)
    key = subject.result.key
    case = Case(id=key.case, prompt="", checks=())
    return Execution(case=case, runner=runner, variant=key.variant, limits=limits, workspace=WorkspaceSpec(), trials=1)


def doubts(subject: Subject, runner: Runner, questions: Iterable[Asked]) -> Iterator[str]:
    """What may make the answers worth less; an error where there can be none."""
    cases = tuple(Case(id=subject.result.key.case, prompt=asked.question, checks=()) for asked in questions)
    for finding in look_at_runner(runner, cases, {}, os.environ):
        if finding.state == "problem":
            raise UsageError(f'runner "{runner.id}": {finding.message}', hint=finding.hint)
        if finding.state == "warning":
            yield f"{finding.message}: {finding.hint}" if finding.hint else finding.message
    before = _recorded_model(subject, runner)
    if before != runner.model:
        now, then = (f"model {name}" if name else "no model" for name in (runner.model, before))
        yield f'runner "{runner.id}" names {now}, and named {then} when it was run'


def _recorded_model(subject: Subject, runner: Runner) -> str | None:
    rows = read_run_file(subject.record.run_dir).get("settings")
    found = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    wanted = f"runners.{runner.id}.agent.model"
    return next((str(row.get("value")) for row in found if row.get("key") == wanted), None)

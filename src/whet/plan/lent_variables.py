"""Which variables of this machine the tasks of a plan take, and whether they may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from whet.errors import UsageError
from whet.model.request import Settings
from whet.model.run import Plan
from whet.model.task import TaskSpec
from whet.reading.paths import own_state
from whet.reading.text import listed
from whet.sandbox.container.environment import wanted_from_host


def lent_variables(
    plan: Plan, settings: Settings, environ: Mapping[str, str], *, solutions: bool = False
) -> tuple[str, ...]:
    """Return a notice of what tasks take of *environ*; raises `UsageError` if fetched ones take what is not allowed.

    Somebody else wrote a fetched task, and its agent may have a network. Its solution runs only in an audit.
    """
    cases_by_variable: dict[str, list[str]] = {}
    for case in {execution.case.id: execution.case for execution in plan.executions}.values():
        for name in sorted(_variables_of(case.task, environ, solutions=solutions) if case.task else ()):
            cases_by_variable.setdefault(name, []).append(case.id)
    if not cases_by_variable:
        return ()
    if plan.suite.source.is_relative_to(own_state()):
        forbidden_names = [name for name in cases_by_variable if name not in settings.allow_env]
        if forbidden_names:
            options = " ".join(f"--allow-env {name}" for name in forbidden_names)
            raise UsageError(
                "\n".join(
                    f"{name} of your environment is asked for by {listed(cases_by_variable[name])}"
                    for name in forbidden_names
                ),
                hint=f"these tasks were fetched; allow it with {options}, or name it in run.allow_env",
            )
    return (f"tasks are given variables of your environment: {listed(list(cases_by_variable))}",)


def _variables_of(task: TaskSpec, environ: Mapping[str, str], *, solutions: bool) -> set[str]:
    return {name for env in _environments(task, solutions=solutions) for name in wanted_from_host(env, environ)}


def _environments(task: TaskSpec, *, solutions: bool) -> Iterator[Mapping[str, str]]:
    yield task.environment.env
    if solutions:
        yield task.solution_env
    for step in task.steps:
        yield step.verifier.env
        if step.verifier.environment is not None:
            yield step.verifier.environment.env

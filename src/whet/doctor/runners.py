"""The configured runners: whether each could start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from whet import plugins
from whet.agents.base import Agent, Options
from whet.doctor.findings import Finding
from whet.doctor.known import BY_TYPE, logins
from whet.doctor.programs import Version, find_program, not_working
from whet.errors import PathRefused, WhetError
from whet.model.run import Runner
from whet.model.suite import Case
from whet.plan import skill_problems
from whet.refused import refusals


def program_of(runner: Runner, environ: Mapping[str, str]) -> str | None:
    """The program that *runner* starts, where it is one that is installed."""
    name = program_name(runner)
    return find_program(name, environ) if name else None


def is_asked(runner: Runner) -> bool:
    """Whether its program may be asked for its version: anybody's own command might take that for a task."""
    return runner.agent in BY_TYPE


def look_at_runner(
    runner: Runner, cases: tuple[Case, ...], versions: Mapping[str, Version], environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Every problem of a runner, or one line that says that there is none."""
    problems = list(_problems(runner, cases, versions, environ))
    for message, hint in problems:
        yield Finding(part="runners", name=runner.id, state="problem", message=message, hint=hint)
    if problems:
        return
    program = program_of(runner, environ)
    model = f" {runner.model}" if runner.model else ""
    where = f" ({program})" if program else ""
    said = f"{runner.agent}{model}{where}"
    known = BY_TYPE.get(runner.agent)
    missing = {name: why for name, why in (known.helpers if known else {}).items() if not find_program(name, environ)}
    for name, why in missing.items():
        yield Finding(
            part="runners", name=runner.id, state="warning", message=f"{runner.agent} {why}", hint=f"install {name}"
        )
    if known is None or logins(known, {**environ, **Options(runner.options).table("env")}):
        yield Finding(part="runners", name=runner.id, state="ok", message=said)
        return
    hint = f"set one of {', '.join(known.variables)}, or log in once by hand"
    yield Finding(part="runners", name=runner.id, state="warning", message=f"{said}  no login found", hint=hint)


def _problems(
    runner: Runner, cases: tuple[Case, ...], versions: Mapping[str, Version], environ: Mapping[str, str]
) -> Iterator[tuple[str, str | None]]:
    try:
        agent: Agent = plugins.find("agents", runner.agent)()
    except WhetError as error:
        yield error.message, error.hint
        return
    try:
        with refusals():
            problems = list(agent.problems(runner, cases))
        yield from ((problem, None) for problem in problems)
    except PathRefused as error:
        yield error.message, error.hint
    yield from ((problem, None) for problem in skill_problems("skills", runner.skills))
    name = program_name(runner)
    program = program_of(runner, environ)
    if name and program is None:
        known = BY_TYPE.get(runner.agent)
        install = known.install if known else "install it, or correct `command` of this runner"
        yield f'there is no program "{name}"', install
    if program is not None and program in versions and not versions[program].ok:
        yield f"{program}: {versions[program].text}", not_working(program)


def program_name(runner: Runner) -> str | None:
    """The program by the runner's own word, or else by what its agent is called; none where whet brings it along."""
    known = BY_TYPE.get(runner.agent)
    return Options(runner.options).text("command") or (known.program if known else None)

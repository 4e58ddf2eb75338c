"""Check whether the configured runners can start: their programs, versions and logins."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from whet.agents.agent import Agent, Options
from whet.agents.programs import BY_TYPE, Finding, KnownAgent, Version, ask_versions, find_program, logins, not_working
from whet.errors import ConfigError, PathRefused, WhetError
from whet.ground.sandbox import Sandbox, choose_sandbox
from whet.model import plugins
from whet.model.run import Plan, Runner
from whet.model.suite import Case
from whet.plan.plan import skill_problems
from whet.reading.paths import refusals


def program_of(runner: Runner, environ: Mapping[str, str]) -> str | None:
    """Return the program that *runner* starts, if it is installed."""
    name = program_name(runner)
    return find_program(name, environ) if name else None


def is_asked(runner: Runner) -> bool:
    """Return whether whet may ask its program for its version: a command of your own might take that for a task."""
    return runner.agent in BY_TYPE


def look_at_runner(
    runner: Runner, cases: tuple[Case, ...], versions: Mapping[str, Version], environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield every problem of a runner, or one finding that says that there is none."""
    problems = list(_runner_problems(runner, cases, versions, environ))
    for message, hint in problems:
        yield Finding(part="runners", name=runner.id, state="problem", message=message, hint=hint)
    if problems:
        return
    program = program_of(runner, environ)
    model = f" {runner.model}" if runner.model else ""
    where = f" ({program})" if program else ""
    said = f"{runner.agent}{model}{where}"
    known = _program_known(runner)
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


def _runner_problems(
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


def _program_known(runner: Runner) -> KnownAgent | None:
    """Return what is known of its program, which may be that of another type, spoken with over ACP."""
    if runner.agent != "acp":
        return BY_TYPE.get(runner.agent)
    from whet.agents.acp import known_as  # noqa: PLC0415 - few runners are of this type

    known = known_as(runner)
    return BY_TYPE.get(known.adapter) if known else None


def program_name(runner: Runner) -> str | None:
    """Return the program that the runner names, or else that of its agent; None if it is part of whet."""
    known = BY_TYPE.get(runner.agent)
    return Options(runner.options).text("command") or (known.program if known else None)


# Names of variables that may log a runner in, in a way that whet does not know.
_ACCESS = re.compile(r"KEY|TOKEN|AUTH|CREDENTIAL|SECRET|LOGIN|_USE_|PROVIDER|BASE_URL|ENDPOINT")


def refuse_unready(
    plan: Plan, sandbox: Sandbox, environ: Mapping[str, str], *, played: bool = False
) -> tuple[str, ...]:
    """Return warnings of missing logins; raises if an agent that whet knows cannot start.

    If answers are *played*, nothing has to log in.
    """
    runners = {each.runner.id: each.runner for each in plan.executions if each.runner.agent in BY_TYPE}
    if not runners:
        return ()
    asked = [program for runner in runners.values() if (program := _asked(runner, environ))]
    in_image = sandbox.name == "container"
    # Asked here, where the program is mounted from.
    versions = _versions(asked, choose_sandbox("auto")[0] if in_image else sandbox, environ)
    # The image may have a program that this machine has not.
    runners = {name: runner for name, runner in runners.items() if not in_image or program_of(runner, environ)}
    problems = [each for runner in runners.values() for each in _problems(runner, versions, environ, played=played)]
    if problems:
        raise ConfigError("\n".join(problems), hint=_LOOK)
    return () if played else tuple(each for runner in runners.values() for each in _doubts(runner, environ))


_LOOK = '"whet doctor" looks at every agent; nothing was started'


def refuse_missing_programs(plan: Plan, agents: Collection[str], environ: Mapping[str, str]) -> None:
    """Refuse the runners of these types of *agents* whose program is not on this machine, where they run."""
    if problems := list(_missing_programs(plan, agents, environ)):
        raise ConfigError("\n".join(problems), hint=_LOOK)


def _missing_programs(plan: Plan, agents: Collection[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield each runner whose program is surely not there; a case or an arm with its own PATH may have another."""
    seen: dict[str, Runner] = {}
    for each in plan.executions:
        if each.runner.agent in agents and "PATH" not in each.case.env and each.case.task is None:
            seen.setdefault(each.runner.id, each.runner)
    for runner in seen.values():
        name, own = program_name(runner), Options(runner.options).table("env")
        # What is named by a path in the workspace may be made there.
        elsewhere = name is not None and "/" in name and not Path(name).is_absolute()
        if name and not elsewhere and not find_program(name, {**environ, **own}):
            executed = " that can be executed" if Path(name).is_absolute() else ""
            advice = "install it, or correct `command` of this runner"
            yield f'runners.{runner.id}: there is no program "{name}"{executed}; {advice}'


# What programs said, by program and PATH: many suites of one command have the same agents.
_told: dict[tuple[str, str | None], Version] = {}


def _versions(programs: Iterable[str], sandbox: Sandbox, environ: Mapping[str, str]) -> dict[str, Version]:
    """Ask programs for their versions, each once in the life of this process."""
    path = environ.get("PATH")
    wanted = dict.fromkeys(programs)
    unasked = [program for program in wanted if (program, path) not in _told]
    _told.update({(program, path): told for program, told in ask_versions(unasked, sandbox, environ).items()})
    return {program: _told[program, path] for program in wanted}


def _known(runner: Runner) -> KnownAgent:
    return BY_TYPE[runner.agent]


def _is_own(runner: Runner) -> bool:
    """Return whether it is an agent's own program; a script may log in by itself, or take it for a task."""
    return Path(program_name(runner) or "").name == _known(runner).program


def _asked(runner: Runner, environ: Mapping[str, str]) -> str | None:
    """Return the program to ask for its version, if it answers quickly."""
    return program_of(runner, environ) if _is_own(runner) and not _known(runner).unpacks else None


def _problems(
    runner: Runner, versions: Mapping[str, Version], environ: Mapping[str, str], *, played: bool
) -> Iterator[str]:
    known, program = _known(runner), program_of(runner, environ)
    if program is None:
        name = program_name(runner)
        yield f'runners.{runner.id}: there is no program "{name}" for {known.type}; install it: {known.install}'
        return
    version = versions.get(program)
    if version is not None and not version.ok and not version.late:
        yield f"runners.{runner.id}: {program} does not start: {version.text}; see whether it works by hand"
    elif not played and not _has_login(runner, environ) and _must_log_in(runner):
        ways = ", ".join(known.variables)
        yield f"runners.{runner.id}: nothing logs {known.type} in; log in once by hand, or set one of {ways}"


def _doubts(runner: Runner, environ: Mapping[str, str]) -> Iterator[str]:
    if not _has_login(runner, environ) and not _known(runner).free and _is_own(runner):
        yield f"runners.{runner.id}: no login of {runner.agent} was found"


def _has_login(runner: Runner, environ: Mapping[str, str]) -> bool:
    return bool(logins(_known(runner), {**environ, **Options(runner.options).table("env")}))


def _must_log_in(runner: Runner) -> bool:
    """Return whether only the logins that whet knows can log it in."""
    options = Options(runner.options)
    given = (*options.table("env"), *options.texts("pass_env"))
    free = options.flag("inherit_home", False) or options.texts("args") or _known(runner).free
    return _is_own(runner) and not free and not any(_ACCESS.search(name) for name in given)

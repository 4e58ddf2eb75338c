"""Check whether the configured runners can start: their programs, versions and logins."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from whet import plugins
from whet.agents.acp.agent import known_as
from whet.agents.contract import Agent, Options
from whet.agents.known import KnownAgent, known_agent, logins
from whet.agents.programs import ProgramVersion, ReadinessFinding, ask_versions, find_program, not_working
from whet.errors import ConfigError, PathRefused, WhetError
from whet.model.run import Plan, Runner
from whet.model.suite import Case
from whet.plan.plan import skill_problems
from whet.reading.paths import refusals
from whet.sandbox.contract import Sandbox, choose_sandbox


def program_of(runner: Runner, environ: Mapping[str, str]) -> str | None:
    """Return the program that *runner* starts, if it is installed."""
    name = program_name(runner)
    return find_program(name, environ) if name else None


def is_asked(runner: Runner) -> bool:
    """Return whether whet may ask its program for its version: a command of your own might take that for a task."""
    return known_agent(runner.agent) is not None


def look_at_runner(
    runner: Runner, cases: tuple[Case, ...], versions: Mapping[str, ProgramVersion], environ: Mapping[str, str]
) -> Iterator[ReadinessFinding]:
    """Yield every problem of a runner, or one finding that says that there is none."""
    problems = list(_runner_problems(runner, cases, versions, environ))
    for message, hint in problems:
        yield ReadinessFinding(part="runners", name=runner.id, state="problem", message=message, hint=hint)
    if problems:
        return
    program = program_of(runner, environ)
    model = f" {runner.model}" if runner.model else ""
    where = f" ({program})" if program else ""
    description = f"{runner.agent}{model}{where}"
    agent_program = _program_known(runner)
    missing = {
        name: why
        for name, why in (agent_program.helpers if agent_program else {}).items()
        if not find_program(name, environ)
    }
    for name, why in missing.items():
        yield ReadinessFinding(
            part="runners", name=runner.id, state="warning", message=f"{runner.agent} {why}", hint=f"install {name}"
        )
    if agent_program is None or logins(agent_program, {**environ, **Options(runner.options).table("env")}):
        yield ReadinessFinding(part="runners", name=runner.id, state="ok", message=description)
        return
    hint = f"set one of {', '.join(agent_program.variables)}, or log in once by hand"
    yield ReadinessFinding(
        part="runners", name=runner.id, state="warning", message=f"{description}  no login found", hint=hint
    )


def _runner_problems(
    runner: Runner, cases: tuple[Case, ...], versions: Mapping[str, ProgramVersion], environ: Mapping[str, str]
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
        agent_program = known_agent(runner.agent)
        install = agent_program.install if agent_program else "install it, or correct `command` of this runner"
        yield f'there is no program "{name}"', install
    if program is not None and program in versions and not versions[program].ok:
        yield f"{program}: {versions[program].text}", not_working(program)


def _program_known(runner: Runner) -> KnownAgent | None:
    """Return what is known of its program, which may be that of another type, spoken with over ACP."""
    if runner.agent != "acp":
        return known_agent(runner.agent)

    agent_facts = known_as(runner)
    return known_agent(agent_facts.adapter) if agent_facts else None


def program_name(runner: Runner) -> str | None:
    """Return the program that the runner names, or else that of its agent; None if it is part of whet."""
    agent_program = known_agent(runner.agent)
    return Options(runner.options).text("command") or (agent_program.program if agent_program else None)


# Names of variables that may log a runner in, in a way that whet does not know.
_ACCESS = re.compile(r"KEY|TOKEN|AUTH|CREDENTIAL|SECRET|LOGIN|_USE_|PROVIDER|BASE_URL|ENDPOINT")


def refuse_unready(
    plan: Plan, sandbox: Sandbox, environ: Mapping[str, str], *, is_replay: bool = False
) -> tuple[str, ...]:
    """Return warnings of missing logins; raises if an agent that whet knows cannot start.

    If answers are *is_replay*, nothing has to log in.
    """
    runners = {problem.runner.id: problem.runner for problem in plan.executions if is_asked(problem.runner)}
    if not runners:
        return ()
    programs = [program for runner in runners.values() if (program := _program_to_ask(runner, environ))]
    # Asked here, where the program is mounted from.
    versions = _versions(programs, choose_sandbox("auto")[0] if sandbox.in_image else sandbox, environ)
    # The image may have a program that this machine has not.
    runners = {name: runner for name, runner in runners.items() if not sandbox.in_image or program_of(runner, environ)}
    problems = [
        problem for runner in runners.values() for problem in _problems(runner, versions, environ, is_replay=is_replay)
    ]
    if problems:
        raise ConfigError("\n".join(problems), hint=_LOOK)
    return () if is_replay else tuple(problem for runner in runners.values() for problem in _doubts(runner, environ))


_LOOK = '"whet doctor" looks at every agent; nothing was started'


# Agents that start a program of yours.
_OF_YOURS = frozenset({"command", "acp"})


def refuse_unready_agents(
    plan: Plan, sandbox: Sandbox, environ: Mapping[str, str], *, is_replay: bool, is_here: bool
) -> tuple[str, ...]:
    """Refuse agents that cannot start; return warnings. *is_here* says that they run on this machine."""
    if is_here:
        _refuse_missing_programs(plan, _OF_YOURS, environ)
    return refuse_unready(plan, sandbox, environ, is_replay=is_replay)


def _refuse_missing_programs(plan: Plan, agents: Collection[str], environ: Mapping[str, str]) -> None:
    """Refuse the runners of these types of *agents* whose program is not on this machine, where they run."""
    if problems := list(_missing_programs(plan, agents, environ)):
        raise ConfigError("\n".join(problems), hint=_LOOK)


def _missing_programs(plan: Plan, agents: Collection[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield each runner whose program is surely not there; a case or an arm with its own PATH may have another."""
    runners_by_id: dict[str, Runner] = {}
    for execution in plan.executions:
        if execution.runner.agent in agents and "PATH" not in execution.case.env and execution.case.task is None:
            runners_by_id.setdefault(execution.runner.id, execution.runner)
    for runner in runners_by_id.values():
        name, runner_env = program_name(runner), Options(runner.options).table("env")
        # What is named by a path in the workspace may be made there.
        elsewhere = name is not None and "/" in name and not Path(name).is_absolute()
        if name and not elsewhere and not find_program(name, {**environ, **runner_env}):
            requirement = " that can be executed" if Path(name).is_absolute() else ""
            advice = "install it, or correct `command` of this runner"
            yield f'runners.{runner.id}: there is no program "{name}"{requirement}; {advice}'


# What programs said, by program and PATH: many suites of one command have the same agents.
_told: dict[tuple[str, str | None], ProgramVersion] = {}


def _versions(programs: Iterable[str], sandbox: Sandbox, environ: Mapping[str, str]) -> dict[str, ProgramVersion]:
    """Ask programs for their versions, each once in the life of this process."""
    path = environ.get("PATH")
    distinct_programs = dict.fromkeys(programs)
    new_programs = [program for program in distinct_programs if (program, path) not in _told]
    _told.update(
        {(program, path): version for program, version in ask_versions(new_programs, sandbox, environ).items()}
    )
    return {program: _told[program, path] for program in distinct_programs}


def _agent_program(runner: Runner) -> KnownAgent:
    agent_program = known_agent(runner.agent)
    assert agent_program is not None
    return agent_program


def _is_own(runner: Runner) -> bool:
    """Return whether it is an agent's own program; a script may log in by itself, or take it for a task."""
    return Path(program_name(runner) or "").name == _agent_program(runner).program


def _program_to_ask(runner: Runner, environ: Mapping[str, str]) -> str | None:
    """Return the program to ask for its version, if it answers quickly."""
    return program_of(runner, environ) if _is_own(runner) and not _agent_program(runner).unpacks else None


def _problems(
    runner: Runner, versions: Mapping[str, ProgramVersion], environ: Mapping[str, str], *, is_replay: bool
) -> Iterator[str]:
    agent_program, program = _agent_program(runner), program_of(runner, environ)
    if program is None:
        name = program_name(runner)
        problem = f'there is no program "{name}" for {agent_program.type}'
        yield f"runners.{runner.id}: {problem}; install it: {agent_program.install}"
        return
    version = versions.get(program)
    if version is not None and not version.ok and not version.late:
        yield f"runners.{runner.id}: {program} does not start: {version.text}; see whether it works by hand"
    elif not is_replay and not _has_login(runner, environ) and _must_log_in(runner):
        ways = ", ".join(agent_program.variables)
        yield f"runners.{runner.id}: {agent_program.type} has no login; log in once by hand, or set one of {ways}"


def _doubts(runner: Runner, environ: Mapping[str, str]) -> Iterator[str]:
    if not _has_login(runner, environ) and not _agent_program(runner).free and _is_own(runner):
        yield f"runners.{runner.id}: no login of {runner.agent} was found"


def _has_login(runner: Runner, environ: Mapping[str, str]) -> bool:
    return bool(logins(_agent_program(runner), {**environ, **Options(runner.options).table("env")}))


def _must_log_in(runner: Runner) -> bool:
    """Return whether only the logins that whet knows can log it in."""
    options = Options(runner.options)
    variables = (*options.table("env"), *options.texts("pass_env"))
    free = options.flag("inherit_home", False) or options.texts("args") or _agent_program(runner).free
    return _is_own(runner) and not free and not any(_ACCESS.search(name) for name in variables)

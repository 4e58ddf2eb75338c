"""Whether the agents of a run can start at all, asked once before anything is spent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from whet.agents.base import Options
from whet.doctor.known import BY_TYPE, KnownAgent, logins
from whet.doctor.programs import Version, ask_versions
from whet.doctor.runners import program_name, program_of
from whet.errors import ConfigError
from whet.model.run import Plan, Runner
from whet.sandbox.base import Sandbox

# What a runner may be given to log in in a way that we do not know of.
_ACCESS = re.compile(r"KEY|TOKEN|AUTH|CREDENTIAL|SECRET|LOGIN|_USE_|PROVIDER|BASE_URL|ENDPOINT")


def refuse_unready(plan: Plan, sandbox: Sandbox, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What looks like a missing login; raises where an agent that whet knows surely cannot start."""
    runners = {each.runner.id: each.runner for each in plan.executions if each.runner.agent in BY_TYPE}
    if not runners:
        return ()
    asked = [program for runner in runners.values() if (program := _asked(runner, environ))]
    versions = ask_versions(asked, sandbox, environ)
    problems = [each for runner in runners.values() for each in _problems(runner, versions, environ)]
    if problems:
        raise ConfigError("\n".join(problems), hint='"whet doctor" looks at every agent; nothing was started')
    return tuple(each for runner in runners.values() for each in _doubts(runner, environ))


def _known(runner: Runner) -> KnownAgent:
    return BY_TYPE[runner.agent]


def _is_own(runner: Runner) -> bool:
    """Whether it is the agent's own program: a script around it may log in by itself, or take anything for a task."""
    return Path(program_name(runner) or "").name == _known(runner).program


def _asked(runner: Runner, environ: Mapping[str, str]) -> str | None:
    """The program to ask for its version, where that is quickly answered."""
    return program_of(runner, environ) if _is_own(runner) and not _known(runner).unpacks else None


def _problems(runner: Runner, versions: Mapping[str, Version], environ: Mapping[str, str]) -> Iterator[str]:
    known, program = _known(runner), program_of(runner, environ)
    if program is None:
        name = program_name(runner)
        yield f'runners.{runner.id}: there is no program "{name}" for {known.type}; install it: {known.install}'
        return
    version = versions.get(program)
    if version is not None and not version.ok and not version.late:
        yield f"runners.{runner.id}: {program} does not start: {version.text}; see whether it works by hand"
    elif not _has_login(runner, environ) and _must_log_in(runner):
        ways = ", ".join(known.variables)
        yield f"runners.{runner.id}: nothing logs {known.type} in; log in once by hand, or set one of {ways}"


def _doubts(runner: Runner, environ: Mapping[str, str]) -> Iterator[str]:
    if not _has_login(runner, environ) and not _known(runner).free and _is_own(runner):
        yield f"runners.{runner.id}: no login of {runner.agent} was found"


def _has_login(runner: Runner, environ: Mapping[str, str]) -> bool:
    return bool(logins(_known(runner), {**environ, **Options(runner.options).table("env")}))


def _must_log_in(runner: Runner) -> bool:
    """Whether there is no way to log in but those that whet knows."""
    options = Options(runner.options)
    given = (*options.table("env"), *options.texts("pass_env"))
    free = options.flag("inherit_home", False) or options.texts("args") or _known(runner).free
    return _is_own(runner) and not free and not any(_ACCESS.search(name) for name in given)

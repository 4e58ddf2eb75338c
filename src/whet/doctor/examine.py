"""The whole examination: machine, settings, agents and runners, in that order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from whet import plugins
from whet.config import Settings, load_settings
from whet.doctor.findings import Finding, State
from whet.doctor.known import KNOWN, logins
from whet.doctor.machine import look_at_machine
from whet.doctor.programs import ask_versions, find_program, look_at_agent
from whet.doctor.runners import is_asked, look_at_runner, program_of
from whet.errors import PathRefused, SuiteError, UsageError
from whet.formats.base import load_suite
from whet.model.suite import Case
from whet.refused import refusals
from whet.sandbox.base import Sandbox
from whet.sandbox.choose import choose_sandbox


def examine(place: Path, config_file: Path | None, environ: Mapping[str, str]) -> list[Finding]:
    """Everything there is to say about a run of *place*, a suite or a folder."""
    found = [*look_at_machine(), *_home(environ)]
    settings, said = _settings(place, config_file, environ)
    found += said
    cases, problems = _cases(place)
    found += problems
    programs = {agent.type: find_program(agent.program, environ) for agent in KNOWN}
    runners = settings.runners if settings else ()
    asked = [program for program in programs.values() if program]
    asked += [program for runner in runners if is_asked(runner) and (program := program_of(runner, environ))]
    sandbox, trouble = _sandbox(settings)
    found += trouble
    versions = ask_versions(asked, sandbox, environ)
    for agent in KNOWN:
        program = programs[agent.type]
        found.append(look_at_agent(agent, program, versions.get(program or ""), logins(agent, environ)))
    for runner in runners:
        found += look_at_runner(runner, cases, versions, environ)
    return found


def _home(environ: Mapping[str, str]) -> Iterator[Finding]:
    """That the home cannot be looked into: logins and settings in it are then not seen."""
    home = environ.get("HOME") or ""
    if home and os.path.lexists(home) and not os.access(home, os.R_OK | os.X_OK):
        message = f"HOME is {home}, which you may not look into: logins and settings there are not seen"
        yield Finding(part="machine", name="home", state="warning", message=message, hint="set HOME to your own")


def _settings(
    place: Path, config_file: Path | None, environ: Mapping[str, str]
) -> tuple[Settings | None, list[Finding]]:
    try:
        settings = load_settings(place, flags={}, environ=environ, config_file=config_file)
    except UsageError as error:
        lines = error.message.split("\n")
        return None, [_finding("problem", line, error.hint if line is lines[-1] else None) for line in lines]
    noticed = [_finding("warning", notice) for notice in settings.notices]
    if not settings.runners:
        hint = "write a [runners.<id>.agent] table into whet.toml"
        none = f"no file found up to {settings.searched_to}" if settings.searched_to else "no file found"
        return settings, [*noticed, _finding("warning", f"{settings.file or none}: no runners are configured", hint)]
    return settings, [*noticed, _finding("ok", str(settings.file or "no project file; the user's own"))]


def _cases(place: Path) -> tuple[tuple[Case, ...], list[Finding]]:
    """The cases of a suite that was named: some agents can only tell by case whether they are ready."""
    try:
        with refusals():
            return (load_suite(place).cases if place.is_file() else ()), []
    except SuiteError as error:
        return (), list(_suite_findings(error))
    except PathRefused as error:
        return (), [Finding(part="settings", name="suite", state="problem", message=error.message, hint=error.hint)]


def _suite_findings(error: SuiteError) -> Iterator[Finding]:
    for problem in error.problems:
        yield Finding(part="settings", name="suite", state="problem", message=str(problem), hint=problem.hint)


def _sandbox(settings: Settings | None) -> tuple[Sandbox, list[Finding]]:
    try:
        return choose_sandbox(settings.sandbox if settings else "auto")[0], []
    except UsageError as error:
        local: Sandbox = plugins.find("sandboxes", "local")()
        return local, [_finding("problem", f"run.sandbox: {error.message}", error.hint)]


def _finding(state: State, message: str, hint: str | None = None) -> Finding:
    return Finding(part="settings", name="settings", state=state, message=message, hint=hint)

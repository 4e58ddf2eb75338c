"""`whet doctor`, `config` and `schema`: what is installed, what is configured, and what whet reads and writes."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from whet import plugins
from whet.agents.known import known_agents, logins
from whet.agents.programs import ReadinessFinding, State, ask_versions, find_program, look_at_agent
from whet.cli.common import CONFIG, FILE, JSON, print_document, print_lines
from whet.cli.errors import warn_of
from whet.cli.machine.documents import DOCUMENTS, ConfigDocument, ReadinessDocument, SettingInForce, document_schema
from whet.cli.machine.installation import describe_stale
from whet.errors import PathRefused, SuiteError, UsageError
from whet.model.request import Settings
from whet.model.suite import Case
from whet.plan.settings.load import describe, entries, load_settings
from whet.reading.paths import refusals
from whet.reading.text import did_you_mean
from whet.run.boundary import asks_nobody, problem_without_boundary, ways_out
from whet.run.readiness import is_asked, look_at_runner, program_of
from whet.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from whet.sandbox.bubblewrap.seccomp import refused_calls
from whet.sandbox.contract import Sandbox, choose_sandbox, why_unbounded
from whet.sandbox.engine import engine_state
from whet.sandbox.process.cgroups import CONTROLLERS, usable_places
from whet.suites.format import load_suite
from whet.suites.starter import installed_agent
from whet.workspace.mounts import private_mounts
from whet.workspace.overlay import OverlayWorkspace, Template

_MARKS = {"ok": "+", "absent": "-", "warning": "!", "problem": "x"}
_COLOURS = {"ok": "green", "absent": None, "warning": "yellow", "problem": "red"}
_PARTS = ("machine", "settings", "agents", "runners")
_READY, _NOT_READY = 0, 1


@click.command("doctor", short_help="Check your machine, settings and agents for problems.")
@click.argument("place", metavar="[SUITE_OR_FOLDER]", type=FILE, default=".")
@click.option("--container", "image", metavar="IMAGE", help="Check which agents would work in containers of IMAGE.")
@CONFIG
@JSON
def doctor_command(place: Path, image: str | None, config_file: Path | None, as_json: bool) -> int:
    """Check whether your machine, settings and agents are ready to run SUITE_OR_FOLDER (default: the current folder).

    Sends nothing over the network, and shows only the names of logins.

    \b
    Exit codes:
      0  every configured runner can start
      1  at least one cannot, or there is neither a runner nor an agent
    """
    if not place.exists():
        raise UsageError(f"{place}: no such file or folder")
    if image is not None:
        # Only here: most people have no containers.
        from whet.cli.machine.doctor_image import examine_image

        settings = load_settings(place, flags={}, environ=os.environ, config_file=config_file)
        findings = examine_image(image, settings.container, os.environ)
    else:
        findings = examine(place, config_file, os.environ)
    ready = all(finding.state != "problem" for finding in findings)
    if as_json:
        print_document(ReadinessDocument(ready=ready, findings=tuple(findings)))
    else:
        print_lines(_lines(findings))
    return _READY if ready else _NOT_READY


def _lines(findings: list[ReadinessFinding]) -> Iterator[str]:
    """Yield each part with its findings and hints, names aligned."""
    width = max(len(finding.name) for finding in findings)
    for part in _PARTS:
        rows = [finding for finding in findings if finding.part == part]
        if rows:
            yield f"{'' if part == _PARTS[0] else chr(10)}{part}"
        for finding in rows:
            mark = click.style(_MARKS[finding.state], fg=_COLOURS[finding.state])
            yield f"  {mark} {finding.name.ljust(width)}  {finding.message}"
            if finding.hint:
                yield f"    {' ' * width}  {finding.hint}"


@click.command("config", short_help="Show the settings in force and where each comes from.")
@click.argument("place", metavar="[SUITE_OR_FOLDER]", type=FILE, default=".")
@CONFIG
@JSON
def config_command(place: Path, config_file: Path | None, as_json: bool) -> None:
    """Show every setting that a run of SUITE_OR_FOLDER (default: the current folder) uses, and where it comes from."""
    if not place.exists():
        raise UsageError(f"{place}: no such file or folder")
    settings = load_settings(place, flags={}, environ=os.environ, config_file=config_file)
    warn_of(settings.notices)
    if as_json:
        settings_by_key = {key: SettingInForce(value=value, origin=origin) for key, value, origin in entries(settings)}
        file = str(settings.file) if settings.file else None
        print_document(ConfigDocument(file=file, settings=settings_by_key))
        return
    no_file = f"none found up to {settings.searched_to}" if settings.searched_to else "none found"
    click.echo(f"settings file: {settings.file or no_file}\n")
    print_lines(_align(describe(settings)))


# A longer value does not push all origins to the right.
_WIDEST = 50


def _align(rows: list[tuple[str, str, str]]) -> list[str]:
    keys = max(len(key) for key, _, _ in rows)
    values = min(_WIDEST, max(len(value) for _, value, _ in rows))
    return [f"{key.ljust(keys)}  {value.ljust(values)}  {origin}" for key, value, origin in rows]


_PACKAGES = {
    "adapter": "whet.callable",
    "bench": "whet.suites",
    "benchmark": "whet.suites",
    "results": "whet.record",
    "settings": "whet.plan.settings",
    "skill": "whet.callable",
    "suite": "whet.suites",
}


_SCHEMAS = sorted((*_PACKAGES, *DOCUMENTS))


class _NamedSchema(click.Choice[str]):
    """One of many names: a list of all of them hides what is wrong."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Return what is wrong with *value*, with the nearest name."""
        near = did_you_mean(str(value), self.choices)
        return f'no schema is called "{value}"; {near or "whet schema lists them"}'


@click.command("schema", short_help="Print the JSON Schema of a file that whet reads or writes.")
@click.argument("name", metavar="[NAME]", type=_NamedSchema(_SCHEMAS), required=False)
def schema_command(name: str | None) -> None:
    """Print the JSON Schema of a file, or of what a command prints with --json; without NAME, the names.

    \b
      settings        whet.toml
      bench, suite    bench suites and eval suites
      benchmark       benchmarks for callable skills
      skill, adapter  skill.json and adapter.config.json of a callable skill
      results         results.json, and what whet run --json prints
      batch           batch.json, which names the runs of several suites

    All others are documents of --json. The field "schema" of a document names
    its own: whet/plan/1 is the one that "whet schema plan" prints.

    An editor that has the schema of a file completes it and marks mistakes.
    """
    if name is None:
        click.echo("\n".join(_SCHEMAS))
    elif name in DOCUMENTS:
        click.echo(json.dumps(document_schema(name), indent=2))
    else:
        click.echo(files(_PACKAGES[name]).joinpath(f"{name}.schema.json").read_text("utf-8").rstrip("\n"))


def examine(place: Path, config_file: Path | None, environ: Mapping[str, str]) -> list[ReadinessFinding]:
    """Return all findings for a run of *place*, a suite or a folder."""
    findings = [*look_at_machine(), *_home(environ)]
    settings, notes = _settings(place, config_file, environ)
    findings += notes
    cases, problems = _cases(place)
    findings += problems
    programs = {agent.type: find_program(agent.program, environ) for agent in known_agents()}
    runners = settings.runners if settings else ()
    programs_to_ask = [program for program in programs.values() if program]
    programs_to_ask += [program for runner in runners if is_asked(runner) and (program := program_of(runner, environ))]
    sandbox, trouble = _sandbox(settings)
    findings += trouble
    versions = ask_versions(programs_to_ask, sandbox, environ)
    for agent in known_agents():
        program = programs[agent.type]
        findings.append(look_at_agent(agent, program, versions.get(program or ""), logins(agent, environ)))
    why = why_unbounded(settings.sandbox, sandbox) if settings else None
    for runner in runners:
        findings += look_at_runner(runner, cases, versions, environ)
        if why is not None and asks_nobody(runner):
            message, hint = problem_without_boundary(why.reason), ways_out(why.remedy)
            findings.append(
                ReadinessFinding(part="runners", name=runner.id, state="problem", message=message, hint=hint)
            )
    return findings


def _home(environ: Mapping[str, str]) -> Iterator[ReadinessFinding]:
    """Yield a warning if the home cannot be read."""
    home = environ.get("HOME") or ""
    if home and os.path.lexists(home) and not os.access(home, os.R_OK | os.X_OK):
        message = f"HOME is {home}, which you cannot read: whet does not see the logins and settings there"
        yield ReadinessFinding(
            part="machine", name="home", state="warning", message=message, hint="set HOME to your own"
        )


def _settings(
    place: Path, config_file: Path | None, environ: Mapping[str, str]
) -> tuple[Settings | None, list[ReadinessFinding]]:
    try:
        settings = load_settings(place, flags={}, environ=environ, config_file=config_file)
    except UsageError as error:
        lines = error.message.split("\n")
        return None, [_finding("problem", line, error.hint if line is lines[-1] else None) for line in lines]
    notices = [_finding("warning", notice) for notice in settings.notices]
    if not settings.runners:
        hint = "add a [runners.<id>.agent] table to whet.toml"
        no_file = f"no file found up to {settings.searched_to}" if settings.searched_to else "no file found"
        what = f"{settings.file or no_file}: no runners are configured"
        if installed_agent() is None:
            return settings, [*notices, _finding("problem", f"{what}, and no agent is installed", hint)]
        return settings, [*notices, _finding("warning", what, hint)]
    return settings, [*notices, _finding("ok", str(settings.file or "no project file; using your own"))]


def _cases(place: Path) -> tuple[tuple[Case, ...], list[ReadinessFinding]]:
    """Return the cases if *place* is a suite: some agents are ready for one case and not for another."""
    try:
        with refusals():
            return (load_suite(place).cases if place.is_file() else ()), []
    except SuiteError as error:
        return (), list(_suite_findings(error))
    except PathRefused as error:
        return (), [
            ReadinessFinding(part="settings", name="suite", state="problem", message=error.message, hint=error.hint)
        ]


def _suite_findings(error: SuiteError) -> Iterator[ReadinessFinding]:
    for problem in error.problems:
        yield ReadinessFinding(part="settings", name="suite", state="problem", message=str(problem), hint=problem.hint)


def _sandbox(settings: Settings | None) -> tuple[Sandbox, list[ReadinessFinding]]:
    try:
        return choose_sandbox(settings.sandbox if settings else "auto")[0], []
    except UsageError as error:
        local: Sandbox = plugins.find("sandboxes", "local")()
        return local, [_finding("problem", f"run.sandbox: {error.message}", error.hint)]


def _finding(state: State, message: str, hint: str | None = None) -> ReadinessFinding:
    return ReadinessFinding(part="settings", name="settings", state=state, message=message, hint=hint)


_LITTLE_SPACE = 1024**3
_TOOLS = {
    "node": "most agents are Node programs: install Node.js 22 or newer",
    "npm": "most agents are installed with it",
    "git": "agents and templates often need it",
    "rg": "opencode cannot load skills without it: install ripgrep",
}
# Switches of the kernel and of distributions, and the value of each that forbids user namespaces.
_NAMESPACE_SWITCHES = {
    "user/max_user_namespaces": "0",
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}


def look_at_machine() -> Iterator[ReadinessFinding]:
    """Yield the findings that do not depend on settings."""
    # First: mounts can be made private only while there is one thread.
    overlay = _overlay()
    yield _machine_finding("python", "ok", platform.python_version())
    if stale := describe_stale():
        yield _machine_finding("whet", "warning", stale)
    yield _bubblewrap()
    yield _containers()
    yield _namespaces()
    yield _control_groups()
    yield _proc()
    yield overlay
    yield _space()
    for name, why in _TOOLS.items():
        path = shutil.which(name)
        yield _machine_finding(name, "ok" if path else "absent", path or "not found", None if path else why)


def _machine_finding(name: str, state: State, message: str, hint: str | None = None) -> ReadinessFinding:
    return ReadinessFinding(part="machine", name=name, state=state, message=message, hint=hint)


def _bubblewrap() -> ReadinessFinding:
    state = BubblewrapSandbox.availability()
    if state.usable:
        message = f"agents run inside it ({state.details.get('program', 'bwrap')})"
        if refused_calls() is None:
            unknown = f"whet cannot refuse system calls on {platform.machine()}"
            return _machine_finding("bubblewrap", "warning", f"{message}; {unknown}")
        return _machine_finding("bubblewrap", "ok", message)
    return _machine_finding(
        "bubblewrap",
        "warning",
        state.reason,
        f"{state.remedy}; until then agents of a model start only with --sandbox local",
    )


def _containers() -> ReadinessFinding:
    state = engine_state()
    if state.usable:
        description = f"{state.details['program']} {state.details['version']}, for --sandbox container and for tasks"
        return _machine_finding("containers", "ok", description)
    return _machine_finding("containers", "absent", state.reason, state.remedy)


def _namespaces() -> ReadinessFinding:
    for switch, forbids in _NAMESPACE_SWITCHES.items():
        try:
            value = Path("/proc/sys", switch).read_text().strip()
        except OSError:
            continue
        if value == forbids:
            name = switch.replace("/", ".")
            hint = f"sysctl -w {name}={'15000' if forbids == '0' and 'max' in name else 1 - int(forbids)}, as root"
            return _machine_finding("user namespaces", "warning", f"restricted by {name} = {value}", hint)
    return _machine_finding("user namespaces", "ok", "not restricted by the kernel's settings")


def _control_groups() -> ReadinessFinding:
    controllers = sorted({controller for place in usable_places() for controller in place.controllers})
    if len(controllers) == len(CONTROLLERS):
        return _machine_finding("control groups", "ok", "available for limits of memory, processes and CPUs")
    message = f"available for {', '.join(controllers)} only" if controllers else "this user cannot create them"
    return _machine_finding("control groups", "absent", f"{message}: limits apply to each process instead")


def _proc() -> ReadinessFinding:
    if Path("/proc/self/task").is_dir():
        return _machine_finding("/proc", "ok", "mounted")
    return _machine_finding(
        "/proc", "problem", "not mounted: whet cannot find the processes of agents", "mount -t proc proc /proc"
    )


def _overlay() -> ReadinessFinding:
    """Try to show a template without copying it."""
    reason = "this user cannot mount"
    if private_mounts():
        with tempfile.TemporaryDirectory(prefix="whet-doctor-") as folder:
            template = Path(folder, "template")
            template.mkdir()
            try:
                OverlayWorkspace(Path(folder, "w"), Template(template, Path(folder, "m"), (), {})).remove()
            except OSError as error:
                reason = error.strerror or str(error)
            else:
                return _machine_finding("overlay workspaces", "ok", "templates are not copied")
    return _machine_finding("overlay workspaces", "absent", f"templates are copied: {reason}")


def _space() -> ReadinessFinding:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    message = f"{free / 1024**3:.1f} GiB free in {folder}"
    if free < _LITTLE_SPACE:
        return _machine_finding(
            "temporary space", "warning", message, "free some, or set TMPDIR to a folder on a larger disk"
        )
    return _machine_finding("temporary space", "ok", message)

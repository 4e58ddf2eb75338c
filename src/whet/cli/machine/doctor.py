"""`whet doctor`, `config` and `schema`: what is installed, what is configured, and what whet reads and writes."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import click

from whet.agents.programs import KNOWN, Finding, State, ask_versions, find_program, logins, look_at_agent
from whet.cli.common import CONFIG, FILE, JSON
from whet.cli.errors import warn_of
from whet.errors import PathRefused, SuiteError, UsageError
from whet.ground.bubblewrap import BubblewrapSandbox
from whet.ground.cgroups import CONTROLLERS, usable_places
from whet.ground.engine import engine_state
from whet.ground.mounts import private_mounts
from whet.ground.overlay import OverlayWorkspace, Template
from whet.ground.sandbox import Sandbox, choose_sandbox, why_unbounded
from whet.ground.seccomp import refused_calls
from whet.model import plugins
from whet.model.request import Settings
from whet.model.suite import Case
from whet.plan.settings import describe, entries, load_settings
from whet.reading.paths import refusals
from whet.run.boundary import asks_nobody, problem_without_boundary, ways_out
from whet.run.readiness import is_asked, look_at_runner, program_of
from whet.suites.format import load_suite

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
      1  at least one cannot
    """
    if not place.exists():
        raise UsageError(f"{place}: no such file or folder")
    if image is not None:
        # Only here: most people have no containers.
        from whet.cli.doctor_image import examine_image

        settings = load_settings(place, flags={}, environ=os.environ, config_file=config_file)
        found = examine_image(image, settings.container, os.environ)
    else:
        found = examine(place, config_file, os.environ)
    ready = all(finding.state != "problem" for finding in found)
    if as_json:
        click.echo(json.dumps({"ready": ready, "findings": [asdict(item) for item in found]}, indent=2))
    else:
        for line in _lines(found):
            click.echo(line)
    return _READY if ready else _NOT_READY


def _lines(found: list[Finding]) -> Iterator[str]:
    """Yield each part with its findings and hints, names aligned."""
    width = max(len(finding.name) for finding in found)
    for part in _PARTS:
        rows = [finding for finding in found if finding.part == part]
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
        found = {key: {"value": value, "origin": origin} for key, value, origin in entries(settings)}
        file = str(settings.file) if settings.file else None
        click.echo(json.dumps({"file": file, "settings": found}, indent=2, ensure_ascii=False))
        return
    none = f"none found up to {settings.searched_to}" if settings.searched_to else "none found"
    click.echo(f"settings file: {settings.file or none}\n")
    for line in _aligned(describe(settings)):
        click.echo(line)


# A longer value does not push all origins to the right.
_WIDEST = 50


def _aligned(rows: list[tuple[str, str, str]]) -> list[str]:
    keys = max(len(key) for key, _, _ in rows)
    values = min(_WIDEST, max(len(value) for _, value, _ in rows))
    return [f"{key.ljust(keys)}  {value.ljust(values)}  {origin}" for key, value, origin in rows]


_PACKAGES = {"bench": "whet.suites", "results": "whet.record", "suite": "whet.suites"}


@click.command("schema", short_help="Print the JSON Schema of a file that whet reads or writes.")
@click.argument("name", metavar="bench|results|suite", type=click.Choice(list(_PACKAGES)))
def schema_command(name: str) -> None:
    """Print the JSON Schema of bench suites (bench), of eval suites (suite), or of results.json (results)."""
    click.echo(files(_PACKAGES[name]).joinpath(f"{name}.schema.json").read_text("utf-8").rstrip("\n"))


def examine(place: Path, config_file: Path | None, environ: Mapping[str, str]) -> list[Finding]:
    """Return all findings for a run of *place*, a suite or a folder."""
    found = [*look_at_machine(), *_home(environ)]
    settings, notes = _settings(place, config_file, environ)
    found += notes
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
    why = why_unbounded(settings.sandbox, sandbox) if settings else None
    for runner in runners:
        found += look_at_runner(runner, cases, versions, environ)
        if why is not None and asks_nobody(runner):
            message, hint = problem_without_boundary(why.reason), ways_out(why.remedy)
            found.append(Finding(part="runners", name=runner.id, state="problem", message=message, hint=hint))
    return found


def _home(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a warning if the home cannot be read."""
    home = environ.get("HOME") or ""
    if home and os.path.lexists(home) and not os.access(home, os.R_OK | os.X_OK):
        message = f"HOME is {home}, which you cannot read: whet does not see the logins and settings there"
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
        hint = "add a [runners.<id>.agent] table to whet.toml"
        none = f"no file found up to {settings.searched_to}" if settings.searched_to else "no file found"
        return settings, [*noticed, _finding("warning", f"{settings.file or none}: no runners are configured", hint)]
    return settings, [*noticed, _finding("ok", str(settings.file or "no project file; using your own"))]


def _cases(place: Path) -> tuple[tuple[Case, ...], list[Finding]]:
    """Return the cases if *place* is a suite: some agents are ready for one case and not for another."""
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


def look_at_machine() -> Iterator[Finding]:
    """Yield the findings that do not depend on settings."""
    # First: mounts can be made private only while there is one thread.
    overlay = _overlay()
    yield _machine_finding("python", "ok", platform.python_version())
    yield _bubblewrap()
    yield _containers()
    yield _namespaces()
    yield _control_groups()
    yield _proc()
    yield overlay
    yield _space()
    for name, why in _TOOLS.items():
        found = shutil.which(name)
        yield _machine_finding(name, "ok" if found else "absent", found or "not found", None if found else why)


def _machine_finding(name: str, state: State, message: str, hint: str | None = None) -> Finding:
    return Finding(part="machine", name=name, state=state, message=message, hint=hint)


def _bubblewrap() -> Finding:
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


def _containers() -> Finding:
    state = engine_state()
    if state.usable:
        said = f"{state.details['program']} {state.details['version']}, for --sandbox container and for tasks"
        return _machine_finding("containers", "ok", said)
    return _machine_finding("containers", "absent", state.reason, state.remedy)


def _namespaces() -> Finding:
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


def _control_groups() -> Finding:
    held = sorted({controller for place in usable_places() for controller in place.controllers})
    if len(held) == len(CONTROLLERS):
        return _machine_finding("control groups", "ok", "available for limits of memory, processes and CPUs")
    message = f"available for {', '.join(held)} only" if held else "this user cannot create them"
    return _machine_finding("control groups", "absent", f"{message}: limits apply to each process instead")


def _proc() -> Finding:
    if Path("/proc/self/task").is_dir():
        return _machine_finding("/proc", "ok", "mounted")
    return _machine_finding(
        "/proc", "problem", "not mounted: whet cannot find the processes of agents", "mount -t proc proc /proc"
    )


def _overlay() -> Finding:
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


def _space() -> Finding:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    message = f"{free / 1024**3:.1f} GiB free in {folder}"
    if free < _LITTLE_SPACE:
        return _machine_finding(
            "temporary space", "warning", message, "free some, or set TMPDIR to a folder on a larger disk"
        )
    return _machine_finding("temporary space", "ok", message)

"""Where the machine stands: the sandbox, workspaces, space and the programs that agents like to have."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from whet.doctor.findings import Finding, State
from whet.sandbox.bubblewrap import BubblewrapSandbox
from whet.sandbox.cgroups import CONTROLLERS, usable_places
from whet.sandbox.refused_calls import refused_calls
from whet.workspace import private_mounts
from whet.workspace.overlay import OverlayWorkspace
from whet.workspace.template import Template

_LITTLE_SPACE = 1024**3
_TOOLS = {
    "node": "most agents are Node programs: install Node.js 22 or newer",
    "npm": "most agents are installed with it",
    "git": "agents and templates often need it",
    "rg": "opencode loads no skill without it: install ripgrep",
}
# Switches of the kernel and of distributions, and the value of each that forbids user namespaces.
_NAMESPACE_SWITCHES = {
    "user/max_user_namespaces": "0",
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}


def look_at_machine() -> Iterator[Finding]:
    """Everything that does not depend on settings."""
    # First, while there is one thread: mounts can be made private only then.
    overlay = _overlay()
    yield _finding("python", "ok", platform.python_version())
    yield _bubblewrap()
    yield _namespaces()
    yield _control_groups()
    yield _proc()
    yield overlay
    yield _space()
    for name, why in _TOOLS.items():
        found = shutil.which(name)
        yield _finding(name, "ok" if found else "absent", found or "not found", None if found else why)


def _finding(name: str, state: State, message: str, hint: str | None = None) -> Finding:
    return Finding(part="machine", name=name, state=state, message=message, hint=hint)


def _bubblewrap() -> Finding:
    state = BubblewrapSandbox.availability()
    if state.usable:
        said = f"agents run inside it ({state.details.get('program', 'bwrap')})"
        if refused_calls() is None:
            unknown = f"no call of the kernel is refused: those of {platform.machine()} are not known"
            return _finding("bubblewrap", "warning", f"{said}; {unknown}")
        return _finding("bubblewrap", "ok", said)
    return _finding("bubblewrap", "warning", state.reason, f"{state.remedy}; until then agents can see your files")


def _namespaces() -> Finding:
    for switch, forbids in _NAMESPACE_SWITCHES.items():
        try:
            value = Path("/proc/sys", switch).read_text().strip()
        except OSError:
            continue
        if value == forbids:
            name = switch.replace("/", ".")
            hint = f"sysctl -w {name}={'15000' if forbids == '0' and 'max' in name else 1 - int(forbids)}, as root"
            return _finding("user namespaces", "warning", f"restricted by {name} = {value}", hint)
    return _finding("user namespaces", "ok", "not restricted by the kernel's settings")


def _control_groups() -> Finding:
    held = sorted({controller for place in usable_places() for controller in place.controllers})
    if len(held) == len(CONTROLLERS):
        return _finding("control groups", "ok", "they can hold ceilings of memory, processes and CPUs")
    said = f"can be made for {', '.join(held)} only" if held else "cannot be made by this user"
    return _finding("control groups", "absent", f"{said}: ceilings are held by limits of each process")


def _proc() -> Finding:
    if Path("/proc/self/task").is_dir():
        return _finding("/proc", "ok", "mounted")
    return _finding("/proc", "problem", "not mounted: processes of agents cannot be found", "mount -t proc proc /proc")


def _overlay() -> Finding:
    """Whether a template can be shown without copying it; tried, because no setting tells."""
    reason = "this user may not mount"
    if private_mounts():
        with tempfile.TemporaryDirectory(prefix="whet-doctor-") as folder:
            template = Path(folder, "template")
            template.mkdir()
            try:
                OverlayWorkspace(Path(folder, "w"), Template(template)).remove()
            except OSError as error:
                reason = error.strerror or str(error)
            else:
                return _finding("overlay workspaces", "ok", "templates are not copied")
    return _finding("overlay workspaces", "absent", f"templates are copied: {reason}")


def _space() -> Finding:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    said = f"{free / 1024**3:.1f} GiB free in {folder}"
    if free < _LITTLE_SPACE:
        return _finding("temporary space", "warning", said, "free some, or let TMPDIR name a folder on a larger disk")
    return _finding("temporary space", "ok", said)

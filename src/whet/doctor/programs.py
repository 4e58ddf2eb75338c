"""The agents on this machine: where their programs are, what version they say, and what they could log in with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio

from whet.doctor.findings import Finding, State
from whet.doctor.known import KnownAgent
from whet.errors import AttemptError
from whet.report.text import one_line
from whet.sandbox.base import Boundary, Command, Sandbox

_PATIENCE_S = 15.0
_KEPT = 4096
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What a program answered to `--version`, or why it did not; `late` where it was not waited for any longer."""

    text: str
    ok: bool
    late: bool = False


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Where the program of this name is."""
    return shutil.which(name, path=environ.get("PATH"))


def ask_versions(programs: Iterable[str], sandbox: Sandbox, environ: Mapping[str, str]) -> dict[str, Version]:
    """What each program says of its version, all asked at once."""
    wanted = tuple(dict.fromkeys(programs))
    answers: dict[str, Version] = {}

    async def ask(program: str) -> None:
        answers[program] = await _version(program, sandbox, environ)

    async def ask_all() -> None:
        async with anyio.create_task_group() as group:
            for program in wanted:
                group.start_soon(ask, program)
        await sandbox.close()

    if wanted:
        anyio.run(ask_all)
    return answers


async def _version(program: str, sandbox: Sandbox, environ: Mapping[str, str]) -> Version:
    """Run it inside the sandbox, in an empty home without network: it is asked for a word, not trusted."""
    printed = _Beginning()
    with tempfile.TemporaryDirectory(prefix="whet-doctor-", ignore_cleanup_errors=True) as home:
        folder = Path(home)
        env = {"PATH": environ.get("PATH", ""), "HOME": home, "TMPDIR": home, "TERM": "dumb", "LANG": "C.UTF-8"}
        command = Command(argv=(program, "--version"), env=env, cwd=folder)
        boundary = Boundary(writable=(folder,), network=False)
        try:
            ended = await sandbox.run(command, boundary, timeout_s=_PATIENCE_S, stdout=printed, stderr=_Beginning())
        except AttemptError as error:
            return Version(text=one_line(error.message), ok=False)
    if ended.timed_out:
        return Version(text=f'"--version" did not end within {_PATIENCE_S:g} s', ok=False, late=True)
    if ended.exit_code != 0:
        return Version(text=f'"--version" ended with exit code {ended.exit_code}', ok=False)
    return Version(text=printed.first_line() or "version unknown", ok=True)


class _Beginning:
    """A sink that keeps the beginning; the rest of a talkative program is nobody's concern."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __call__(self, chunk: bytes) -> None:
        self._data += chunk[: _KEPT - len(self._data)]

    def first_line(self) -> str:
        lines = self._data.decode("utf-8", "replace").split("\n")
        return one_line(next((line for line in lines if line.strip()), ""), _SHOWN)


def look_at_agent(agent: KnownAgent, program: str | None, version: Version | None, found: list[str]) -> Finding:
    """One line on an agent that whet knows."""
    if program is None:
        return _finding(agent, "absent", "not installed", agent.install)
    if version is not None and not version.ok:
        return _finding(agent, "warning", f"{program}: {version.text}", f"see whether {program} works by hand")
    said = f"{version.text if version else 'version unknown'}  ({program})"
    if not found:
        hint = f"log in once by hand, or set {' or '.join(agent.variables[:2])}"
        return _finding(agent, "warning", f"{said}  no login found", hint)
    return _finding(agent, "ok", f"{said}  could log in with {', '.join(found)}")


def _finding(agent: KnownAgent, state: State, message: str, hint: str | None = None) -> Finding:
    return Finding(part="agents", name=agent.type, state=state, message=message, hint=hint)

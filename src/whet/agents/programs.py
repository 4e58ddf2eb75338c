"""The programs of agents on this machine: where they are, their versions, and what `whet doctor` says of them."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import anyio
from msgspec import Struct

from whet.agents.known import KnownAgent
from whet.errors import AttemptError
from whet.reading.text import one_line
from whet.sandbox.contract import Boundary, Command, Sandbox

# "problem" keeps a configured runner from starting; "warning" may matter; "absent" does not.
State = Literal["ok", "absent", "warning", "problem"]


class ReadinessFinding(Struct, frozen=True, kw_only=True):
    """The result of one check of the machine."""

    part: Literal["settings", "machine", "agents", "runners"]
    name: str
    state: State
    message: str
    hint: str | None = None


_PATIENCE_S = 15.0
_KEPT = 4096
_SHOWN, _SHOWN_WRONG = 60, 160
_WRONG = re.compile(r"error|missing|cannot find|not found|no such", re.IGNORECASE)


class ProgramVersion(Struct, frozen=True, kw_only=True):
    """What a program answered to `--version`, or why it did not; `late` if it took too long."""

    text: str
    ok: bool
    late: bool = False


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of the program of this name."""
    return shutil.which(name, path=environ.get("PATH"))


def ask_versions(programs: Iterable[str], sandbox: Sandbox, environ: Mapping[str, str]) -> dict[str, ProgramVersion]:
    """Ask all programs for their versions at the same time."""
    wanted = tuple(dict.fromkeys(programs))
    answers: dict[str, ProgramVersion] = {}

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


async def _version(program: str, sandbox: Sandbox, environ: Mapping[str, str]) -> ProgramVersion:
    """Run it inside the sandbox, in an empty home without network: it is not trusted."""
    printed, complained = _FirstOutput(), _FirstOutput()
    with tempfile.TemporaryDirectory(prefix="whet-doctor-", ignore_cleanup_errors=True) as home:
        folder = Path(home)
        env = {"PATH": environ.get("PATH", ""), "HOME": home, "TMPDIR": home, "TERM": "dumb", "LANG": "C.UTF-8"}
        command = Command(argv=(program, "--version"), env=env, cwd=folder)
        boundary = Boundary(writable=(folder,), network=False)
        try:
            ended = await sandbox.run(command, boundary, timeout_s=_PATIENCE_S, stdout=printed, stderr=complained)
        except AttemptError as error:
            return ProgramVersion(text=one_line(error.message), ok=False)
    if ended.timed_out:
        return ProgramVersion(text=f'"--version" did not end within {_PATIENCE_S:g} s', ok=False, late=True)
    if ended.exit_code != 0:
        said = complained.telling_line()
        about = f": {said}" if said else ""
        return ProgramVersion(text=f'"--version" ended with exit code {ended.exit_code}{about}', ok=False)
    return ProgramVersion(text=printed.first_line() or "version unknown", ok=True)


class _FirstOutput:
    """A sink that keeps the beginning of what a program prints."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __call__(self, chunk: bytes) -> None:
        self._data += chunk[: _KEPT - len(self._data)]

    def first_line(self) -> str:
        return one_line(next(self._lines(), ""), _SHOWN)

    def telling_line(self) -> str:
        """The line that says what is wrong, which in a trace of calls is not the first one."""
        telling = (line for line in self._lines() if _WRONG.search(line))
        return one_line(next(telling, next(self._lines(), "")), _SHOWN_WRONG)

    def _lines(self) -> Iterator[str]:
        return (line for line in self._data.decode("utf-8", "replace").split("\n") if line.strip())


def not_working(program: str) -> str:
    """What to do about a program that does not say its version."""
    return f"see whether {program} works by hand; if it does, add the folder that it misses to `mounts` of its runner"


def look_at_agent(
    agent: KnownAgent, program: str | None, version: ProgramVersion | None, login_names: list[str]
) -> ReadinessFinding:
    """One line on an agent that whet knows."""
    if program is None:
        return _finding(agent, "absent", "not installed", agent.install)
    if version is not None and not version.ok:
        return _finding(agent, "warning", f"{program}: {version.text}", not_working(program))
    said = f"{version.text if version else 'version unknown'}  ({program})"
    if not login_names:
        hint = f"log in once by hand, or set {' or '.join(agent.variables[:2])}"
        return _finding(agent, "warning", f"{said}  no login found", hint)
    return _finding(agent, "ok", f"{said}  could log in with {', '.join(login_names)}")


def _finding(agent: KnownAgent, state: State, message: str, hint: str | None = None) -> ReadinessFinding:
    return ReadinessFinding(part="agents", name=agent.type, state=state, message=message, hint=hint)

"""Running the scripts of a package, oracle and verifier, behind the same boundary as its agent."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from whet import plugins
from whet.errors import AgentNotFound, AgentNotStarted
from whet.grade.shell import Shell, plain_environment
from whet.packages.showing import ShownAt
from whet.sandbox.base import Boundary, Command, Ended, Sandbox
from whet.sandbox.ceilings import suspected

_OUTPUT_KEPT = 4 * 1024 * 1024
_LONGEST_SHEBANG = 256
_LAST_WORDS = 2000
_KILLED = 128 + signal.SIGKILL
# Lets Python find the modules of a workspace last.
_SAFE_PYTHON = Path(__file__).parent / "python"


class NotRun(Exception):
    """A script could not be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script in a workspace, where it is run, and what it may see besides."""

    path: Path
    cwd: Path
    workspace: Path
    env: Mapping[str, str]
    writable: tuple[Path, ...]
    shown_at: ShownAt
    network: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How a script ended, and what it printed."""

    ended: Ended
    text: str

    @property
    def killed(self) -> bool:
        """Whether it did not end by itself; bubblewrap tells of a kill by an exit code, as shells do."""
        return self.ended.exit_code in (None, _KILLED)

    @property
    def how(self) -> str:
        """How it ended, in words."""
        reached = f"ran into its ceiling of {self.ended.reached} and " if self.ended.reached else ""
        if self.ended.exit_code is not None:
            killed = " (it was killed)" if self.killed else ""
            return f"{reached}ended with exit code {self.ended.exit_code}{killed}"
        return f"{reached}was ended by signal {self.ended.signal}"


async def run_script(script: Script, shell: Shell, *, home: Path, timeout_s: float) -> Output:
    """Run *script* to its end; `NotRun` where it cannot be started."""
    sandbox: Sandbox = plugins.find("sandboxes", shell.sandbox)()
    env = plain_environment()
    env |= {"HOME": str(home), "TMPDIR": str(home), "PYTHONSAFEPATH": "1", **script.env}
    if env["PYTHONSAFEPATH"]:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_SAFE_PYTHON), env.get("PYTHONPATH"))))
    boundary = Boundary(
        writable=(script.workspace, home, *script.writable),
        readable=(*map(Path, shell.readable), _SAFE_PYTHON),
        hidden=tuple(map(Path, shell.hidden)),
        network=script.network,
        ceilings=shell.ceilings,
        shown_at=script.shown_at,
    )
    printed = _Printed()
    command = Command(argv=argv_of(script.path), env=env, cwd=script.cwd)
    try:
        ended = await sandbox.run(command, boundary, timeout_s=timeout_s, stdout=printed, stderr=printed)
    except (AgentNotFound, AgentNotStarted) as error:
        raise NotRun(error.message) from error
    said = printed.text()
    return Output(ended=suspected(ended, shell.ceilings, said.encode()[-_LAST_WORDS:]), text=said)


def argv_of(script: Path) -> tuple[str, ...]:
    """How a script is started: by itself if it can be, else by what its first line or its name says."""
    with script.open("rb") as file:
        first = file.read(_LONGEST_SHEBANG).split(b"\n")[0]
    if first.startswith(b"#!"):
        if os.access(script, os.X_OK):
            return (str(script),)
        # As the kernel would: a program and at most one argument.
        return (*first[2:].decode("utf-8", "replace").strip().split(None, 1), str(script))
    match script.suffix:
        case ".sh":
            return ("bash", str(script))
        case ".py":
            return (shutil.which("python3") or sys.executable, str(script))
        case _ if os.access(script, os.X_OK):
            return (str(script),)
    raise NotRun(f"{script.name} says by neither a first line, a mode nor an ending how it is run")


class _Printed:
    """A sink that keeps the end of what it is given: that is where scripts say what is wrong."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._dropped = 0

    def __call__(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > 2 * _OUTPUT_KEPT:
            self._dropped += len(self._data) - _OUTPUT_KEPT
            del self._data[:-_OUTPUT_KEPT]

    def text(self) -> str:
        start = f"... ({self._dropped} bytes before)\n" if self._dropped else ""
        return start + self._data.decode("utf-8", "replace")

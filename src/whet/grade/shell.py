"""Running a command for a check: in the workspace, inside the same kind of sandbox that the agent ran in."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from whet import plugins
from whet.errors import AgentNotFound, AgentNotStarted
from whet.model.ceilings import Ceilings
from whet.sandbox.base import Boundary, Command, Ended, Sandbox

_OUTPUT_KEPT = 16 * 1024 * 1024
_NOT_FOUND = 127
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ")
# An agent may have set a program in the settings of its repository that git starts with every command. Hooks stay:
# whether they hold may be what a check asks.
_SAFE_GIT = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "false"}


def plain_environment() -> dict[str, str]:
    """What a command that decides something gets of our variables, and what keeps an agent out of it."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _SAFE_GIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command of a check ended, and what it printed; too much of that is cut off."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    duration_s: float

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Where the commands of a check run; plain data, because it is sent to the process that runs the check."""

    sandbox: str
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    ceilings: Ceilings = field(default_factory=Ceilings)
    env: Mapping[str, str] = field(default_factory=dict)
    # Where homes of commands are made: a check that is killed leaves one behind, and the run clears it away.
    scratch: str | None = None

    def run(self, workspace: Path, argv: Sequence[str], timeout_s: float) -> Ran:
        """Run *argv* to its end, also where an async check has an event loop of its own."""
        if not argv:
            raise ValueError("there is no command to run: the list is empty")
        with tempfile.TemporaryDirectory(prefix="whet-check-", dir=self.scratch) as home:
            call = partial(anyio.run, self._run, workspace, tuple(argv), timeout_s, Path(home))
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return call()
            with ThreadPoolExecutor(max_workers=1) as thread:
                return thread.submit(call).result()

    async def _run(self, workspace: Path, argv: tuple[str, ...], timeout_s: float, home: Path) -> Ran:
        sandbox: Sandbox = plugins.find("sandboxes", self.sandbox)()
        env = plain_environment()
        env |= {"HOME": str(home), "TMPDIR": str(home), **self.env, "WHET_WORKSPACE": str(workspace)}
        boundary = Boundary(
            writable=(workspace, home),
            readable=tuple(map(Path, self.readable)),
            hidden=tuple(map(Path, self.hidden)),
            ceilings=self.ceilings,
        )
        out, err = _Kept(), _Kept()
        command = Command(argv=argv, env=env, cwd=workspace)
        try:
            ended: Ended = await sandbox.run(command, boundary, timeout_s=timeout_s, stdout=out, stderr=err)
        except (AgentNotFound, AgentNotStarted) as error:
            # As a shell would say it: it is the check's command, and no agent.
            return Ran(exit_code=_NOT_FOUND, stdout="", stderr=error.message, timed_out=False, duration_s=0.0)
        return Ran(
            exit_code=ended.exit_code,
            stdout=out.text(),
            stderr=err.text(),
            timed_out=ended.timed_out,
            duration_s=ended.duration_s,
        )


class _Kept:
    """A sink that keeps the beginning of what it is given."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __call__(self, chunk: bytes) -> None:
        self._data += chunk[: _OUTPUT_KEPT - len(self._data)]

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")

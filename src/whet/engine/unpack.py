"""What programs unpack for themselves, made once for a run: an attempt reads it and cannot leave anything in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import anyio

from whet.agents.base import AgentCommand, Unpacking
from whet.errors import AttemptError
from whet.sandbox.base import Boundary, Command, Sandbox

_PATIENCE_S = 120.0
_PASSED_ON = ("PATH", "LANG", "LC_ALL")


@dataclass(slots=True)
class Unpacked:
    """The folders that were made so far; whoever needs one while it is being made waits for it."""

    scratch: Path
    sandbox: Sandbox
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    _folders: dict[Unpacking, Path | None] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def given_to(self, asked: AgentCommand) -> AgentCommand:
        """*asked* with the folder, unless its runner names another; without it where it could not be made."""
        wanted = asked.unpacking
        if wanted is None or wanted.variable in asked.env:
            return asked
        async with self._lock:
            if wanted not in self._folders:
                self._folders[wanted] = await self._make(wanted, asked)
        folder = self._folders[wanted]
        if folder is None:
            return asked
        return replace(asked, env={**asked.env, wanted.variable: str(folder)}, readable=(*asked.readable, folder))

    async def _make(self, wanted: Unpacking, asked: AgentCommand) -> Path | None:
        """Start the program for nothing else, without network and in a home of its own; nobody's secrets are there."""
        number = next(self._numbers)
        folder, home = self.scratch / f"u{number}", self.scratch / f"uh{number}"
        folder.mkdir()
        home.mkdir()
        env = {name: asked.env[name] for name in _PASSED_ON if name in asked.env}
        env |= {"HOME": str(home), "TMPDIR": str(home), "TERM": "dumb", wanted.variable: str(folder)}
        command = Command(argv=wanted.argv, env=env, cwd=home)
        boundary = Boundary(writable=(folder, home), readable=asked.readable, network=False)
        try:
            ended = await self.sandbox.run(command, boundary, timeout_s=_PATIENCE_S, stdout=_ignore, stderr=_ignore)
        except AttemptError:
            # A program that cannot be started is the trouble of the attempt, which says so.
            return None
        return folder if ended.exit_code == 0 else None


def _ignore(chunk: bytes) -> None:
    del chunk

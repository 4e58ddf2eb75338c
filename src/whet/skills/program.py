"""A skill that is a program, with a process for each call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from whet.errors import AgentCrashed, AgentTimedOut, AttemptError, OutputTooLarge, SkillFailed
from whet.model.ceilings import Ceilings
from whet.model.skill import CallableSkill
from whet.sandbox.base import Boundary, Command, Ended, Sandbox, Sink, Talk
from whet.skills import rpc
from whet.skills.base import HEALTH_TIMEOUT_S, MOST_BYTES, Reply, environment

_TAIL = 2000
_NO_CEILINGS = Ceilings()


class Kept:
    """All that a program prints, up to a limit."""

    def __init__(self) -> None:
        self.data = bytearray()

    def __call__(self, chunk: bytes) -> None:
        """Take a piece."""
        self.data += chunk
        if len(self.data) > MOST_BYTES:
            raise OutputTooLarge(f"the skill printed more than {MOST_BYTES} bytes")


class Tail:
    """The last words of a stream."""

    def __init__(self) -> None:
        self._data = b""

    def __call__(self, chunk: bytes) -> None:
        """Take a piece."""
        self._data = (self._data + chunk)[-_TAIL:]

    @property
    def text(self) -> str:
        """What they are."""
        return self._data.decode(errors="replace").strip()


class Program:
    """How to start a skill's program, and inside which boundary."""

    def __init__(
        self,
        skill: CallableSkill,
        sandbox: Sandbox,
        environ: Mapping[str, str],
        home: Path,
        ceilings: Ceilings = _NO_CEILINGS,
    ) -> None:
        self.sandbox = sandbox
        self.boundary = Boundary(writable=(home,), readable=(skill.root,), network=skill.network, ceilings=ceilings)
        self._skill = skill
        self._env = environment(skill, environ, str(home))

    def command(self, stdin: bytes = b"") -> Command:
        """The program, with what it reads first."""
        return Command(argv=self._skill.argv, env=self._env, cwd=self._skill.root, stdin=stdin)

    def open(self, stdout: Sink, stderr: Sink) -> AbstractAsyncContextManager[Talk]:
        """Keep it running."""
        return self.sandbox.open(self.command(), self.boundary, stdout=stdout, stderr=stderr)


class OneShot:
    """A process for each call: nothing that one call leaves behind is there in the next."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def call(self, given: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """Start the program, hand it the request and read its answer."""
        return await self._ask("invoke", dict(given), 1, timeout_s)

    async def health(self) -> str | None:
        """Whether it answers the question for its health."""
        return await health_by(lambda: self._ask("healthcheck", {}, 0, HEALTH_TIMEOUT_S))

    async def _ask(self, method: str, params: Any, number: int, timeout_s: float) -> Reply:
        out, err = Kept(), Tail()
        command = self._program.command(rpc.request(method, params, number))
        ended = await self._program.sandbox.run(
            command, self._program.boundary, timeout_s=timeout_s, stdout=out, stderr=err
        )
        _refuse_bad_end(ended, timeout_s, err.text)
        answer = rpc.find_answer(bytes(out.data), number)
        if answer is None:
            raise SkillFailed(f"it printed no JSON-RPC answer: {_shown(out.data) or err.text or '(nothing)'}")
        return Reply(output=rpc.result_of(answer), latency_ms=ended.duration_s * 1000)


async def health_by(ask: Callable[[], Awaitable[object]]) -> str | None:
    """What went wrong with a question for health, if anything did; not knowing the question is no illness."""
    try:
        await ask()
    except rpc.MethodUnknown:
        return None
    except AttemptError as error:
        if error.cause != "agent":
            raise
        return error.message
    return None


def _refuse_bad_end(ended: Ended, timeout_s: float, said: str) -> None:
    """A process that did not end well gave no answer, whatever it printed before."""
    if ended.timed_out:
        raise AgentTimedOut(f"it did not end within {timeout_s:g} s")
    if ended.exit_code != 0:
        how = f"exit code {ended.exit_code}" if ended.exit_code is not None else f"signal {ended.signal}"
        raise AgentCrashed(f"its program ended with {how}: {said or '(nothing on standard error)'}")


def _shown(data: bytearray) -> str:
    return bytes(data[-_TAIL:]).decode(errors="replace").strip()

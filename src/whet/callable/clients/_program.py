"""The client for a skill that is a program, started for each call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from whet.callable.clients import contract as rpc
from whet.callable.clients.contract import HEALTH_TIMEOUT_S, MOST_BYTES, CallAnswer, environment
from whet.errors import AgentCrashed, AgentTimedOut, AttemptError, OutputTooLarge, SkillFailed
from whet.model.callable import CallableSkill
from whet.model.suite import Ceilings
from whet.sandbox.contract import Boundary, Command, Sandbox, Sink, Talk
from whet.sandbox.process.output import TAIL_BYTES, BoundedOutput, OutputTail, how_it_ended

TOO_MUCH = f"the skill printed more than {MOST_BYTES} bytes"


class Program:
    """How to start a skill's program, and inside which boundary."""

    def __init__(
        self, skill: CallableSkill, sandbox: Sandbox, environ: Mapping[str, str], home: Path, ceilings: Ceilings
    ) -> None:
        self.sandbox = sandbox
        self.boundary = Boundary(writable=(home,), readable=(skill.root,), network=skill.network, ceilings=ceilings)
        self._skill = skill
        self._env = environment(skill, environ, str(home))

    def command(self, stdin: bytes = b"") -> Command:
        """Return the program, with what it reads first."""
        return Command(argv=self._skill.argv, env=self._env, cwd=self._skill.root, stdin=stdin)

    def open(self, stdout: Sink, stderr: Sink) -> AbstractAsyncContextManager[Talk]:
        """Keep the program running until the context ends."""
        return self.sandbox.open(self.command(), self.boundary, stdout=stdout, stderr=stderr)


class ProgramSkill(ABC):
    """Calls a program by JSON-RPC; a subclass says how it is asked."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def call(self, arguments: Mapping[str, Any], *, timeout_s: float) -> CallAnswer:
        """Ask the program for an answer."""
        return await self._ask("invoke", dict(arguments), timeout_s)

    async def health(self) -> str | None:
        """Ask the program for its health."""
        return await health_by(lambda: self._ask("healthcheck", {}, HEALTH_TIMEOUT_S))

    @abstractmethod
    async def _ask(self, method: str, params: Any, timeout_s: float) -> CallAnswer: ...


class OneShot(ProgramSkill):
    """Starts a process for each call, so that no call sees what another left behind."""

    async def _ask(self, method: str, params: Any, timeout_s: float) -> CallAnswer:
        number = int(method == "invoke")
        out, err = BoundedOutput(MOST_BYTES, OutputTooLarge(TOO_MUCH)), OutputTail()
        program = self._program
        ending = await program.sandbox.run(
            program.command(rpc.request(method, params, number)),
            program.boundary,
            timeout_s=timeout_s,
            stdout=out,
            stderr=err,
        )
        # A process that did not end well gave no answer, whatever it printed before.
        if ending.timed_out:
            raise AgentTimedOut(f"it did not end within {timeout_s:g} s")
        if ending.exit_code != 0:
            error_text = err.text or "(nothing on standard error)"
            raise AgentCrashed(f"its program ended with {how_it_ended(ending)}: {error_text}")
        answer = rpc.find_answer(bytes(out.data), number)
        if answer is None:
            output = bytes(out.data[-TAIL_BYTES:]).decode(errors="replace").strip()
            raise SkillFailed(f"it printed no JSON-RPC answer: {output or err.text or '(nothing)'}")
        return CallAnswer(output=rpc.result_of(answer), latency_ms=ending.duration_s * 1000)


async def health_by(ask: Callable[[], Awaitable[object]]) -> str | None:
    """Return what is wrong with a skill, if anything is; one that does not know the question is healthy."""
    try:
        await ask()
    except rpc.MethodUnknown:
        return None
    except AttemptError as error:
        if error.cause != "agent":
            raise
        return error.message
    return None

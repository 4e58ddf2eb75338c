"""The clients for a skill that is a program, started for each call, or an HTTP endpoint."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from whet.agents import callable as rpc
from whet.agents.callable import HEALTH_TIMEOUT_S, MOST_BYTES, Reply, auth_headers, environment, read_answer
from whet.errors import (
    AgentCrashed,
    AgentError,
    AgentTimedOut,
    AttemptError,
    OutputTooLarge,
    SkillFailed,
    SkillUnreachable,
)
from whet.ground.sandbox import Boundary, Command, Ended, Sandbox, Sink, Talk
from whet.model.benchmark import CallableSkill
from whet.model.session import Usage, token_count
from whet.model.suite import Ceilings
from whet.reading.documents import DocumentError
from whet.reading.text import shorten
from whet.version import __version__

if TYPE_CHECKING:
    import httpx2


_TAIL = 2000
TOO_MUCH = f"the skill printed more than {MOST_BYTES} bytes"


class Kept:
    """Keeps what a program prints; raises *too_much* above *most* bytes."""

    def __init__(self, most: int, too_much: Exception) -> None:
        self.data = bytearray()
        self._most = most
        self._too_much = too_much

    def __call__(self, chunk: bytes) -> None:
        """Take a piece."""
        self.data += chunk
        if len(self.data) > self._most:
            raise self._too_much


class Tail:
    """Keeps the end of what a program prints."""

    def __init__(self) -> None:
        self._data = b""

    def __call__(self, chunk: bytes) -> None:
        """Take a piece."""
        self._data = (self._data + chunk)[-_TAIL:]

    @property
    def text(self) -> str:
        """The end, as text."""
        return self._data.decode(errors="replace").strip()


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
        """Keep it running until the context ends."""
        return self.sandbox.open(self.command(), self.boundary, stdout=stdout, stderr=stderr)


class ProgramSkill(ABC):
    """Calls a program by JSON-RPC; a subclass says how it is asked."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def call(self, given: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """Ask the program for an answer."""
        return await self._ask("invoke", dict(given), timeout_s)

    async def health(self) -> str | None:
        """Ask the program for its health."""
        return await health_by(lambda: self._ask("healthcheck", {}, HEALTH_TIMEOUT_S))

    @abstractmethod
    async def _ask(self, method: str, params: Any, timeout_s: float) -> Reply: ...


class OneShot(ProgramSkill):
    """Starts a process for each call, so that no call sees what another left behind."""

    async def _ask(self, method: str, params: Any, timeout_s: float) -> Reply:
        number = int(method == "invoke")
        out, err = Kept(MOST_BYTES, OutputTooLarge(TOO_MUCH)), Tail()
        program = self._program
        ended = await program.sandbox.run(
            program.command(rpc.request(method, params, number)),
            program.boundary,
            timeout_s=timeout_s,
            stdout=out,
            stderr=err,
        )
        # A process that did not end well gave no answer, whatever it printed before.
        if ended.timed_out:
            raise AgentTimedOut(f"it did not end within {timeout_s:g} s")
        if ended.exit_code != 0:
            said = err.text or "(nothing on standard error)"
            raise AgentCrashed(f"its program ended with {how_it_ended(ended)}: {said}")
        answer = rpc.find_answer(bytes(out.data), number)
        if answer is None:
            printed = bytes(out.data[-_TAIL:]).decode(errors="replace").strip()
            raise SkillFailed(f"it printed no JSON-RPC answer: {printed or err.text or '(nothing)'}")
        return Reply(output=rpc.result_of(answer), latency_ms=ended.duration_s * 1000)


def how_it_ended(ended: Ended) -> str:
    """Return such as "exit code 3" or "signal 9"."""
    return f"exit code {ended.exit_code}" if ended.exit_code is not None else f"signal {ended.signal}"


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


_SHOWN = 500
# Not found, method not allowed, not implemented.
_NO_GET = frozenset({404, 405, 501})
_INPUT, _OUTPUT = "x-usage-input-tokens", "x-usage-output-tokens"


class HttpSkill:
    """Calls an endpoint, with one connection pool for all calls."""

    def __init__(self, skill: CallableSkill, client: httpx2.AsyncClient) -> None:
        assert skill.url is not None
        self._skill, self._url, self._client = skill, skill.url, client

    async def call(self, given: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """POST the input; the JSON body is the answer."""
        body = {"skillId": self._skill.id, "version": self._skill.version, "input": dict(given)}
        began = time.monotonic()
        response, data = await self._send("POST", timeout_s, body)
        latency_ms = (time.monotonic() - began) * 1000
        if response.has_redirect_location:
            moved = f"HTTP {response.status_code}: it sends us on to {response.headers['location']}"
            raise SkillFailed(moved, hint="name that address in entrypoint")
        if not response.is_success:
            raise SkillFailed(f"HTTP {response.status_code}: {_body(data)}")
        try:
            output = read_answer(data)
        except DocumentError as error:
            raise SkillFailed(f"its answer {error}: {_body(data)}") from error
        return Reply(output=output, latency_ms=latency_ms, usage=_usage(response.headers))

    async def health(self) -> str | None:
        """Return what is wrong if a GET of the same address fails; an endpoint that only knows POST is healthy."""
        try:
            response, _ = await self._send("GET", HEALTH_TIMEOUT_S, None)
        except (AgentTimedOut, OutputTooLarge) as error:
            return error.message
        return None if response.is_success or response.status_code in _NO_GET else f"HTTP {response.status_code}"

    async def _send(self, method: str, timeout_s: float, body: Any) -> tuple[httpx2.Response, bytes]:
        import httpx2  # noqa: PLC0415 - only skills over HTTP need it

        answer = Kept(MOST_BYTES, OutputTooLarge(f"the skill answered more than {MOST_BYTES} bytes"))
        try:
            with anyio.fail_after(timeout_s):
                async with self._client.stream(method, self._url, json=body) as response:
                    async for chunk in response.aiter_bytes():
                        answer(chunk)
                    return response, bytes(answer.data)
        except TimeoutError:
            raise AgentTimedOut(f"{self._url} did not answer within {timeout_s:g} s") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise broken(self._url, error) from error


def http_client(skill: CallableSkill, environ: Mapping[str, str]) -> httpx2.AsyncClient:
    """Return a client with the headers of the skill; it ignores proxies of the environment."""
    import httpx2  # noqa: PLC0415

    headers = {"X-Eval-Skills-Version": __version__, **skill.headers, **auth_headers(skill, environ)}
    return httpx2.AsyncClient(headers=headers, timeout=None, trust_env=False)


def broken(url: str, error: Exception) -> AgentError:
    """Return the error for an exchange that did not finish: no server, or one that does not speak HTTP."""
    import httpx2  # noqa: PLC0415

    said = f"{url}: {str(error) or type(error).__name__}"
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return SkillUnreachable(said)
    return SkillFailed(f"it broke off: {said}")


def _usage(headers: Mapping[str, str]) -> Usage | None:
    taken, given = (token_count(headers.get(name)) for name in (_INPUT, _OUTPUT))
    return None if taken is None and given is None else Usage(input_tokens=taken, output_tokens=given)


def _body(data: bytes) -> str:
    return shorten(data.decode(errors="replace").strip(), _SHOWN) or "(nothing)"

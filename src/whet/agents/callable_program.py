"""A skill behind an HTTP endpoint: a POST with JSON in it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


_SHOWN = 500
# Not found, method not allowed, not implemented.
_NO_GET = frozenset({404, 405, 501})
_INPUT, _OUTPUT = "x-usage-input-tokens", "x-usage-output-tokens"


class HttpSkill:
    """One connection pool for all calls."""

    def __init__(self, skill: CallableSkill, client: httpx2.AsyncClient) -> None:
        assert skill.url is not None
        self._skill, self._url, self._client = skill, skill.url, client

    async def call(self, given: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """POST the input; the answer is the whole JSON body."""
        body = {"skillId": self._skill.id, "version": self._skill.version, "input": dict(given)}
        began = time.monotonic()
        response, data = await self._send("POST", timeout_s, body)
        latency_ms = (time.monotonic() - began) * 1000
        if response.has_redirect_location:
            where = response.headers["location"]
            raise SkillFailed(
                f"HTTP {response.status_code}: it sends us on to {where}", hint="name that address in entrypoint"
            )
        if not response.is_success:
            raise SkillFailed(f"HTTP {response.status_code}: {_body(data)}")
        try:
            output = read_answer(data)
        except DocumentError as error:
            raise SkillFailed(f"its answer {error}: {_body(data)}") from error
        return Reply(output=output, latency_ms=latency_ms, usage=_usage(response.headers))

    async def health(self) -> str | None:
        """Whether a GET of the same address succeeds; many endpoints know POST only, and that is no illness."""
        try:
            response, _ = await self._send("GET", HEALTH_TIMEOUT_S, None)
        except (AgentTimedOut, OutputTooLarge) as error:
            return error.message
        return None if response.is_success or response.status_code in _NO_GET else f"HTTP {response.status_code}"

    async def _send(self, method: str, timeout_s: float, body: Any) -> tuple[httpx2.Response, bytes]:
        import anyio  # noqa: PLC0415 - only those who call skills over HTTP wait for these
        import httpx2  # noqa: PLC0415

        try:
            with anyio.fail_after(timeout_s):
                async with self._client.stream(method, self._url, json=body) as response:
                    return response, await _read(response)
        except TimeoutError:
            raise AgentTimedOut(f"{self._url} did not answer within {timeout_s:g} s") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise broken(self._url, error) from error


def http_client(skill: CallableSkill, environ: Mapping[str, str]) -> httpx2.AsyncClient:
    """A client that sends what the skill's endpoint wants to see, and uses no proxy that somebody else set up."""
    import httpx2  # noqa: PLC0415

    headers = {"X-Eval-Skills-Version": __version__, **skill.headers, **auth_headers(skill, environ)}
    return httpx2.AsyncClient(headers=headers, timeout=None, trust_env=False)


def broken(url: str, error: Exception) -> AgentError:
    """What it means that an exchange came to no end: nobody is there, or somebody does not do as HTTP wants it."""
    import httpx2  # noqa: PLC0415

    said = f"{url}: {str(error) or type(error).__name__}"
    never_there = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    return SkillUnreachable(said) if never_there else SkillFailed(f"it broke off: {said}")


async def _read(response: httpx2.Response) -> bytes:
    data = bytearray()
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) > MOST_BYTES:
            raise OutputTooLarge(f"the skill answered more than {MOST_BYTES} bytes")
    return bytes(data)


def _usage(headers: Mapping[str, str]) -> Usage | None:
    taken, given = (token_count(headers.get(name)) for name in (_INPUT, _OUTPUT))
    return None if taken is None and given is None else Usage(input_tokens=taken, output_tokens=given)


def _body(data: bytes) -> str:
    return shorten(data.decode(errors="replace").strip(), _SHOWN) or "(nothing)"

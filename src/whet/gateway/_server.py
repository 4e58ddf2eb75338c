"""The gateway between agents and their providers: it puts keys in, counts what passes, and lets nothing else through.

A proxy is for one agent. Only that agent can reach it: through a socket in its own network, or by a secret in the
path. Import it only if an agent goes through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from urllib.parse import unquote

import h11
import httpx2
import msgspec
from msgspec.structs import replace

from whet.errors import AgentError, RunBudgetSpent
from whet.gateway._answers import content_type, follow_answer
from whet.gateway._mask import KeyMask
from whet.gateway._rules import Refusal, Rules
from whet.gateway._tunnel import Tunnels
from whet.gateway._upstream import (
    ProviderRequest,
    Unreachable,
    Unsendable,
    Upstream,
    answer_headers,
    pieces_of,
    query_with_key,
    request_headers,
    unreadable_coding,
)
from whet.gateway.connection import AgentHungUp, Answer, AnswerCut, Client, IncomingRequest, error_answer
from whet.gateway.refusals import ProviderChecks
from whet.gateway.request import BodyMemory, ProxiedRequest, Responder, read_along
from whet.gateway.request_log import LastRequests, LoggedRequest, RequestLog
from whet.gateway.routes import ProxyCredentials, Route
from whet.gateway.wire.chat import ask_for_figures, lacks_figures
from whet.gateway.wire.formats import AnswerReader, RequestSummary, error_kind

# An agent that opens more waits until one of them is closed.
_MOST_CONNECTIONS = 128
_BACKLOG = 1024
# What providers take; beyond, an agent could bring about an outage, and so choose which of its trials count.
_USUAL_HEAD, _USUAL_BODY = 8 * 1024, 20 * 1024 * 1024
_QUIET_WITHIN_S = 0.5
_PAUSE_S = 0.05
_ERROR = 400
_NO_ALLOWANCE, _FORBIDDEN, _NOT_FOUND, _TOO_LARGE, _PACKED, _UPGRADE, _UNREACHABLE = 402, 403, 404, 413, 415, 426, 502
# How servers say that a request has a field that they do not know.
_MISUNDERSTOOD = (400, 422)


class AgentProxy:
    """The way of one agent to its provider."""

    def __init__(
        self,
        route: Route,
        upstream: Upstream,
        *,
        rules: Rules | None = None,
        tunnels: Tunnels | None = None,
        refusals: ProviderChecks | None = None,
        most_connections: int = _MOST_CONNECTIONS,
        takes_turns: bool = False,
    ) -> None:
        self._route, self._upstream = route, upstream
        self._rules = rules or Rules(provider=route.provider.name)
        # Whether streams of chats are asked for their figures: some servers refuse that.
        self._asks_figures = True
        # Whether it waits for its turn at the provider; then the whole request is there when the turn comes.
        self._takes_turns = takes_turns
        # What may answer before the provider.
        self.sources: tuple[Responder, ...] = ()
        self._tunnels = tunnels or Tunnels(())
        self._refusals = refusals or ProviderChecks()
        self._trusted = False
        # While it is being found out whether anybody can reach the provider.
        self._trying: asyncio.Task[None] | None = None
        self._secret = secrets.token_hex(16)
        self._listeners: list[socket.socket] = []
        self._kept = BodyMemory()
        self._room = asyncio.Semaphore(most_connections)
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._stop: Callable[[], object] = lambda: None
        self._log: RequestLog | None = None
        self._pass: ProxyCredentials | None = None
        # Of an agent that what it prints may end.
        self.last_requests: LastRequests | None = None
        # Why the agent is to be ended, if something here decides that.
        self.verdict: AgentError | None = None

    def given(self, address: str, env: dict[str, str] | None = None) -> ProxyCredentials:
        """Return what the agent gets to come through here, where *address* leads to our listener."""
        proxy_url = f"{address}/{self._secret}/{self._route.provider.name}"
        self._pass = ProxyCredentials(
            route=self._route,
            address=proxy_url,
            secret=self._secret,
            env=env or {},
            hosted_tools=self._rules.hosted_tools,
        )
        return self._pass

    def listen(self) -> str:
        """Listen on a port of loopback, and return its address."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self.accept(listener)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    def accept(self, listener: socket.socket) -> None:
        """Take connections from *listener* from now on."""
        listener.setblocking(False)
        self._listeners.append(listener)
        self._start(self._accept_all(listener))

    def begin(self, log: RequestLog, stop: Callable[[], object], *, trusted: bool = False) -> None:
        """Account to *log* from now on; *stop* ends the agent, which is *trusted* if whet knows its program."""
        self._log, self._stop, self.verdict, self._trusted = log, stop, None, trusted

    async def wait_until_quiet(self) -> None:
        """Give what is under way a moment to end: an agent may exit with the last word of an answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_WITHIN_S):
                await self._quiet.wait()

    async def reach(self) -> None:
        """Wait until it is known whether anybody can reach the provider, if that is in doubt."""
        if self._trying is not None:
            await asyncio.wait({self._trying})

    async def provider_answers(self) -> bool:
        """Return whether the provider answers whet itself."""
        return await self._refusals.answers(self._route)

    async def close(self) -> None:
        """End everything that is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for listener in self._listeners:
            listener.close()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept_all(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:
                # No more files may be open at the moment.
                self._room.release()
                await asyncio.sleep(_PAUSE_S)
                continue
            # Otherwise the kernel would hold small pieces back until the agent has confirmed the one before.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._converse(connection))

    async def _converse(self, connection: socket.socket) -> None:
        """Answer the requests of one connection, one after the other."""
        try:
            client = Client(*await asyncio.open_connection(sock=connection))
        except OSError:
            connection.close()
            self._room.release()
            return
        try:
            while (incoming := await client.request()) is not None and self._log is not None:
                if incoming.method == "CONNECT":
                    await self._tunnel(client, incoming, self._log)
                    return
                await self._answer(client, incoming, self._log)
        except h11.RemoteProtocolError as error:
            await client.refuse_garbage(error)
        except (AgentHungUp, AnswerCut, h11.LocalProtocolError, OSError):
            # The agent or the provider broke it off, which is noted where it matters.
            pass
        finally:
            self._room.release()
            await client.close()

    async def _tunnel(self, client: Client, incoming: IncomingRequest, log: RequestLog) -> None:
        entry = log.begin("CONNECT", incoming.target, model=False)
        problem = await self._tunnels.open(client, incoming.target)
        entry.status = 200 if problem is None else _FORBIDDEN
        log.done(entry, "answered" if problem is None else "refused", message=problem or "")

    async def _answer(self, client: Client, incoming: IncomingRequest, log: RequestLog) -> None:
        """Answer a request, unless the agent hangs up before."""
        uploaded = asyncio.Event()
        work = asyncio.ensure_future(self._exchange(client, incoming, log, uploaded))
        watch = asyncio.ensure_future(_watch_client(client, uploaded))
        self._under_way += 1
        self._quiet.clear()
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hung_up = not work.done()
            for task in (work, watch):
                task.cancel()
            await asyncio.wait({work, watch})
            if hung_up and not work.cancelled():
                # The work ended at the same moment, and has noted how.
                work.exception()
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()
        if hung_up:
            raise AgentHungUp
        work.result()

    async def _exchange(
        self, client: Client, incoming: IncomingRequest, log: RequestLog, uploaded: asyncio.Event
    ) -> None:
        place = self._path(incoming)
        if isinstance(place, Answer):
            await client.drain()
            await client.answer(place)
            return
        path, query = place
        admission = self._rules.admit(incoming.method, path)
        if isinstance(admission, Refusal):
            entry = log.begin(incoming.method, path, model=False)
            await client.drain()
            await _refuse(client, log, entry, error_answer(_FORBIDDEN, admission.why))
            return
        if admission.format is not None and self.last_requests is not None:
            await self.last_requests.hold()
        entry = log.begin(incoming.method, path, model=admission.format is not None)
        entry.asked = RequestSummary(format=admission.format)
        if admission.format is not None and (refusal := self._refused(log)) is not None:
            await client.drain()
            await _refuse(client, log, entry, refusal)
            return
        async with contextlib.AsyncExitStack() as stack:
            request = ProxiedRequest(
                incoming=incoming,
                entry=entry,
                path=path,
                query=query,
                body=bytearray(),
                rest=client.body(),
                stack=stack,
                kept=self._kept,
            )
            stack.callback(request.forget)
            request.rest = read_along(request.rest, request, log, uploaded)
            if not incoming.has_body:
                await request.whole()
            await self._pass_on(client, request, log, is_examined=admission.examined)

    def _path(self, incoming: IncomingRequest) -> tuple[str, str] | Answer:
        """Return the path at the provider and the query, or why the request is none of this agent's."""
        path, _, query = incoming.target.partition("?")
        prefix = f"/{self._secret}/{self._route.provider.name}"
        if incoming.upgrades:
            return error_answer(_UPGRADE, "only HTTP passes here", [(b"upgrade", b"HTTP/1.1")])
        if not secrets.compare_digest(path[: len(prefix)].encode(), prefix.encode()):
            return error_answer(_NOT_FOUND, "there is nothing at this address")
        provider_path = path[len(prefix) :]
        if (provider_path and not provider_path.startswith("/")) or "#" in query or _is_ambiguous(provider_path):
            return error_answer(_ERROR, "this path leads elsewhere")
        return provider_path, query

    def _refused(self, log: RequestLog) -> Answer | None:
        """Return the refusal if a budget is spent, and end the agent."""
        verdict: AgentError | None = log.refusal()
        if verdict is None and (reason := log.no_allowance()) is not None:
            verdict = RunBudgetSpent(reason)
        if verdict is None:
            return None
        self.end_with(verdict)
        return error_answer(_NO_ALLOWANCE, verdict.message)

    def end_with(self, verdict: AgentError) -> None:
        """End the agent, for this reason."""
        self.verdict = self.verdict or verdict
        self._stop()

    async def _examined(self, request: ProxiedRequest) -> Answer | None:
        """Read a request to a model as a whole, and return why it does not pass, or None.

        A body that the agent has not finished is its own affair: the provider is asked only when all of it is there.
        """
        await request.whole()
        if request.too_large:
            return error_answer(_TOO_LARGE, "the request is too large")
        if request.incoming.header(b"content-encoding") not in (None, b"identity"):
            return error_answer(_PACKED, "a packed request cannot be counted: send it as it is")
        if request.seen is None:
            return error_answer(_ERROR, "the request is not a JSON object, or has more parts than a model takes")
        examine = partial(self._rules.examine, request.entry.asked.format, request.seen)
        if (why := await self._kept.look(len(request.body), examine)) is not None:
            return error_answer(_FORBIDDEN, why)
        request.adds_figures = self._asks_figures and lacks_figures(request.entry.asked, request.seen)
        return None

    async def _pass_on(self, client: Client, request: ProxiedRequest, log: RequestLog, *, is_examined: bool) -> None:
        """Ask the one who answers, and give the agent the answer while it comes."""
        entry = request.entry
        answer: Answer | None = None
        reading: AnswerReader | None = None
        error = bytearray()
        try:
            if is_examined and (refusal := await self._examined(request)) is not None:
                await _refuse(client, log, entry, refusal)
                return
            await request.gather()
            log.sent(entry, is_whole=request.is_whole)
            answer = await self._ask(request, 0)
            entry.status = answer.status
            await self._look_for_refusal(request, answer.status)
            reading = AnswerReader(entry.asked.format, content_type(answer))
            await client.answer(follow_answer(answer, reading, error, log, entry, hides_figures=request.adds_figures))
        except Unreachable as trouble:
            try:
                await request.whole()
            finally:
                # Only now it is known how large the request is.
                message = self._without_keys(trouble)
                log.done(entry, "unreachable", kind="network" if _is_usual(request) else None, message=message)
                self._trying = self._trying or self._start(self._look_for_anybody())
            await client.refuse(_UNREACHABLE, f"the provider cannot be reached: {message}")
        except Unsendable as trouble:
            entry.status = _ERROR
            log.done(entry, "refused")
            await request.whole()
            await client.refuse(_ERROR, f"this cannot be sent: {self._without_keys(trouble)}")
        except AnswerCut as trouble:
            self._done(log, request, reading, error, cut_reason=str(trouble))
            raise
        except (asyncio.CancelledError, AgentHungUp, OSError):
            self._done(log, request, reading, error, hung_up=True)
            raise
        except BaseException:
            log.done(entry, "refused")
            raise
        else:
            self._done(log, request, reading, error)

    def _without_keys(self, trouble: Exception) -> str:
        """Return the words of *trouble*, which may repeat a header that was sent or answered."""
        keys = self._pass.real_keys if self._pass else {}
        return KeyMask(keys.values()).all_of(str(trouble).encode()).decode()

    async def _look_for_refusal(self, request: ProxiedRequest, status: int) -> None:
        """End the agent if the provider refuses the key; only what the provider itself said of a model counts."""
        if not request.entry.paid or request.entry.asked.format is None or self._pass is None:
            return
        variable = self._pass.variable_in(request.incoming.headers, request.query)
        refusal = await self._refusals.after(self._route, variable, status, trusted=self._trusted)
        if refusal is not None:
            self.end_with(refusal)

    async def _look_for_anybody(self) -> None:
        """End the agent if the provider cannot be reached, and has not been reached in this run."""
        error = await self._refusals.unreachable(self._route)
        if error is not None:
            self.end_with(error)

    def _done(
        self,
        log: RequestLog,
        request: ProxiedRequest,
        reading: AnswerReader | None,
        error: bytearray,
        *,
        cut_reason: str | None = None,
        hung_up: bool = False,
    ) -> None:
        if reading is not None:
            reading.finish()
        entry = request.entry
        tokens, model = (reading.tokens, reading.model) if reading else ({}, None)
        # An answer that did not come to its end tells only what it took until then.
        is_whole = (not hung_up and cut_reason is None) or (reading is not None and reading.complete)
        # Most answers say what they took, so most requests need not be searched for their text.
        is_known = is_whole and tokens.keys() >= {"input_tokens", "output_tokens"}
        text = (0, 0) if is_known else _count_text(request, reading)
        end = partial(log.done, entry, tokens=tokens, model=model, text=text, is_complete=is_whole)
        if cut_reason is not None:
            end("cut", kind="network", message=f"the answer broke off: {cut_reason}")
        elif entry.status is not None and entry.status >= _ERROR:
            # Also if the agent did not wait for the words of it.
            kind, message = error_kind(entry.status, bytes(error))
            end("failed", kind=kind, message=message)
        elif hung_up and not (reading and reading.complete):
            end("left")
        elif reading is not None and reading.error is not None:
            kind, message = error_kind(None, {"error": dict(reading.error)})
            end("failed", kind=kind if kind != "other" else "server", message=message)
        else:
            end("answered")

    async def _ask(self, request: ProxiedRequest, depth: int) -> Answer:
        """Ask the sources in their order, and the provider in the end."""
        if depth < len(self.sources):
            return await self.sources[depth].answer(request, partial(self._ask, depth=depth + 1))
        return await self._provider(request)

    async def _provider(self, request: ProxiedRequest) -> Answer:
        keys = self._pass.real_keys if self._pass else {}
        incoming = request.incoming
        is_confined = self._rules.hosted_tools is not None
        query = query_with_key(request.query, keys, is_confined=is_confined)
        if self._takes_turns:
            # Otherwise an agent that sends slowly would keep all others waiting.
            await request.whole()
            if request.too_large:
                return error_answer(_TOO_LARGE, "the request is too large")
        rewritten_body = request.anew if request.entry.asked.format != "other" else None
        provider_request = ProviderRequest(
            method=incoming.method,
            url=f"{self._route.url}{request.path}{'?' if query else ''}{query}",
            headers=request_headers(incoming.headers, keys, anew=rewritten_body is not None, is_confined=is_confined),
            body=rewritten_body or request.whole_body or (request.rest if incoming.has_body else None),
        )
        request.entry.paid = True
        response = await self._response(request, provider_request)
        if incoming.method != "HEAD" and (coding := unreadable_coding(response)) is not None:
            return error_answer(
                _UNREACHABLE, f"the provider packs its answer as {coding[:100]}, which it was not to do"
            )
        mask = KeyMask(keys.values())
        headers = [(name, mask.all_of(value)) for name, value in answer_headers(response)]

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in pieces_of(response):
                if visible := mask.feed(piece):
                    yield visible
            if tail := mask.finish():
                yield tail

        return Answer(status=response.status_code, headers=headers, pieces=pieces())

    async def _response(self, request: ProxiedRequest, provider_request: ProviderRequest) -> httpx2.Response:
        """Ask the provider; without asking for figures, if it does not understand that."""
        if not request.adds_figures or request.seen is None:
            return await request.stack.enter_async_context(self._upstream.ask(provider_request))
        request_for_figures = replace(provider_request, body=msgspec.json.encode(ask_for_figures(request.seen)))
        attempt = await request.stack.enter_async_context(contextlib.AsyncExitStack())
        response = await attempt.enter_async_context(self._upstream.ask(request_for_figures))
        if response.status_code not in _MISUNDERSTOOD:
            return response
        await attempt.aclose()
        response = await request.stack.enter_async_context(self._upstream.ask(provider_request))
        self._asks_figures = response.status_code >= _ERROR
        return response


async def _refuse(client: Client, log: RequestLog, entry: LoggedRequest, refusal: Answer) -> None:
    """Note that whet refused a request, and say why."""
    entry.status = refusal.status
    log.done(entry, "refused")
    await client.answer(refusal)


def _is_usual(request: ProxiedRequest) -> bool:
    """Return whether a provider takes such a request: some hang up on a larger one, which is no trouble of theirs."""
    head = sum(len(name) + len(value) for name, value in request.incoming.headers)
    return head <= _USUAL_HEAD and len(request.body) <= _USUAL_BODY and not request.too_large


def _is_ambiguous(path: str) -> bool:
    """Return whether a server could read *path* as another one, or as one with an end of its own."""
    decoded_path = unquote(path)
    # Some servers decode a path more than once.
    if not path.isascii() or unquote(decoded_path) != decoded_path or not decoded_path.isprintable():
        return True
    if any(sign in decoded_path for sign in "#?\\"):
        return True
    return any(part.partition(";")[0] in (".", "..") for part in decoded_path.split("/"))


def _count_text(request: ProxiedRequest, reading: AnswerReader | None) -> tuple[int, int]:
    """Return the characters of text in a request and in what came of its answer."""
    return request.characters, reading.written if reading else 0


async def _watch_client(client: Client, uploaded: asyncio.Event) -> None:
    """Return when the agent hangs up after its request."""
    await uploaded.wait()
    await client.watch()

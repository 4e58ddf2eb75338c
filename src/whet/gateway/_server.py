"""The gateway between agents and their providers: it puts keys in, counts what passes, and lets nothing else through.

A passage is for one agent. Only that agent can reach it: through a socket in its own network, or by a secret in the
path. Import it only if an agent goes through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

import h11
import httpx2
import msgspec

from whet.agents.gateway_answers import content_type, followed
from whet.agents.gateway_asking import Asking, Kept, Source, copied
from whet.agents.gateway_chat import asking_for_figures, lacks_figures
from whet.agents.gateway_http import Answer, Client, Cut, Gone, Incoming, error_answer
from whet.agents.gateway_ledger import Entry, Ledger
from whet.agents.gateway_mask import KeyMask
from whet.agents.gateway_refusals import Refusals
from whet.agents.gateway_routes import Pass, Route
from whet.agents.gateway_rules import Refused, Rules
from whet.agents.gateway_tunnel import Tunnels
from whet.agents.gateway_upstream import (
    Question,
    Unreachable,
    Unsendable,
    Upstream,
    answer_headers,
    pieces_of,
    query_with_key,
    question_headers,
)
from whet.agents.gateway_wire import Answer as Reading
from whet.agents.gateway_wire import Asked, characters, error_kind
from whet.errors import AgentError, BudgetSpent, RunBudgetSpent

# An agent that opens more waits until one of them is closed.
_MOST_CONNECTIONS = 128
_BACKLOG = 1024
# What providers take; beyond, an agent could bring about an outage, and so choose which of its trials count.
_USUAL_HEAD, _USUAL_BODY = 8 * 1024, 20 * 1024 * 1024
_SETTLE_S = 0.5
_PAUSE_S = 0.05
_ERROR = 400
_NO_ALLOWANCE, _FORBIDDEN, _NOT_FOUND, _TOO_LARGE, _PACKED, _UPGRADE, _UNREACHABLE = 402, 403, 404, 413, 415, 426, 502
# How servers say that a request has a field that they do not know.
_MISUNDERSTOOD = (400, 422)
# A server may decode a path more than once.
_DECODED = 3


class Passage:
    """The way of one agent to its provider."""

    def __init__(
        self,
        route: Route,
        upstream: Upstream,
        *,
        rules: Rules | None = None,
        tunnels: Tunnels | None = None,
        refusals: Refusals | None = None,
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
        self.sources: tuple[Source, ...] = ()
        self._tunnels = tunnels or Tunnels(())
        self._refusals = refusals or Refusals()
        self._trusted = False
        # While it is being found out whether anybody can reach the provider.
        self._trying: asyncio.Task[None] | None = None
        self._secret = secrets.token_hex(16)
        self._listeners: list[socket.socket] = []
        self._kept = Kept()
        self._room = asyncio.Semaphore(most_connections)
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._stop: Callable[[], object] = lambda: None
        self._ledger: Ledger | None = None
        self._pass: Pass | None = None
        # Why the agent is to be ended, if something here decides that.
        self.verdict: AgentError | None = None

    def given(self, address: str, env: dict[str, str] | None = None) -> Pass:
        """Return what the agent gets to come through here, where *address* leads to our listener."""
        whole = f"{address}/{self._secret}/{self._route.provider.name}"
        self._pass = Pass(
            route=self._route,
            address=whole,
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

    def begin(self, ledger: Ledger, stop: Callable[[], object], *, trusted: bool = False) -> None:
        """Account to *ledger* from now on; *stop* ends the agent, which is *trusted* if whet knows its program."""
        self._ledger, self._stop, self.verdict, self._trusted = ledger, stop, None, trusted

    async def settle(self) -> None:
        """Give what is under way a moment to end: an agent may exit with the last word of an answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                await self._quiet.wait()

    async def reach(self) -> None:
        """Wait until it is known whether anybody can reach the provider, if that is in doubt."""
        if self._trying is not None:
            await asyncio.wait({self._trying})

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
            while (incoming := await client.request()) is not None and self._ledger is not None:
                if incoming.method == "CONNECT":
                    await self._tunnel(client, incoming, self._ledger)
                    return
                await self._answer(client, incoming, self._ledger)
        except h11.RemoteProtocolError as error:
            await client.refuse_garbage(error)
        except (Gone, Cut, h11.LocalProtocolError, OSError):
            # The agent or the provider broke it off, which is noted where it matters.
            pass
        finally:
            self._room.release()
            await client.close()

    async def _tunnel(self, client: Client, incoming: Incoming, ledger: Ledger) -> None:
        entry = ledger.begin("CONNECT", incoming.target, model=False)
        refused = await self._tunnels.open(client, incoming.target)
        entry.status = 200 if refused is None else _FORBIDDEN
        ledger.done(entry, "answered" if refused is None else "refused", said=refused or "")

    async def _answer(self, client: Client, incoming: Incoming, ledger: Ledger) -> None:
        """Answer a request, unless the agent hangs up before."""
        uploaded = asyncio.Event()
        work = asyncio.ensure_future(self._exchange(client, incoming, ledger, uploaded))
        watch = asyncio.ensure_future(_gone(client, uploaded))
        self._under_way += 1
        self._quiet.clear()
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left = not work.done()
            for task in (work, watch):
                task.cancel()
            await asyncio.wait({work, watch})
            if left and not work.cancelled():
                # It ended at the same moment, and has noted how.
                work.exception()
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()
        if left:
            raise Gone
        work.result()

    async def _exchange(self, client: Client, incoming: Incoming, ledger: Ledger, uploaded: asyncio.Event) -> None:
        found = self._path(incoming)
        if isinstance(found, Answer):
            await client.drain()
            await client.answer(found)
            return
        path, query = found
        admitted = self._rules.admit(incoming.method, path)
        if isinstance(admitted, Refused):
            entry = ledger.begin(incoming.method, path, model=False)
            await client.drain()
            await _refuse(client, ledger, entry, error_answer(_FORBIDDEN, admitted.why))
            return
        entry = ledger.begin(incoming.method, path, model=admitted.format is not None)
        entry.asked = Asked(format=admitted.format)
        if admitted.format is not None and (refused := self._refused(ledger)) is not None:
            await client.drain()
            await _refuse(client, ledger, entry, refused)
            return
        async with contextlib.AsyncExitStack() as stack:
            asking = Asking(
                incoming=incoming,
                entry=entry,
                path=path,
                query=query,
                body=bytearray(),
                rest=client.body(),
                stack=stack,
                kept=self._kept,
            )
            stack.callback(asking.forget)
            asking.rest = copied(asking.rest, asking, ledger, uploaded)
            if not incoming.has_body:
                await asking.whole()
            await self._pass_on(client, asking, ledger, examined=admitted.examined)

    def _path(self, incoming: Incoming) -> tuple[str, str] | Answer:
        """Return the path at the provider and the query, or why the request is none of this agent's."""
        path, _, query = incoming.target.partition("?")
        begin = f"/{self._secret}/{self._route.provider.name}"
        if incoming.upgrades:
            return error_answer(_UPGRADE, "only HTTP passes here", [(b"upgrade", b"HTTP/1.1")])
        if not secrets.compare_digest(path[: len(begin)].encode(), begin.encode()):
            return error_answer(_NOT_FOUND, "there is nothing at this address")
        rest = path[len(begin) :]
        if (rest and not rest.startswith("/")) or "#" in query or _leads_elsewhere(rest):
            return error_answer(_ERROR, "this path leads elsewhere")
        return rest, query

    def _refused(self, ledger: Ledger) -> Answer | None:
        """Return the refusal if a budget is spent, and end the agent."""
        if (reason := ledger.refusal()) is not None:
            verdict: AgentError = BudgetSpent(reason)
        elif (reason := ledger.no_allowance()) is not None:
            verdict = RunBudgetSpent(reason)
        else:
            return None
        self.end_with(verdict)
        return error_answer(_NO_ALLOWANCE, reason)

    def end_with(self, verdict: AgentError) -> None:
        """End the agent, for this reason."""
        self.verdict = self.verdict or verdict
        self._stop()

    async def _examined(self, asking: Asking) -> Answer | None:
        """Read a request to a model as a whole, and return why it does not pass, or None.

        A body that the agent has not finished is its own affair: the provider is asked only when all of it is there.
        """
        await asking.whole()
        if asking.too_large:
            return error_answer(_TOO_LARGE, "the request is too large")
        if asking.incoming.header(b"content-encoding") not in (None, b"identity"):
            return error_answer(_PACKED, "a packed request cannot be counted: send it as it is")
        if asking.seen is None:
            return error_answer(_ERROR, "the request is not a JSON object")
        if (why := self._rules.examine(asking.entry.asked.format, asking.seen)) is not None:
            return error_answer(_FORBIDDEN, why)
        asking.adds_figures = self._asks_figures and lacks_figures(asking.entry.asked, asking.seen)
        return None

    async def _pass_on(self, client: Client, asking: Asking, ledger: Ledger, *, examined: bool) -> None:
        """Ask the one who answers, and give the agent the answer while it comes."""
        entry = asking.entry
        answer: Answer | None = None
        reading: Reading | None = None
        error = bytearray()
        try:
            if examined and (refused := await self._examined(asking)) is not None:
                await _refuse(client, ledger, entry, refused)
                return
            ledger.sent(entry)
            answer = await self._ask(asking, 0)
            entry.status = answer.status
            await self._look_for_refusal(asking, answer.status)
            reading = Reading(entry.asked.format, content_type(answer))
            await client.answer(followed(answer, reading, error, ledger, entry, hides_figures=asking.adds_figures))
        except Unreachable as trouble:
            try:
                await asking.whole()
            finally:
                # Only now it is known how large the request is.
                ledger.done(entry, "unreachable", kind="network" if _is_usual(asking) else None, said=str(trouble))
                self._trying = self._trying or self._start(self._look_for_anybody())
            await client.refuse(_UNREACHABLE, f"the provider cannot be reached: {trouble}")
        except Unsendable as trouble:
            entry.status = _ERROR
            ledger.done(entry, "refused")
            await asking.whole()
            await client.refuse(_ERROR, f"this cannot be sent: {trouble}")
        except Cut as trouble:
            self._done(ledger, asking, reading, error, broken=str(trouble))
            raise
        except (asyncio.CancelledError, Gone, OSError):
            self._done(ledger, asking, reading, error, left=True)
            raise
        except BaseException:
            ledger.done(entry, "refused")
            raise
        else:
            self._done(ledger, asking, reading, error)

    async def _look_for_refusal(self, asking: Asking, status: int) -> None:
        """End the agent if the provider refuses the key; only what the provider itself said of a model counts."""
        if not asking.entry.paid or asking.entry.asked.format is None or self._pass is None:
            return
        variable = self._pass.variable_in(asking.incoming.headers, asking.query)
        refused = await self._refusals.after(self._route, variable, status, trusted=self._trusted)
        if refused is not None:
            self.end_with(refused)

    async def _look_for_anybody(self) -> None:
        """End the agent if nobody can reach the provider, and nobody has in this run."""
        nobody = await self._refusals.unreachable(self._route)
        if nobody is not None:
            self.end_with(nobody)

    def _done(
        self,
        ledger: Ledger,
        asking: Asking,
        reading: Reading | None,
        error: bytearray,
        *,
        broken: str | None = None,
        left: bool = False,
    ) -> None:
        if reading is not None:
            reading.finish()
        entry = asking.entry
        tokens, model = (reading.tokens, reading.model) if reading else ({}, None)
        # An answer that did not come to its end tells only what it took until then.
        is_whole = (not left and broken is None) or (reading is not None and reading.complete)
        # Most answers say what they took, so most requests need not be searched for their text.
        is_known = is_whole and tokens.keys() >= {"input_tokens", "output_tokens"}
        text = (0, 0) if is_known else (characters(asking.seen), reading.written if reading else 0)
        end = partial(ledger.done, entry, tokens=tokens, model=model, text=text, whole=is_whole)
        if broken is not None:
            end("cut", kind="network", said=f"the answer broke off: {broken}")
        elif entry.status is not None and entry.status >= _ERROR:
            # Also if the agent did not wait for the words of it.
            kind, said = error_kind(entry.status, bytes(error))
            end("failed", kind=kind, said=said)
        elif left and not (reading and reading.complete):
            end("left")
        elif reading is not None and reading.error is not None:
            kind, said = error_kind(None, {"error": dict(reading.error)})
            end("failed", kind=kind if kind != "other" else "server", said=said)
        else:
            end("answered")

    async def _ask(self, asking: Asking, depth: int) -> Answer:
        """Ask the sources in their order, and the provider in the end."""
        if depth < len(self.sources):
            return await self.sources[depth].answer(asking, partial(self._ask, depth=depth + 1))
        return await self._provider(asking)

    async def _provider(self, asking: Asking) -> Answer:
        keys = self._pass.real_keys if self._pass else {}
        incoming = asking.incoming
        query = f"?{query_with_key(asking.query, keys)}" if asking.query else ""
        if self._takes_turns:
            # Otherwise an agent that sends slowly would keep all others waiting.
            await asking.whole()
            if asking.too_large:
                return error_answer(_TOO_LARGE, "the request is too large")
        anew = asking.anew if asking.entry.asked.format != "other" else None
        question = Question(
            method=incoming.method,
            url=f"{self._route.url}{asking.path}{query}",
            headers=question_headers(incoming.headers, keys, anew=anew is not None),
            body=anew or bytes(asking.body) or (asking.rest if incoming.has_body else None),
        )
        asking.entry.paid = True
        response = await self._response(asking, question)
        mask = KeyMask(keys.values())
        headers = [(name, mask.all_of(value)) for name, value in answer_headers(response)]

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in pieces_of(response):
                if covered := mask.feed(piece):
                    yield covered
            if rest := mask.finish():
                yield rest

        return Answer(status=response.status_code, headers=headers, pieces=pieces())

    async def _response(self, asking: Asking, question: Question) -> httpx2.Response:
        """Ask the provider; without asking for figures, if it does not understand that."""
        if not asking.adds_figures or asking.seen is None:
            return await asking.stack.enter_async_context(self._upstream.ask(question))
        more = replace(question, body=msgspec.json.encode(asking_for_figures(asking.seen)))
        first = await asking.stack.enter_async_context(contextlib.AsyncExitStack())
        response = await first.enter_async_context(self._upstream.ask(more))
        if response.status_code not in _MISUNDERSTOOD:
            return response
        await first.aclose()
        response = await asking.stack.enter_async_context(self._upstream.ask(question))
        self._asks_figures = response.status_code >= _ERROR
        return response


async def _refuse(client: Client, ledger: Ledger, entry: Entry, refused: Answer) -> None:
    """Note that whet refused a request, and say why."""
    entry.status = refused.status
    ledger.done(entry, "refused")
    await client.answer(refused)


def _is_usual(asking: Asking) -> bool:
    """Return whether a provider takes such a request: some hang up on a larger one, which is no trouble of theirs."""
    head = sum(len(name) + len(value) for name, value in asking.incoming.headers)
    return head <= _USUAL_HEAD and len(asking.body) <= _USUAL_BODY and not asking.too_large


def _leads_elsewhere(path: str) -> bool:
    """Return whether a server could read *path* as another one, or as one with an end of its own."""
    if not path.isascii() or not path.isprintable() or "#" in path:
        return True
    for _ in range(_DECODED):
        path = unquote(path)
    return "\\" in path or any(part.partition(";")[0] in (".", "..") for part in path.split("/"))


async def _gone(client: Client, uploaded: asyncio.Event) -> None:
    """Return when the agent hangs up after its request."""
    await uploaded.wait()
    await client.watch()

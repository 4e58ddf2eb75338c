"""Whose turn it is: silence is the provider's only while it is asked, and an agent cannot bring it about."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from functools import partial
from pathlib import Path

import pytest
from gateway_bench import ASK, bench, run, server, whole

from whet.gateway.request import BodyMemory
from whet.gateway.request_log import RequestLog
from whet.gateway.wire.formats import RequestSummary, error_kind
from whet.model.events import TroubleKind
from whet.secrets import Masker


class Clock:
    """A clock that goes on only if somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """What the clock says."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the accounts."""
    found = Clock()
    monkeypatch.setattr("whet.gateway.request_log.time", found)
    return found


@pytest.mark.parametrize(
    ("trusted", "streams", "begun", "silent"),
    [
        (True, False, False, True),
        (False, True, False, True),
        (False, False, True, True),
        # A program may ask for an answer that takes long, and have it as a whole.
        (False, False, False, False),
    ],
)
def test_silence_counts_for_a_program_only_in_an_answer_that_begins_at_once(
    tmp_path: Path, clock: Clock, trusted: bool, streams: bool, begun: bool, silent: bool
) -> None:
    request_log = RequestLog(tmp_path / "requests.jsonl", masker=Masker(()), trusted=trusted)
    entry = request_log.begin("POST", "/v1/messages", model=True)
    entry.asked = RequestSummary(format="messages", streams=streams)
    request_log.sent(entry)
    entry.status = 200 if begun else None
    clock.now += 31

    at_the_limit = request_log.observation().silent_s
    request_log.done(entry, "left")

    assert at_the_limit == (31 if silent else 0)
    assert (request_log.observation().trouble is not None) == silent


def test_the_time_until_a_request_is_whole_is_no_silence(tmp_path: Path, clock: Clock) -> None:
    request_log = RequestLog(tmp_path / "requests.jsonl", masker=Masker(()))
    entry = request_log.begin("POST", "/v1/messages", model=True)
    entry.asked = RequestSummary(format="messages", streams=True)
    clock.now += 100

    assert request_log.observation().silent_s == 0
    request_log.done(entry, "left")
    assert request_log.observation().trouble is None


def test_an_agent_that_does_not_take_its_answer_makes_no_silence_and_no_outage(tmp_path: Path, clock: Clock) -> None:
    request_log = RequestLog(tmp_path / "requests.jsonl", masker=Masker(()))
    entry = request_log.begin("POST", "/v1/messages", model=True)
    entry.asked = RequestSummary(format="messages", streams=True)
    request_log.sent(entry)
    request_log.heard(entry)
    clock.now += 100

    assert request_log.observation().silent_s == 0
    request_log.taken(entry)
    clock.now += 3
    assert request_log.observation().silent_s == 3
    request_log.done(entry, "cut", kind="network", message="the provider no longer waited")
    assert request_log.observation().trouble is None


def test_a_provider_is_asked_when_all_of_a_request_is_there(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(b"{}")) as (url, seen), bench(tmp_path, url, trusted=False) as at:
            with socket.create_connection(("127.0.0.1", at.port)) as agent:
                agent.sendall(b"POST " + at.path() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
                # Another request goes all the way in the meantime.
                await at.ask({**ASK, "stream": False})

                assert len(seen) == 1
                assert at.request_log.observation().silent_s == 0
            await at.proxy.wait_until_quiet()

            assert sorted(line["outcome"] for line in at.lines) == ["answered", "left"]
            assert at.request_log.observation().trouble is None

    run(work)


def test_an_agent_that_stops_reading_has_no_silent_provider(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        try:
            while True:
                writer.write(b"data: {}\n\n" * 10_000)
                await writer.drain()
        except ConnectionError:
            writer.close()

    async def work() -> None:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with listening, bench(tmp_path, url, trusted=False) as at:
            with socket.create_connection(("127.0.0.1", at.port)) as agent:
                ask = b'{"stream": true}'
                head = b" HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(ask)
                agent.sendall(b"POST " + at.path() + head + ask)
                entries = at.request_log._open
                while not (entries and all(entry.held_up for entry in entries.values())):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.3)

                assert at.request_log.observation().silent_s == 0

    run(work)


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (400, "Your credit balance is too low to access the Anthropic API.", "auth"),
        (400, "messages.3.content.0.image: could not process image", "bad-request"),
    ],
)
def test_an_account_without_money_is_no_bad_request(status: int, said: str, kind: TroubleKind) -> None:
    body = b'{"error": {"type": "invalid_request_error", "message": "%s"}}' % said.encode()

    assert error_kind(status, body) == (kind, said)


@pytest.mark.parametrize("word", ["api_error", "server_error", "overloaded_error"])
@pytest.mark.parametrize(
    ("status", "kind"), [(400, "bad-request"), (403, "auth"), (422, "bad-request"), (500, "server"), (None, "server")]
)
def test_a_request_that_is_called_wrong_is_no_outage_whatever_word_the_server_has_for_it(
    word: str, status: int | None, kind: TroubleKind
) -> None:
    found, _ = error_kind(status, b'{"error": {"type": "%s", "message": "no"}}' % word.encode())

    busy = word == "overloaded_error" and kind == "server"
    assert found == ("overloaded" if busy else kind)


ALLOWED = "/v1/embeddings"
MB = 1024 * 1024


def test_a_small_request_that_settings_name_goes_on_when_all_of_it_is_there(tmp_path: Path) -> None:
    async def work() -> None:
        allow_requests = (f"POST {ALLOWED}",)
        async with (
            server(lambda _: whole(b"{}")) as (url, seen),
            bench(tmp_path, url, trusted=False, allow_requests=allow_requests) as at,
        ):
            with socket.create_connection(("127.0.0.1", at.port)) as agent:
                agent.sendall(b"POST " + at.path(ALLOWED) + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
                # Another request goes all the way in the meantime.
                await at.ask({**ASK, "stream": False})

                assert [data.split()[1] for data in seen] == [b"/v1/messages"]
            await at.proxy.wait_until_quiet()

            assert at.request_log.observation().trouble is None

    run(work)


def test_a_provider_that_does_not_wait_for_the_end_of_a_large_request_has_no_trouble(tmp_path: Path) -> None:
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(MB)
        writer.close()
        hung_up.set()

    async def work() -> None:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with listening, bench(tmp_path, url, trusted=False, allow_requests=(f"POST {ALLOWED}",)) as at:
            reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
            head = b" HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (3 * MB)
            writer.write(b"POST " + at.path(ALLOWED) + head + bytes(3 * MB - 1))
            await hung_up.wait()
            writer.write(b"x")
            assert (await reader.readline()).split()[1] == b"502"
            writer.close()

            assert [(line["format"], line["outcome"]) for line in at.lines] == [("other", "unreachable")]
            assert at.request_log.observation().trouble is None

    run(work)


def test_silence_counts_from_the_end_of_a_request_that_passes_as_it_comes(tmp_path: Path, clock: Clock) -> None:
    request_log = RequestLog(tmp_path / "requests.jsonl", masker=Masker(()), trusted=False)
    entry = request_log.begin("POST", ALLOWED, model=True)
    request_log.sent(entry)
    clock.now += 100
    entry.asked = RequestSummary(format="other", streams=True)
    request_log.uploaded(entry, b"")

    assert request_log.observation().silent_s == 0
    request_log.done(entry, "left")
    assert request_log.observation().trouble is None


def test_one_large_body_of_an_agent_at_a_time_is_looked_at_and_nobody_else_waits_for_it() -> None:
    async def work() -> None:
        memory, release, begun = BodyMemory(), threading.Event(), asyncio.Event()
        large, tell = 10_000_000, partial(asyncio.get_running_loop().call_soon_threadsafe, begun.set)
        first = asyncio.ensure_future(memory.look(large, lambda: (tell(), release.wait())))
        await begun.wait()
        second = asyncio.ensure_future(memory.look(large, lambda: "the next one"))

        # While a thread is busy, small ones and those of others go on.
        assert await memory.look(10, lambda: "a small one") == "a small one"
        assert await BodyMemory().look(large, lambda: "of another agent") == "of another agent"
        # An agent that hangs up does not get a second thread for it.
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        assert not second.done()
        assert memory.turn.locked()

        release.set()
        assert await second == "the next one"

    run(work)

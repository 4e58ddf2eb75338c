"""Whose turn it is: silence is the provider's only while it is asked, and an agent cannot bring it about."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from gateway_bench import ASK, bench, run, server, whole

from whet.agents.gateway_ledger import Ledger
from whet.agents.gateway_wire import Asked, error_kind
from whet.ground.secrets import Masker
from whet.model.seen import TroubleKind


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
    monkeypatch.setattr("whet.agents.gateway_ledger.time", found)
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
    ledger = Ledger(tmp_path / "requests.jsonl", masker=Masker(()), trusted=trusted)
    entry = ledger.begin("POST", "/v1/messages", model=True)
    entry.asked = Asked(format="messages", streams=streams)
    ledger.sent(entry)
    entry.status = 200 if begun else None
    clock.now += 31

    at_the_limit = ledger.witness().silent_s
    ledger.done(entry, "left")

    assert at_the_limit == (31 if silent else 0)
    assert (ledger.witness().trouble is not None) == silent


def test_the_time_until_a_request_is_whole_is_no_silence(tmp_path: Path, clock: Clock) -> None:
    ledger = Ledger(tmp_path / "requests.jsonl", masker=Masker(()))
    entry = ledger.begin("POST", "/v1/messages", model=True)
    entry.asked = Asked(format="messages", streams=True)
    clock.now += 100

    assert ledger.witness().silent_s == 0
    ledger.done(entry, "left")
    assert ledger.witness().trouble is None


def test_an_agent_that_does_not_take_its_answer_makes_no_silence_and_no_outage(tmp_path: Path, clock: Clock) -> None:
    ledger = Ledger(tmp_path / "requests.jsonl", masker=Masker(()))
    entry = ledger.begin("POST", "/v1/messages", model=True)
    entry.asked = Asked(format="messages", streams=True)
    ledger.sent(entry)
    ledger.heard(entry)
    clock.now += 100

    assert ledger.witness().silent_s == 0
    ledger.taken(entry)
    clock.now += 3
    assert ledger.witness().silent_s == 3
    ledger.done(entry, "cut", kind="network", said="the provider no longer waited")
    assert ledger.witness().trouble is None


def test_a_provider_is_asked_when_all_of_a_request_is_there(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(b"{}")) as (url, seen), bench(tmp_path, url, trusted=False) as at:
            with socket.create_connection(("127.0.0.1", at.port)) as agent:
                agent.sendall(b"POST " + at.path() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
                # Another request goes all the way in the meantime.
                await at.ask({**ASK, "stream": False})

                assert len(seen) == 1
                assert at.ledger.witness().silent_s == 0
            await at.passage.settle()

            assert sorted(line["outcome"] for line in at.lines) == ["answered", "left"]
            assert at.ledger.witness().trouble is None

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
                entries = at.ledger._open
                while not (entries and all(entry.held_up for entry in entries.values())):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.3)

                assert at.ledger.witness().silent_s == 0

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

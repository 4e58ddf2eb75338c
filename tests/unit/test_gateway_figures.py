"""What requests took: asked for, measured, guessed for budgets, and unknown where nobody measured it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gateway_bench import ASK, Bench, bench, run, server, whole

from whet.gateway.request import take_turns
from whet.gateway.sessions import ProxySession
from whet.gateway.sources.cassettes import Player, Recorder, read_cassette
from whet.gateway.wire.chat import FigureFilter
from whet.gateway.wire.formats import AnswerReader, Format, Frames, count_characters
from whet.gateway.wire.normal_form import Forms
from whet.model.session import Usage, sourced
from whet.model.suite import Limits
from whet.secrets import Masker

CHAT = {"model": "gpt-5.5", "stream": True, "messages": [{"role": "user", "content": "x" * 400}]}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
WORD = b'data: {"choices": [{"delta": {"content": "yes"}}], "usage": null}\n\n'
FIGURES = b'data: {"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 50}}\n\n'
DONE = b"data: [DONE]\n\n"


def told(request: bytes) -> bytes:
    """A stream that tells its figures if it is asked for them."""
    asked = json.loads(request.partition(b"\r\n\r\n")[2]).get("stream_options", {}).get("include_usage")
    return STREAM + WORD + (FIGURES if asked else b"") + DONE


@pytest.mark.parametrize("asks", [False, True], ids=["not asked", "asked"])
def test_a_stream_of_a_chat_tells_its_figures_and_the_agent_gets_what_it_asked_for(tmp_path: Path, asks: bool) -> None:
    async def work() -> None:
        async with server(told) as (url, seen), bench(tmp_path, url, provider="openai") as at:
            options = {"stream_options": {"include_usage": True}} if asks else {"stream_options": {"other": 1}}
            answer = await at.ask({**CHAT, **options}, "/chat/completions")

            assert answer.content == WORD + (FIGURES if asks else b"") + DONE
            assert (at.request_log.measured.input_tokens, at.request_log.measured.output_tokens) == (900, 50)
            sent = json.loads(seen[0].partition(b"\r\n\r\n")[2])
            assert sent["stream_options"] == {**options["stream_options"], "include_usage": True}

    run(work)


def test_a_server_that_does_not_know_the_question_for_figures_is_asked_without_it_from_then_on(tmp_path: Path) -> None:
    def picky(request: bytes) -> bytes:
        if b"include_usage" in request:
            return whole(b'{"error": {"message": "stream_options: extra fields not permitted"}}', status="422 No")
        return told(request)

    async def work() -> None:
        async with server(picky) as (url, seen), bench(tmp_path, url, provider="openai", most_requests=1) as at:
            answers = [await at.ask(CHAT, "/chat/completions") for _ in range(2)]

            assert [answer.content for answer in answers] == [WORD + DONE] * 2
            assert [b"include_usage" in request for request in seen] == [True, False, False]
            assert at.request_log.measured.total_tokens is None
            assert at.request_log.observation().trouble is None

    run(work)


def test_a_cassette_keeps_the_figures_that_the_agent_did_not_ask_for(tmp_path: Path) -> None:
    cassette = tmp_path / "tapes" / "1.jsonl"

    async def work() -> None:
        async with server(told) as (url, _), bench(tmp_path, url, provider="openai") as at:
            at.proxy.sources = (Recorder(cassette, Forms({}), Masker(())),)
            recorded = await at.ask(CHAT, "/chat/completions")
            at.proxy.sources = (Player(cassette, read_cassette(cassette), Forms({}), miss=print),)
            played = await at.ask(CHAT, "/chat/completions")

            assert recorded.content == played.content == WORD + DONE
            assert at.request_log.usage.input_tokens == 1800

    run(work)


@pytest.mark.parametrize("size", [1, 3, 50, 10_000])
@pytest.mark.parametrize("line", [b"\n", b"\r\n"])
def test_only_the_event_with_figures_is_left_out_however_it_is_cut(size: int, line: bytes) -> None:
    text = (WORD + FIGURES + DONE + b"data: without an end").replace(b"\n", line)
    hiding = FigureFilter()

    left = b"".join(hiding.feed(text[at : at + size]) for at in range(0, len(text), size)) + hiding.finish()

    assert left == (WORD + DONE + b"data: without an end").replace(b"\n", line)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "c\\u006fntent": "TEXT"}]}',
        b'{"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "anything": {"at": ["all", "TEXT"]}}]}',
        b'{"model": "gpt-4o", "stream": true, "messages": [], "type": "TEXT"}',
    ],
    ids=["escaped", "elsewhere", "as a word"],
)
@pytest.mark.parametrize("field", ["content", "reasoning_content", "anything"])
def test_a_budget_counts_text_wherever_it_is(tmp_path: Path, body: bytes, field: str) -> None:
    async def work() -> None:
        words = json.dumps({"choices": [{"delta": {field: "y" * 2000}}]}).encode()
        stream = STREAM + b"data: " + words + b"\n\n" + DONE
        limits = Limits(budget_tokens=1000)
        async with (
            server(lambda _: stream) as (url, seen),
            bench(tmp_path, url, provider="openai", limits=limits) as at,
        ):
            address = f"{at.given.address}/chat/completions"
            answers = [await at.client.post(address, content=body.replace(b"TEXT", b"x" * 2000)) for _ in range(2)]

            assert [answer.status_code for answer in answers] == [200, 402]
            assert len(seen) == 1

    run(work)


@pytest.mark.parametrize(("format", "tokens"), [("gemini", 2_000), ("other", 62)])
def test_a_budget_counts_an_answer_that_nobody_here_can_read(format: Format, tokens: int) -> None:  # noqa: A002
    reading = AnswerReader(format, "application/x-protobuf")

    reading.feed(b"\x0a" * 8_000)
    reading.finish()

    assert reading.written // 4 == tokens


def test_words_of_a_protocol_are_no_text() -> None:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "four"}}

    assert count_characters(delta) == 4
    assert count_characters({"type": "x" * 500}) == 500


def through(at: Bench) -> ProxySession:
    """The way of the agent on the bench, as a run sees it."""
    found = ProxySession(at.proxy, at.given, None)
    found._log = at.request_log
    return found


async def hang_up(at: Bench, after: bytes) -> None:
    """Ask, and do not wait for the end."""
    async with at.client.stream("POST", f"{at.given.address}/v1/messages", json=ASK) as answer:
        async for piece in answer.aiter_bytes():
            if after in piece:
                break
    await at.proxy.wait_until_quiet()


@pytest.mark.parametrize(
    ("trusted", "reported", "known"),
    [
        (False, Usage(), (5000, None, None)),
        (False, sourced(frozenset(), input_tokens=1, output_tokens=1, cost_usd=0.1), (5000, None, None)),
        (True, sourced(frozenset(), input_tokens=9, output_tokens=8, cost_usd=0.1), (9, 8, 0.1)),
    ],
    ids=["a program", "a program that tells", "an agent that whet knows"],
)
def test_what_an_agent_did_not_wait_for_is_unknown(
    tmp_path: Path, trusted: bool, reported: Usage, known: tuple[int | None, ...]
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        start = b'data: {"message": {"usage": {"input_tokens": 5000, "output_tokens": 5}}}\n\n'
        writer.write(STREAM + start + b'data: {"delta": {"text": "word"}}\n\n')
        await writer.drain()
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
        writer.close()

    async def work() -> None:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with listening, bench(tmp_path, url, trusted=trusted) as at:
            await hang_up(at, b"word")

            usage = through(at).usage(reported)
            assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == known
            assert through(at).paid_usd > 0
            (line,) = at.lines
            assert (line["input_tokens"], line["cost_usd"], "output_tokens" in line) == (5000, None, False)

    run(work)


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": -5, "output_tokens": 3},
        {"input_tokens": 5, "output_tokens": -3},
        {"input_tokens": 10**18, "output_tokens": 3},
        {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": -50},
    ],
)
def test_figures_that_cannot_be_are_no_figures(tmp_path: Path, usage: dict[str, Any]) -> None:
    async def work() -> None:
        async with (
            server(lambda _: whole(json.dumps({"usage": usage}).encode())) as (url, _),
            bench(tmp_path, url) as at,
        ):
            answer = await at.ask()

            assert answer.status_code == 200
            assert [line["outcome"] for line in at.lines] == ["answered"]
            assert at.request_log.measured.total_tokens is None

    run(work)


def test_a_stream_without_line_breaks_is_looked_at_once() -> None:
    frames = Frames()
    piece = b"x" * 8192

    # Looked at again with each piece, these 250 MB would be hundreds of gigabytes.
    for _ in range(30_000):
        assert list(frames.feed(piece)) == []

    assert list(frames.feed(b"\n\ndata: last\n\n")) == [b"last"]


def test_tiny_pieces_by_the_thousand_leave_others_their_turn() -> None:
    async def work() -> None:
        passed = turns = 0
        done = asyncio.Event()

        async def tiny() -> Any:
            for _ in range(10_000):
                yield b"x"

        async def other() -> None:
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(other())
        async for _ in take_turns(tiny()):
            passed += 1
        done.set()
        await beside

        assert passed == 10_000
        assert turns >= 10_000 // 64

    run(work)

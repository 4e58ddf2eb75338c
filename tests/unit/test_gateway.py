"""The gateway between an agent and its provider, with a scripted model on the other side."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_bench import ASK, KEY, bench, run, server, whole

from whet.gateway.rate_limit import LocalRateLimiter
from whet.gateway.request_log import RequestLog
from whet.gateway.wire.formats import RequestSummary
from whet.model.suite import Limits
from whet.secrets import Masker
from whet.testing.scripted_model.server import ScriptedModel


def test_the_real_key_goes_out_and_the_tokens_of_a_stream_are_read(tmp_path: Path) -> None:
    async def work() -> None:
        with ScriptedModel([{"say": "Hello.", "usage": {"input": 900, "cached": 100, "output": 7}}]) as model:
            async with bench(tmp_path, model.url) as at:
                answer = await at.ask()

                assert "message_stop" in answer.text
                assert model.requests[0].headers["x-api-key"] == KEY
                assert (at.request_log.usage.input_tokens, at.request_log.usage.cached_tokens) == (900, 100)
                assert at.request_log.usage.output_tokens == 7
                assert set(at.request_log.usage.sources.values()) == {"gateway"}
                assert at.request_log.usage.cost_usd is not None
                (line,) = at.lines
                assert (line["model"], line["status"], line["outcome"]) == ("claude-sonnet-4-5", 200, "answered")
                assert KEY not in json.dumps(at.lines)
                assert at.key not in json.dumps(at.lines)

    run(work)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("provider", "base", "path", "body"),
    [
        ("openai", "/v1", "/responses", {"model": "gpt-5.5", "tools": [{"type": "function", "name": "shell"}]}),
        (
            "openai",
            "/v1",
            "/chat/completions",
            {
                "model": "gpt-5.5",
                "stream_options": {"include_usage": True},
                "tools": [{"type": "function", "function": {"name": "shell"}}],
            },
        ),
        (
            "gemini",
            "",
            "/v1beta/models/gemini-2.5-pro:generateContent",
            {"tools": [{"functionDeclarations": [{"name": "run_shell_command"}]}]},
        ),
    ],
    ids=["responses", "chat", "gemini"],
)
def test_every_format_tells_its_tokens(
    tmp_path: Path, provider: str, base: str, path: str, body: dict[str, Any], stream: bool
) -> None:
    async def work() -> None:
        usage = {"input": 900, "cached": 100, "output": 70, "reasoning": 30}
        with ScriptedModel([{"say": "Hello.", "usage": usage}]) as model:
            async with bench(tmp_path, model.url + base, provider=provider) as at:
                asked = path.replace(":generate", ":streamGenerate") + "?alt=sse" if stream and base == "" else path

                await at.ask({**body, "stream": stream} if base else body, asked)

                told = at.request_log.usage
                assert (told.input_tokens, told.cached_tokens, told.output_tokens) == (900, 100, 70)
                assert told.reasoning_tokens == 30
                assert at.request_log.measured == told

    run(work)


def test_a_key_in_the_query_is_put_in_and_never_noted(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(b"{}")) as (url, seen), bench(tmp_path, url, provider="gemini") as at:
            await at.client.post(f"{at.given.address}/v1beta/models/m:generateContent?alt=sse&key={at.key}", json={})

            assert f"?alt=sse&key={KEY}".encode() in seen[0]
            assert KEY not in (tmp_path / "requests.jsonl").read_text()
            assert "key=" not in (tmp_path / "requests.jsonl").read_text()

    run(work)


def test_a_made_up_key_is_replaced_only_where_keys_belong(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(b"{}")) as (url, seen), bench(tmp_path, url) as at:
            headers = {"x-api-key": at.key, "x-note": at.key, "cookie": at.key}
            await at.client.post(f"{at.given.address}/v1/messages?note={at.key}", json={"a": at.key}, headers=headers)

            assert seen[0].count(KEY.encode()) == 1
            assert seen[0].count(at.key.encode()) == 4

    run(work)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "x-of-its-own"])
def test_an_answer_that_is_packed_so_that_no_key_could_be_seen_in_it_does_not_pass(tmp_path: Path, coding: str) -> None:
    async def work() -> None:
        answer = whole(b"packed", f"Content-Encoding: {coding}")
        async with server(lambda _: answer) as (url, _), bench(tmp_path, url) as at:
            refused = await at.ask()

            assert refused.status_code == 502
            assert "packs its answer as" in refused.text
            assert [line["outcome"] for line in at.lines] == ["failed"]

    run(work)


def test_an_answer_that_is_packed_twice_is_read(tmp_path: Path) -> None:
    async def work() -> None:
        body = b'{"content": "sk-real-0123456789abcdef", "usage": {"input_tokens": 3, "output_tokens": 4}}'
        answer = whole(gzip.compress(gzip.compress(body)), "Content-Encoding: GZIP, gzip")
        async with server(lambda _: answer) as (url, _), bench(tmp_path, url) as at:
            answered = await at.ask()

            assert answered.json()["content"] == "*" * len(KEY)
            assert at.request_log.usage.total_tokens == 7

    run(work)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_provider_that_repeats_the_key_does_not_tell_it_to_the_agent(tmp_path: Path, packed: bool) -> None:
    async def work() -> None:
        echo = b'{"error": {"message": "wrong key ' + KEY.encode() + b'"}}'
        more = ("Content-Encoding: gzip",) if packed else ()
        body = gzip.compress(echo) if packed else echo
        said = whole(body, f"X-Echo: {KEY}", *more, status="401 Unauthorized")
        async with server(lambda _: said) as (url, _), bench(tmp_path, url) as at:
            answer = await at.ask()

            assert answer.status_code == 401
            assert answer.json()["error"]["message"] == "wrong key " + "*" * len(KEY)
            assert KEY not in str(answer.headers)
            assert at.request_log.observation().trouble.kind == "auth"  # type: ignore[union-attr]
            assert KEY not in (tmp_path / "requests.jsonl").read_text()

    run(work)


def test_a_key_that_a_stream_repeats_in_two_pieces_is_covered(tmp_path: Path) -> None:
    async def work() -> None:
        half = len(KEY) // 2
        pieces = [f"data: {KEY[:half]}", f"{KEY[half:]}\n\n"]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece.encode()) for piece in pieces) + b"0\r\n\r\n"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        async with server(lambda _: head + chunks) as (url, _), bench(tmp_path, url) as at:
            answer = await at.ask()

            assert answer.text == f"data: {'*' * len(KEY)}\n\n"

    run(work)


def test_without_the_secret_there_is_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(b"{}")) as (url, seen), bench(tmp_path, url) as at:
            guessed = at.given.address.replace(at.given.secret, "0" * 32)
            answers = [
                await at.client.post(f"{guessed}/v1/messages", json={}),
                await at.client.get(f"http://127.0.0.1:{at.port}/"),
            ]

            assert [answer.status_code for answer in answers] == [404, 404]
            assert seen == []

    run(work)


@pytest.mark.parametrize(
    "rest", ["/../../admin", "/%2e%2e/admin", "/..%2fadmin", "@127.0.0.1:9/", ".evil/", "/v1\\..\\x", "/%5c..%5cx"]
)
def test_no_path_leads_elsewhere(tmp_path: Path, rest: str) -> None:
    async def work() -> None:
        async with server(lambda _: whole(b"{}")) as (url, seen), bench(tmp_path, url + "/inner") as at:
            found = await at.raw(b"GET " + at.path(rest) + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

            assert found.startswith(b"HTTP/1.1 400")
            assert seen == []

    run(work)


def test_another_protocol_is_refused_so_that_an_agent_falls_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(b"{}")) as (url, seen), bench(tmp_path, url) as at:
            wants = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: eA==\r\n"
            found = await at.raw(b"GET " + at.path("/v1/responses") + b" HTTP/1.1\r\nHost: x\r\n" + wants + b"\r\n")

            assert found.startswith(b"HTTP/1.1 426")
            assert seen == []

    run(work)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(budget_requests=1), "1 of 1 requests"),
        (Limits(budget_tokens=500), "of 500 tokens"),
        (Limits(budget_usd=0.0001), "of a budget of $0.0001"),
    ],
    ids=["requests", "tokens", "dollars"],
)
def test_a_budget_holds_at_the_next_request(tmp_path: Path, limits: Limits, words: str) -> None:
    async def work() -> None:
        with ScriptedModel([{"say": "Hello."}] * 3) as model:
            async with bench(tmp_path, model.url, limits=limits) as at:
                first, second = await at.ask(), await at.ask()

                assert (first.status_code, second.status_code) == (200, 402)
                assert words in second.json()["error"]["message"]
                assert words in str(at.proxy.verdict)
                assert (at.stops, len(model.requests)) == (1, 1)

    run(work)


def test_an_agent_that_hangs_up_ends_the_request_at_the_provider(tmp_path: Path) -> None:
    async def work() -> None:
        gone = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            while await reader.read(65536):
                pass
            gone.set()
            writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with listening, bench(tmp_path, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}") as at:
            with pytest.raises(httpx2.TimeoutException):
                await at.client.post(f"{at.given.address}/v1/messages", json=ASK, timeout=0.3)
            await asyncio.wait_for(gone.wait(), 10)

            assert [line["outcome"] for line in at.lines] == ["left"]

    run(work)


@pytest.mark.parametrize(
    ("step", "kind", "status"),
    [
        ({"fail": "auth"}, "auth", 401),
        ({"fail": "model-rejected"}, "model-rejected", 404),
        ({"fail": "rate-limit"}, "rate-limit", 429),
        ({"fail": "server"}, "server", 500),
        ({"fail": "overloaded", "status": 529}, "overloaded", 529),
        ({"fail": "context"}, "context", 400),
        ({"say": "Once upon a time", "cut": True}, "network", 200),
    ],
    ids=["401", "404", "429", "500", "529", "context", "cut"],
)
def test_trouble_is_seen_where_it_happens_and_a_good_answer_ends_it(
    tmp_path: Path, step: dict[str, Any], kind: str, status: int
) -> None:
    async def work() -> None:
        with ScriptedModel([step, step, {"say": "Hello."}]) as model:
            async with bench(tmp_path, model.url) as at:
                for _ in range(2):
                    try:
                        await at.ask()
                    except httpx2.RemoteProtocolError:
                        assert kind == "network"
                seen = at.request_log.observation()

                assert seen.trouble is not None
                assert (seen.trouble.kind, seen.trouble.status, seen.troubles) == (kind, status, 2)
                assert [line["retries"] for line in at.lines] == [0, 1]

                await at.ask()

                assert at.request_log.observation().trouble is None

    run(work)


def test_a_provider_that_is_not_there_is_trouble_of_the_network(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: b"") as (url, _):
            pass
        async with bench(tmp_path, url) as at:
            answer = await at.ask()

            assert answer.status_code == 502
            assert at.request_log.observation().trouble.kind == "network"  # type: ignore[union-attr]
            assert at.lines[0]["outcome"] == "unreachable"

    run(work)


class Clock:
    """A clock that goes on only if somebody says so, or sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """What the clock says."""
        return self.now

    async def sleep(self, for_s: float) -> None:
        """Sleep, in no time."""
        self.now += for_s


def test_a_silent_provider_is_seen_at_the_time_limit_and_later_words_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("whet.gateway.request_log.time", clock)
    request_log = RequestLog(tmp_path / "requests.jsonl", masker=Masker(()), limits=Limits(timeout_s=10.0))
    entry = request_log.begin("POST", "/v1/messages", model=True)
    entry.asked = RequestSummary(format="messages")
    request_log.sent(entry)
    clock.now += 4
    request_log.heard(entry)
    request_log.taken(entry)
    clock.now += 20

    seen = request_log.observation()
    request_log.heard(entry)
    request_log.done(entry, "cut", kind="network", message="too late")

    assert (seen.silent_s, seen.trouble) == (6.0, None)
    assert request_log.observation().trouble is None


def test_so_many_requests_at_a_time_pass_to_a_provider(tmp_path: Path) -> None:
    async def work() -> None:
        under_way, most = 0, 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.05)
            under_way -= 1
            writer.write(whole(b"{}"))
            await writer.drain()
            writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with listening, bench(tmp_path, url, most_requests=3) as at:
            answers = await asyncio.gather(*(at.client.get(f"{at.given.address}/v1/models") for _ in range(12)))

            assert {answer.status_code for answer in answers} == {200}
            assert most == 3

    run(work)


def test_all_wait_together_if_a_provider_is_too_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("whet.gateway.rate_limit.time", clock)
    monkeypatch.setattr("whet.gateway.rate_limit.asyncio.sleep", clock.sleep)
    rate_limiter = LocalRateLimiter(3)

    async def waits(status: int, retry_after: str | None = None) -> float:
        """How long a request waits that comes after an answer."""
        rate_limiter.heard(status, retry_after)
        began = clock.now
        await rate_limiter.enter()
        rate_limiter.leave()
        return clock.now - began

    async def work() -> None:
        assert await waits(200) == 0
        assert await waits(429, "7") == 7
        assert [await waits(529), await waits(429), await waits(529)] == [2, 4, 8]
        assert await waits(429, "86400") == 60
        assert await waits(429, "soon") == 32
        assert await waits(200) == 0
        assert await waits(429) == 1

    run(work)


def test_an_agent_is_told_that_its_provider_is_too_busy_and_how_long_to_wait(tmp_path: Path) -> None:
    async def work() -> None:
        with ScriptedModel([{"fail": "rate-limit", "retry_after": 1}, {"say": "Hello."}]) as model:
            async with bench(tmp_path, model.url, most_requests=3) as at:
                refused, answered = await at.ask(), await at.ask()

                assert (refused.status_code, answered.status_code) == (429, 200)
                assert refused.headers["retry-after"] == "1"

    run(work)

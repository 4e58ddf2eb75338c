"""Agents that want to ask without being counted, or at the cost of others; and cassettes that somebody else made."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
from pathlib import Path
from typing import Any

import pytest
from gateway_bench import ASK, KEY, bench, run, server, whole

from whet.errors import AgentError, CassetteMissed
from whet.gateway.sources.cassettes import Player, Recorder, read_cassette, require_inside
from whet.gateway.sources.faults import Cache
from whet.gateway.wire.formats import count_characters, format_of, read_request
from whet.gateway.wire.normal_form import Forms
from whet.model.suite import Limits
from whet.secrets import Masker
from whet.testing.scripted_model.server import ScriptedModel

WELL = b'{"usage": {"input_tokens": 3, "output_tokens": 4}}'


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages",
        "/v1/messages/",
        "/v1/messages//",
        "/v1/%6dessages",
        "/v1/messages%2F",
        "/v1/messages;v=1",
        "/v1/MESSAGES",
        "//v1//messages",
    ],
)
def test_a_model_is_not_asked_uncounted_however_the_path_is_spelled(tmp_path: Path, path: str) -> None:
    async def work() -> None:
        async with (
            server(lambda _: whole(WELL)) as (url, seen),
            bench(tmp_path, url, limits=Limits(budget_requests=1)) as at,
        ):
            body = b"POST " + at.path(path) + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
            first = await at.raw(body)
            again = await at.raw(body)

            # A spelling that no program uses is refused at once.
            usual = path in ("/v1/messages", "/v1/%6dessages")
            assert (first[9:12], again[9:12]) == ((b"200", b"402") if usual else (b"403", b"403"))
            assert len(seen) == at.stops == usual
            assert at.request_log.usage.total_tokens == (7 if usual else None)

    run(work)


@pytest.mark.parametrize(
    "rest",
    [
        "/v1/messages#",
        "/v1/messages#/models",
        "/v1/messages?a#b",
        "/v1/..;/admin",
        "/v1/%2e%2e;x/admin",
        "/v1/%252e%252e/admin",
        "/v1/%25252e%25252e/admin",
        "/v1/%5c..%5cadmin",
        "/v1/%255cadmin",
        # Decoded once, it asks a model; decoded twice, something else.
        "/openai/deployments/mine%252Fimages%252Fgenerations%253F/chat/completions",
        "/v1beta/models/m%253AbatchGenerateContent%253F:generateContent",
        "/openai/deployments/mine%3Fx/chat/completions",
        "/openai/deployments/mine%23x/chat/completions",
        "/openai/deployments/mine%0d%0aHost:x/chat/completions",
    ],
)
def test_a_path_that_a_server_could_read_as_another_one_is_refused(tmp_path: Path, rest: str) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            found = await at.raw(b"POST " + at.path(rest) + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")

            assert found.startswith(b"HTTP/1.1 400")
            assert seen == []

    run(work)


@pytest.mark.parametrize("rest", ["/v1/messages/batches", "/v1/batches/", "/v1beta/models/m:batchGenerateContent"])
def test_what_is_answered_when_nobody_counts_any_more_is_refused(tmp_path: Path, rest: str) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            found = await at.raw(b"POST " + at.path(rest) + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")

            assert found.startswith(b"HTTP/1.1 403")
            assert seen == []

    run(work)


@pytest.mark.parametrize(
    ("path", "format"),
    [
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent", "gemini"),
        ("/v1beta/models/gemini-2.5-pro%3AgenerateContent", "gemini"),
        ("/v1beta/tunedModels/mine:generateContent", "gemini"),
        ("/v1/completions", "chat"),
        ("/v1/chat/completions", "chat"),
        ("/v1/messages/count_tokens", None),
        ("/v1/models", None),
        ("/v1beta/models/gemini-2.5-pro:countTokens", None),
    ],
)
def test_a_path_says_whether_a_model_is_asked(path: str, format: str | None) -> None:  # noqa: A002
    assert format_of(path) == format


@pytest.mark.parametrize(
    "head",
    [
        b"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        b"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}",
        b"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0x2\r\n\r\n{}",
        b"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2, 4\r\n\r\n{}",
        b"POST {path} HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n",
        b"POST {path} HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"POST {path} HTTP/1.1\r\nHost: x\r\n: nameless\r\n\r\n",
        b"POST http://127.0.0.1:{port}/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        b"POST http://127.0.0.1:{port}{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        b"POST //127.0.0.1:{port}/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        b"POST @127.0.0.1:{port}{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"TRACE {path} HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    ],
)
def test_a_request_that_two_could_read_in_two_ways_goes_nowhere(tmp_path: Path, head: bytes) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            port = url.rpartition(":")[2].encode()
            found = await at.raw(head.replace(b"{path}", at.path()).replace(b"{port}", port))

            assert found[9:12] in (b"400", b"404", b"426", b"501", b"505")
            assert seen == []

    run(work)


def test_whatever_an_agent_says_of_hosts_and_methods_its_provider_hears_one_request(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            head = (
                b"Host: evil.example\r\nConnection: content-length, host\r\nX-HTTP-Method-Override: DELETE\r\n"
                b"Transfer-Encoding: chunked\r\nx-api-key: " + at.key.encode() + b"\r\n\r\n"
            )
            hidden = b'{"a": "\\r\\n\\r\\nGET /admin HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"}'
            chunk = b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(hidden), hidden)
            await at.raw(b"POST " + at.path() + b" HTTP/1.1\r\n" + head + chunk)

            (one,) = seen
            lines = one.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
            assert lines[0] == b"post /v1/messages http/1.1"
            assert [line for line in lines if line.startswith(b"host:")] == [
                b"host: " + url.removeprefix("http://").encode()
            ]
            assert not any(b"override" in line or b"evil" in line for line in lines)
            assert f"x-api-key: {KEY}".encode() in lines

    run(work)


def test_a_body_is_described_as_what_it_is_whatever_the_agent_says_of_it(tmp_path: Path) -> None:
    # Read as UTF-7, as some servers would by this description, it says `"background": true`.
    body = b'{"a":"+ACI-,+ACI-background+ACI-:true,+ACI-b+ACI-:+ACI-"}'
    said = ("application/json; charset=utf-7", "application/x-www-form-urlencoded")

    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url, provider="openai") as at:
            for kind in said:
                headers = [("content-type", kind), ("content-encoding", "identity"), ("content-encoding", "br")]
                await at.client.post(f"{at.given.address}/responses", content=body, headers=headers)

            heads = [data.lower().partition(b"\r\n\r\n")[0].split(b"\r\n") for data in seen]
            assert len(heads) == len(said)
            for head in heads:
                assert [line for line in head if line.startswith(b"content-type")] == [
                    b"content-type: application/json"
                ]
                assert not any(line.startswith(b"content-encoding") for line in head)

    run(work)


@pytest.mark.parametrize(
    "name",
    [
        *("X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Host", "X-Forwarded-Prefix", "Forwarded", "X-Host"),
        *("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Path-Override"),
        *("X-Portkey-Custom-Host", "Helicone-Target-URL", "X-Api-Base", "X-Upstream-Base-URL"),
        *("Range", "If-Range"),
    ],
)
def test_a_header_leads_neither_the_request_nor_the_key_elsewhere(tmp_path: Path, name: str) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            headers = {name: "elsewhere", "x-of-the-agent": "stays", "x-api-key": at.key}
            answer = await at.client.post(f"{at.given.address}/v1/messages", json=ASK, headers=headers)

            assert answer.status_code == 200
            (data,) = seen
            assert b"elsewhere" not in data
            assert b"stays" in data

    run(work)


@pytest.mark.parametrize(
    "field",
    [
        "fields=candidates",
        "%24fields=a",
        "$req=%7B%7D",
        "$httpMethod=DELETE",
        "callback=x",
        "_method=PUT",
        "a;fields=b",
    ],
)
def test_no_field_of_a_query_makes_another_request_or_leaves_out_what_it_took(tmp_path: Path, field: str) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url, provider="gemini") as at:
            await at.raw(
                b"POST " + at.path(f"/v1beta/models/m:generateContent?alt=sse&{field}&key={at.key}")
                + b" HTTP/1.1\r\nHost: x\r\nX-Goog-FieldMask: candidates\r\nContent-Length: 2\r\n\r\n{}"
            )  # fmt: skip

            head = seen[0].partition(b"\r\n\r\n")[0]
            assert head.split(b"\r\n")[0].endswith(f":generateContent?alt=sse&key={KEY} HTTP/1.1".encode())
            assert b"fieldmask" not in head.lower()

    run(work)


@pytest.mark.parametrize("confined", [True, False])
def test_an_agent_that_has_its_model_alone_asks_with_no_key_of_its_own(tmp_path: Path, confined: bool) -> None:
    async def work() -> None:
        tools = () if confined else None
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url, hosted_tools=tools) as at:
            address = f"{at.given.address}/v1/messages?key=mine-1&access_token=mine-2"
            headers = {"authorization": "Bearer mine-3", "x-api-key": at.key, "api-key": "mine-4"}
            await at.client.post(address, json=ASK, headers=headers)

            assert KEY.encode() in seen[0]
            assert seen[0].count(b"mine-") == (0 if confined else 4)

    run(work)


@pytest.mark.parametrize("line", [b"HTTP/1.1 200 OK\r\nx y: KEY", b"KEY"])
def test_a_key_in_an_answer_that_is_not_http_is_not_shown(tmp_path: Path, line: bytes) -> None:
    async def work() -> None:
        def repeat(data: bytes) -> bytes:
            key = data.partition(b"x-api-key: ")[2].split(b"\r\n")[0]
            return line.replace(b"KEY", key) + b"\r\n\r\n{}"

        async with server(repeat) as (url, _), bench(tmp_path, url) as at:
            answer = await at.ask()

            assert answer.status_code == 502
            assert "illegal" in answer.text
            assert "0123456789" not in answer.text

    run(work)


def test_a_key_that_cannot_be_sent_is_not_shown(tmp_path: Path) -> None:
    async def work() -> None:
        key = "sk-real-0123456789\nabcdef"
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url, key=key) as at:
            answer = await at.ask()

            assert (answer.status_code, seen) == (400, [])
            assert "cannot be sent" in answer.text
            assert "0123456789" not in answer.text

    run(work)


def test_one_agent_knows_neither_the_way_nor_the_key_of_another(tmp_path: Path) -> None:
    async def work() -> None:
        with ScriptedModel([{"say": "Hello."}] * 9) as model:
            async with bench(tmp_path, model.url) as one, bench(tmp_path / "..", model.url) as other:
                address = f"http://127.0.0.1:{other.port}"
                own = one.given.address.split("/", 3)[3]
                guesses = [
                    own,
                    "0" * 32 + "/anthropic",
                    "/anthropic",
                    own.upper(),
                    own.split("/")[0][:-1] + "%00/anthropic",
                ]
                for guess in guesses:
                    answer = await one.client.post(
                        f"{address}/{guess}/v1/messages", json=ASK, headers={"x-api-key": one.key}
                    )
                    assert answer.status_code == 404
                # With the right way, the key of another agent stands for nothing.
                await one.client.post(f"{other.given.address}/v1/messages", json=ASK, headers={"x-api-key": one.key})

                assert [request.headers["x-api-key"] for request in model.requests] == [one.key]

    run(work)


def test_an_agent_that_sends_slowly_does_not_take_the_turns_of_others(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            server(lambda _: whole(WELL)) as (url, seen),
            bench(tmp_path, url, most_requests=1) as at,
        ):
            head = b"POST " + at.path() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
            slow = [socket.create_connection(("127.0.0.1", at.port)) for _ in range(5)]
            for each in slow:
                each.sendall(head)
            # All of them have come in when the gateway has answered what came after them.
            assert (await at.client.get(f"http://127.0.0.1:{at.port}/")).status_code == 404

            assert (await at.ask()).status_code == 200
            assert len(seen) == 1
            for each in slow:
                each.close()

    run(work)


def test_an_agent_that_does_not_wait_for_the_words_of_an_error_has_seen_it_all_the_same(tmp_path: Path) -> None:
    async def work() -> None:
        head = b"HTTP/1.1 500 No\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        held: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held.append(writer)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head + b'{"error"')
            await writer.drain()

        provider = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{provider.sockets[0].getsockname()[1]}"
        async with provider, bench(tmp_path, url) as at:
            with socket.create_connection(("127.0.0.1", at.port)) as agent:
                agent.setblocking(False)
                loop = asyncio.get_running_loop()
                ask = b"POST " + at.path() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
                await loop.sock_sendall(agent, ask)
                assert b" 500 " in await loop.sock_recv(agent, 4096)
            await at.proxy.wait_until_quiet()
            for each in held:
                each.close()

            assert [(line["outcome"], line["trouble"]) for line in at.lines] == [("failed", "server")]

    run(work)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "temperature": 1' + b"0" * 400 + b"}",
        b'{"model": "\\ud800", "messages": ["\\ud800"]}',
        b'{"model": ["m"], "messages": {"a": NaN}}',
    ],
)
def test_a_body_that_no_program_would_send_harms_nobody_and_is_kept(tmp_path: Path, body: bytes) -> None:
    async def work() -> None:
        cassette = tmp_path / "tapes" / "1.jsonl"
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            at.proxy.sources = (Recorder(cassette, Forms({}, ["a.b"]), Masker([KEY])),)
            ask = b"POST " + at.path() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            assert (await at.raw(ask)).startswith(b"HTTP/1.1 200")
            arrived = seen[0].partition(b"\r\n\r\n")[2]
            assert json.dumps(json.loads(arrived)) == json.dumps(json.loads(body))

            at.proxy.sources = (Player(cassette, read_cassette(cassette), Forms({}, ["a.b"]), miss=print),)
            assert (await at.raw(ask)).startswith(b"HTTP/1.1 200")
            # A second time it is on no cassette, and the difference to nothing is shown.
            assert b"more often" in await at.raw(ask)
            assert len(seen) == 1

    run(work)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "temperature": 1' + b"0" * 5000 + b"}",
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b"[" * 100_000,
        b"[]",
        b"",
        b"\xff\xfe\x00{",
        '{"model": "m"}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b"model=m",
        b'{"messages": [' + b"[]," * 500_000 + b"1]}",
    ],
    ids=["number", "deep", "deeper", "list", "nothing", "bytes", "wide", "mark", "form", "many parts"],
)
def test_a_question_to_a_model_that_cannot_be_read_does_not_pass(tmp_path: Path, body: bytes) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            found = await at.raw(
                b"POST " + at.path() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )

            assert found.startswith(b"HTTP/1.1 400")
            assert b"not a JSON object" in found
            assert (seen, at.lines[0]["outcome"]) == ([], "refused")

    run(work)


def test_the_key_is_in_nothing_that_is_kept_wherever_an_agent_puts_what_stands_for_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda data: whole(data, kind="text/plain")) as (url, seen), bench(tmp_path, url) as at:
            at.proxy.sources = (Recorder(tmp_path / "tapes" / "1.jsonl", Forms({}), Masker([KEY])),)
            headers = {
                "x-api-key": at.key,
                "authorization": f"Bearer {at.key}",
                "user-agent": at.key,
                "x-mine": KEY[:9],
            }
            path = f"/v1/messages?key={at.key}&other={at.key}"
            body = {**ASK, "model": at.key, "messages": [{"role": "user", "content": at.key}]}
            answer = await at.client.post(at.given.address + path, json=body, headers=headers)

            assert seen[0].count(KEY.encode()) == 3
            assert KEY not in answer.text
            assert KEY not in str(answer.headers)

    run(work)

    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) == 2
    assert not [data for data in kept if KEY.encode() in data]


def test_a_cookie_of_a_provider_is_for_the_agent_that_got_it(tmp_path: Path) -> None:
    async def work() -> None:
        said = whole(WELL, "Set-Cookie: session=of-one; Path=/")
        async with server(lambda _: said) as (url, seen), bench(tmp_path, url) as at:
            first = await at.ask()
            at.client.cookies.clear()
            await at.ask()
            at.client.cookies.clear()
            await at.client.get(f"{at.given.address}/v1/models", headers={"cookie": "own=1"})

            assert first.headers["set-cookie"].startswith("session=of-one")
            assert [b"of-one" in each for each in seen] == [False, False, False]
            assert b"cookie: own=1\r\n" in seen[2].lower()

    run(work)


@pytest.mark.parametrize(
    "addresses",
    [
        ("10.0.0.1",),
        ("169.254.169.254",),
        ("::1",),
        ("::ffff:127.0.0.1",),
        ("93.184.215.14", "192.168.0.1"),
        ("0.0.0.0",),
    ],
)
def test_a_name_that_is_allowed_and_leads_into_a_private_network_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    def look_up(_host: object, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET6 if ":" in each else socket.AF_INET, 1, 6, "", (each, port)) for each in addresses]

    async def work() -> None:
        async with bench(tmp_path, "http://127.0.0.1:9", allow=("api.example.com:443",)) as at:
            monkeypatch.setattr(socket, "getaddrinfo", look_up)
            found = await at.raw(b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")

            assert found.startswith(b"HTTP/1.1 502")
            assert b"private address" in found

    run(work)


@pytest.mark.parametrize(
    ("head", "size", "kind"),
    [(10, 10, "network"), (5_000, 5_000_000, "network"), (20_000, 10, None), (10, 25_000_000, None)],
)
def test_a_request_that_a_provider_hangs_up_on_because_of_its_size_is_no_outage(
    tmp_path: Path, head: int, size: int, kind: str | None
) -> None:
    async def work() -> None:
        async with server(lambda _: b"") as (url, _), bench(tmp_path, url) as at:
            body = b'{"model": "%s"}' % (b"m" * size)
            headers = {"x-api-key": at.key, "x-more": "h" * head}
            answer = await at.client.post(f"{at.given.address}/v1/messages", content=body, headers=headers)

            assert answer.status_code == 502
            seen = at.request_log.observation().trouble
            assert (seen.kind if seen else None) == kind

    run(work)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_thousands_of_connections_of_one_agent_end_with_it(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, _), bench(tmp_path / "..", url) as other:
            async with bench(tmp_path, url) as at:
                before = open_files()
                many = [socket.socket() for _ in range(min(3000, hard - 500))]
                for each in many:
                    each.setblocking(False)
                    each.connect_ex(("127.0.0.1", at.port))
                for _ in range(50):
                    await asyncio.sleep(0)

                # What waits in the line of the kernel costs nothing here.
                assert open_files() - before - len(many) <= 128 + 4
                assert (await other.ask()).status_code == 200
            for each in many:
                each.close()

    try:
        run(work)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


FIRST_LINE = '{"cassette": 1}\n'
EXCHANGE: dict[str, Any] = {
    "form": {"method": "POST", "path": "/v1/messages", "query": "", "body": {}},
    "status": 200,
    "headers": {"content-type": "application/json"},
    "pieces": [[0.0, "{}"]],
}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": 99999}, "status"),
        ({"status": 101}, "status"),
        ({"status": True}, "status"),
        ({"status": 1e999}, "status"),
        ({"status": "200"}, "status"),
        ({"headers": {"content-type": "a\r\nset-cookie: b"}}, "headers"),
        ({"headers": {"content-type": "\u20ac"}}, "headers"),
        ({"headers": {"content-type": 1}}, "string"),
        ({"headers": []}, "items"),
        ({"pieces": [[float("nan"), "x"]]}, "pieces"),
        ({"pieces": [[float("inf"), "x"]]}, "pieces"),
        ({"pieces": [[-1, "x"]]}, "pieces"),
        ({"pieces": [[0, "\ud800"]]}, "surrogates"),
        ({"pieces": [[0, 1]]}, "encode"),
        ({"pieces": [[0]]}, "unpack"),
        ({"pieces": "abc"}, "unpack"),
        ({"form": "any"}, "indices"),
        ({"form": ["method", "path"]}, "indices"),
        ({"form": {"method": "POST"}}, "path"),
        ({"form": {"method": [], "path": ""}}, "form"),
    ],
)
def test_an_exchange_that_cannot_be_is_named_before_anything_starts(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    cassette = tmp_path / "1.jsonl"
    cassette.write_text(FIRST_LINE + json.dumps({**EXCHANGE, **change}) + "\n")

    with pytest.raises(CassetteMissed) as raised:
        read_cassette(cassette)

    assert str(cassette) in raised.value.message
    assert why in raised.value.message


def test_a_cassette_that_is_no_file_or_too_large_or_too_deep_is_refused_at_once(tmp_path: Path) -> None:
    deep = json.dumps({**EXCHANGE, "form": {"method": "POST", "path": "", "body": "HERE"}})
    (tmp_path / "deep").write_text(FIRST_LINE + deep.replace('"HERE"', "[" * 500 + "]" * 500))
    (tmp_path / "deeper").write_text(FIRST_LINE + "[" * 200_000)
    (tmp_path / "target").write_text(FIRST_LINE)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "bytes").write_bytes(FIRST_LINE.encode() + b"\xff\xfe")

    for name in ("deep", "deeper", "link", "zero", "folder", "pipe", "large", "bytes", "none"):
        with pytest.raises(CassetteMissed, match=f"{name} cannot be played"):
            read_cassette(tmp_path / name)


def test_what_is_added_to_somebody_elses_cassettes_is_written_nowhere_else(tmp_path: Path) -> None:
    folder, outside = tmp_path / "tapes", tmp_path / "outside"
    (folder / "s").mkdir(parents=True)
    outside.mkdir()
    (outside / "precious").write_text("as it was\n")
    (folder / "s" / "case").symlink_to(outside)
    (folder / "s" / "1.jsonl").symlink_to(outside / "precious")
    (folder / "s" / "2.jsonl").symlink_to(outside / "new")
    os.mkfifo(folder / "s" / "3.jsonl")
    missed: list[AgentError] = []

    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, _), bench(tmp_path, url) as at:
            for number in (1, 2, 3):
                cassette = folder / "s" / f"{number}.jsonl"
                require_inside(cassette, folder)
                at.proxy.sources = (Recorder(cassette, Forms({}), Masker(()), missed.append),)
                assert (await at.ask()).status_code == 200

    run(work)

    with pytest.raises(CassetteMissed, match="behind a link"):
        require_inside(folder / "s" / "case" / "1.jsonl", folder)
    assert [error.message.partition(" cannot be recorded")[0] for error in missed] == [
        str(folder / "s" / f"{number}.jsonl") for number in (1, 2, 3)
    ]
    assert (outside / "precious").read_text() == "as it was\n"
    assert list(outside.iterdir()) == [outside / "precious"]


def test_a_cache_that_is_broken_asks_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            at.proxy.sources = (Cache(tmp_path / "cache", url, Masker(()), Forms({}), judges=True),)
            await at.ask()
            (kept,) = (tmp_path / "cache").iterdir()
            # Two that asked at the same time have both written all of it.
            kept.write_text(kept.read_text() * 2)
            await at.ask()
            assert len(seen) == 1

            kept.write_text(FIRST_LINE + "{")
            assert (await at.ask()).status_code == 200
            assert len(seen) == 2

    run(work)


def test_what_is_asked_for_is_read_as_far_as_it_can_be() -> None:
    asked = read_request("messages", "/v1/messages", {"model": "m", "temperature": 10**400})

    assert (asked.format, asked.model, asked.temperature) == ("messages", "m", None)


CHAT = {"model": "gpt-5.5", "stream": True, "messages": [{"role": "user", "content": "x" * 400}]}
# 100 tokens of text, and not a word on what it took.
PIECE = b'data: {"choices": [{"delta": {"content": "' + b"y" * 400 + b'"}}]}\n\n'


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(budget_tokens=200), "has used about 200 of 200 tokens"),
        (Limits(budget_usd=0.0001), "has spent about $"),
    ],
    ids=["tokens", "dollars"],
)
def test_answers_that_do_not_say_what_they_took_count_for_budgets_by_their_text(
    tmp_path: Path, limits: Limits, words: str
) -> None:
    async def work() -> None:
        stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + PIECE + b"data: [DONE]\n\n"
        async with (
            server(lambda _: stream) as (url, seen),
            bench(tmp_path, url, provider="openai", limits=limits) as at,
        ):
            first = await at.ask(CHAT, "/chat/completions")
            second = await at.ask(CHAT, "/chat/completions")

            assert (first.status_code, second.status_code) == (200, 402)
            assert words in second.json()["error"]["message"]
            assert len(seen) == 1
            # A guess holds a budget, and is no figure of the record.
            assert (at.request_log.usage.total_tokens, at.request_log.usage.cost_usd) == (None, None)

    run(work)


def test_an_agent_that_hangs_up_before_the_figures_come_spends_its_budget_all_the_same(tmp_path: Path) -> None:
    async def work() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
            writer.write(head + b'data: {"message": {"usage": {"input_tokens": 50, "output_tokens": 1}}}\n\n' + PIECE)
            await writer.drain()
            # The end, with what all of it took, never comes.
            while await reader.read(65536):
                pass
            writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with listening, bench(tmp_path, url, limits=Limits(budget_tokens=150)) as at:
            async with at.client.stream("POST", f"{at.given.address}/v1/messages", json=ASK) as answer:
                async for piece in answer.aiter_bytes():
                    if b"yyy" in piece:
                        break
            await at.proxy.wait_until_quiet()

            refused = await at.ask()

            assert refused.status_code == 402
            assert "has used about 150 of 150 tokens" in refused.json()["error"]["message"]
            # The provider said 50 and 1. How much was written nobody measured, and 100 went by.
            assert (at.request_log.measured.input_tokens, at.request_log.measured.output_tokens) == (50, None)
            assert (at.request_log.measured.cost_usd, at.request_log.guessed.total_tokens) == (None, 100)
            assert at.request_log.guessed.cost_usd == pytest.approx(50 * 3e-6 + 100 * 15e-6)

    run(work)


def test_a_picture_is_not_taken_for_text() -> None:
    picture = "A" * 100_000
    body = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": 'say "hi"'}]},
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": picture}}]},
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}],
            },
        ],
        "contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": picture}}]}],
    }

    words = len('say "hi"')
    assert words < count_characters(body) < words + 4 * len(picture) / 30

"""Agents that do not play by the rules of HTTP, or try to reach what they may not."""

from __future__ import annotations

import asyncio
import json
import socket
from base64 import b64encode
from pathlib import Path

import pytest
from gateway_bench import ASK, KEY, bench, run, server, whole

from whet.reading.hosts import host_problem
from whet.testing.scripted_model.server import ScriptedModel

WELL = b'{"usage": {"input_tokens": 3, "output_tokens": 4}}'


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 300_000,
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded: yes\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    ],
)
def test_garbage_is_refused_and_nothing_of_it_arrives(tmp_path: Path, data: bytes) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            found = await at.raw(data)

            assert found[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 431", b"HTTP/1.1 501", b"HTTP/1.1 505")
            assert seen == []
            # And it still works.
            assert (await at.ask()).status_code == 200

    run(work)


def test_a_request_that_hides_another_one_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            hidden = b"GET " + at.path("/v1/admin") + b" HTTP/1.1\r\nHost: x\r\n\r\n"
            both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(hidden))
            found = await at.raw(b"POST " + at.path() + b" HTTP/1.1\r\nHost: x\r\n" + both + hidden)

            assert found.startswith(b"HTTP/1.1 400")
            assert seen == []

    run(work)


def test_requests_that_are_sent_ahead_are_answered_in_their_order(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda data: whole(data.split(b" ")[1][-2:])) as (url, seen), bench(tmp_path, url) as at:
            requests = [b"GET " + at.path(f"/v1/models?n={n}") + b" HTTP/1.1\r\nHost: x\r\n\r\n" for n in range(5)]
            found = await at.raw(b"".join(requests))

            assert [found.find(b"=%d" % n) for n in range(5)] == sorted(found.find(b"=%d" % n) for n in range(5))
            assert found.count(b"HTTP/1.1 200") == len(seen) == 5

    run(work)


def test_an_agent_of_the_last_century_is_answered(tmp_path: Path) -> None:
    async def work() -> None:
        with ScriptedModel([{"say": "Hello."}]) as model:
            async with bench(tmp_path, model.url) as at:
                body = json.dumps(ASK).encode()
                head = b"POST " + at.path() + b" HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
                found = await at.raw(head + body)

                assert found.startswith(b"HTTP/1.1 200")
                assert found.rstrip().endswith(b'data: {"type": "message_stop"}')
                assert b"chunked" not in found

    run(work)


def test_chunks_with_trailers_and_a_pause_before_the_body_arrive_whole(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            head = b"POST " + at.path() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            waits = b"Expect: 100-continue\r\nTrailer: X-Sum\r\n\r\n"
            found = await at.raw(head + waits + b'2;ext=1\r\n{"\r\n6\r\na": 1}\r\n0\r\nX-Sum: 1\r\n\r\n')

            assert found.startswith(b"HTTP/1.1 100")
            assert b"HTTP/1.1 200" in found
            assert seen[0].endswith(b'{"a":1}')
            assert b"x-sum" not in seen[0].lower()

    run(work)


def test_headers_of_the_connection_stay_on_it(tmp_path: Path) -> None:
    async def work() -> None:
        said = whole(WELL, "Keep-Alive: timeout=5", "X-Theirs: 1", "Proxy-Authenticate: Basic")
        async with server(lambda _: said) as (url, seen), bench(tmp_path, url) as at:
            headers = {
                "connection": "keep-alive, x-hop",
                "x-hop": "1",
                "proxy-authorization": "Basic eA==",
                "x-ours": "1",
            }
            answer = await at.client.post(f"{at.given.address}/v1/messages", json=ASK, headers=headers)

            assert b"x-ours: 1" in seen[0].lower()
            assert not [name for name in (b"x-hop", b"proxy-authorization") if name in seen[0].lower()]
            assert answer.headers["x-theirs"] == "1"
            assert "proxy-authenticate" not in answer.headers

    run(work)


def test_a_path_without_end_is_no_trouble_of_the_provider(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            long = b"POST " + at.path("/v1/messages") + b"?" + b"y" * 75_000
            found = await at.raw(long + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")

            assert found[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431")
            assert seen == []
            assert at.request_log.observation().trouble is None

    run(work)


def test_a_key_that_is_an_ordinary_word_is_not_covered_in_answers(tmp_path: Path) -> None:
    async def work() -> None:
        said = whole(b'{"text": "use placeholder here"}')
        async with server(lambda _: said) as (url, seen), bench(tmp_path, url, key="placeholder") as at:
            answer = await at.ask()

            assert answer.json()["text"] == "use placeholder here"
            assert b"placeholder" in seen[0]

    run(work)


def test_a_redirect_is_not_followed_with_the_key(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (other, stolen):
            said = whole(b"", f"Location: {other}/v1/messages", status="307 Temporary Redirect")
            async with server(lambda _: said) as (url, _), bench(tmp_path, url) as at:
                answer = await at.ask()

                assert answer.status_code == 307
                assert stolen == []

    run(work)


def test_a_body_of_80_megabytes_is_refused_and_what_settings_name_passes_without_being_kept(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            server(lambda _: whole(WELL)) as (url, seen),
            bench(tmp_path, url, allow_requests=("POST /v1/files",)) as at,
        ):
            big = {**ASK, "messages": [{"role": "user", "content": "x" * 80_000_000}]}
            refused = await at.ask(big)
            passed = await at.ask(big, "/v1/files")

            assert (refused.status_code, passed.status_code) == (413, 200)
            assert [len(data) > 80_000_000 for data in seen] == [True]
            assert [line["outcome"] for line in at.lines] == ["refused", "answered"]

    run(work)


def test_an_agent_that_reads_slowly_slows_the_provider_and_not_the_gateway(tmp_path: Path) -> None:
    async def work() -> None:
        sent = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
            try:
                for _ in range(2000):
                    writer.write(b"x" * 65536)
                    await writer.drain()
                    sent += 65536
            except ConnectionError:
                pass
            writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with listening, bench(tmp_path, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}") as at:
            with socket.create_connection(("127.0.0.1", at.port)) as agent:
                agent.sendall(b"GET " + at.path("/v1/models") + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                before = -1
                while before != sent:
                    before = sent
                    await asyncio.sleep(0.5)

                assert 0 < sent < 60_000_000
                assert (await at.client.get(f"http://127.0.0.1:{at.port}/")).status_code == 404

    run(work)


def test_an_agent_that_opens_a_thousand_connections_is_served_and_others_are_too(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, _), bench(tmp_path, url) as at, bench(tmp_path, url) as other:
            idle = [socket.socket() for _ in range(1000)]
            for each in idle:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", at.port))
            await asyncio.sleep(0.3)

            assert (await other.ask()).status_code == 200

            for each in idle:
                each.close()
            assert (await at.ask()).status_code == 200

    run(work)


ALLOW = ("api.example.com:443", "*.example.org:443", "127.0.0.1:{port}")


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.2:{port}",
        "127.1:{port}",
        "2130706433:{port}",
        "0x7f000001:{port}",
        "0177.0.0.1:{port}",
        "[::1]:{port}",
        "[::ffff:127.0.0.1]:{port}",
        "localhost:{port}",
        "127.0.0.1:{other}",
        "127.0.0.1.:{port}",
        "api.example.com:80",
        "api.example.com.evil.test:443",
        "evilapi.example.com:443",
        "example.org:443",
        "evilexample.org:443",
        "127.0.0.1#.example.org:443",
        "*.example.org:443",
        "127.0.0.1",
        "http://127.0.0.1:{port}/",
        "a@127.0.0.1:{port}",
    ],
)
def test_a_tunnel_to_what_is_not_allowed_is_refused_in_every_spelling(tmp_path: Path, target: str) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen):
            port = int(url.rpartition(":")[2])
            allow = tuple(each.format(port=port) for each in ALLOW)
            async with bench(tmp_path, url, allow=allow) as at:
                spelled = target.format(port=port, other=port + 1)
                found = await at.raw(f"CONNECT {spelled} HTTP/1.1\r\nHost: {spelled}\r\n\r\n".encode())

                assert found.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400"))
                assert seen == []
                assert [line["outcome"] for line in at.lines] in ([], ["refused"])

    run(work)


def test_a_tunnel_to_what_is_allowed_passes_both_ways_and_is_noted(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(b"reached")) as (url, seen):
            port = int(url.rpartition(":")[2])
            async with bench(tmp_path, "http://127.0.0.1:9", allow=(f"127.0.0.1:{port}",)) as at:
                head = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
                found = await at.raw(head + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

                assert found.startswith(b"HTTP/1.1 200")
                assert found.endswith(b"reached")
                assert len(seen) == 1
                assert KEY.encode() not in seen[0]
            (line,) = at.lines
            assert (line["method"], line["path"], line["status"]) == ("CONNECT", f"127.0.0.1:{port}", 200)

    run(work)


LOGIN = "us%65r:p%40ss"


def through_a_proxy(folder: Path, allow: str, target: str, answer: bytes, *, url: str = "") -> tuple[bytes, bytes]:
    """Open a tunnel where our own environment names a proxy; what the agent gets, and what the proxy heard."""
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        if answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n"):
            heard.extend(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nbehind the proxy")
        await writer.drain()
        writer.close()

    async def work() -> bytes:
        proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
        with pytest.MonkeyPatch.context() as patch:
            here = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            patch.setenv("HTTPS_PROXY", url or f"http://{LOGIN}@{here}")
            patch.setenv("NO_PROXY", "intern.example.com")
            async with proxy, bench(folder, "http://127.0.0.1:9", allow=(allow,)) as at:
                head = f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
                return await at.raw(head + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

    return asyncio.run(work()), bytes(heard)


def test_a_tunnel_goes_through_the_proxy_that_whet_itself_goes_through(tmp_path: Path) -> None:
    found, heard = through_a_proxy(
        tmp_path, "*.example.com:443", "API.example.com:443", b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n"
    )

    assert found.startswith(b"HTTP/1.1 200")
    assert found.endswith(b"behind the proxy")
    assert b"Via" not in found
    asked, _, sent = heard.partition(b"\r\n\r\n")
    assert asked.split(b"\r\n") == [
        b"CONNECT api.example.com:443 HTTP/1.1",
        b"Host: api.example.com:443",
        b"Proxy-Authorization: Basic " + b64encode(b"user:p@ss"),
    ]
    assert sent == b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("target", "answer", "says"),
    [
        ("api.example.com:443", b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", b"407 Proxy Authentication"),
        ("api.example.com:443", b"HTTP/1.1 200", b"no answer of HTTP"),
        ("api.example.com:443", b"", b"no answer of HTTP"),
        ("api.example.com:443", b"x" * 200_000, b"no answer of HTTP"),
        ("api.example.com:443", b"\r\n\r\n", b"the proxy says"),
        ("other.example.com:443", b"HTTP/1.1 200 OK\r\n\r\n", b"not among the hosts"),
    ],
)
def test_what_a_proxy_refuses_is_said_without_its_password(
    tmp_path: Path, target: str, answer: bytes, says: bytes
) -> None:
    found, _ = through_a_proxy(tmp_path, "api.example.com:443", target, answer)

    assert found.startswith((b"HTTP/1.1 502", b"HTTP/1.1 403"))
    assert says in found
    assert b"p@ss" not in found
    assert b"p%40ss" not in found


@pytest.mark.parametrize("url", ["socks5://127.0.0.1:9", "http://127.0.0.1:many", "ftp://127.0.0.1"])
def test_a_proxy_of_another_kind_is_no_way_out(tmp_path: Path, url: str) -> None:
    found, _ = through_a_proxy(tmp_path, "api.example.com:443", "api.example.com:443", b"", url=url)

    assert found.startswith(b"HTTP/1.1 502")
    assert b"no HTTP proxy" in found


def test_this_machine_is_reached_without_a_proxy(tmp_path: Path) -> None:
    with ScriptedModel() as model:
        target = model.url.removeprefix("http://")
        found, heard = through_a_proxy(tmp_path, target, target, b"HTTP/1.1 500 No\r\n\r\n")

    assert found.startswith(b"HTTP/1.1 200")
    assert heard == b""


def test_without_hosts_to_reach_there_is_no_tunnel(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            found = await at.raw(f"CONNECT {url.removeprefix('http://')} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

            assert found.startswith(b"HTTP/1.1 403")
            assert seen == []

    run(work)


@pytest.mark.parametrize(
    "text", ["example.com", "example.com:0", "example.com:99999", ":443", "a b:1", "*:443", "http://a:1"]
)
def test_a_host_to_reach_has_a_name_and_a_port(text: str) -> None:
    assert host_problem(text)


def test_a_stream_with_an_error_in_the_middle_is_trouble(tmp_path: Path) -> None:
    async def work() -> None:
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        body = f"event: message_start\ndata: {{}}\n\nevent: error\ndata: {json.dumps(error)}\n\n".encode()
        async with server(lambda _: whole(body, kind="text/event-stream")) as (url, _), bench(tmp_path, url) as at:
            await at.ask()
            seen = at.request_log.observation()

            assert seen.trouble is not None
            assert seen.trouble.kind == "overloaded"

    run(work)


def test_an_answer_with_absurd_figures_does_no_harm(tmp_path: Path) -> None:
    async def work() -> None:
        usages = ['{"input_tokens": -5, "output_tokens": 1e400}', '{"input_tokens": "many"}', "[1]", "null", '"x"']
        async with (
            server(lambda _: whole(f'{{"usage": {usages.pop()}}}'.encode())) as (url, _),
            bench(tmp_path, url) as at,
        ):
            for _ in range(5):
                assert (await at.ask()).status_code == 200

            assert at.request_log.usage.total_tokens is None
            assert len(at.lines) == 5

    run(work)


def test_a_client_that_stops_in_the_middle_of_its_body_leaves_nothing_behind(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            head = b"POST " + at.path() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
            reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
            writer.write(head)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            await at.proxy.wait_until_quiet()

            assert seen == []
            assert [line["outcome"] for line in at.lines] == ["left"]

    run(work)

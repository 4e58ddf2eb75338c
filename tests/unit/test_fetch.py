"""Fetching packages over real sockets on loopback: the web, buckets behind a small S3 server, and the address guard."""

from __future__ import annotations

import hashlib
import hmac
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import anyio
import httpcore2
import httpx2
import pytest

from whet.errors import PackageError, PackageUnreachable
from whet.packages.fetch import _next, fetch, is_public
from whet.packages.settings import (
    MIB,
    Buckets,
    FetchedFile,
    PackageLimits,
    PackageSettings,
    kind_of,
    local_path,
    package_settings,
)

Answer = tuple[int, Mapping[str, str], bytes]
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI"


class Server:
    """Answers every GET by a function, and remembers what was asked for."""

    def __init__(self, answer: Callable[[str, Mapping[str, str]], Answer]) -> None:
        seen = self.seen = list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.path)
                status, headers, body = answer(self.path, {name.lower(): value for name, value in self.headers.items()})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Whoever asks may go before the answer is there."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[str, Mapping[str, str]], Answer]], Server]]:
    servers: list[Server] = []

    def start(answer: Callable[[str, Mapping[str, str]], Answer]) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def fetched(
    ref: str, folder: Path, settings: PackageSettings | None = None, environ: Mapping[str, str] | None = None
) -> FetchedFile:
    return anyio.run(fetch, ref, folder / "got", settings or PackageSettings(), environ or {})


GUARDED = PackageSettings(allow_private_addresses=False)


def test_a_file_of_the_web_is_fetched_with_its_digest(serve, tmp_path: Path) -> None:
    server = serve(lambda path, _: (200, {"Content-Encoding": "gzip"}, path.encode()))

    found = fetched(f"{server.url}/a%20b.tar.gz?v=1", tmp_path)

    assert found.path.read_bytes() == b"/a%20b.tar.gz?v=1"
    assert found.digest == hashlib.sha256(b"/a%20b.tar.gz?v=1").hexdigest()


def test_redirects_are_followed(serve, tmp_path: Path) -> None:
    server = serve(lambda path, _: (200, {}, b"here") if path == "/b" else (302, {"Location": "/b"}, b""))

    found = fetched(f"{server.url}/a", tmp_path)

    assert found.path.read_bytes() == b"here"


def test_redirects_without_end_are_not(serve, tmp_path: Path) -> None:
    server = serve(lambda path, _: (302, {"Location": f"{path}x"}, b""))

    with pytest.raises(PackageError, match="redirects too often"):
        fetched(f"{server.url}/a", tmp_path)

    assert len(server.seen) == 6


@pytest.mark.parametrize(
    ("status", "kind"), [(404, PackageError), (403, PackageError), (503, PackageUnreachable), (204, PackageError)]
)
def test_any_other_answer_is_told_and_only_busy_servers_are_worth_another_try(
    serve, tmp_path: Path, status: int, kind: type[PackageError]
) -> None:
    server = serve(lambda *_: (status, {}, b""))

    with pytest.raises(PackageError, match=f"HTTP {status}") as caught:
        fetched(f"{server.url}/a", tmp_path)

    assert type(caught.value) is kind


def test_a_redirect_from_https_leads_to_https_alone() -> None:
    def redirected(to: str) -> str:
        answer = httpcore2.Response(302, headers=[(b"Location", to.encode())])
        return str(_next(httpx2.URL("https://a.example/x/y"), answer))

    assert [redirected(to) for to in ("z", "https://b.example/c")] == ["https://a.example/x/z", "https://b.example/c"]
    with pytest.raises(PackageError, match="redirects from https to an address without encryption"):
        redirected("http://a.example/x/y")


def test_a_file_of_exactly_the_largest_size_is_fetched(serve, tmp_path: Path) -> None:
    server = serve(lambda *_: (200, {}, bytes(MIB)))

    found = fetched(f"{server.url}/a", tmp_path, PackageSettings(limits=PackageLimits(download_bytes=MIB)))

    assert found.path.stat().st_size == MIB


def test_a_file_that_is_too_large_is_refused_while_it_comes(serve, tmp_path: Path) -> None:
    server = serve(lambda *_: (200, {}, bytes(2 * MIB)))
    settings = PackageSettings(limits=PackageLimits(download_bytes=MIB))

    with pytest.raises(PackageError, match="larger than 1 MiB"):
        fetched(f"{server.url}/a", tmp_path, settings)


def test_a_server_that_never_ends_is_left(serve, tmp_path: Path) -> None:
    gate = threading.Event()
    server = serve(lambda *_: (gate.wait(60) and (200, {}, b"")) or (500, {}, b""))
    settings = PackageSettings(limits=PackageLimits(fetch_timeout_s=0.3))

    with pytest.raises(PackageUnreachable, match=r"within 0\.3 s"):
        fetched(f"{server.url}/a", tmp_path, settings)

    gate.set()


def test_what_is_secret_in_an_address_is_not_told(serve, tmp_path: Path) -> None:
    server = serve(lambda *_: (404, {}, b""))

    with pytest.raises(PackageError) as caught:
        fetched(f"{server.url}/a.tar.gz?X-Amz-Signature=abcdef", tmp_path)

    assert caught.value.message == f"{server.url}/a.tar.gz answered with HTTP 404"


def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))

        with pytest.raises(PackageUnreachable, match="cannot be fetched"):
            fetched(f"http://127.0.0.1:{taken.getsockname()[1]}/a", tmp_path)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]"],
)
def test_the_guard_refuses_loopback_by_whatever_name(serve, tmp_path: Path, host: str) -> None:
    server = serve(lambda *_: (200, {}, b"secret"))

    with pytest.raises(PackageError, match=r"not a public address"):
        fetched(f"http://{host}:{server.port}/a", tmp_path, GUARDED)

    assert server.seen == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1"])
def test_the_guard_refuses_private_and_link_local_addresses(tmp_path: Path, host: str) -> None:
    with pytest.raises(PackageError, match=r"not a public address"):
        fetched(f"http://{host}/latest/meta-data", tmp_path, GUARDED)


def test_the_guard_looks_again_after_a_redirect(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = serve(lambda *_: (200, {}, b"secret"))
    outer = serve(lambda *_: (302, {"Location": f"http://localhost:{inner.port}/a"}, b""))
    # The only address that stands for a public one here.
    monkeypatch.setattr("whet.packages.fetch.is_public", lambda text: text == "127.0.0.1" and not inner.seen)
    monkeypatch.setattr("anyio.getaddrinfo", _looking_up({"public.example": "127.0.0.1", "localhost": "::1"}))

    with pytest.raises(PackageError, match="localhost leads to ::1"):
        fetched(f"http://public.example:{outer.port}/a", tmp_path, GUARDED)

    assert outer.seen == ["/a"]
    assert inner.seen == []


def test_the_guard_connects_to_the_address_that_it_checked(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(lambda _, headers: (200, {}, headers["host"].encode()))
    asked: list[str] = []
    # A name that answers differently each time: what was checked first must be what is connected to.
    answers = iter(["127.0.0.1", "10.0.0.1"])
    monkeypatch.setattr("whet.packages.fetch.is_public", lambda text: text == "127.0.0.1")
    monkeypatch.setattr("anyio.getaddrinfo", _looking_up({}, asked, answers))

    found = fetched(f"http://rebinding.example:{server.port}/a", tmp_path, GUARDED)

    assert found.path.read_text() == f"rebinding.example:{server.port}"
    assert asked == ["rebinding.example"]


def test_one_private_address_spoils_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(host: str, port: int, **_: object) -> list[tuple]:
        return [(2, 1, 6, "", (address, port)) for address in ("8.8.8.8", "10.0.0.1")]

    monkeypatch.setattr("anyio.getaddrinfo", both)

    with pytest.raises(PackageError, match=r"leads to 10\.0\.0\.1"):
        fetched("http://both.example/a", tmp_path, GUARDED)


def _looking_up(known: Mapping[str, str], asked: list[str] | None = None, answers: Iterator[str] | None = None):
    async def look_up(host: str, port: int, **_: object) -> list[tuple]:
        if asked is not None and not host[0].isdigit():
            asked.append(host)
        address = known.get(host) or (host if host[0].isdigit() else next(answers or iter(())))
        return [(10 if ":" in address else 2, 1, 6, "", (address, port))]

    return look_up


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1", True),
        ("224.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::808:808", True),
        ("::ffff:8.8.8.8", True),
        ("::ffff:0:127.0.0.1", False),
        ("::ffff:0:8.8.8.8", False),
        ("100::1", False),
        ("5f00::1", False),
        ("2002:7f00:1::", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("::7f00:1", False),
        ("255.255.255.255", False),
        # Python calls some of these global, and which ones depends on its version.
        *((address, False) for address in ("168.63.129.16", "192.0.0.8", "192.0.0.9", "192.0.0.192", "192.88.99.1")),
        *((address, False) for address in ("100.100.100.200", "169.254.169.254", "198.18.0.1", "240.0.0.1", "0.0.0.1")),
        *((address, False) for address in ("2001::1", "2001:1::1", "2001:20::1", "2001:db8::1", "2002:808:808::")),
        *((address, False) for address in ("3fff::1", "fd00:ec2::254", "64:ff9b:1::808:808", "2620:4f:8000::1")),
        ("64:ff9b::a83f:8110", False),
        ("192.0.1.1", True),
        ("2001:4860:4860::8888", True),
    ],
)
def test_an_address_is_public_only_if_what_it_wraps_is(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        ("ftp://a/b", "cannot fetch ftp://"),
        ("http://", "not a web address"),
        ("http://user:pw@a/b", "name or password"),
        ("http://a:99999/b", "not an address"),
        ("s3://UPPER/key", "is not of the form"),
        ("s3://bucket", "is not of the form"),
        ("s3://bucket/../other/key", "is not of the form"),
        ("r2://bucket/key", "packages.r2.endpoint"),
    ],
)
def test_a_reference_that_makes_no_sense_is_told(tmp_path: Path, ref: str, reason: str) -> None:
    with pytest.raises(PackageError) as caught:
        fetched(ref, tmp_path)

    assert reason in f"{caught.value.message} {caught.value.hint}"


def test_local_references_are_paths_and_file_addresses(tmp_path: Path) -> None:
    assert kind_of("../a.tar.gz") == kind_of("file:///a") == "local"
    assert local_path("a/b", tmp_path) == tmp_path / "a/b"
    assert local_path("file:///a%20b", tmp_path) == local_path("file://localhost/a%20b", tmp_path) == Path("/a b")
    with pytest.raises(PackageError, match="another machine"):
        local_path("file://host/a", tmp_path)


def s3(objects: Mapping[str, bytes]) -> Callable[[str, Mapping[str, str]], Answer]:
    """An S3 server: objects by `/bucket/key`, for whoever signs with our key (AWS Signature Version 4)."""

    def answer(path: str, headers: Mapping[str, str]) -> Answer:
        if not _is_signed(path, headers):
            return 403, {}, b"<Error><Code>SignatureDoesNotMatch</Code></Error>"
        data = objects.get(unquote(urlsplit(path).path))
        if data is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        when = {"Last-Modified": "Mon, 16 Nov 2026 00:00:00 GMT", "ETag": '"1"'}
        return 200, when, data

    return answer


def _is_signed(path: str, headers: Mapping[str, str]) -> bool:
    given = headers.get("authorization", "")
    if not given.startswith("AWS4-HMAC-SHA256 "):
        return False
    parts = dict(part.strip().split("=", 1) for part in given.removeprefix("AWS4-HMAC-SHA256 ").split(","))
    key, day, region, service, end = parts["Credential"].split("/")
    names = parts["SignedHeaders"].split(";")
    asked = urlsplit(path)
    canonical = "\n".join(
        (
            "GET",
            quote(unquote(asked.path), safe="/-_.~"),
            asked.query,
            *(f"{name}:{headers[name].strip()}" for name in names),
            "",
            parts["SignedHeaders"],
            headers["x-amz-content-sha256"],
        )
    )
    scope = f"{day}/{region}/{service}/{end}"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    signed = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{hashed}"
    secret = f"AWS4{SECRET}".encode()
    for word in (day, region, service, end, signed):
        secret = hmac.new(secret, word.encode(), hashlib.sha256).digest()
    return key == KEY and hmac.compare_digest(secret.hex(), parts["Signature"])


def _buckets(server: Server, **more: object) -> PackageSettings:
    table = {"endpoint": server.url, "key_variable": "MY_KEY", "secret_variable": "MY_SECRET", **more}
    return package_settings({"r2": table, "s3": {**table, "region": "eu-west-1"}})


@pytest.mark.parametrize("scheme", ["r2", "s3"])
def test_an_object_of_a_bucket_is_fetched_with_a_signed_request(serve, tmp_path: Path, scheme: str) -> None:
    server = serve(s3({"/registry/bench marks/a.tar.gz": b"packed" * 300_000}))
    environ = {"MY_KEY": KEY, "MY_SECRET": SECRET}

    found = fetched(f"{scheme}://registry/bench marks/a.tar.gz", tmp_path, _buckets(server), environ)

    assert found.digest == hashlib.sha256(b"packed" * 300_000).hexdigest()


def test_an_object_that_is_not_there_is_told_without_another_try(serve, tmp_path: Path) -> None:
    server = serve(s3({}))
    environ = {"MY_KEY": KEY, "MY_SECRET": SECRET}

    with pytest.raises(PackageError, match="r2://registry/a does not exist") as caught:
        fetched("r2://registry/a", tmp_path, _buckets(server), environ)

    assert not caught.value.retry


@pytest.mark.parametrize("environ", [{}, {"MY_KEY": KEY}, {"MY_SECRET": SECRET}, {"MY_KEY": KEY, "MY_SECRET": "wrong"}])
def test_missing_and_wrong_keys_are_told_by_the_names_of_their_variables(
    serve, tmp_path: Path, environ: dict[str, str]
) -> None:
    server = serve(s3({"/registry/a": b"x"}))

    with pytest.raises(PackageError, match="you may not read") as caught:
        fetched("r2://registry/a", tmp_path, _buckets(server), environ)

    assert "MY_KEY and MY_SECRET" in (caught.value.hint or "")
    assert "wrong" not in f"{caught.value.message} {caught.value.hint}"


def test_only_allowed_buckets_are_read(serve, tmp_path: Path) -> None:
    server = serve(s3({"/other/a": b"x"}))

    with pytest.raises(PackageError, match=r"not among packages\.s3\.allowed"):
        fetched("s3://other/a", tmp_path, _buckets(server, allowed=("registry",)), {"MY_KEY": KEY, "MY_SECRET": SECRET})

    assert server.seen == []


def test_an_object_that_is_too_large_is_refused_while_it_comes(serve, tmp_path: Path) -> None:
    server = serve(s3({"/registry/a": bytes(3 * MIB)}))
    table = {"endpoint": server.url, "key_variable": "MY_KEY", "secret_variable": "MY_SECRET"}
    settings = package_settings({"max_download_mb": 1, "r2": table})

    with pytest.raises(PackageError, match="larger than 1 MiB"):
        fetched("r2://registry/a", tmp_path, settings, {"MY_KEY": KEY, "MY_SECRET": SECRET})


def test_settings_have_defaults() -> None:
    assert package_settings({}).limits == PackageLimits()
    assert package_settings({}).buckets["s3"] == Buckets()

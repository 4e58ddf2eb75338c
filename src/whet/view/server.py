"""The server of `whet view`: the pages and their documents, on this machine only, for who has the address.

Other users of the machine reach its ports too, and so do pages in your browser. So every path begins with a token that
cannot be guessed, and nothing is answered without it, whatever a request calls the host.
"""

from __future__ import annotations

import hmac
import os
import secrets
import shutil
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, BinaryIO, Protocol
from urllib.parse import parse_qsl

from whet.errors import UsageError, WhetError
from whet.model import codec
from whet.view.addresses import Missing
from whet.view.documents import MissingDocument
from whet.view.pages import HARMLESS, INDEX, PAGE_HEADERS, SAFE_HEADERS, page_files

HOST = "127.0.0.1"
_JSON = "application/json"
_LARGEST_BODY = 1 << 20
# No browser keeps a connection and says nothing for so long.
_SILENCE_S = 60.0
_REFUSED = b"403: this address lacks its token. Use the one that whet view printed.\n"


class Documents(Protocol):
    """What is behind the addresses of a viewer: the runs of a project, or a queue of labels.

    All raise `Missing` for an address that leads nowhere, and `UsageError` for what makes no sense.
    """

    def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the document at an address as JSON."""

    def file(self, path: str) -> BinaryIO:
        """Open the file at an address."""

    def add(self, path: str, body: bytes) -> Any:
        """Keep what a person says about an address, and return it as it is kept."""

    def remove(self, path: str) -> None:
        """Remove what a person said."""


class Viewer(ThreadingHTTPServer):
    """Serves *documents* at `address` until it is shut down."""

    daemon_threads = True
    # After a restart with the same --port, an old connection must not be in the way.
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, documents: Documents, port: int = 0) -> None:
        self.documents = documents
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            hint = "choose another one with --port, or leave it out"
            raise UsageError(f"port {port} cannot be used: {error.strerror}", hint=hint) from error
        self.port: int = self.server_address[1]

    @property
    def address(self) -> str:
        """Where the pages are."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    @property
    def hosts(self) -> frozenset[str]:
        """What a browser may call us; a name of somebody else that leads here is not one of them."""
        return frozenset(f"{name}:{self.port}" for name in (HOST, "localhost"))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that leaves in the middle of an answer is no error."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Viewer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "whet", ""
    timeout = _SILENCE_S

    def do_GET(self) -> None:
        """Answer with a page or a document."""
        self._answer(self._get)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        """Keep what a person says: a note, or a label."""
        self._answer(self._post)

    def do_DELETE(self) -> None:
        """Remove what a person said."""
        self._answer(self._delete)

    def __getattr__(self, name: str) -> Any:
        """Return what answers another method, so that this too needs the token."""
        if name.startswith("do_"):
            return lambda: self._answer(_not_allowed)
        raise AttributeError(name)

    def _answer(self, act: Any) -> None:
        path, query = self._asked()
        if path is None:
            self._send(HTTPStatus.FORBIDDEN, _REFUSED, "text/plain; charset=utf-8")
            return
        try:
            act(path, query)
        except Missing as error:
            self._problem(HTTPStatus.NOT_FOUND, error)
        except UsageError as error:
            self._problem(HTTPStatus.BAD_REQUEST, error)
        except (WhetError, OSError) as error:
            # A record that is broken, or was deleted a moment ago.
            self._problem(HTTPStatus.CONFLICT, error)

    def _asked(self) -> tuple[str | None, dict[str, str]]:
        """Return what is asked for below the token, and its query; None if the token or the host is not ours."""
        address, _, query = self.path.partition("?")
        _, _, token_path = address.partition("/")
        token, slash, path = token_path.partition("/")
        is_ours = hmac.compare_digest(token.encode("latin-1", "replace"), self.server.token.encode())
        host = self.headers.get("host", "")
        foreign = self.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if not is_ours or host not in self.server.hosts or (foreign and self.command not in ("GET", "HEAD")):
            return None, {}
        return path if slash else "/", dict(parse_qsl(query))

    def _get(self, path: str, query: dict[str, str]) -> None:
        if path == "/":
            # Without the slash, relative addresses would lose the token.
            self._send(HTTPStatus.PERMANENT_REDIRECT, b"", "text/plain", {"location": f"/{self.server.token}/"})
        elif path.split("/")[3:4] == ["files"]:
            self._send_file(path.removeprefix("api/"))
        elif path.startswith("api/"):
            self._send(HTTPStatus.OK, self.server.documents.get(path.removeprefix("api/"), query), _JSON)
        else:
            self._send_page(path.removeprefix("page/") if path else INDEX)

    def _send_page(self, name: str) -> None:
        file = page_files().get(name)
        if file is None:
            raise Missing("there is no such page")
        headers = {**PAGE_HEADERS, "etag": file.etag}
        if file.etag in self.headers.get("if-none-match", ""):
            self._send(HTTPStatus.NOT_MODIFIED, b"", file.media_type, headers)
        else:
            self._send(HTTPStatus.OK, file.content, file.media_type, headers)

    def _send_file(self, path: str) -> None:
        with self.server.documents.file(path) as file:
            size = os.fstat(file.fileno()).st_size
            self._begin(HTTPStatus.OK, "application/octet-stream", size, HARMLESS)
            if self.command != "HEAD":
                shutil.copyfileobj(file, _Exactly(self.wfile, size))

    def _post(self, path: str, _: dict[str, str]) -> None:
        if self.headers.get_content_type() != _JSON:
            # A form of another site could send anything else without asking.
            raise UsageError(f"the content type must be {_JSON}")
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _LARGEST_BODY:
            self.close_connection = True
            raise UsageError("the body is too large, or its length is missing")
        kept = self.server.documents.add(path.removeprefix("api/"), self.rfile.read(int(length)))
        self._send(HTTPStatus.CREATED, codec.encode(kept), _JSON)

    def _delete(self, path: str, _: dict[str, str]) -> None:
        self.server.documents.remove(path.removeprefix("api/"))
        self._send(HTTPStatus.NO_CONTENT, b"", _JSON)

    def _problem(self, status: HTTPStatus, error: WhetError | OSError) -> None:
        message = error.message if isinstance(error, WhetError) else str(error.strerror or error)
        self._send(status, codec.encode(MissingDocument(problem=message)), _JSON)

    def _send(self, status: HTTPStatus, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self._begin(status, kind, len(body), headers or {})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**SAFE_HEADERS, **headers, "content-type": kind}.items():
            self.send_header(name, value)
        if status not in (HTTPStatus.NOT_MODIFIED, HTTPStatus.NO_CONTENT):
            self.send_header("content-length", str(length))
        if status == HTTPStatus.FORBIDDEN:
            # What may follow in this connection was not read.
            self.send_header("connection", "close")
            self.close_connection = True
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: the path has the token."""


def _not_allowed(_: str, __: dict[str, str]) -> None:
    raise UsageError("there is no such method")


class _Exactly:
    """Passes on so many bytes and no more: a file that grows must not break the answer."""

    def __init__(self, target: Any, left: int) -> None:
        self._target, self._left = target, left

    def write(self, data: bytes) -> int:
        piece = data[: self._left]
        self._left -= len(piece)
        self._target.write(piece)
        return len(data)


def serve(viewer: Viewer) -> None:
    """Answer until somebody presses Ctrl-C, which is raised."""
    with viewer:
        viewer.serve_forever(poll_interval=0.2)


@contextmanager
def opened(address: str, environ: Mapping[str, str]) -> Iterator[None]:
    """Open the pages in a browser, if there is a screen for one.

    Everybody on the machine can read what a program was started with. So the browser is not given the address, but a
    file of ours that leads there, and that only we can read.
    """
    if not any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        yield
        return

    def browse(uri: str) -> None:
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(uri)

    with TemporaryDirectory(prefix="whet-view-") as folder:
        page = Path(folder, "view.html")
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}"><title>whet</title>')
        # On a thread, which ends with us: some browsers stay until they are closed, and want to be answered meanwhile.
        Thread(target=browse, args=(page.as_uri(),), daemon=True).start()
        yield

"""A model that follows a script, as a server on this machine: it answers each request with the next step."""

from __future__ import annotations

import argparse
import json
import re
import select
import socket
import sys
import threading
import zlib
from collections.abc import Collection, Iterable, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from whet.agents.observe.records import parse
from whet.testing.scripted_model._openai import Chat, Responses
from whet.testing.scripted_model._others import Anthropic, Gemini
from whet.testing.scripted_model.script import (
    STATUSES,
    Body,
    Frame,
    Reply,
    Script,
    ScriptError,
    Step,
    Steps,
    Tokens,
    Wire,
    calls_of,
    filler,
)

_LOOK_S = 0.05
_ZLIB_OR_GZIP = zlib.MAX_WBITS | 32
_MODELS = ("scripted-model",)
_PREFIX = re.compile(r"/s/(?P<script>[^/]+)(?P<path>/.*)?")
_GEMINI = re.compile(r"/models/(?P<model>[^/:]+):(?P<verb>stream)?[gG]enerateContent$")
_BY_ENDING: dict[str, Wire] = {"/messages": Anthropic(), "/responses": Responses(), "/chat/completions": Chat()}
_BY_MODEL = Gemini()
Scripts: TypeAlias = "Steps | Mapping[str, Steps]"


class ScriptedModel:
    """Serves one script at `url`, or several, each at `url_of(name)`; `requests` holds what was asked, in order.

    If *keys* are given, it takes these and no others: whatever else is asked, it answers with 401.
    """

    def __init__(self, script: Scripts = (), *, port: int = 0, keys: Collection[str] | None = None) -> None:
        named = script if isinstance(script, Mapping) else {"": script}
        self._server = ModelServer({name: Script(steps) for name, steps in named.items()}, port, keys)
        # How often the server looks whether it should end.
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.end()
        self._thread.join()

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def url_of(self, name: str) -> str:
        """Return the address that follows the script *name*."""
        return f"{self.url}/s/{name}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request so far."""
        return tuple(self._server.requests)

    @property
    def turns(self) -> tuple[Request, ...]:
        """The requests that offered tools: those of the task itself."""
        return tuple(request for request in self._server.requests if request.tools)


def main(argv: list[str] | None = None) -> int:
    """Serve a file until interrupted; the first line printed is the address."""
    parser = argparse.ArgumentParser(
        prog="python -m whet.testing.scripted_model.server", description="a model by script"
    )
    parser.add_argument("script", type=Path, help="a JSON file: a list of steps, or a table of such lists by name")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    args = parser.parse_args(argv)
    try:
        scripts = json.loads(args.script.read_text(encoding="utf-8"))
        model = ScriptedModel(scripts, port=args.port)
    except (OSError, ValueError) as error:
        parser.error(f"{args.script}: {error}")
    with model:
        sys.stdout.write(f"{model.url}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


class Request(Struct, frozen=True, kw_only=True):
    """A request, the name of its script, and the number of the step that answered it; None if no step did."""

    method: str
    path: str
    script: str
    headers: Mapping[str, str]
    data: bytes
    body: Mapping[str, Any]
    wire: Wire | None = None
    model: str = ""
    streams: bool = False
    tools: tuple[str, ...] = ()
    step: int | None = None

    @property
    def format(self) -> str | None:
        """The wire format by name."""
        return self.wire.name if self.wire else None

    @property
    def text(self) -> str:
        """The whole body as text."""
        return self.data.decode("utf-8", "replace")


class ModelServer(ThreadingHTTPServer):
    """Listens on loopback; its threads end with it."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, scripts: Mapping[str, Script], port: int = 0, keys: Collection[str] | None = None) -> None:
        self._scripts, self._keys = scripts, keys
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self.requests: list[Request] = []
        self.closing = threading.Event()
        super().__init__(("127.0.0.1", port), _ModelHandler)

    def take(self, request: Request) -> tuple[Request, Step | str | None]:
        """Keep *request*, and return it with the step that answers it, or with a text that says why there is none."""
        step: Step | str | None = None
        with self._lock:
            if request.wire is not None and request.tools:
                request, step = self._next(request)
            elif request.wire is not None:
                step = side_step(request.body)
            self.requests.append(request)
        return request, step

    def refuses(self, request: Request) -> bool:
        """Keep *request*, and return True, if its key is none that is taken."""
        if self._keys is None or _key_of(request.headers) in self._keys:
            return False
        with self._lock:
            self.requests.append(request)
        return True

    def _next(self, request: Request) -> tuple[Request, Step | str]:
        script = self._scripts.get(request.script)
        if script is None:
            return request, f'there is no script "{request.script}"; known: {", ".join(sorted(self._scripts))}'
        turn = script.next()
        if turn is None:
            return request, f'the script "{request.script}" has no more steps'
        return replace(request, step=turn[0]), turn[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take a connection, and remember it."""
        connection, address = super().get_request()
        with self._lock:
            self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and forget it."""
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def end(self) -> None:
        """Stop listening, end what still waits or streams, and wait for every thread."""
        self.closing.set()
        self.shutdown()
        with self._lock:
            open_ones = list(self._connections)
        for connection in open_ones:
            _hang_up(connection)
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show faults of the server. Agents that are killed hang up at any moment, which is not one."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _ModelHandler(BaseHTTPRequestHandler):
    """One connection of an agent."""

    protocol_version = "HTTP/1.1"
    server_version = "scripted-model"
    disable_nagle_algorithm = True
    server: ModelServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Print nothing: `requests` has them all."""

    def do_HEAD(self) -> None:
        """Answer agents that first look whether the server is there."""
        self._json(200, {})

    def do_GET(self) -> None:
        """Answer with the list of models."""
        asked = read_request("GET", self.path, self.headers, b"")
        if self.server.refuses(asked):
            self._fail(asked, asked.wire or _BY_ENDING["/messages"], Step(fail="auth", retry_after=None))
            return
        request, _ = self.server.take(asked)
        if "/models" in request.path:
            self._json(200, models(request.path))
        else:
            self._not_found(request)

    def do_POST(self) -> None:
        """Answer a question to the model."""
        data = read_data(self.rfile, self.headers)  # type: ignore[arg-type] # a socket's file is one
        asked = read_request("POST", self.path, self.headers, data)
        if self.server.refuses(asked):
            self._fail(asked, asked.wire or _BY_ENDING["/messages"], Step(fail="auth", retry_after=None))
            return
        request, step = self.server.take(asked)
        counted = token_count(request.path)
        if counted is not None:
            self._json(200, counted)
        elif request.wire is None:
            self._not_found(request)
        elif isinstance(step, Step):
            self._answer(request, request.wire, step)
        else:
            self._fail(request, request.wire, Step(fail="bad-request", message=f"scripted model: {step}"))

    def _not_found(self, request: Request) -> None:
        self._json(404, {"error": {"message": f"not found: {request.path}", "type": "not_found_error"}})

    def _answer(self, request: Request, wire: Wire, step: Step) -> None:
        if step.fail is not None:
            self._fail(request, wire, step)
            return
        try:
            calls = tuple(calls_of(step.tools, wire.tools(request.body)))
        except ScriptError as error:
            self._fail(request, wire, Step(fail="bad-request", message=f"scripted model: {error}"))
            return
        reply = Reply(model=request.model, think=step.think, say=step.say, calls=calls, usage=step.usage)
        if request.streams:
            self._stream(list(wire.frames(reply, request.body)), step)
        elif step.hang:
            self._wait()
        elif step.cut:
            self._drop()
        else:
            self._json(200, wire.message(reply))

    def _fail(self, request: Request, wire: Wire, step: Step) -> None:
        assert step.fail is not None
        # Only Anthropic has a status of its own for this.
        usual = 503 if step.fail == "overloaded" and wire.name != "anthropic" else STATUSES[step.fail]
        status = step.status or usual
        headers = {"request-id": "req_scripted", "x-request-id": "req_scripted"}
        if step.retry_after is not None:
            headers["retry-after"] = f"{step.retry_after:g}"
            headers["retry-after-ms"] = str(max(1, int(step.retry_after * 1000)))
        self._json(status, wire.error(step.fail, status, step.message, request.model), headers)

    def _stream(self, frames: list[Frame], step: Step) -> None:
        whole = not (step.cut or step.hang)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("request-id", "req_scripted")
        self.end_headers()
        self._send(frames if whole else frames[: max(1, len(frames) // 2)])
        if step.hang:
            self._wait()
        elif step.cut:
            self._drop()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, frames: Iterable[Frame]) -> None:
        for name, data in frames:
            text = data if isinstance(data, str) else json.dumps(data)
            line = (f"event: {name}\n" if name else "") + f"data: {text}\n\n"
            chunk = line.encode()
            self.wfile.write(b"%x\r\n" % len(chunk) + chunk + b"\r\n")

    def _wait(self) -> None:
        """Wait until the agent hangs up, or the server ends."""
        self.close_connection = True
        while not self.server.closing.wait(_LOOK_S):
            ready, _, _ = select.select([self.connection], [], [], 0)
            if ready and not self.connection.recv(1, socket.MSG_PEEK):
                return

    def _drop(self) -> None:
        self.close_connection = True
        _hang_up(self.connection)

    def _json(self, status: int, answer: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The other side hung up first.
        return


def _key_of(headers: Mapping[str, str]) -> str:
    """Return the key of a request, in any of the places where agents put it."""
    key = headers.get("x-api-key") or headers.get("x-goog-api-key") or headers.get("authorization") or ""
    return key.removeprefix("Bearer ")


def read_request(method: str, target: str, headers: Message, data: bytes) -> Request:
    """Return what is asked."""
    whole = urlsplit(target).path
    match = _PREFIX.fullmatch(whole)
    script, path = (match["script"], match["path"] or "/") if match else ("", whole)
    body = parse(data)
    wire, model, streams = _asked(path, body)
    return Request(
        method=method,
        path=path,
        script=script,
        headers={name.lower(): value for name, value in headers.items()},
        data=data,
        body=body,
        wire=wire,
        model=model,
        streams=streams,
        tools=tuple(tool.name for tool in wire.tools(body)) if wire else (),
    )


def _asked(path: str, body: Mapping[str, Any]) -> tuple[Wire | None, str, bool]:
    gemini = _GEMINI.search(path)
    if gemini:
        return _BY_MODEL, gemini["model"], gemini["verb"] is not None
    wire = next((wire for ending, wire in _BY_ENDING.items() if path.endswith(ending)), None)
    return wire, str(body.get("model", "")), bool(body.get("stream"))


def read_data(stream: BinaryIO, headers: Message) -> bytes:
    """Return the body of a request, which may come in chunks or compressed."""
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        data = b"".join(_chunks(stream))
    else:
        data = stream.read(int(headers.get("Content-Length") or 0))
    is_compressed = headers.get("Content-Encoding", "").lower() in ("gzip", "deflate")
    return zlib.decompress(data, _ZLIB_OR_GZIP) if is_compressed else data


def _chunks(stream: BinaryIO) -> list[bytes]:
    chunks = []
    while size := int(stream.readline().split(b";")[0].strip() or b"0", 16):
        chunks.append(stream.read(size))
        stream.readline()
    while stream.readline().strip():
        pass
    return chunks


def side_step(body: Body) -> Step:
    """Return the answer to a request without tools: the shape that it asks for, or a title."""
    schema = _asked_shape(body)
    text = "Scripted session" if schema is None else json.dumps(_filled(schema))
    return Step(say=text, usage=Tokens(input=50, output=5))


def _asked_shape(body: Body) -> Body | None:
    """The JSON schema of the answer, in any of the formats; an empty one if any JSON will do."""
    config = body.get("generationConfig") or {}
    if config.get("responseMimeType") == "application/json" or config.get("responseJsonSchema"):
        schema: Body = config.get("responseJsonSchema") or config.get("responseSchema") or {}
        return schema
    asked = (body.get("output_config") or {}).get("format") or (body.get("text") or {}).get("format")
    asked = asked or (body.get("response_format") or {}).get("json_schema")
    if not isinstance(asked, dict) or asked.get("type") == "text":
        return None
    return asked.get("schema") or {}


def _filled(schema: Body) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    wanted = schema.get("required") or list(properties)
    return {name: filler(properties.get(name) or {}) for name in wanted}


def models(path: str) -> dict[str, Any]:
    """Return the list of models, as Gemini or the other providers write it."""
    if "v1beta" in path:
        return {
            "models": [
                {"name": f"models/{name}", "supportedGenerationMethods": ["generateContent"]} for name in _MODELS
            ]
        }
    data = [{"id": name, "object": "model", "type": "model", "display_name": name, "created": 0} for name in _MODELS]
    return {"object": "list", "data": data, "has_more": False}


def token_count(path: str) -> dict[str, Any] | None:
    """Return the answer to a request for the number of tokens; None if *path* asks for something else."""
    if path.endswith("/count_tokens"):
        return {"input_tokens": 1000}
    return {"totalTokens": 1000} if path.endswith(":countTokens") else None


if __name__ == "__main__":
    sys.exit(main())

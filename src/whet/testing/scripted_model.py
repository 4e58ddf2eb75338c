"""A model that follows a script, as a server on this machine: it answers each request with the next step."""

from __future__ import annotations

import argparse
import json
import select
import socket
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self, TypeAlias

from whet.testing.model_requests import Request, models, read_data, read_request, side_step, token_count
from whet.testing.model_script import STATUSES, Frame, Reply, Script, ScriptError, Step, Steps, Wire, calls_of

_LOOK_S = 0.05
Scripts: TypeAlias = "Steps | Mapping[str, Steps]"


class ScriptedModel:
    """Serves one script at `url`, or several, each at `url_of(name)`; `requests` holds what was asked, in order."""

    def __init__(self, script: Scripts = (), *, port: int = 0) -> None:
        named = script if isinstance(script, Mapping) else {"": script}
        self._server = ModelServer({name: Script(steps) for name, steps in named.items()}, port)
        # Ends may be asked for by another thread, and are looked for this often.
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.end()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def url_of(self, name: str) -> str:
        """Where the script *name* is followed."""
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
    parser = argparse.ArgumentParser(prog="python -m whet.testing.scripted_model", description="a model by script")
    parser.add_argument("script", type=Path, help="a JSON file: a list of steps, or a table of such lists by name")
    parser.add_argument("--port", type=int, default=0, help="0 takes any that is free")
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


class ModelServer(ThreadingHTTPServer):
    """Listens on loopback; its threads end with it."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, scripts: Mapping[str, Script], port: int = 0) -> None:
        self._scripts = scripts
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self.requests: list[Request] = []
        self.closing = threading.Event()
        super().__init__(("127.0.0.1", port), _Handler)

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

    def _next(self, request: Request) -> tuple[Request, Step | str]:
        script = self._scripts.get(request.script)
        if script is None:
            return request, f'there is no script "{request.script}"; known: {", ".join(sorted(self._scripts))}'
        found = script.next()
        if found is None:
            return request, f'the script "{request.script}" has no more steps'
        return replace(request, step=found[0]), found[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take a connection, and remember it."""
        connection, address = super().get_request()
        with self._lock:
            self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Let go of a connection."""
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
        """Agents that are killed hang up at any moment; anything else is a fault of ours and is shown."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
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
        """A list of models, or nothing that we know."""
        request, _ = self.server.take(read_request("GET", self.path, self.headers, b""))
        if "/models" in request.path:
            self._json(200, models(request.path))
        else:
            self._json(404, {"error": {"message": f"not found: {request.path}", "type": "not_found_error"}})

    def do_POST(self) -> None:
        """The model is asked."""
        data = read_data(self.rfile, self.headers)  # type: ignore[arg-type] # a socket's file is one
        request, step = self.server.take(read_request("POST", self.path, self.headers, data))
        counted = token_count(request.path)
        if counted is not None:
            self._json(200, counted)
        elif request.wire is None:
            self._json(404, {"error": {"message": f"not found: {request.path}", "type": "not_found_error"}})
        elif isinstance(step, Step):
            self._answer(request, request.wire, step)
        else:
            self._fail(request, request.wire, Step(fail="bad-request", message=f"scripted model: {step}"))

    def _answer(self, request: Request, wire: Wire, step: Step) -> None:
        if step.fail is not None:
            self._fail(request, wire, step)
            return
        try:
            reply = Reply.of(step, request.model, calls_of(step.tools, wire.tools(request.body)))
        except ScriptError as error:
            self._fail(request, wire, Step(fail="bad-request", message=f"scripted model: {error}"))
            return
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
        """Until the agent hangs up, or we end."""
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
        # The other end was quicker.
        return


if __name__ == "__main__":
    sys.exit(main())

"""Skills that do what no skill should: each costs its own calls, says why, and holds up nobody."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from evaluating import reports, skill, statuses, task, tasks, whet

# Is well, and does BODY when it is called; `say` prints a line, `ok` answers.
HOSTILE = """
import json, os, sys, time
def say(text):
    print(text, flush=True)
for line in sys.stdin:
    q = json.loads(line)
    def ok(result, number=q["id"]):
        say(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}))
    if q["method"] == "healthcheck":
        ok("well")
        continue
    BODY
"""
RAW = 'say("{" + f\'"jsonrpc":"2.0","id":{q["id"]},"result":\' + %s + "}")'


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (RAW % '"NaN"', "its answer has the number NaN, which JSON does not have"),
        (RAW % '"1e400"', "its answer has a number that is too large"),
        (RAW % '"[" * 900 + "]" * 900', "its answer is nested deeper than 200 levels"),
        (RAW % '"[" * 200000 + "]" * 200000', "its answer is nested deeper than 200 levels"),
        ("while True: say('x' * 100000)", "printed more than 16777216 bytes"),
        ("while True: sys.stdout.write('x' * 100000)", "printed more than 16777216 bytes"),
        (
            "say(json.dumps({'jsonrpc': '2.0', 'id': q['id'], 'error': {'code': {}, 'message': ['x']}}))",
            "JSON-RPC error",
        ),
        ("os.kill(os.getpid(), 9)", "its program ended with"),
    ],
)
def test_a_hostile_answer_is_the_skills_own_error_and_is_named(
    tmp_path: Path, body: str, told: str, keep: bool
) -> None:
    skill(tmp_path, program=HOSTILE.replace("BODY", body), keepAlive=keep)

    ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, task("a", {}), task("b", {})))

    if keep:
        told = told.replace("ended with", "ended without an answer")
    assert ended.returncode == 0, ended.stderr
    assert statuses(tmp_path) == {"a": "error", "b": "error"}
    assert told in reports(tmp_path)[0]["taskResults"][0]["error"]


def test_who_answers_another_request_is_told_so(tmp_path: Path) -> None:
    skill(tmp_path, program=HOSTILE.replace("BODY", "ok({'result': 'yes'}, 99)"), keepAlive=True)
    file = tasks(tmp_path, task("a", {}))

    whet(tmp_path, "eval", "--skills", "skills", "--tasks", file, "--timeout", "500")

    assert "it answered the id 99 instead" in reports(tmp_path)[0]["taskResults"][0]["error"]


def test_half_a_character_and_a_command_to_the_terminal_do_no_harm(tmp_path: Path) -> None:
    body = """say('{"jsonrpc":"2.0","id":%d,"result":{"result":"\\\\ud800 \\\\u001b[31m ::error::x"}}' % q["id"])"""
    skill(tmp_path, program=HOSTILE.replace("BODY", body))
    formats = "json,markdown,html,csv"

    ended = whet(
        tmp_path,
        "eval",
        "--skills",
        "skills",
        "--tasks",
        tasks(tmp_path, task("a", {})),
        "--format",
        formats,
        "--verbose",
    )

    assert ended.returncode == 0, ended.stderr
    assert statuses(tmp_path) == {"a": "fail"}
    assert "\x1b" not in ended.stdout
    assert len(list((tmp_path / "reports").iterdir())) == 4


class Unruly(BaseHTTPRequestHandler):
    """Breaks HTTP in the way that the path names; a GET finds it well."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        match self.path:
            case "/half":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
                self.connection.shutdown(2)
                self.close_connection = True
            case "/nothing-known":
                self.wfile.write(b"\0\1garbage\r\n\r\n")
                self.connection.shutdown(2)
                self.close_connection = True
            case "/no-gzip":
                self._answer(200, b"no gzip", ("Content-Encoding", "gzip"))
            case "/elsewhere":
                self._answer(307, b"", ("Location", "/ok"))
            case "/usage":
                self._answer(200, b'{"result": "yes"}', ("x-usage-input-tokens", "9" * 400))
            case _:
                self._answer(500, b"oops")

    def _answer(self, code: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(code)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def unruly() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Unruly)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_endpoint_that_breaks_off_has_failed_and_is_not_left_out_of_its_figures(tmp_path: Path) -> None:
    names = ("half", "nothing-known", "no-gzip", "elsewhere", "usage", "broken")
    with unruly() as url:
        for name in names:
            skill(tmp_path, name, manifest={"adapterType": "http", "entrypoint": f"{url}/{name}"})

        ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, task("a", {})))

    found = {report["skillId"]: report["taskResults"][0] for report in reports(tmp_path)}
    assert ended.returncode == 0, ended.stderr
    assert {name: found[name]["status"] for name in names} == {**dict.fromkeys(names, "error"), "usage": "pass"}
    assert not any("errored" in result for result in found.values())
    assert "it redirects to /ok" in found["elsewhere"]["error"]
    assert found["broken"]["error"] == "HTTP 500: oops"


SERVER = """
import json, sys
for line in sys.stdin:
    number = json.loads(line).get("id")
    while True:
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": RESULT}), flush=True)
        break
"""


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (SERVER.replace("RESULT", '{"foo": 1}'), "does not follow the MCP protocol"),
        (
            SERVER.replace(
                "RESULT",
                '{"protocolVersion": "0.1", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}',
            ),
            "does not follow the MCP protocol",
        ),
        (
            'while True: print(\'{"jsonrpc":"2.0","method":"notifications/message","params":{}}\')',
            "more messages than whet can read",
        ),
        ("while True: print('x' * 100000, end='')", "printed more than 16777216 bytes"),
    ],
)
def test_a_server_that_speaks_otherwise_has_failed_and_is_no_fault_of_ours(
    tmp_path: Path, program: str, told: str
) -> None:
    skill(tmp_path, program=program, manifest={"adapterType": "mcp", "entrypoint": f"{sys.executable} skill.py"})

    ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, task("a", {})))

    assert ended.returncode == 0, ended.stderr
    assert statuses(tmp_path) == {"a": "error"}
    assert told in reports(tmp_path)[0]["taskResults"][0]["error"]

"""All nodes of a cluster share one limit for each provider."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from loopback import LoopbackCluster
from project import Project

from whet.testing.scripted_model.server import ScriptedModel

PATIENCE_S = 300
AGENT = """
import json, os, sys, urllib.request, urllib.error
body = json.dumps({"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "x"}]}).encode()
for _ in range(2):
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", body,
                                     {"x-api-key": os.environ["ANTHROPIC_API_KEY"]})
    try:
        urllib.request.urlopen(request).read()
    except urllib.error.HTTPError as error:
        print(error.code)
"""
SETTINGS = """
[gateway]
max_requests = 2
[runners.mine.agent]
type = "command"
command = "python3"
args = ["./agent.py"]
provider = "anthropic"
"""


class Provider(ThreadingHTTPServer):
    """Answers slowly, notes how many ask at a time, and is too busy for one request."""

    daemon_threads = True

    def __init__(self) -> None:
        self.lock, self.now, self.most, self.asked, self.began = threading.Lock(), 0, 0, 0, []  # type: ignore[var-annotated]
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        with self.server.lock:
            self.server.now += 1
            self.server.asked += 1
            self.server.most = max(self.server.most, self.server.now)
            busy = self.server.asked == 6
        time.sleep(0.1)
        with self.server.lock:
            self.server.now -= 1
        usage = {"input_tokens": 10, "output_tokens": 5}
        said: dict[str, Any] = {"type": "message", "model": "claude-sonnet-4-5", "usage": usage, "content": []}
        data = json.dumps({"type": "error", "error": {"type": "overloaded_error"}} if busy else said).encode()
        self.send_response(529 if busy else 200)
        if busy:
            self.send_header("retry-after", "2")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def provider() -> Iterator[Provider]:
    server = Provider()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_nodes_share_a_limit_and_wait_together_when_a_provider_is_busy(
    three_nodes: LoopbackCluster, project: Project, provider: Provider
) -> None:
    project.write("agent.py", AGENT)
    project.suite("suite = [Case(id=f'a{n}', prompt='x', check=ok) for n in range(12)]")
    project.settings(SETTINGS)
    environ = {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef"}

    process = project.start("suite.py", "--on", three_nodes.on, env=environ)
    ended = project.outcome(process, within_s=PATIENCE_S)

    assert ended.code == 0, ended.stdout + ended.stderr
    assert provider.asked == 24
    assert provider.most == 2
    said = "127.0.0.1 answers 529: all requests to it wait for 2 s"
    assert (ended.stdout + ended.stderr).count(said) == 1


def test_trials_under_way_have_a_limit_by_provider(
    three_nodes: LoopbackCluster, project: Project, provider: Provider
) -> None:
    project.write("agent.py", AGENT)
    project.suite("suite = [Case(id=f'a{n}', prompt='x', check=ok) for n in range(6)]")
    project.settings(SETTINGS.replace("max_requests = 2", "max_trials = 1"))
    environ = {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef"}

    process = project.start("suite.py", "--on", three_nodes.on, env=environ)
    ended = project.outcome(process, within_s=PATIENCE_S)

    assert ended.code == 0, ended.stdout + ended.stderr
    assert provider.most == 1


def test_a_key_that_one_node_sees_refused_keeps_trials_off_all_nodes(
    three_nodes: LoopbackCluster, project: Project
) -> None:
    # An agent that asks again may do so before it is ended.
    project.write("agent.py", AGENT.replace("range(2)", "range(1)"))
    project.suite("suite = [Case(id=f'a{n}', prompt='x', check=ok) for n in range(6)]")
    project.settings(SETTINGS)
    with ScriptedModel([], keys=("sk-ant-another-000000000",)) as model:
        environ = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef"}
        process = project.start("suite.py", "--on", three_nodes.on, "--max-parallel", "1", env=environ)
        ended = project.outcome(process, within_s=PATIENCE_S)
        asked = [request.path for request in model.requests if request.method == "POST"]

    assert ended.code == 3, ended.stdout + ended.stderr
    assert set(ended.codes.values()) == {"key-refused"}
    assert asked == ["/v1/messages"]

"""Callable skills for real: programs in each sandbox, an HTTP endpoint, and MCP servers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from evaluating import graded, graders_of

from whet import plugins
from whet.callable.clients.connect import connect
from whet.callable.clients.contract import CallAnswer, SkillClient
from whet.callable.manifest import read_skill
from whet.errors import AgentCrashed, AgentNotFound, AgentTimedOut, OutputTooLarge, SkillFailed, SkillUnreachable
from whet.model.callable import CallableSkill
from whet.model.grade import Grade
from whet.sandbox.contract import Sandbox
from whet.suites.benchmark import find_benchmark, read_benchmark

EXAMPLES = Path(__file__).parents[2] / "examples" / "skills"
# Answers line by line; what it is asked to do stands in the input.
PROGRAM = """
import json, os, sys, time
asked = 0
for line in sys.stdin:
    request = json.loads(line)
    params = request["params"]
    asked += 1
    print("a log line")
    if params.get("do") == "hang":
        time.sleep(60)
    if params.get("do") == "exit":
        print("gone", file=sys.stderr)
        sys.exit(3)
    if params.get("do") == "flood":
        while True:
            print("x" * 100000)
    if params.get("do") == "nothing":
        sys.exit(0)
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    if params.get("do") == "error":
        answer["error"] = {"code": -32000, "message": "I would rather not"}
    else:
        answer["result"] = {"asked": asked, "pid": os.getpid(), "cwd": os.getcwd(), "env": dict(os.environ),
                            "params": params, "method": request["method"]}
    print(json.dumps(answer), flush=True)
    if params.get("do") == "last":
        sys.exit(0)
"""


def make_skill(folder: Path, program: str = PROGRAM, manifest: Any = None, **config: Any) -> CallableSkill:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "skill.py").write_text(program)
    about = {
        "id": "mine",
        "name": "Mine",
        "version": "1.2.3",
        "description": "",
        "adapterType": "subprocess",
        "entrypoint": f"{sys.executable} skill.py",
        **(manifest or {}),
    }
    (folder / "skill.json").write_text(json.dumps(about))
    (folder / "adapter.config.json").write_text(json.dumps(config))
    return read_skill(folder / "skill.json").skill


def with_client(skill: CallableSkill, sandbox_name: str, work: Callable[[SkillClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        sandbox: Sandbox = plugins.find("sandboxes", sandbox_name)()
        async with connect(skill, sandbox, os.environ) as client:
            return await work(client)

    return anyio.run(run)


def call(skill: CallableSkill, sandbox_name: str = "local", timeout_s: float = 30, **given: Any) -> CallAnswer:
    reply: CallAnswer = with_client(skill, sandbox_name, lambda client: client.call(given, timeout_s=timeout_s))
    return reply


@pytest.mark.parametrize("keep_alive", [False, True])
class TestPrograms:
    def test_it_is_called_in_its_folder_with_its_input(
        self, tmp_path: Path, sandbox_name: str, keep_alive: bool
    ) -> None:
        skill = make_skill(tmp_path / "s", keepAlive=keep_alive)

        reply = call(skill, sandbox_name, query="hello")

        assert reply.output["params"] == {"query": "hello"}
        assert reply.output["method"] == "invoke"
        assert reply.output["cwd"] == str(tmp_path / "s")
        assert reply.latency_ms > 0

    def test_it_sees_only_what_it_asks_for(
        self, tmp_path: Path, sandbox_name: str, keep_alive: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MY_SECRET", "told")
        monkeypatch.setenv("OTHER_SECRET", "untold")

        env = call(make_skill(tmp_path, keepAlive=keep_alive, passEnv=["MY_SECRET"]), sandbox_name).output["env"]

        assert env["MY_SECRET"] == "told"
        assert "OTHER_SECRET" not in env

    @pytest.mark.parametrize(
        ("do", "error", "message"),
        [
            ("error", SkillFailed, "JSON-RPC error -32000: I would rather not"),
            ("exit", AgentCrashed, "gone"),
            ("flood", OutputTooLarge, "printed more than"),
        ],
    )
    def test_what_goes_wrong_is_told_apart(
        self, tmp_path: Path, sandbox_name: str, keep_alive: bool, do: str, error: type[Exception], message: str
    ) -> None:
        skill = make_skill(tmp_path, keepAlive=keep_alive)

        with pytest.raises(error, match=message):
            call(skill, sandbox_name, do=do)

    def test_a_call_that_takes_too_long_is_ended(self, tmp_path: Path, sandbox_name: str, keep_alive: bool) -> None:
        skill = make_skill(tmp_path, keepAlive=keep_alive)

        with pytest.raises(AgentTimedOut, match=r"within 1\.5 s"):
            call(skill, sandbox_name, timeout_s=1.5, do="hang")

    def test_it_is_asked_for_its_health(self, tmp_path: Path, sandbox_name: str, keep_alive: bool) -> None:
        well = make_skill(tmp_path / "a", keepAlive=keep_alive)
        ill = make_skill(tmp_path / "b", "import sys; sys.exit('no')", keepAlive=keep_alive)

        assert with_client(well, sandbox_name, lambda client: client.health()) is None
        assert "no" in with_client(ill, sandbox_name, lambda client: client.health())

    def test_a_program_that_is_not_there_says_nothing_about_the_skill(self, tmp_path: Path, keep_alive: bool) -> None:
        skill = make_skill(tmp_path, keepAlive=keep_alive, command="no-such-program")

        with pytest.raises(AgentNotFound):
            call(skill)

    def test_an_answer_right_before_its_end_is_an_answer(
        self, tmp_path: Path, sandbox_name: str, keep_alive: bool
    ) -> None:
        skill = make_skill(tmp_path, keepAlive=keep_alive)

        assert call(skill, sandbox_name, do="last").output["asked"] == 1


def test_a_program_that_prints_no_answer_has_failed(tmp_path: Path) -> None:
    with pytest.raises(SkillFailed, match="printed no JSON-RPC answer: a log line"):
        call(make_skill(tmp_path), do="nothing")


def test_an_answer_over_several_lines_is_read(tmp_path: Path) -> None:
    program = "import json; print(json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': 5}, indent=2))"

    assert call(make_skill(tmp_path, program)).output == 5


def test_bubblewrap_gives_no_network_unless_the_skill_asks_for_it(tmp_path: Path) -> None:
    program = (
        "import json, socket\n"
        "names = [name for _, name in socket.if_nameindex()]\n"
        "print(json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': names}))"
    )
    if not plugins.find("sandboxes", "bubblewrap").availability().usable:
        pytest.skip("bubblewrap cannot be used here")

    without = call(make_skill(tmp_path / "a", program), "bubblewrap").output
    with_it = call(make_skill(tmp_path / "b", program, network=True), "bubblewrap").output

    assert without == ["lo"]
    assert with_it == [name for _, name in socket.if_nameindex()]


def test_a_skill_that_is_kept_alive_is_one_process_for_many_calls(tmp_path: Path, sandbox_name: str) -> None:
    skill = make_skill(tmp_path, keepAlive=True)

    async def work(client: SkillClient) -> list[Any]:
        return [(await client.call({"n": n}, timeout_s=30)).output["asked"] for n in range(5)]

    assert with_client(skill, sandbox_name, work) == [1, 2, 3, 4, 5]


def test_calls_at_once_have_a_process_each_and_their_own_answers(tmp_path: Path) -> None:
    skill = make_skill(tmp_path, keepAlive=True)
    answers: dict[int, Any] = {}

    async def work(client: SkillClient) -> None:
        async def one(n: int) -> None:
            answers[n] = (await client.call({"n": n}, timeout_s=30)).output

        async with anyio.create_task_group() as group:
            for n in range(4):
                group.start_soon(one, n)

    with_client(skill, "local", work)

    assert {n: answer["params"]["n"] for n, answer in answers.items()} == {n: n for n in range(4)}
    assert len({answer["pid"] for answer in answers.values()}) == 4


@pytest.mark.parametrize("do", ["exit", "hang", "flood"])
def test_a_skill_that_is_kept_alive_is_started_again_after_it_died(tmp_path: Path, sandbox_name: str, do: str) -> None:
    skill = make_skill(tmp_path, keepAlive=True)

    async def work(client: SkillClient) -> list[int]:
        first = (await client.call({}, timeout_s=30)).output["asked"]
        with pytest.raises((AgentCrashed, AgentTimedOut, OutputTooLarge)):
            await client.call({"do": do}, timeout_s=2)
        return [first, (await client.call({}, timeout_s=30)).output["asked"]]

    assert with_client(skill, sandbox_name, work) == [1, 1]


def test_nothing_is_left_of_a_skill_that_was_kept_alive(tmp_path: Path, sandbox_name: str) -> None:
    mark = f"kept-{os.getpid()}-{time.monotonic_ns()}"
    program = f"import subprocess; subprocess.Popen(['setsid', 'sh', '-c', 'sleep 60; : {mark}'])\n{PROGRAM}"

    call(make_skill(tmp_path, program, keepAlive=True), sandbox_name)

    assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if _holds(path, mark)] == []


def _holds(path: Path, mark: str) -> bool:
    try:
        return mark.encode() in path.read_bytes()
    except OSError:
        return False


class Endpoint(BaseHTTPRequestHandler):
    """An HTTP skill that does what its input says, and remembers what it was sent."""

    seen: ClassVar[list[tuple[dict[str, str], Any]]] = []

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/invoke" else 404, b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Endpoint.seen.append((dict(self.headers), body))
        do = body["input"].get("do")
        if do == "hang":
            time.sleep(2)
        data = b"no json" if do == "garbage" else json.dumps({"result": body["input"]}).encode()
        self._answer(500 if do == "error" else 200, data)

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("x-usage-input-tokens", "12")
        self.send_header("x-usage-output-tokens", "3")
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:
            return

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    Endpoint.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def http_skill(folder: Path, url: str, **config: Any) -> CallableSkill:
    return make_skill(folder, manifest={"adapterType": "http", "entrypoint": "/invoke"}, baseUrl=url, **config)


def test_an_endpoint_gets_a_post_with_the_input_and_its_answer_is_the_body(
    tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    skill = http_skill(tmp_path, endpoint, authType="bearer", authTokenEnvKey="MY_KEY", headers={"X-Mine": "1"})

    reply = call(skill, query="hello")

    headers, body = Endpoint.seen[0]
    assert reply.output == {"result": {"query": "hello"}}
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.total_tokens) == (12, 3, 15)
    assert body == {"skillId": "mine", "version": "1.2.3", "input": {"query": "hello"}}
    assert (headers["Authorization"], headers["X-Mine"]) == ("Bearer s3cret", "1")
    assert headers["Content-Type"] == "application/json"
    assert "X-Eval-Skills-Version" in headers


def test_an_api_key_has_a_header_of_its_own(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")

    call(http_skill(tmp_path, endpoint, authType="api-key", authTokenEnvKey="MY_KEY"))

    assert Endpoint.seen[0][0]["X-API-Key"] == "s3cret"


@pytest.mark.parametrize(
    ("do", "error", "message"),
    [
        ("error", SkillFailed, "HTTP 500"),
        ("garbage", SkillFailed, "its answer is not JSON: .*: no json"),
        ("hang", AgentTimedOut, "within 0.5 s"),
    ],
)
def test_what_goes_wrong_with_an_endpoint_is_told_apart(
    tmp_path: Path, endpoint: str, do: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(http_skill(tmp_path, endpoint), timeout_s=0.5 if do == "hang" else 30, do=do)


def test_an_endpoint_that_nobody_serves_says_nothing_about_the_skill(tmp_path: Path) -> None:
    skill = http_skill(tmp_path, f"http://127.0.0.1:{_free_port()}")

    with pytest.raises(SkillUnreachable) as caught:
        call(skill)

    assert caught.value.cause == "infrastructure"
    with pytest.raises(SkillUnreachable):
        with_client(skill, "local", lambda client: client.health())


def test_an_endpoint_is_well_if_it_can_be_looked_at(tmp_path: Path, endpoint: str) -> None:
    skill = http_skill(tmp_path, endpoint)

    assert with_client(skill, "local", lambda client: client.health()) is None


MCP_SERVER = """
import sys, time
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
server = MCPServer("test")

@server.tool()
def echo(query: str) -> str:
    return query

@server.tool()
def table(query: str) -> dict[str, str]:
    return {"result": query}

@server.tool()
def broken(query: str) -> str:
    raise ToolError("I would rather not")

@server.tool()
def slow(query: str) -> str:
    time.sleep(60)
    return query

@server.tool()
def dying(query: str) -> str:
    import os
    print("gone", file=sys.stderr)
    os._exit(3)

if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
"""


def mcp_skill(folder: Path, tool: str, url: str | None = None) -> CallableSkill:
    manifest = {"adapterType": "mcp", "entrypoint": url or f"{sys.executable} skill.py"}
    return make_skill(folder, MCP_SERVER, manifest, toolName=tool)


@contextmanager
def mcp_over_http(folder: Path) -> Iterator[str]:
    port = _free_port()
    (folder / "server.py").write_text(MCP_SERVER)
    process = subprocess.Popen(
        [sys.executable, str(folder / "server.py"), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_tool_of_an_mcp_server_in_the_sandbox_answers(tmp_path: Path, sandbox_name: str) -> None:
    reply = call(mcp_skill(tmp_path, "table"), sandbox_name, query="hello")

    assert reply.output == {"result": "hello"}


def test_text_of_a_tool_is_taken_as_json_where_it_is(tmp_path: Path) -> None:
    assert call(mcp_skill(tmp_path, "echo"), query="[1, 2]").output == [1, 2]


def test_an_error_of_a_tool_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(SkillFailed, match="I would rather not"):
        call(mcp_skill(tmp_path, "broken"), query="x")


def test_a_tool_that_takes_too_long_is_ended_with_its_server(tmp_path: Path, sandbox_name: str) -> None:
    with pytest.raises(AgentTimedOut, match="within 6 s"):
        call(mcp_skill(tmp_path, "slow"), sandbox_name, timeout_s=6, query="x")


def test_a_server_that_dies_is_a_crash(tmp_path: Path) -> None:
    with pytest.raises(AgentCrashed, match="gone"):
        call(mcp_skill(tmp_path, "dying"), query="x")


def test_a_server_without_the_tool_cannot_be_called(tmp_path: Path) -> None:
    good, bad = mcp_skill(tmp_path / "a", "echo"), mcp_skill(tmp_path / "b", "missing")

    assert with_client(good, "local", lambda client: client.health()) is None
    with pytest.raises(SkillUnreachable, match="no tool missing; it has echo"):
        with_client(bad, "local", lambda client: client.health())


def test_a_tool_of_an_mcp_server_over_http_answers(tmp_path: Path) -> None:
    with mcp_over_http(tmp_path) as url:
        assert call(mcp_skill(tmp_path / "a", "table", url), query="hello").output == {"result": "hello"}
        with pytest.raises(SkillFailed, match="I would rather not"):
            call(mcp_skill(tmp_path / "b", "broken", url), query="x")


def test_an_mcp_server_that_nobody_serves_says_nothing_about_the_skill(tmp_path: Path) -> None:
    with pytest.raises(SkillUnreachable):
        call(mcp_skill(tmp_path, "echo", f"http://127.0.0.1:{_free_port()}/mcp"), query="x")


@pytest.mark.parametrize(
    ("skill", "benchmark", "tasks"),
    [
        ("calculator", "coding-easy", 20),
        ("web-search-mock", "web-search-basic", 8),
        ("calculator", "skill-quality", 5),
        ("web-search-mock", "skill-quality", 5),
    ],
)
def test_an_example_skill_passes_its_benchmark(skill: str, benchmark: str, tasks: int, sandbox_name: str) -> None:
    loaded = read_skill(EXAMPLES / skill / "skill.json")
    asked = read_benchmark(find_benchmark(benchmark, []))

    grades = _evaluate(loaded.skill, asked.benchmark, sandbox_name)

    assert (loaded.notes, asked.notes) == ((), ())
    assert {task: grade.reason for task, grade in grades.items() if not grade.passed} == {}
    assert len(grades) == tasks


def test_a_poor_skill_fails_the_checks_of_its_files(tmp_path: Path) -> None:
    poor = make_skill(tmp_path, manifest={"description": "Mine", "entrypoint": "python3 missing.py"})
    (tmp_path / "broken.json").write_text("{")

    grades = _evaluate(poor, read_benchmark(find_benchmark("skill-quality", [])).benchmark, "local")

    assert [grade.passed for grade in grades.values()] == [True, False, False, False, False]
    assert "broken.json is JSON" in grades["skill_004"].reason
    assert "missing.py is a file of the skill" in grades["skill_005"].reason


def _evaluate(skill: CallableSkill, benchmark: Any, sandbox_name: str) -> dict[str, Grade]:
    async def work(client: SkillClient) -> dict[str, Grade]:
        sandbox: Sandbox = plugins.find("sandboxes", sandbox_name)()
        grades = {}
        for task in benchmark.tasks:
            output = None
            if task.evaluator.subject == "output":
                output = (await client.call(task.input, timeout_s=30)).output
            grades[task.id] = await graded(graders, task, skill, output, sandbox)
        return grades

    with graders_of(benchmark) as graders:
        found: dict[str, Grade] = with_client(skill, sandbox_name, work)
    return found

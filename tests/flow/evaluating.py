"""Skills, tasks and the command for tests of `whet eval`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from whet.checks.context import Shell
from whet.grade.contract import Grader, grader_class
from whet.grade.evidence import Evidence, GradedAnswer
from whet.model.callable import Benchmark, CallableSkill
from whet.model.grade import Changes, Grade
from whet.model.session import SessionSummary
from whet.model.suite import Case, Check, Suite
from whet.sandbox.contract import Sandbox
from whet_process import type_whet

WHET = str(Path(sys.executable).with_name("whet"))
EXAMPLES = Path(__file__).parents[2] / "examples" / "skills"
# Answers with what it is told to; notes each call in the file that its variable names.
PROGRAM = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] != "invoke":
        told = {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **told}), flush=True)
        continue
    params = request["params"]
    if "LOG" in os.environ:
        with open(os.environ["LOG"], "a") as log:
            log.write(json.dumps(params) + "\\n")
    time.sleep(params.get("sleep", 0))
    if params.get("crash"):
        sys.exit(3)
    told = os.environ.get("TOLD", "") if params.get("leak") else params.get("say")
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"result": told}}), flush=True)
"""
MCP = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("echo")
@server.tool()
def echo(say: str) -> str:
    return say
server.run()
"""


def whet(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return type_whet(*arguments, cwd=folder, **{"NO_COLOR": "1", "WHET_SANDBOX": "local", **env})


def skill(folder: Path, name: str = "echo", program: str = PROGRAM, manifest: Any = None, **config: Any) -> Path:
    root = folder / "skills" / name
    root.mkdir(parents=True)
    (root / "skill.py").write_text(program)
    about = {
        "id": name,
        "name": name,
        "version": "1.0.0",
        "adapterType": "subprocess",
        "entrypoint": f"{sys.executable} skill.py",
        **(manifest or {}),
    }
    (root / "skill.json").write_text(json.dumps(about))
    (root / "adapter.config.json").write_text(json.dumps(config))
    return root


def task(name: str, given: dict[str, Any], value: Any = "yes", **more: Any) -> dict[str, Any]:
    expected = {"type": "exact", "value": value}
    return {"id": name, "inputData": given, "expectedOutput": expected, **more}


def tasks(folder: Path, *written: dict[str, Any]) -> str:
    (folder / "tasks.json").write_text(json.dumps(list(written)))
    return "tasks.json"


def reports(folder: Path) -> list[dict[str, Any]]:
    file = max((folder / "reports").glob("*.json"))
    found: list[dict[str, Any]] = json.loads(file.read_text())
    return found


def statuses(folder: Path) -> dict[str, str]:
    return {each["taskId"]: each["status"] for each in reports(folder)[0]["taskResults"]}


@contextmanager
def endpoint() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"result": asked["input"]["say"]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("x-usage-input-tokens", "7")
            self.send_header("x-usage-output-tokens", "2")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def graders_of(benchmark: Benchmark) -> Iterator[dict[str, Grader]]:
    """The graders of the tasks of *benchmark*, by kind of evaluator; to be made before there is an event loop."""
    suite = Suite(name=benchmark.id, cases=(), source=benchmark.source, digest="")
    graders = {kind: grader_class(kind)(suite) for kind in {task.evaluator.kind for task in benchmark.tasks}}
    try:
        yield graders
    finally:
        for grader in graders.values():
            grader.close()


async def graded(graders: dict[str, Grader], task: Any, skill: CallableSkill, output: Any, sandbox: Sandbox) -> Grade:
    """The grade of an answer to *task*."""
    check = Check(grader=task.evaluator.kind, params={"task": task}, weight=task.weight)
    evidence = Evidence(
        case=Case(id=task.id, prompt="", checks=(check,)),
        session=SessionSummary(runner=skill.id, agent="skill", prompt=""),
        events_path=None,
        workspace=skill.root,
        changes=Changes(),
        artifact_dir=skill.root,
        shell=Shell(sandbox=sandbox.name),
        keep=lambda name, text: None,
        timeout_s=30,
        answer=GradedAnswer(output=output, skill_id=skill.id, skill=skill.root, sandbox=sandbox),
    )
    return await graders[check.grader].grade(check, evidence)

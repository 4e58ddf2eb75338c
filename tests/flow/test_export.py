"""`whet export`: what a run recorded, as tables, trajectories and traces."""

# ruff: noqa: E501 - what an agent prints stands here as it prints it

from __future__ import annotations

import csv
import gc
import io
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from evaluating import EXAMPLES
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from project import EVENTS, SHELL, Outcome, Project
from pyarrow import parquet

from whet.model.run import TrialResult
from whet.record.read.stream import TrialStream
from whet.report.export._tables import COLUMNS

TALK = """
echo '{"type": "session_started", "session_id": "s-1", "model": "large-2", "version": "1.4"}'
echo '{"type": "tool_call", "tool": "shell", "id": "one", "args": {"command": "cat private"}, "at": "2026-01-05T10:15Z"}'
echo '{"type": "command", "command": "cat private", "exit_code": 1}'
echo '{"type": "tool_result", "id": "one", "output": "no private", "ok": false, "at": "2026-01-05T10:15:32Z"}'
echo '{"type": "usage", "input_tokens": 120, "output_tokens": 15, "cached_tokens": 100, "cost_usd": 0.25}'
echo '{"type": "final_output", "text": "the answer"}'
"""


@pytest.fixture
def done(project: Project) -> Outcome:
    """A run of a trial that passes and one that fails, twice each, with events."""
    project.settings(EVENTS)
    project.write("talk.sh", TALK)
    project.suite("""
        TALK = Path(__file__).with_name("talk.sh").read_text()
        def flat(report, ctx): assert False, "=cmd|' /C calc'!A0"
        suite = [
            Case(id="a", prompt=TALK, check=ok, tags=["=first", "second"]),
            Case(id="b", prompt=TALK, check=flat),
        ]
    """)
    return project.run("--trials", "2")


def exported(project: Project, wanted: str, *more: str) -> str:
    done = project.whet("export", "latest", "--format", wanted, *more)
    assert done.code == 0, done.stderr
    return done.stdout


def table(project: Project) -> list[dict[str, Any]]:
    return [json.loads(line) for line in exported(project, "jsonl").splitlines()]


def spans(lines: str) -> list[dict[str, Any]]:
    """The spans of OTLP JSON lines, with their attributes by name."""
    found = [
        span
        for line in lines.splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    for span in found:
        span["attributes"] = {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}
    return found


def test_a_table_has_a_row_for_each_trial_in_declared_order(project: Project, done: Outcome) -> None:
    found = table(project)

    assert [(row["case"], row["trial"], row["status"]) for row in found] == [
        ("a", 1, "passed"),
        ("a", 2, "passed"),
        ("b", 1, "failed"),
        ("b", 2, "failed"),
    ]
    assert all(list(row) == list(COLUMNS) for row in found)
    assert found[0] == found[0] | {
        "run": done.folder.name,
        "suite": "suite",
        "runner": "sh",
        "arm": "default",
        "attempt": 1,
        "passed": True,
        "score": 1.0,
        "cause": None,
        "input_tokens": 120,
        "output_tokens": 15,
        "cached_tokens": 100,
        "reasoning_tokens": None,
        "total_tokens": 135,
        "tokens_guessed": False,
        "cost_usd": 0.25,
        "agent": "command",
        "agent_version": "1.4",
        "model": "large-2",
        "session_id": "s-1",
        "tags": ["=first", "second"],
    }
    assert found[2] == found[2] | {"cause": "agent", "failure_phase": "check", "failure_code": "assertion"}
    assert [row["started_at"] for row in found] == [trial["started_at"] for trial in done.trials]


@pytest.mark.usefixtures("done")
def test_no_cell_of_a_csv_file_is_a_formula(project: Project) -> None:
    rows = list(csv.DictReader(io.StringIO(exported(project, "csv"))))

    assert list(rows[0]) == list(COLUMNS)
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert rows[0]["tags"] == "'=first;second"
    assert rows[2]["failure_message"] == "'=cmd|' /C calc'!A0"
    assert (rows[0]["passed"], rows[0]["cause"], rows[0]["cost_usd"]) == ("true", "", "0.25")


@pytest.mark.usefixtures("done")
def test_a_parquet_file_holds_the_same_rows_with_types(project: Project) -> None:
    exported(project, "parquet", "--output", "out.parquet")

    read = parquet.read_table(project.root / "out.parquet")
    assert read.to_pylist() == table(project)
    assert [str(read.schema.field(name).type) for name in ("case", "trial", "score", "passed", "tags")] == [
        "string",
        "int64",
        "double",
        "bool",
        "list<element: string>",
    ]


@pytest.mark.usefixtures("done")
def test_a_parquet_file_can_be_piped(project: Project) -> None:
    command = f"{sys.executable} -m whet export latest --format parquet | cat > piped.parquet"
    subprocess.run(["sh", "-c", command], cwd=project.root, env=project.environment(), check=True)

    assert parquet.read_table(project.root / "piped.parquet").num_rows == 4


@pytest.mark.usefixtures("done")
def test_traces_have_spans_for_trials_agents_rounds_and_tools(project: Project) -> None:
    found = spans(exported(project, "otlp"))

    names = [span["name"] for span in found if span["traceId"] == found[-1]["traceId"]]
    assert names == ["trial b", "invoke_agent command", "chat large-2", "execute_tool shell", "chat large-2"]
    trial, agent, chat, tool, _ = found[-5:]
    assert [span.get("parentSpanId") for span in (trial, agent, chat, tool)] == [
        None,
        trial["spanId"],
        agent["spanId"],
        agent["spanId"],
    ]
    assert trial["attributes"] == trial["attributes"] | {
        "test.case.name": "b",
        "test.case.result.status": "fail",
        "whet.status": "failed",
        "error.type": "assertion",
    }
    assert trial["events"][0]["name"] == "gen_ai.evaluation.result"
    assert agent["attributes"] == agent["attributes"] | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "command",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.request.model": "large-2",
        "gen_ai.usage.input_tokens": "120",
        "gen_ai.usage.cache_read.input_tokens": "100",
    }
    assert tool["attributes"]["gen_ai.tool.call.id"] == "one"
    assert (tool["attributes"]["error.type"], tool["status"]) == ("exit 1", {"code": 2})
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in found)


@pytest.mark.usefixtures("done")
def test_traces_are_the_same_each_time_and_say_nothing_that_was_said(project: Project) -> None:
    first, second = exported(project, "otlp"), exported(project, "otlp")
    telling = exported(project, "otlp", "--content")

    said = ("private", "the answer", "calc")
    assert first == second
    assert len({span["spanId"] for span in spans(first)}) == len(spans(first))
    assert not any(words in first for words in said)
    assert all(words in telling for words in said)
    assert [span["spanId"] for span in spans(first)] == [span["spanId"] for span in spans(telling)]


def test_traces_mark_tokens_that_were_guessed(project: Project) -> None:
    project.settings(SHELL)
    project.suite("suite = [Case(id='a', prompt='echo 0123456789abcdef', check=ok)]")
    project.run()

    found = spans(exported(project, "otlp"))

    agent = next(span["attributes"] for span in found if span["name"].startswith("invoke_agent"))
    assert agent["gen_ai.usage.output_tokens"] == "4"
    assert agent["whet.tokens_guessed"] is True


def test_what_a_sub_agent_did_is_below_the_call_that_started_it(project: Project) -> None:
    project.settings(EVENTS)
    project.write(
        "talk.sh",
        """
        echo '{"type": "tool_call", "tool": "Task", "id": "1", "args": {"subagent_type": "Explore", "prompt": "Look."}}'
        echo '{"type": "tool_call", "tool": "Read", "id": "2", "args": {}}'
        echo '{"type": "tool_result", "id": "2"}'
        echo '{"type": "tool_result", "id": "1"}'
        """,
    )
    project.suite("suite = [Case(id='a', prompt=Path(__file__).with_name('talk.sh').read_text(), check=ok)]")
    project.run()

    found = spans(exported(project, "otlp"))

    above = {span["spanId"]: span["name"] for span in found}
    assert [(span["name"], above.get(span.get("parentSpanId"))) for span in found] == [
        ("trial a", None),
        ("invoke_agent command", "trial a"),
        ("chat", "invoke_agent command"),
        ("execute_tool Task", "invoke_agent command"),
        ("invoke_agent Explore", "execute_tool Task"),
        ("chat", "invoke_agent Explore"),
        ("execute_tool Read", "invoke_agent Explore"),
    ]


class Receiver(BaseHTTPRequestHandler):
    """Takes traces as a collector does, and answers as it was told to."""

    def do_POST(self) -> None:
        server: Any = self.server
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
        server.received.append((self.path, dict(self.headers), request))
        status, answer = server.answer
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def receiving(status: int = 200, answer: bytes = b"") -> Iterator[Any]:
    server: Any = HTTPServer(("127.0.0.1", 0), Receiver)
    server.received, server.answer = [], (status, answer)
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.usefixtures("done")
def test_a_receiver_gets_the_traces_that_a_file_would_hold(project: Project) -> None:
    with receiving() as server:
        env = {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b, x-other=c"}
        sent = project.whet("export", "latest", "--format", "otlp", "--endpoint", server.url, env=env)

    assert (sent.code, sent.stdout, sent.stderr) == (0, "", "")
    ((path, headers, request),) = server.received
    assert path == "/v1/traces"
    assert (headers["x-key"], headers["x-other"]) == ("a b", "c")
    got = [
        (span.trace_id.hex(), span.span_id.hex(), span.name)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    filed = [(span["traceId"], span["spanId"], span["name"]) for span in spans(exported(project, "otlp"))]
    assert got == filed


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize("status", [200, 503])
def test_a_receiver_that_refuses_is_one_error(project: Project, status: int) -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 7
    answer.partial_success.error_message = "too many"

    with receiving(status, answer.SerializeToString() if status == 200 else b"later") as server:
        sent = project.whet("export", "latest", "--format", "otlp", "--endpoint", server.url)

    assert sent.code == 2
    assert ("refused 7 spans: too many" if status == 200 else "refused the traces: 503 later") in sent.stderr
    assert "with the same ids" in sent.stderr


@pytest.mark.usefixtures("done")
def test_a_receiver_that_is_not_there_is_one_error(project: Project) -> None:
    with receiving() as server:
        gone = server.url

    sent = project.whet("export", "latest", "--format", "otlp", "--endpoint", gone)

    assert sent.code == 2
    assert sent.stderr.startswith(f"error[usage]: {gone}/v1/traces cannot be reached: ")


def test_each_attempt_has_a_trajectory_in_a_new_folder(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="a", prompt="exit 1", check=ok), Case(id="b", prompt="echo hi", check=ok)]
    """)
    project.run("--retries", "1")

    exported(project, "atif", "--output", "out")

    made = {
        str(path.parent.relative_to(project.root / "out")): json.loads(path.read_bytes())
        for path in (project.root / "out").rglob("trajectory.json")
    }
    assert sorted(made) == ["a/sh/default/1/1", "a/sh/default/1/2", "b/sh/default/1/1"]
    assert made["a/sh/default/1/2"]["extra"]["failure"]["code"] == "agent-crashed"
    assert [step["message"] for step in made["b/sh/default/1/1"]["steps"]] == ["echo hi", "hi"]


@pytest.mark.usefixtures("done")
def test_a_folder_that_holds_something_is_left_alone(project: Project) -> None:
    kept = project.write("out/kept.txt", "kept")

    refused = project.whet("export", "latest", "--format", "atif", "--output", "out")
    kept.unlink()
    exported(project, "atif", "--output", "out")

    assert refused.code == 2
    assert "out already exists and is not an empty folder" in refused.stderr
    assert sorted(path.name for path in (project.root / "out").iterdir()) == ["a", "b"]
    assert not list(project.root.glob(".whet-*"))


@pytest.mark.parametrize("wanted", ["csv", "otlp", "atif"])
@pytest.mark.parametrize("changed", ["journal.jsonl", "results.json", "trials/b/sh/default/2/1/session.json"])
def test_a_changed_record_is_refused_and_leaves_nothing(
    project: Project, done: Outcome, wanted: str, changed: str
) -> None:
    path = done.folder / changed
    before = path.read_bytes()
    # Not the first "a": without its word `schema`, a file is of no known format.
    start, _, end = before.rpartition(b"a")
    path.write_bytes(start + b"b" + end)
    (project.root / "old.csv").write_text("old")
    output = "new" if wanted == "atif" else "old.csv"

    refused = project.whet("export", "latest", "--format", wanted, "--output", output)

    assert refused.code == 2
    assert f"{path}: " in refused.stderr
    assert "whet verify" in refused.stderr
    assert (project.root / "old.csv").read_text() == "old"
    assert not (project.root / "new").exists()
    assert not list(project.root.glob(".whet-*"))


def test_results_that_name_another_line_are_refused(project: Project, done: Outcome) -> None:
    journal = done.folder / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))

    refused = project.whet("export", "latest", "--format", "csv")

    assert refused.code == 2
    assert "names another hash for line 4 of the journal" in refused.stderr
    assert refused.stdout == ""


def test_a_run_that_was_killed_is_exported_as_far_as_it_came(project: Project, done: Outcome) -> None:
    journal = done.folder / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3]) + lines[3][:40])
    (done.folder / "results.json").unlink()

    partly = project.whet("export", "latest", "--format", "jsonl")

    assert partly.code == 0
    assert partly.stderr == "warning: the run is not finished: 1 trial missing\n"
    assert [json.loads(line)["tags"] for line in partly.stdout.splitlines()] == [[], [], []]


def test_a_regraded_run_says_what_it_was_regraded_from(project: Project, done: Outcome) -> None:
    first = done.folder.name
    project.whet("regrade", "latest")

    assert {(row["regraded_from"], row["session_id"]) for row in table(project)} == {(first, "s-1")}
    exported(project, "atif", "--output", "out")


def test_each_arm_of_an_eval_suite_has_the_digest_of_its_skill(project: Project) -> None:
    shutil.copytree(EXAMPLES.parent / "evals", project.root, dirs_exist_ok=True)
    project.whet("run", "suite.json", "--skill", "release-notes")

    found = table(project)
    exported(project, "atif", "--output", "out")

    assert {(row["arm"], row["skill_digest"] is None) for row in found} == {("skill", False), ("no_skill", True)}
    assert len(list((project.root / "out").rglob("trajectory.json"))) == len(found) == 5


def test_a_bench_suite_is_exported(project: Project) -> None:
    shutil.copytree(EXAMPLES.parent / "bench", project.root, dirs_exist_ok=True)
    (project.root / ".git").mkdir()
    project.whet("bench", "suite.json")

    found = [(row["case"], row["status"]) for row in table(project)]

    assert found == [("add-total", "passed"), ("remove-legacy", "passed"), ("cheat", "failed")]


def test_an_evaluation_is_exported_without_trajectories(project: Project) -> None:
    ran = project.whet(
        "eval", "--skills", str(EXAMPLES / "calculator"), "--benchmark", "coding-easy", "--sandbox", "local"
    )
    assert ran.code in (0, 1), ran.stderr

    rows, traces = table(project), spans(exported(project, "otlp"))
    refused = project.whet("export", "latest", "--format", "atif", "--output", "out")

    assert rows
    assert [span["name"].split()[0] for span in traces] == ["trial", "invoke_agent"] * len(rows)
    assert refused.code == 2
    assert "has a session, so there is no trajectory" in refused.stderr
    assert not (project.root / "out").exists()


@pytest.mark.parametrize(("wanted", "library"), [("parquet", "pyarrow"), ("otlp", "opentelemetry.proto")])
@pytest.mark.usefixtures("done")
def test_a_missing_library_is_one_error_that_says_how_to_install_it(
    project: Project, wanted: str, library: str
) -> None:
    project.write(
        "hidden/sitecustomize.py",
        """
        import sys
        class Hide:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("pyarrow", "opentelemetry"):
                    raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Hide())
        """,
    )

    refused = project.whet("export", "latest", "--format", wanted, env={"PYTHONPATH": str(project.root / "hidden")})

    assert refused.code == 2
    assert refused.stderr == f"error[usage]: --format {wanted} needs {library}\n  pip install 'whet-eval[{wanted}]'\n"


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "csv", "--content"], "--content is for --format otlp"),
        (["--format", "jsonl", "--endpoint", "http://127.0.0.1:1"], "--endpoint is for --format otlp"),
        (["--format", "otlp", "--endpoint", "http://127.0.0.1:1", "--output", "x"], "cannot be used together"),
        (["--format", "otlp", "--endpoint", "127.0.0.1:1"], "127.0.0.1:1 is not an address"),
        (["--format", "atif"], "atif is a folder of files"),
        (["--format", "csv", "--output", "no/such/file"], "cannot write no/such/file: No such file or directory"),
        (["--format", "csv", "--output", "."], "cannot write .: Is a directory"),
        (["--format", "atif", "--output", "no/such/folder"], "no/such"),
    ],
)
def test_what_cannot_be_done_is_one_error(project: Project, options: list[str], said: str) -> None:
    refused = project.whet("export", "latest", *options)

    assert refused.code == 2
    assert said in refused.stderr
    assert refused.stdout == ""


def test_secrets_stay_masked(project: Project) -> None:
    project.settings(SHELL + '[runners.sh.agent.env]\nDEMO_API_KEY = "sk-4711-secret-4711"\n')
    project.suite("suite = [Case(id='a', prompt='echo $DEMO_API_KEY', check=no)]")
    project.run()

    written = exported(project, "otlp", "--content") + exported(project, "csv")
    exported(project, "atif", "--output", "out")

    (made,) = (project.root / "out").rglob("*.json")
    assert "sk-4711" not in written + made.read_text()
    assert json.loads(made.read_bytes())["steps"][-1]["message"] != ""


@pytest.mark.usefixtures("done")
def test_a_reader_that_goes_away_ends_it_without_a_word(project: Project) -> None:
    command = f"{sys.executable} -m whet export latest --format otlp --content; echo $? >&2"
    process = subprocess.Popen(
        ["sh", "-c", command],
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout
    process.stdout.close()

    with process:
        assert process.stderr
        assert process.stderr.read().decode() == "141\n"


def test_trials_are_not_kept_while_they_are_read(project: Project) -> None:
    project.settings(SHELL)
    project.suite("suite = [Case(id='a', prompt='true', check=ok)]")
    folder = project.run("--trials", "20").folder

    alive = []
    for _ in TrialStream(folder):
        gc.collect()
        alive.append(sum(type(each) is TrialResult for each in gc.get_objects()))

    assert len(alive) == 20
    assert max(alive) <= alive[0] + 1


def test_a_run_without_an_ended_trial_holds_nothing(project: Project, done: Outcome) -> None:
    (done.folder / "journal.jsonl").write_bytes(b"")
    (done.folder / "results.json").unlink()

    refused = project.whet("export", "latest", "--format", "csv")

    assert refused.code == 2
    assert "has ended, so it holds nothing yet" in refused.stderr


def test_one_run_is_found_by_its_folder(project: Project, done: Outcome, tmp_path: Path) -> None:
    moved = done.folder.rename(tmp_path / "moved")

    found = project.whet("export", str(moved), "--format", "jsonl", cwd=tmp_path)

    assert [json.loads(line)["run"] for line in found.stdout.splitlines()] == ["moved"] * 4

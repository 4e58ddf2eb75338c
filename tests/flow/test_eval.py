"""`whet eval` and `whet report`, as they are typed, against skills that are really called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from evaluating import EXAMPLES, MCP, PROGRAM, WHET, endpoint, reports, skill, statuses, task, tasks, whet

from whet.grade.judge.questions import TOOL
from whet.testing.scripted_model.server import ScriptedModel


def test_the_example_skill_passes_the_built_in_benchmark_from_any_folder(tmp_path: Path) -> None:
    ended = whet(tmp_path, "eval", "--skills", str(EXAMPLES / "calculator"), "--benchmark", "coding-easy")

    found = reports(tmp_path)[0]
    assert ended.returncode == 0, ended.stderr
    assert (found["skillId"], found["benchmarkId"]) == ("calculator", "coding-easy")
    assert found["summary"]["completionRate"] == 1
    assert len(found["taskResults"]) == 20


@pytest.mark.parametrize("keep", [False, True])
def test_what_a_program_answers_decides_each_task(tmp_path: Path, keep: bool) -> None:
    skill(tmp_path, keepAlive=keep)
    file = tasks(
        tmp_path,
        task("good", {"say": "yes"}),
        task("bad", {"say": "no"}),
        task("gone", {"crash": True}),
        task("slow", {"sleep": 30}, timeoutMs=300),
    )

    ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", file)

    assert ended.returncode == 0, ended.stderr
    assert statuses(tmp_path) == {"good": "pass", "bad": "fail", "gone": "error", "slow": "timeout"}


def test_an_endpoint_is_called_and_its_usage_counted(tmp_path: Path) -> None:
    with endpoint() as url:
        skill(tmp_path, manifest={"adapterType": "http", "entrypoint": url})
        ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, task("a", {"say": "yes"})))

    assert ended.returncode == 0, ended.stderr
    assert statuses(tmp_path) == {"a": "pass"}
    assert reports(tmp_path)[0]["tokenCost"]["totalTokens"] == 9


def test_a_skill_that_cannot_be_called_is_one_clear_error_and_nothing_is_run(tmp_path: Path) -> None:
    skill(tmp_path, "well")
    skill(tmp_path, "away", manifest={"adapterType": "http", "entrypoint": "http://127.0.0.1:9/"})
    skill(tmp_path, "gone", manifest={"entrypoint": "no-such-program skill.py"})

    ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, task("a", {"say": "yes"})))

    assert ended.returncode == 2
    assert "away cannot be called: http://127.0.0.1:9/" in ended.stderr
    assert "gone cannot be called:" in ended.stderr
    assert "well cannot" not in ended.stderr
    assert not (tmp_path / ".whet").exists()
    assert not (tmp_path / "reports").exists()


def test_calls_of_a_skill_that_nobody_serves_are_errored_where_nobody_asked_for_its_health(tmp_path: Path) -> None:
    skill(tmp_path, manifest={"adapterType": "http", "entrypoint": "http://127.0.0.1:9/"})
    file = tasks(tmp_path, task("a", {"say": "yes"}))

    ended = whet(tmp_path, "eval", "--skills", "skills", "--exit-on-fail", "--no-health-check", "--tasks", file)

    assert ended.returncode == 3, ended.stderr
    assert reports(tmp_path)[0]["summary"]["erroredCount"] == 1


def test_a_skill_that_does_not_say_that_it_is_well_is_called_all_the_same(tmp_path: Path) -> None:
    program = PROGRAM.replace("-32601", "-32000").replace("unknown", "my database is away")
    skill(tmp_path, program=program)

    ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, task("a", {"say": "yes"})))

    assert ended.returncode == 0
    assert "echo is not healthy: JSON-RPC error -32000: my database is away" in ended.stdout
    assert statuses(tmp_path) == {"a": "pass"}


def test_reports_of_a_finished_evaluation_are_written_again_although_its_skill_is_gone(tmp_path: Path) -> None:
    with endpoint() as url:
        skill(tmp_path, manifest={"adapterType": "http", "entrypoint": url})
        file = tasks(tmp_path, task("a", {"say": "yes"}))
        whet(tmp_path, "eval", "--skills", "skills", "--tasks", file)

    ended = whet(tmp_path, "eval", "--resume", "latest", "--reports-dir", "elsewhere", "--format", "csv")

    assert ended.returncode == 0, ended.stderr
    assert len(list((tmp_path / "elsewhere").glob("*.csv"))) == 1


def test_a_tool_of_an_mcp_server_is_called(tmp_path: Path) -> None:
    skill(tmp_path, program=MCP, manifest={"adapterType": "mcp"})

    ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, task("a", {"say": "yes"})))

    assert ended.returncode == 0, ended.stderr
    assert statuses(tmp_path) == {"a": "pass"}, ended.stdout


@pytest.mark.parametrize(
    ("gate", "code"),
    [((), 0), (("--exit-on-fail",), 1), (("--min-completion", "0.5"), 0), (("--min-completion", "0.6"), 1)],
)
def test_the_gate_is_the_completion_that_was_asked_for(tmp_path: Path, gate: tuple[str, ...], code: int) -> None:
    skill(tmp_path)
    file = tasks(tmp_path, task("good", {"say": "yes"}), task("bad", {"say": "no"}))

    ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", file, *gate)

    assert ended.returncode == code, ended.stderr


def test_a_wrong_answer_is_not_asked_for_again_and_a_missing_one_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    skill(tmp_path, env={"LOG": str(log)})
    file = tasks(tmp_path, task("bad", {"say": "no"}), task("gone", {"crash": True}))

    whet(tmp_path, "eval", "--skills", "skills", "--tasks", file, "--retries", "2")

    calls = log.read_text().splitlines()
    assert (calls.count('{"say": "no"}'), calls.count('{"crash": true}')) == (1, 3)


def test_a_killed_evaluation_goes_on_where_it_was(tmp_path: Path) -> None:
    log, temporary = tmp_path / "log", tmp_path / "temporary"
    temporary.mkdir()
    skill(tmp_path, env={"LOG": str(log)})
    file = tasks(tmp_path, task("a", {"say": "yes"}), task("b", {"say": "yes", "sleep": 2}))
    arguments = ["eval", "--skills", "skills", "--tasks", file, "--concurrency", "1"]
    process = subprocess.Popen(
        [WHET, *arguments],
        cwd=tmp_path,
        env={**os.environ, "WHET_SANDBOX": "local", "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 300
    while time.monotonic() < until and not (log.exists() and len(log.read_text().splitlines()) == 2):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()

    ended = whet(tmp_path, "eval", "--resume", "latest", TMPDIR=str(temporary))

    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert ended.returncode == 0, ended.stderr
    assert statuses(tmp_path) == {"a": "pass", "b": "pass"}
    assert [call.get("sleep", 0) for call in calls] == [0, 2, 2]
    assert list(temporary.iterdir()) == []


def test_an_interrupted_evaluation_reports_what_there_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    skill(tmp_path, keepAlive=True, env={"LOG": str(log)})
    file = tasks(tmp_path, task("a", {"say": "yes"}), task("b", {"sleep": 60}, timeoutMs=60000))
    process = subprocess.Popen(
        [WHET, "eval", "--skills", "skills", "--tasks", file, "--concurrency", "1"],
        cwd=tmp_path,
        env={**os.environ, "WHET_SANDBOX": "local"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 300
    while time.monotonic() < until and not (log.exists() and len(log.read_text().splitlines()) == 2):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=300) == 130
    assert statuses(tmp_path) == {"a": "pass"}


def test_a_skill_that_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    root = skill(tmp_path)
    whet(tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, task("a", {"say": "yes"})))
    (root / "skill.py").write_text("# another program\n" + PROGRAM)

    ended = whet(tmp_path, "eval", "--resume", "latest")

    assert ended.returncode == 2
    assert "changed" in ended.stderr


def test_a_secret_that_a_skill_answers_with_is_nowhere_in_the_record(tmp_path: Path) -> None:
    skill(tmp_path, passEnv=["TOLD"])
    file = tasks(tmp_path, task("a", {"leak": True}))

    ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", file, TOLD="tellnobodyaboutit")

    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert ended.returncode == 0, ended.stderr
    assert "tellnobodyaboutit" not in ended.stdout
    assert [path.name for path in kept if b"tellnobodyaboutit" in path.read_bytes()] == []
    assert any(path.name == "answer.json" for path in kept)


def test_a_short_value_that_a_skill_is_given_is_no_secret_and_spoils_no_report(tmp_path: Path) -> None:
    skill(tmp_path, passEnv=["DEBUG"])
    file = tasks(tmp_path, task("t1", {"say": "level 1"}, "level 1"))

    whet(tmp_path, "eval", "--skills", "skills", "--tasks", file, DEBUG="1")
    ended = whet(tmp_path, "eval", "--resume", "latest", DEBUG="1")

    assert ended.returncode == 0, ended.stderr
    assert reports(tmp_path)[0]["taskResults"][0]["output"] == {"result": "level 1"}


def test_a_variable_that_is_not_set_is_told_before_anything_runs(tmp_path: Path) -> None:
    skill(tmp_path, passEnv=["NOBODY_SET_THIS"])

    ended = whet(tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, task("a", {"say": "yes"})))

    assert ended.returncode == 2
    assert "NOBODY_SET_THIS" in ended.stderr
    assert not (tmp_path / ".whet").exists()


def test_an_answer_that_its_own_schema_does_not_allow_is_an_error_where_that_is_asked(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"result": {"type": "number"}}}
    skill(tmp_path, manifest={"outputSchema": schema})
    file = tasks(tmp_path, task("a", {"say": "yes"}))

    whet(tmp_path, "eval", "--skills", "skills", "--tasks", file, "--check-schemas")

    assert statuses(tmp_path) == {"a": "error"}


def test_a_judge_gives_the_score_and_is_paid_for_apart(tmp_path: Path) -> None:
    skill(tmp_path)
    judged = {
        "id": "a",
        "inputData": {"say": "Jupiter"},
        "expectedOutput": {"type": "llm_judge", "judgePrompt": "Is Jupiter named?"},
    }
    verdict = {"call": TOOL, "args": {"rating": 8, "rationale": "It is.", "manipulation": False}}
    with ScriptedModel([verdict]) as model:
        (tmp_path / "whet.toml").write_text(f'[judge]\nurl = "{model.url}/v1"\nmodel = "gpt-4o"\n')
        ended = whet(
            tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, judged), EVAL_SKILLS_LLM_KEY="test-key"
        )

    found = reports(tmp_path)[0]
    assert ended.returncode == 0, ended.stderr
    assert found["taskResults"][0]["score"] == 0.8
    assert found["judgeCost"]["promptTokens"] > 0


def test_html_shows_the_run_and_holds_no_tag_of_a_skill(tmp_path: Path) -> None:
    skill(tmp_path)
    file = tasks(tmp_path, task("a", {"say": "<script>alert(1)</script>"}))

    whet(tmp_path, "eval", "--skills", "skills", "--tasks", file, "--format", "html")

    page = next((tmp_path / "reports").glob("*.html")).read_text()
    assert "<script>alert(1)" not in page
    assert "\\u003cscript>alert(1)\\u003c/script>" in page


def test_a_dry_run_calls_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    skill(tmp_path, env={"LOG": str(log)})

    ended = whet(
        tmp_path, "eval", "--skills", "skills", "--dry-run", "--tasks", tasks(tmp_path, task("a", {"say": "yes"}))
    )

    assert ended.returncode == 0
    assert "1 task on 1 skill, 1 run of each: 1 call" in ended.stdout
    assert "a  echo  subprocess  exact  30 s" in ended.stdout
    assert not log.exists()
    assert not (tmp_path / "reports").exists()


def test_a_regression_has_an_exit_code_and_a_form_for_programs(tmp_path: Path) -> None:
    skill(tmp_path)
    for name, said in (("old", "yes"), ("new", "no")):
        file = tasks(tmp_path, *(task(f"t{number}", {"say": said}) for number in range(5)))
        whet(tmp_path, "eval", "--skills", "skills", "--tasks", file, "--format", "json", "--output-dir", name)
    old, new = (str(next((tmp_path / name).glob("*.json"))) for name in ("old", "new"))

    worse = whet(tmp_path, "report", "diff", old, new, "--json")
    better = whet(tmp_path, "report", "diff", new, old)

    assert (worse.returncode, better.returncode) == (1, 0)
    assert json.loads(worse.stdout)[0]["difference"]["value"] == -1
    assert "regressed" not in better.stdout


def test_a_benchmark_given_to_another_command_names_the_one_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps({"id": "b", "tasks": []}))

    ended = whet(tmp_path, "run", "b.json")

    assert ended.returncode == 2
    assert "whet eval SKILL --benchmark b.json" in ended.stderr


def test_an_evaluation_is_not_gone_on_with_by_another_command(tmp_path: Path) -> None:
    skill(tmp_path)
    whet(tmp_path, "eval", "--skills", "skills", "--tasks", tasks(tmp_path, task("a", {"say": "yes"})))

    ended = whet(tmp_path, "run", "--resume", "latest")

    assert ended.returncode == 2
    assert "whet eval --resume" in ended.stderr

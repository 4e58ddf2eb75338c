"""Arms of an evaluation by the real command: versions of a callable skill that take turns, compared and gated."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from evaluating import PROGRAM, endpoint, reports, skill, task, tasks, whet

# Answers what it is asked to, or "no" to the tasks that it does not know.
KNOWS = PROGRAM.replace(
    'params.get("say")', 'params.get("say") if params["number"] < int(os.environ.get("KNOWS", "{knows}")) else "no"'
)
ARMS = ("--arm", "old=skill:skills/v1", "--arm", "new=skill:skills/v2")


def _version(folder: Path, name: str, knows: int, **config: Any) -> Path:
    """A version of the skill `answers`, in a folder of its own."""
    return skill(folder, name, KNOWS.replace("{knows}", str(knows)), manifest={"id": "answers"}, **config)


def _tasks(folder: Path, count: int = 12) -> str:
    return tasks(folder, *(task(f"t{number}", {"say": "yes", "number": number}) for number in range(count)))


def _newest(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / ".whet/runs/latest" / name).read_bytes())
    return found


def _commit(folder: Path, *words: str) -> None:
    author = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize("keep", [False, True])
def test_two_versions_of_a_skill_are_compared_gated_and_told_in_every_report(tmp_path: Path, keep: bool) -> None:
    _version(tmp_path, "v1", 2, keepAlive=keep)
    _version(tmp_path, "v2", 12, keepAlive=keep)

    formats = ("--format", "json", "--format", "markdown", "--format", "html", "--format", "csv")
    ended = whet(tmp_path, "eval", *ARMS, "--tasks", _tasks(tmp_path), "--runs", "2", *formats)
    gate = whet(tmp_path, "gate", "--json")
    saved = whet(tmp_path, "baseline", "save", "release")
    later = whet(tmp_path, "gate", "--baseline", "release", "--margin", "50")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "new is better than old on answers" in ended.stdout
    assert (gate.returncode, json.loads(gate.stdout)["comparison"]["verdict"]) == (0, "better")
    assert (saved.returncode, later.returncode) == (0, 0), later.stdout + later.stderr
    results = _newest(tmp_path, "results.json")
    assert (results["baseline"], results["comparisons"][0]["interleaved"]) == ("old", True)
    assert len({arm["differs_by"]["skill"] for arm in results["arms"]}) == 2
    old, new = reports(tmp_path)
    assert (old["arm"], old["summary"]["completionRate"]) == ("old", round(1 / 6, 4))
    assert (new["arm"], new["summary"]["completionRate"]) == ("new", 1.0)
    assert "decision" not in old
    assert (new["decision"]["verdict"], new["decision"]["baseline"]) == ("better", "old")
    (file,) = (tmp_path / "reports").glob("*.md")
    assert "new is better than old on answers" in file.read_text()
    assert "answers/new 1.0.0 on custom" in file.read_text()
    (page,) = (tmp_path / "reports").glob("*.html")
    assert '"decision":{"candidate":"new","baseline":"old","runner":"answers","verdict":"better"' in page.read_text()
    assert whet(tmp_path, "verify", "latest").returncode == 0


def test_an_arm_may_change_a_variable_and_a_worse_candidate_fails_the_gate(tmp_path: Path) -> None:
    _version(tmp_path, "v1", 12)
    arms = ("--arm", "all=env:KNOWS=12", "--arm", "few=env:KNOWS=1")

    ended = whet(tmp_path, "eval", "--skills", "skills", *arms, "--tasks", _tasks(tmp_path), "--min-completion", "0.5")
    gate = whet(tmp_path, "gate")

    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "answers/few completes less than the 50 %" in ended.stdout
    assert gate.returncode == 1
    assert "few is worse than all on answers" in gate.stdout


def test_a_baseline_that_completes_too_little_does_not_fail_the_run(tmp_path: Path) -> None:
    _version(tmp_path, "v1", 0)
    _version(tmp_path, "v2", 12)

    ended = whet(tmp_path, "eval", *ARMS, "--tasks", _tasks(tmp_path), "--min-completion", "0.9")

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_two_different_skills_are_compared_as_arms(tmp_path: Path) -> None:
    skill(tmp_path, "poor", KNOWS.replace("{knows}", "0"))
    skill(tmp_path, "good", KNOWS.replace("{knows}", "12"))
    arms = ("--arm", "a=runner:poor", "--arm", "b=runner:good")

    whet(tmp_path, "eval", "--skills", "skills", *arms, "--tasks", _tasks(tmp_path))
    compared = whet(tmp_path, "compare", "--json")

    found = json.loads(compared.stdout)
    assert (found["verdict"], found["runner"]) == ("better", None)
    assert [report["skillId"] for report in reports(tmp_path)] == ["poor", "good"]


def test_a_run_that_has_not_decided_is_made_longer_by_the_command_that_the_gate_names(tmp_path: Path) -> None:
    # So far apart that thirteen more trials of each decide.
    _version(tmp_path, "v1", 1, keepAlive=True)
    _version(tmp_path, "v2", 5, keepAlive=True)
    file = _tasks(tmp_path, 7)
    whet(tmp_path, "eval", *ARMS, "--tasks", file)
    asked = whet(tmp_path, "gate")
    words = next(line for line in asked.stdout.splitlines() if "to decide it" in line).split("whet ")[1].split(",")[0]

    longer = whet(tmp_path, *words.split())

    assert asked.returncode == 5
    assert words.startswith("eval --resume ")
    assert longer.returncode == 0, longer.stdout + longer.stderr
    executions = [each for case in _newest(tmp_path, "results.json")["cases"] for each in case["executions"]]
    assert {each["planned_trials"] for each in executions} == {1 + int(words.split()[-1])}
    assert _newest(tmp_path, "results.json")["grown_from"] == [1]


def test_a_plan_of_a_benchmark_learns_from_its_newest_evaluation(tmp_path: Path) -> None:
    _version(tmp_path, "v1", 2)
    benchmark = {"id": "b", "name": "B", "version": "1", "domain": "x", "scoringMethod": "mean"}
    listed = [task(f"t{number}", {"say": "yes", "number": number}) for number in range(4)]
    (tmp_path / "b.json").write_text(json.dumps({**benchmark, "tasks": listed}))

    before = whet(tmp_path, "plan", "b.json", "--effect", "30")
    whet(tmp_path, "eval", "--skills", "skills", "--benchmark", "b.json", "--runs", "2")
    after = whet(tmp_path, "plan", "b.json", "--effect", "30")

    assert "no run to learn from yet" in before.stdout, before.stderr
    assert "next: whet eval --benchmark b.json --trials" in before.stdout
    assert "learned from" in after.stdout


def test_a_version_may_be_a_commit_and_a_resume_keeps_to_it_after_the_branch_has_moved(tmp_path: Path) -> None:
    root = _version(tmp_path, "v1", 12)
    file = _tasks(tmp_path, 4)
    _commit(tmp_path, "init", "-q")
    _commit(tmp_path, "add", "skills")
    _commit(tmp_path, "commit", "-qm", "first")
    program = (root / "skill.py").read_text()
    (root / "skill.py").write_text(program.replace('"12"', '"0"'))
    arms = ("--arm", "old=skill:git:HEAD", "--arm", "new=skill:skills/v1")

    first = whet(tmp_path, "eval", "--skills", "skills/v1", *arms, "--tasks", file)
    _commit(tmp_path, "commit", "-qam", "second")
    longer = whet(tmp_path, "eval", "--resume", "latest", "--add-trials", "1")

    assert first.returncode == 0, first.stderr
    assert longer.returncode == 0, longer.stderr
    old, new = reports(tmp_path)
    assert (old["summary"]["completionRate"], new["summary"]["completionRate"]) == (1.0, 0.0)
    assert len(old["taskResults"]) == 8
    assert list(_newest(tmp_path, "run.json")["commits"]) == ["old"]


@pytest.mark.parametrize(
    ("arm", "told"),
    [
        ("x=model:large", "arm x: a callable skill has no model that whet could change"),
        ("x=prompt:p.md", "arm x: a callable skill has no prompt that whet could change"),
        ("x=skill:none", "arm x: without a skill there is nothing to call"),
        ("x=runner:other", 'arm x: no skill is called "other"'),
        ("x=skill:skills", "arm x: {root}/skills holds 2 skills"),
        ("x=skill:nowhere", "nowhere: there is no such file or folder"),
        ("x=skill:git:HEAD", "arm x: git:HEAD needs to know which skill"),
        ("x", 'no arm is called "x"'),
        ("x=tone:loud", '"tone" is not a key of an arm'),
    ],
)
def test_what_an_arm_of_an_evaluation_cannot_be_is_one_clear_error(tmp_path: Path, arm: str, told: str) -> None:
    skill(tmp_path, "one")
    skill(tmp_path, "two")

    ended = whet(tmp_path, "eval", "--skills", "skills", "--arm", arm, "--tasks", _tasks(tmp_path))

    assert ended.returncode == 2, ended.stdout
    assert told.replace("{root}", str(tmp_path)) in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / ".whet/runs").exists()


def test_a_variable_for_an_endpoint_is_refused_because_it_would_change_nothing(tmp_path: Path) -> None:
    with endpoint() as url:
        skill(tmp_path, manifest={"adapterType": "http", "entrypoint": url})
        arms = ("--arm", "a=env:X=1", "--arm", "b=env:X=2")
        ended = whet(tmp_path, "eval", "--skills", "skills", *arms, "--tasks", _tasks(tmp_path))

    assert ended.returncode == 2
    assert "arm a: env has no effect on echo, which is called by HTTP" in ended.stderr


def test_selecting_from_reports_of_several_arms_asks_for_one(tmp_path: Path) -> None:
    _version(tmp_path, "v1", 2)
    _version(tmp_path, "v2", 4)
    whet(tmp_path, "eval", *ARMS, "--tasks", _tasks(tmp_path))
    (file,) = (tmp_path / "reports").glob("*.json")

    ended = whet(tmp_path, "select", "--from", "skills/v2", "--reports", str(file))

    assert ended.returncode == 2
    assert "has a report for each of several arms" in ended.stderr


def test_what_failed_last_time_is_called_again_in_every_arm(tmp_path: Path) -> None:
    _version(tmp_path, "v1", 12)
    _version(tmp_path, "v2", 9)
    file = _tasks(tmp_path)
    whet(tmp_path, "eval", *ARMS, "--tasks", file)

    ended = whet(tmp_path, "eval", "--tasks", file, *ARMS, "--last-failed")

    assert ended.returncode == 0, ended.stderr
    called = [(report["arm"], [call["taskId"] for call in report["taskResults"]]) for report in reports(tmp_path)]
    assert called == [("old", ["t9", "t10", "t11"]), ("new", ["t9", "t10", "t11"])]


def test_a_comparison_of_scores_between_0_and_1_does_not_call_them_rates(tmp_path: Path) -> None:
    _version(tmp_path, "v1", 0)
    _version(tmp_path, "v2", 12)
    expected = {"type": "contains", "keywords": ["yes", "indeed"]}
    given = {"say": "yes", "number": 1}
    listed = [{"id": f"t{number}", "inputData": given, "expectedOutput": expected} for number in range(4)]
    whet(tmp_path, "eval", *ARMS, "--tasks", tasks(tmp_path, *listed))

    compared = whet(tmp_path, "compare")

    assert "  mean score  old 0.00 (0.00 to 0." in compared.stdout
    assert "; new 0.50 (0." in compared.stdout
    assert re.search(r"^    t0 +0\.00 +0\.50 +\+50 ", compared.stdout, re.MULTILINE)
    assert "rates" not in compared.stdout

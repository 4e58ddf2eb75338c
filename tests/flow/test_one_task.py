"""`whet task` and `whet eval --all`: a task without a file, and every skill there is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from evaluating import PROGRAM, reports, skill, task, tasks, whet


@pytest.mark.parametrize(
    ("expected", "code"),
    [
        (["--exact", '"yes"'], 0),
        (["--exact", '"no"'], 1),
        (["--contains", "YE", "--contains", "s"], 0),
        (["--regex", "^y", "--regex", "x"], 1),
        (["--schema", '{"required": ["result"]}'], 0),
        (["--custom", "own.py:grade"], 0),
    ],
)
def test_one_task_is_called_and_evaluated_as_its_options_say(tmp_path: Path, expected: list[str], code: int) -> None:
    skill(tmp_path)
    (tmp_path / "own.py").write_text("def grade(output):\n    return output == {'result': 'yes'}\n")

    ended = whet(tmp_path, "task", "--skill", "skills/echo", "--input", '{"say": "yes"}', *expected)

    assert ended.returncode == code, ended.stdout + ended.stderr
    assert '{"say": "yes"} gives {"result": "yes"}' in ended.stdout
    assert "--last-failed" not in ended.stdout
    assert not (tmp_path / "reports").exists()


def test_a_task_is_recorded_like_any_run_and_can_be_resumed_from_elsewhere(tmp_path: Path) -> None:
    skill(tmp_path)
    (tmp_path / "else").mkdir()
    whet(tmp_path, "task", "--skill", "skills/echo", "--input", '{"say": 1}', "--exact", "1", "--runs", "2")
    run = os.path.realpath(tmp_path / ".whet" / "runs" / "latest")

    verified = whet(tmp_path, "verify", run)
    resumed = whet(tmp_path / "else", "eval", "--resume", run)

    results = json.loads((Path(run) / "results.json").read_text())
    assert results["counts"]["passed"] == 2
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--input", "{}"], "use one of --exact, --contains, --regex, --schema, --judge, --custom"),
        (["--input", "{}", "--exact", "1", "--regex", "1"], "--exact and --regex cannot be used together"),
        (["--input", "{", "--exact", "1"], "--input"),
        (["--input", "[1]", "--exact", "1"], "inputData: must be an object, not [1]"),
        (["--input", "{}", "--exact", "yes"], "put a text in double quotes"),
        (["--input", "{}", "--regex", "("], "is not a regular expression"),
        (["--input", "{}", "--schema", '{"type": "nothing"}'], "is not a JSON Schema"),
        (["--input", "{}", "--custom", "missing.py:grade"], "there is no file"),
        (["--input", "{}", "--judge", "Is it polite?"], "key"),
    ],
)
def test_a_task_that_cannot_be_evaluated_is_refused_before_it_is_called(
    tmp_path: Path, options: list[str], said: str
) -> None:
    skill(tmp_path, passEnv=["LOG"])

    ended = whet(tmp_path, "task", "--skill", "skills/echo", *options, LOG=str(tmp_path / "log"), OPENAI_API_KEY="")

    assert ended.returncode == 2, ended.stdout
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "log").exists()


def test_all_is_every_skill_of_the_usual_folder(tmp_path: Path) -> None:
    skill(tmp_path, "one")
    skill(tmp_path, "two", PROGRAM)

    ended = whet(tmp_path, "eval", "--all", "--tasks", tasks(tmp_path, task("a", {"say": "yes"})))

    assert ended.returncode == 0, ended.stderr
    assert {report["skillId"] for report in reports(tmp_path)} == {"one", "two"}


def test_all_takes_no_other_skills_and_needs_a_folder(tmp_path: Path) -> None:
    nothing = whet(tmp_path, "eval", "--all")
    skill(tmp_path)

    both = whet(tmp_path, "eval", "--all", "--skill", "skills/echo")

    assert (nothing.returncode, both.returncode) == (2, 2)
    assert "skills: there is no such file or folder" in nothing.stderr
    assert "--all is every skill" in both.stderr

"""The published schema of results.json holds for what real runs write, and for nothing else."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from whet_process import type_whet

_WHET = str(Path(sys.executable).with_name("whet"))
_SUITE = """
import os
from whet import Case, FailureClass

def holds(session):
    print("seen by whoever looks")
    assert session.final_output == "done", "not done"

def crashes(session):
    raise KeyError("nothing here")

def exits(session):
    os._exit(1)

suite = [
    Case(id="passes", prompt="p", check=holds, tags=["good", "smoke"]),
    Case(id="fails", prompt="p", check=holds, classify_failure=lambda result: FailureClass(id="mine")),
    Case(id="is-expected-to-fail", prompt="p", check=holds, expected_fail=True),
    Case(id="is-not-expected-to-pass", prompt="p", check=holds, expected_fail=True),
    Case(id="crashes", prompt="p", check=holds),
    Case(id="check-crashes", prompt="p", check=crashes),
    Case(id="errors", prompt="p", check=exits),
    Case(id="is-flaky", prompt="p", check=holds),
    Case(id="is-badly-classified", prompt="p", check=holds, classify_failure=lambda result: 1 / 0),
]
"""
_DONE = '[[steps]]\nusage = {input_tokens = 3, cost_usd = 0.25}\n[[steps]]\nanswer = "done"\n'
_NOT_DONE = '[[steps]]\nwrite = "a.txt"\ntext = "a"\n[[steps]]\nanswer = "no"\n'
# The first attempt leaves a mark outside of its workspace, which the second one finds.
_FLAKY = '[[steps]]\nrun = "test -e {mark} || {{ touch {mark}; kill $PPID; }}"\n[[steps]]\nanswer = "done"\n'


def _project(folder: Path) -> Path:
    scripts = {
        "passes": _DONE,
        "fails": _NOT_DONE,
        "is-expected-to-fail": _NOT_DONE,
        "is-not-expected-to-pass": _DONE,
        "crashes": "[[steps]]\nexit = 3\n",
        "check-crashes": _DONE,
        "errors": _DONE,
        "is-flaky": _FLAKY.format(mark=folder / "mark"),
        "is-badly-classified": _NOT_DONE,
        "waits": "[[steps]]\nwait_s = 60\n",
    }
    (folder / "scripts").mkdir()
    for name, text in scripts.items():
        (folder / "scripts" / f"{name}.toml").write_text(text)
    (folder / "suite.py").write_text(_SUITE)
    (folder / "whet.toml").write_text('[runners.demo.agent]\ntype = "scripted"\nmodel = "m"\nscript = "scripts"\n')
    return folder


def _schema() -> Any:
    return json.loads(type_whet("schema", "results").stdout)


def _validated(folder: Path) -> Any:
    results = json.loads((folder / ".whet/runs/latest/results.json").read_text())
    validator = jsonschema.Draft202012Validator(_schema())
    assert [error.message for error in validator.iter_errors(results)] == []
    return results


def _run(folder: Path, *options: str) -> int:
    return type_whet("run", "suite.py", "--sandbox", "local", *options, cwd=folder).returncode


def test_the_schema_is_a_schema() -> None:
    schema = _schema()

    jsonschema.Draft202012Validator.check_schema(schema)

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_schema_that_we_ship_is_the_one_of_the_classes_that_write_results() -> None:
    script = Path(__file__).parents[2] / "bench/schemas.py"

    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stderr) == (0, "")


def test_every_kind_of_verdict_and_failure_is_described_by_the_schema(tmp_path: Path) -> None:
    folder = _project(tmp_path)

    code = _run(folder, "--retries", "1")

    results = _validated(folder)
    trials = {case["id"]: case["executions"][0]["trials"][0] for case in results["cases"]}
    assert code == 1
    assert {name: trial["status"] for name, trial in trials.items()} == {
        "passes": "passed",
        "fails": "failed",
        "is-expected-to-fail": "expected-failed",
        "is-not-expected-to-pass": "unexpected-passed",
        "crashes": "failed",
        "check-crashes": "failed",
        "errors": "errored",
        "is-flaky": "passed",
        "is-badly-classified": "failed",
    }
    assert trials["is-flaky"]["flaky"]
    assert len(trials["fails"]["attempts"]) == 2
    assert trials["fails"]["failure_class"] == {"id": "mine", "label": None}
    assert trials["is-badly-classified"]["notes"]
    assert trials["passes"]["cost_usd"] == 0.25


def test_several_trials_and_runners_are_described_by_the_schema(tmp_path: Path) -> None:
    folder = _project(tmp_path)
    with (folder / "whet.toml").open("a") as file:
        file.write('\n[runners.missing.agent]\ntype = "command"\ncommand = "./cannot-start"\n')
    (folder / "cannot-start").write_text("#!/no-such-program\n")
    (folder / "cannot-start").chmod(0o755)

    code = _run(folder, "--trials", "2", "--case", "passes")

    results = _validated(folder)
    assert code == 3
    assert [len(each["trials"]) for each in results["cases"][0]["executions"]] == [2, 2]
    assert results["cases"][0]["executions"][1]["rate"] is None


def test_an_interrupted_run_is_described_by_the_schema(tmp_path: Path) -> None:
    folder = _project(tmp_path)
    with (folder / "suite.py").open("a") as file:
        file.write('\nsuite.append(Case(id="waits", prompt="p", check=holds))\n')

    process = subprocess.Popen(
        [_WHET, "run", "suite.py", "--sandbox", "local", "--schedule", "serial", "--case", "passes,waits"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait_for((folder / ".whet/runs/latest/trials/waits").exists)
        process.send_signal(signal.SIGINT)
        code = process.wait(300)
    finally:
        process.kill()
        process.wait()

    results = _validated(folder)
    assert code == 130
    assert results["interrupted"]
    assert results["counts"]["not_run"] == 1
    assert [case["executions"][0]["status"] for case in results["cases"]] == ["passed", "not-run"]


@pytest.mark.parametrize("place", ["run", "case", "execution", "trial", "attempt", "failure", "grade", "usage"])
def test_a_field_that_the_schema_does_not_know_is_refused(place: str) -> None:
    schema = _schema()

    closed = schema["$defs"][place]

    assert closed["additionalProperties"] is False
    assert sorted(closed["required"]) == sorted(closed["properties"])


def test_every_field_has_a_description() -> None:
    definitions = _schema()["$defs"]

    bare = [
        f"{name}.{field}"
        for name, definition in definitions.items()
        for field, described in definition.get("properties", {}).items()
        if "description" not in described and "description" not in definitions.get(field, {})
    ]

    assert bare == []


def _wait_for(happened: Any, patience_s: float = 30.0) -> None:
    deadline = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)

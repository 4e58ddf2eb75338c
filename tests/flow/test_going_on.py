"""The commands that a run prints to go on with: they ask for the same, whatever was typed."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import json
import shlex
import signal
from typing import Any

import click
import pytest
from benching import case, write
from project import EVENTS, SHELL, Outcome, Project, wait_for

from whet.cli.callable import NOT_RECORDED, eval_command
from whet.cli.common import SELECTING
from whet.cli.grammar.options import select_words
from whet.cli.run import bench_command, run_command


def printed(ended: Outcome, option: str) -> list[str]:
    """The words of the printed command that has this option."""
    line = next(line for line in ended.stdout.splitlines() if option in line and ": whet " in line)
    return shlex.split(line.partition(": whet ")[2])


def asked(ended: Outcome) -> dict[str, Any]:
    """What the newest run was asked, but for what selects."""
    facts = json.loads((ended.folder / "run.json").read_bytes())
    same = ("flags", "model", "fail_fast", "strict", "in_place", "config_file", "skill", "fingerprint")
    return {name: facts[name] for name in same}


def test_the_printed_last_failed_command_plans_the_same(project: Project) -> None:
    project.settings(SHELL, name="other.toml")
    project.suite('suite = [Case(id="a b", prompt="exit 1", check=ok, tags=["t"])]')
    first = project.run(
        "--config=other.toml", "--case", "a b", "--tag=t", "--runner", "sh", "--model", "m 1", "--trials", "2", "--retries", "1",
        "--timeout-ms", "9000", "--max-steps=7", "--sandbox", "local", "--max-cost", "3", "--schedule", "serial",
    )  # fmt: skip

    before = asked(first)

    again = project.whet(*printed(first, "--last-failed"))

    assert first.code == again.code == 1, again.stderr
    assert before["model"] == "m 1"
    assert len(before["flags"]) == 7
    assert asked(again) == before


def test_the_printed_last_failed_command_of_a_bench_suite_plans_the_same(bench: Project) -> None:
    bench.settings(EVENTS)
    write(bench, case("bad", "true"), case("good", "touch made"))
    first = bench.whet(
        "bench", "bench/suite.json", "--model", "m", "--runs", "2", "--timeout", "9", "--budget", "3", "--sandbox", "local",
        "--concurrent", "2", "--fail-fast", "--case", "bad,good",
    )  # fmt: skip
    before = asked(first)

    again = bench.whet(*printed(first, "--last-failed"))

    assert again.code == 1, again.stderr
    # One case is left, and it is planned as it was.
    assert {**asked(again), "fingerprint": None} == {**before, "fingerprint": None}
    assert before["fail_fast"]
    assert [line["key"]["case"] for line in bench.journal()] == ["bad", "bad"]


def test_a_run_that_was_resumed_prints_what_was_typed_the_first_time(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="bad", prompt="exit 1", check=ok),
                 Case(id="slow", prompt=": > {outside}/begun; test -e {outside}/go || sleep 60", check=ok)]
    """)
    running = project.start("suite.py", "--model", "m", "--schedule", "serial", "--timeout-ms", "50000", "--verbose")
    wait_for(project.outside / "begun")
    running.send_signal(signal.SIGINT)
    stopped = project.outcome(running)
    (project.outside / "go").touch()

    resume = printed(stopped, "--resume")
    resumed = project.whet(*resume)

    assert resume[:3] == ["run", "--verbose", "--resume"]
    assert printed(resumed, "--last-failed") == [
        "run", "suite.py", "--model", "m", "--schedule", "serial", "--timeout-ms", "50000", "--verbose", "--last-failed",
    ]  # fmt: skip


def test_a_run_that_was_resumed_from_another_folder_prints_paths_that_lead_from_there(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="bad", prompt="exit 1", check=ok)]')
    first = project.run("--verbose")

    resumed = project.whet("run", "--resume", str(first.folder), cwd=project.outside)
    again = project.whet(*printed(resumed, "--last-failed"), cwd=project.outside)

    assert str(project.root / "suite.py") in printed(resumed, "--last-failed")
    assert again.code == 1, again.stderr


def test_what_is_made_of_an_evaluation_is_told_to_its_resume_again(project: Project) -> None:
    del project
    words = ["--skills", "a", "b", "--runs=2", "--format", "json", "--min-completion=0.5", "--k", "2", "--verbose"]

    kept = list(select_words(words, eval_command, lambda name: name in NOT_RECORDED, with_arguments=False))

    assert kept == ["--format", "json", "--min-completion=0.5", "--k", "2", "--verbose"]


@pytest.mark.parametrize("command", [run_command, bench_command, eval_command])
def test_every_option_that_is_taken_away_is_one_of_some_command(command: click.Command) -> None:
    words = ["suite", "--last-failed", "--case", "x", "--case=y", "--", "--case"]

    kept = list(select_words(words, command, lambda name: name not in SELECTING, with_arguments=True))

    assert kept == ["suite", "--", "--case"]


def test_of_two_runs_in_place_in_one_project_the_second_is_refused(bench: Project) -> None:
    bench.settings(EVENTS + '[snapshots]\nmetric = "duration_s"\n[snapshots.tolerance]\npercent = 5\n')
    write(bench, case("waits", "touch begun; while [ ! -e {outside}/go ]; do sleep 0.02; done; touch made"))
    first = bench.start("bench/suite.json", "--in-place", command="bench")
    wait_for(bench.root / "begun")
    runs = sorted(bench.output_dir.iterdir())

    second = bench.whet("bench", "bench/suite.json", "--in-place")
    untouched = sorted(bench.output_dir.iterdir()) == runs
    (bench.outside / "go").touch()
    ended = bench.outcome(first, within_s=60)
    third = bench.whet("bench", "bench/suite.json", "--in-place")

    assert second.code == 2
    assert f"{bench.root} is in use by another whet" in second.stderr
    assert "works in place there" in second.stderr
    assert untouched
    assert ended.code == 0, ended.stdout + ended.stderr
    # It is let go of: what is wrong with the third is its own file, which is there already.
    assert "in use" not in third.stderr

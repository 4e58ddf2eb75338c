"""Agents that would rather not do what a bench suite asks of them."""

from __future__ import annotations

import pytest
from benching import by_id, case, run, write
from project import Project

LONG = "d" * 30
DEEP = f"cd test; for i in $(seq 200); do mkdir {LONG}; cd {LONG}; done; true"
AGAIN = "while :; do echo exit 0 > test/t.sh; done"
DAEMON = f"(MINE={{token}} setsid sh -c '{AGAIN}' </dev/null >/dev/null 2>&1 &); sleep 0.1"


@pytest.fixture
def guarded(bench: Project, sandbox_name: str) -> Project:
    """A project with a test that fails, and that no agent may change; in each sandbox."""
    bench.sandbox = sandbox_name
    bench.write("test/t.sh", "echo wrong answer >&2; exit 1\n")
    return bench


@pytest.mark.parametrize(
    "cheat",
    [
        pytest.param(DAEMON, id="daemon"),
        pytest.param("rm test/t.sh; mkfifo test/t.sh", id="fifo"),
        pytest.param("mv test t2; echo exit 0 > t2/t.sh; ln -s t2 test", id="folder moved behind a link"),
        pytest.param("chmod 000 test; chmod 555 .", id="modes"),
        pytest.param("touch \"$(printf 'test/\\377')\"; echo exit 0 > test/t.sh", id="name that is no text"),
        pytest.param("git init -q .; git config core.fsmonitor 'echo exit 0 > test/t.sh; true'", id="git"),
    ],
)
def test_no_way_around_protected_files_lets_a_case_pass(guarded: Project, cheat: str) -> None:
    write(guarded, case("cheats", cheat, "test:sh test/t.sh"), protect=["test/**"])

    ended, results = run(guarded)

    cheats = by_id(results)["cheats"]
    assert (ended.code, cheats["status"]) == (1, "failed")
    assert "wrong answer" in cheats["expectations"][0]["reason"]
    assert guarded.left_after_a_while() == []


def test_an_agent_that_keeps_protected_files_from_being_put_back_has_failed(guarded: Project) -> None:
    write(guarded, case("digs", DEEP, "test:true"), protect=["test/**"])

    ended, results = run(guarded)

    digs = by_id(results)["digs"]
    assert (ended.code, digs["status"]) == (1, "failed")
    assert "protected files could not be put back" in digs["expectations"][0]["reason"]
    assert len(digs["expectations"][0]["reason"]) < 1000


def test_the_terminal_tells_all_that_does_not_hold_and_what_the_command_said(bench: Project) -> None:
    bench.write("test/t.sh", "echo wrong answer; exit 1\n")
    write(bench, case("bad", "echo exit 0 > test/t.sh", "test:sh test/t.sh", "file:made created"), protect=["test"])

    ended, _ = run(bench)

    told = [line.removeprefix("      │ ") for line in ended.stdout.splitlines() if line.startswith("      │ ")]
    assert told == [
        "test:sh test/t.sh: the command ended with exit code 1; protected files were put back (test/t.sh)",
        "  wrong answer",
        "file:made created: made was not found",
    ]


def test_what_agents_did_before_is_no_part_of_a_workspace_wherever_this_run_is_recorded(guarded: Project) -> None:
    write(guarded, case("a", "find . | grep -c solution; touch solution", "test:false"))
    run(guarded)

    run(guarded, "--output-dir", str(guarded.outside / "runs"))

    answer = next(guarded.outside.glob("runs/latest/trials/a/sh/default/1/1/transcript.*")).read_text()
    seen = guarded.root / ".whet" / "runs" / "latest" / "workspaces" / "a" / "sh" / "default" / "1" / "1" / "solution"
    assert (seen.exists(), answer.strip()) == (True, "0")


def test_a_record_is_not_committed_by_mistake(bench: Project) -> None:
    write(bench, case("a", "touch made"))

    run(bench)

    assert (bench.root / ".whet" / ".gitignore").read_text() == "*\n"

"""The setup of a single case: run before its agent, in its own workspace, and no doing of the agent."""

from __future__ import annotations

import json
import signal

from benching import by_id, case, run, write
from project import Project, wait_for


def test_a_case_is_set_up_before_its_agent_and_that_is_not_the_agents_change(bench: Project) -> None:
    write(
        bench,
        case("set-up", "test -e ready && echo x > made", setup="echo x > ready; echo 2 >> README.md"),
        case("not", "test ! -e ready && echo x > made"),
    )

    ended, results = run(bench)

    assert ended.code == 0, (ended.stderr, results)
    recorded = json.loads(ended.artifact("set-up", "changes.json").read_bytes())
    assert (recorded["created"], recorded["modified"]) == (["made"], [])


def test_a_case_whose_setup_fails_is_errored_and_its_agent_not_started(bench: Project) -> None:
    write(
        bench,
        case("broken", "touch {outside}/asked", setup=["echo x > ready", "echo why >&2; exit 4", "touch {outside}/on"]),
        case("fine", "touch made"),
    )

    ended, results = run(bench)

    assert ended.code == 3, ended.stderr
    assert "exit code 4" in str(by_id(results)["broken"])
    assert by_id(results)["fine"]["status"] == "passed"
    assert not (bench.outside / "asked").exists()
    assert not (bench.outside / "on").exists()
    assert bench.left() == []


def test_what_a_failed_setup_leaves_is_cleared_away_before_the_next_case(bench: Project) -> None:
    write(bench, case("broken", "true", setup="echo x > ready; exit 4"), case("looks", "ls .. > made"))

    ended, _ = run(bench, "--concurrent", "1")

    assert ended.statuses == {"broken": "errored", "looks": "passed"}
    beside = ended.artifact("looks", "diff.patch").read_text()
    assert "+w2" in beside
    assert not {"+w1", "+w1.d", "+h1", "+t1"} & set(beside.splitlines())


def test_nothing_is_left_of_a_case_whose_setup_a_signal_ended(bench: Project) -> None:
    temporary = bench.outside / "tmp"
    temporary.mkdir()
    write(bench, case("slow", "touch made", setup="echo x > ready; touch {outside}/begun; MINE={token} sleep 600"))
    running = bench.start("bench/suite.json", command="bench", env={"TMPDIR": str(temporary)})
    wait_for(bench.outside / "begun")

    running.send_signal(signal.SIGTERM)
    done = bench.outcome(running)

    assert done.code == 130, done.stderr
    assert list(temporary.iterdir()) == []
    assert bench.left_after_a_while() == []

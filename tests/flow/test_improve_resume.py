"""Improve runs that are killed, interrupted or out of money go on, pay for no trial twice, and decide the same."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
from improving import Hotel
from project import PATIENCE_S, Project

from whet.errors import StoreError
from whet.record.improve.document import Phase

AT_ONCE = 2
PROPOSED = ("greet", "--runner", "sh", "--proposer", "writer", "--candidates", "3", "--seed", "1")
USUAL = ("--max-parallel", str(AT_ONCE), "--max-cost", "9")
# The run of each phase that has one; the others are over before anybody could end them.
RUNS: dict[Phase, str] = {"eval_current": "baseline", "racing": "round-1-race-2", "confirming": "round-1-confirm"}


@pytest.fixture
def hotel(project: Project) -> Hotel:
    made = Hotel(project)
    made.open(pause=0.05)
    return made


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def _is_in(hotel: Hotel, phase: Phase) -> bool:
    """Return whether the newest run is in *phase*, and has recorded some trials of it if it has any."""
    try:
        document = hotel.document
    except (IndexError, StoreError):
        return False
    if document.phase != phase:
        return False
    if phase not in RUNS:
        return phase != "generating" or (hotel.folder.path / "proposals" / "1").is_dir()
    run = hotel.folder.run_of(RUNS[phase])
    return (
        run is not None and (run / "journal.jsonl").exists() and (run / "journal.jsonl").read_bytes().count(b"\n") > 2
    )


def _end_in(hotel: Hotel, phase: Phase, signal_number: signal.Signals, words: tuple[str, ...] | None = None) -> int:
    """Begin a run and end it in *phase*; return its exit code."""
    process = hotel.project.start(*(words or hotel.words()[1:]), *USUAL, command="improve")
    _wait(lambda: _is_in(hotel, phase) or process.poll() is not None)
    process.send_signal(signal_number)
    process.communicate(timeout=PATIENCE_S)
    assert hotel.project.left_after_a_while() == []
    return process.returncode


# What the loop decides if nothing disturbs it.
EXPECTED_CONFIRM = (1, "better", 0.5, 48, 1)


def _go_on_after(hotel: Hotel, phase: Phase, words: tuple[str, ...]) -> None:
    """Kill a run in *phase*, go on with it, and look whether it is what it would have been."""
    _end_in(hotel, phase, signal.SIGKILL, words)
    before = hotel.trials()

    done = hotel.project.whet("improve", "--resume", "latest")

    assert done.code == 0, done.stdout + done.stderr
    assert len(hotel.folders) == 1
    document, after = hotel.document, hotel.trials()
    [record] = document.rounds
    confirm = record.confirm
    assert confirm is not None
    assert (document.outcome, record.step) == ("succeeded", confirm.step)
    decision = (confirm.step, confirm.verdict, confirm.difference, confirm.trials, confirm.looks)
    assert decision == EXPECTED_CONFIRM
    assert "welcome each guest" in (hotel.folder.candidate(str(record.accepted)) / "SKILL.md").read_text()
    assert set(hotel.lock["confirms"].values()) == {1}
    # Every trial has one line, and those of before are among them.
    assert len(set(after)) == len(after)
    assert set(before) <= set(after)
    assert sum(step.trials for step in document.steps if step.phase != "generating") == len(after)
    assert hotel.project.whet("verify", hotel.folder.id).code == 0


@pytest.mark.parametrize("phase", ["ready", "racing", "confirming"])
def test_a_run_that_is_killed_goes_on_and_pays_for_no_trial_twice(hotel: Hotel, phase: Phase) -> None:
    _go_on_after(hotel, phase, hotel.words()[1:])

    # Sessions that were under way at the kill have begun again.
    assert hotel.sessions - len(hotel.trials()) <= AT_ONCE


@pytest.mark.bubblewrap
@pytest.mark.parametrize("phase", ["eval_current", "generating", "racing"])
def test_a_run_with_a_proposer_that_is_killed_goes_on(hotel: Hotel, phase: Phase) -> None:
    hotel.project.sandbox = "bubblewrap"

    _go_on_after(hotel, phase, PROPOSED)

    document = hotel.document
    proposals = [candidate.cost_usd or 0.0 for candidate in document.rounds[0].candidates]
    assert document.cost_usd == pytest.approx(0.01 * len(hotel.trials()) + sum(proposals))


def test_a_signal_ends_a_run_in_peace_and_says_how_to_go_on(hotel: Hotel) -> None:
    code = _end_in(hotel, "racing", signal.SIGINT)

    interrupted = hotel.document
    done = hotel.project.whet("improve", "--resume", interrupted.id)

    assert code == 130
    assert interrupted.outcome == "interrupted"
    assert interrupted.hint == f"whet improve --resume {interrupted.id}"
    assert (done.code, hotel.document.outcome) == (0, "succeeded")


def test_half_of_the_money_stops_below_it_and_more_goes_on(project: Project) -> None:
    hotel = Hotel(project)
    hotel.open()
    whole = hotel.improve("--max-cost", "9", "--max-parallel", "1")
    needed = hotel.document.cost_usd
    hotel.project.write("versions/helps/SKILL.md", (project.root / "versions/helps/SKILL.md").read_text() + "So.\n")
    half = round(needed / 2, 2)

    poor = hotel.improve("--max-cost", str(half), "--max-parallel", "1")
    stopped = hotel.document
    trials = hotel.trials()
    richer = hotel.project.whet("improve", "--resume", stopped.id, "--max-cost", "9")

    assert whole.code == 0
    assert poor.code == 5, poor.stdout + poor.stderr
    assert 0 < stopped.cost_usd <= half
    assert stopped.outcome == "undecided"
    assert "--max-cost" in (stopped.hint or "")
    assert richer.code == 0, richer.stdout + richer.stderr
    assert hotel.document.outcome == "succeeded"
    assert set(trials) <= set(hotel.trials())
    assert len(set(hotel.trials())) == len(hotel.trials())


def test_a_run_that_has_ended_is_not_gone_on_with(hotel: Hotel) -> None:
    hotel.improve("--max-cost", "9", candidates=("harms",))

    again = hotel.project.whet("improve", "--resume", "latest")

    assert again.code == 2
    assert "has ended" in again.stderr


def test_two_do_not_work_on_one_run(hotel: Hotel) -> None:
    process = hotel.project.start(*hotel.words()[1:], *USUAL, command="improve")
    _wait(lambda: _is_in(hotel, "racing"))

    second = hotel.project.whet("improve", "--resume", "latest")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)

    assert second.code == 2
    assert "in use by another whet" in second.stderr


def test_a_skill_that_changes_meanwhile_is_neither_compared_nor_written_over(hotel: Hotel) -> None:
    _end_in(hotel, "racing", signal.SIGINT)
    hotel.project.write(
        "greet/SKILL.md", "---\nname: greet\ndescription: Another one.\n---\nPlease welcome each guest.\n"
    )

    done = hotel.project.whet("improve", "--resume", "latest", "--apply", "--force")

    assert done.code == 2
    assert "has changed since the run began" in done.stderr
    assert hotel.document.outcome == "succeeded"
    assert (hotel.folder.path / "accepted.patch").exists()
    assert (hotel.folder.path / "report.html").exists()
    assert "Another one" in (hotel.skill / "SKILL.md").read_text()


def test_cases_that_change_meanwhile_end_the_run(hotel: Hotel) -> None:
    _end_in(hotel, "racing", signal.SIGINT)
    hotel.write_suite(30)

    done = hotel.project.whet("improve", "--resume", "latest")

    assert done.code == 2
    assert "changed since" in done.stderr


def test_cases_that_change_between_two_phases_end_the_run_and_it_goes_on_once_they_are_as_before(hotel: Hotel) -> None:
    suite = hotel.skill / "evals" / "suite.json"
    text = suite.read_text()
    _end_in(hotel, "racing", signal.SIGINT)
    suite.write_text(text.replace("Greet ", "Please greet "))

    changed = hotel.project.whet("improve", "--resume", "latest")
    suite.write_text(text)
    restored = hotel.project.whet("improve", "--resume", "latest")

    assert changed.code == 2
    assert "the cases of greet have changed since the improve run began" in changed.stderr
    assert restored.code == 0, restored.stderr
    assert hotel.document.outcome == "succeeded"

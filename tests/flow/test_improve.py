"""`whet improve` by the real command: whole loops whose decision is known, over versions that people wrote."""

from __future__ import annotations

import json
import subprocess

import jsonschema
import pytest
from improving import SKILL, Hotel
from project import Project

PROPOSED = ("improve", "greet", "--runner", "sh", "--proposer", "writer", "--candidates", "3")


@pytest.fixture
def hotel(project: Project) -> Hotel:
    """A skill, its cases and its versions."""
    made = Hotel(project)
    made.open()
    return made


def _git(hotel: Hotel, *words: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    subprocess.run(command, cwd=hotel.project.root, check=True, capture_output=True)


def test_a_version_that_helps_is_accepted_and_nothing_is_written_into_the_skill(hotel: Hotel) -> None:
    done = hotel.improve("--max-cost", "9")

    document = hotel.document
    [last] = document.rounds
    assert done.code == 0, done.stdout + done.stderr
    assert (document.outcome, last.accepted) == ("succeeded", "r1c1")
    assert {candidate.id: candidate.fate for candidate in last.candidates} == {
        "r1c1": "accepted",
        "r1c2": "raced",
        "r1c3": "raced",
    }
    assert last.confirm is not None
    assert last.confirm.verdict == "better"
    assert {case.case for case in last.confirm.cases} == set(document.split.held_out if document.split else ())
    assert (hotel.skill / "SKILL.md").read_text() == SKILL
    assert "+Please welcome each guest." in (hotel.folder.path / "accepted.patch").read_text()
    assert "r1c1" in (hotel.folder.path / "report.md").read_text()
    assert "r1c1 is accepted" in done.stdout


def test_what_it_cost_is_the_sum_of_all_sessions_and_of_its_steps(hotel: Hotel) -> None:
    hotel.improve("--max-cost", "9")

    document = hotel.document
    trials = sum(step.trials for step in document.steps)
    assert document.cost_usd == pytest.approx(0.01 * trials)
    assert hotel.sessions == trials == len(hotel.trials())


def test_the_patch_makes_the_skill_what_was_accepted(hotel: Hotel) -> None:
    hotel.improve("--max-cost", "9")

    patch = hotel.folder.path / "accepted.patch"
    subprocess.run(["git", "apply", str(patch)], cwd=hotel.skill, check=True)

    assert (hotel.skill / "SKILL.md").read_text() == (hotel.project.root / "versions/helps/SKILL.md").read_text()


def test_versions_that_do_not_help_are_no_winners(hotel: Hotel) -> None:
    done = hotel.improve("--max-cost", "9", candidates=("harms", "longer"))
    strict = hotel.improve("--max-cost", "9", "--fail-without-winner", candidates=("harms", "longer"))

    assert (done.code, strict.code) == (0, 1)
    assert hotel.document.outcome == "no_winner"
    assert hotel.document.rounds[0].confirm is None


def test_an_accepted_version_is_written_into_a_clean_skill_with_apply(hotel: Hotel) -> None:
    _git(hotel, "init", "-q")
    _git(hotel, "add", "greet")
    _git(hotel, "commit", "-q", "-m", "first")

    done = hotel.improve("--max-cost", "9", "--apply")

    assert done.code == 0, done.stderr
    assert (hotel.skill / "SKILL.md").read_text().endswith("Please welcome each guest.\n")
    assert (hotel.skill / "evals" / "suite.json").exists()


@pytest.mark.parametrize("is_repository", [True, False])
def test_apply_is_refused_before_anything_runs_if_a_change_could_be_lost(hotel: Hotel, is_repository: bool) -> None:
    if is_repository:
        _git(hotel, "init", "-q")
        _git(hotel, "add", "greet")
        _git(hotel, "commit", "-q", "-m", "first")
        hotel.project.write("greet/SKILL.md", SKILL + "A change that Git does not have.\n")

    done = hotel.improve("--max-cost", "9", "--apply")

    assert done.code == 2
    assert "--apply writes into" in done.stderr
    assert (hotel.folders, hotel.sessions) == ([], 0)


def test_a_second_run_on_the_same_cases_counts_on(hotel: Hotel) -> None:
    hotel.improve("--max-cost", "9")
    hotel.improve("--max-cost", "9")

    first, second = (folder.read().rounds[0] for folder in hotel.folders)
    assert (first.step, second.step) == (1, 2)
    assert first.error is not None
    assert second.error == pytest.approx(first.error / 4)
    assert set(hotel.lock["confirms"].values()) == {2}


def test_json_prints_the_document_that_its_schema_describes_and_nothing_else(hotel: Hotel) -> None:
    done = hotel.improve("--max-cost", "9", "--json")

    printed = json.loads(done.stdout)
    jsonschema.validate(printed, json.loads(hotel.project.whet("schema", "improve").stdout))
    assert printed == json.loads((hotel.folder.path / "improve.json").read_bytes())
    assert printed["schema"] == "whet/improve/1"


def test_verify_covers_the_document_the_versions_and_each_run(hotel: Hotel) -> None:
    hotel.improve("--max-cost", "9")
    folder = hotel.folder
    whole = hotel.project.whet("verify", str(folder.path))

    (folder.candidate("r1c2") / "SKILL.md").write_text("another text")
    changed = hotel.project.whet("verify", folder.id)

    assert whole.code == 0, whole.stdout
    assert changed.code == 1
    assert "candidate r1c2 has changed" in changed.stdout


def test_status_says_where_a_run_stands(hotel: Hotel) -> None:
    hotel.improve("--max-cost", "9")

    status = hotel.project.whet("improve", "status")
    printed = json.loads(hotel.project.whet("improve", "status", hotel.folder.id, "--json").stdout)

    assert "r1c1 is accepted" in status.stdout
    assert printed["id"] == hotel.folder.id


def test_split_shows_the_parts_and_writes_them_only_when_asked(hotel: Hotel) -> None:
    lock = hotel.skill / "evals" / "split.lock.json"

    shown = hotel.project.whet("improve", "split", "greet")
    was_written = lock.exists()
    hotel.project.whet("improve", "split", "greet", "--write")

    assert "12 practice, 12 held-out" in shown.stdout
    assert not was_written
    assert lock.exists()


@pytest.mark.bubblewrap
def test_each_round_starts_from_what_the_last_one_accepted(hotel: Hotel) -> None:
    hotel.project.sandbox = "bubblewrap"

    done = hotel.project.whet(*PROPOSED, "--rounds", "2", "--max-cost", "20")

    assert done.code == 0, done.stdout + done.stderr
    first, second = hotel.document.rounds
    accepted = next(candidate for candidate in first.candidates if candidate.id == first.accepted)
    assert second.start == accepted.digest
    assert second.accepted is None
    assert hotel.document.outcome == "succeeded"
    # The patch is about the version that was accepted, and not about later tries.
    patch = (hotel.folder.path / "accepted.patch").read_text()
    assert "+Please welcome each guest." in patch
    assert "polite" not in patch
    assert hotel.project.whet("verify", hotel.folder.id).code == 0


@pytest.mark.bubblewrap
def test_a_baseline_that_was_measured_before_is_not_paid_again(hotel: Hotel) -> None:
    hotel.project.sandbox = "bubblewrap"
    hotel.project.whet(*PROPOSED, "--max-cost", "9")
    first = hotel.document

    done = hotel.project.whet(*PROPOSED, "--max-cost", "9")

    second = hotel.document
    [step] = [step for step in second.steps if step.phase == "eval_current"]
    assert done.code == 0, done.stdout + done.stderr
    assert (step.trials, step.cost_usd) == (0, None)
    assert second.baseline == first.baseline
    assert hotel.project.whet("verify", second.id).code == 0


@pytest.mark.bubblewrap
def test_proposing_only_runs_no_case_and_learns_from_earlier_runs(hotel: Hotel) -> None:
    hotel.project.sandbox = "bubblewrap"
    hotel.project.whet(*PROPOSED, "--max-cost", "9")

    done = hotel.project.whet(*PROPOSED[:-2], "--propose-only", "3", "--max-cost", "9")

    document = hotel.document
    assert done.code == 0, done.stdout + done.stderr
    assert document.outcome == "proposed"
    assert hotel.folder.run_folders() == ()
    texts = [(hotel.folder.candidate(f"r1c{number}") / "SKILL.md").read_text() for number in (1, 2, 3)]
    assert any("welcome each guest" in text for text in texts)
    assert "--candidate DIR" in (document.hint or "")


# Prints what Claude Code prints: for each guest an overloaded provider once, and then words.
CLAUDE = """#!/bin/sh
guest=$(cat)
guest=${{guest#Greet }}
echo '{{"type":"system","subtype":"init","session_id":"s-1","model":"m"}}'
if mkdir "{met}/$guest" 2> /dev/null; then
    echo '{{"type":"system","subtype":"api_retry","attempt":1,"error_status":529,"error":"overloaded"}}'
    exit 1
fi
echo '{{"type":"assistant","message":{{"id":"m-1","content":[{{"type":"text","text":"Hello, '"$guest"'"}}]}}}}'
echo '{{"type":"result","subtype":"success","is_error":false,"result":"Hello, '"$guest"'","session_id":"s-1"}}'
"""


def test_a_trial_that_errors_is_tried_once_more_and_one_that_fails_is_not(hotel: Hotel) -> None:
    met = hotel.project.outside / "met"
    met.mkdir()
    program = hotel.project.root / "mine"
    program.write_text(CLAUDE.format(met=met))
    program.chmod(0o755)
    hotel.project.settings('[runners.sh.agent]\ntype = "claude-code"\ncommand = "./mine"\n')

    done = hotel.improve("--max-cost", "9", candidates=("longer",))

    attempts = [
        json.loads(line)["attempts"]
        for run in hotel.folder.run_folders()
        for line in (run / "journal.jsonl").read_bytes().splitlines()
    ]
    assert done.code == 0, done.stdout + done.stderr
    # Each practice case met the overloaded provider once; all other trials have failed, at their first attempt.
    assert sorted(len(trial) for trial in attempts) == [1] * 60 + [2] * 12

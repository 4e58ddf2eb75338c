"""`whet improve` by the real command: whole loops whose decision is known, over versions that people wrote."""

from __future__ import annotations

import json
import subprocess

import jsonschema
import pytest
from improving import SKILL, Hotel
from project import Project


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

"""Running and deciding on one part of a suite: what is selected, what is recorded, and what a decision says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import SHELL, Project

PARTS = ("practice", "practice", "held-out", "held-out", None)
PROMPT = 'test "$NEW" && touch x'
ARMS = ("--arm", "old=env:NEW=", "--arm", "new=env:NEW=1", "--trials", "2")
ONE_CASE = json.dumps({"name": "b", "cases": [{"id": "a", "prompt": PROMPT, "expect": ["file:x exists"]}]})
NOTE = "practice: what was changed until they pass looks better on them than it is; decide on --split held-out"


@pytest.fixture
def split(project: Project) -> Project:
    """A project with a suite of two cases of practice, two that are held out, and a new one."""
    project.settings(SHELL)
    write_suite(project, PROMPT)
    return project


def write_suite(project: Project, prompt: str) -> None:
    cases: list[dict[str, Any]] = [
        {"id": f"c{number}", "prompt": prompt, "expect": ["file:x exists"], **({"split": part} if part else {})}
        for number, part in enumerate(PARTS)
    ]
    cases[0]["source"] = "bug"
    project.write("b.json", json.dumps({"name": "b", "cases": cases}))


@pytest.mark.parametrize(
    ("words", "cases"),
    [
        (("--split", "held-out"), ["c2", "c3"]),
        (("--split", "holdout"), ["c2", "c3"]),
        (("--split", "tune", "--split", "held-out"), ["c0", "c1", "c2", "c3"]),
        (("--split", "practice", "--case", "c1"), ["c1"]),
    ],
)
def test_a_run_of_a_part_has_its_cases_only(split: Project, words: tuple[str, ...], cases: list[str]) -> None:
    done = split.whet("run", "b.json", *words)

    assert [case["id"] for case in done.results["cases"]] == cases


def test_results_know_the_part_and_the_source_of_a_case(split: Project) -> None:
    done = split.whet("run", "b.json")

    cases = [(case["split"], case["source"], case["edited"]) for case in done.results["cases"]]
    assert cases == [(part, "bug" if number == 0 else None, False) for number, part in enumerate(PARTS)]
    assert split.whet("verify", "latest").code == 0
    assert done.asked["splits"] == {f"c{number}": part for number, part in enumerate(PARTS) if part}


def test_a_run_names_the_cases_without_a_part_and_a_dry_run_shows_the_parts(split: Project) -> None:
    document = json.loads(split.whet("run", "b.json", "--dry-run", "--json").stdout)
    done = split.whet("run", "b.json", "--dry-run")

    assert [execution["split"] for execution in document["executions"]] == list(PARTS)
    assert "no part yet, so --split leaves them out: c4; whet split draws it" in done.stderr
    assert "held-out, 1 trial" in done.stdout


def test_a_suite_without_parts_has_none_to_select(project: Project) -> None:
    project.settings(SHELL)
    project.write("b.json", ONE_CASE)

    for command in (("run", "b.json"), ("plan", "b.json")):
        done = project.whet(*command, "--split", "held-out")
        assert done.code == 2
        assert "nothing says which cases of b are held-out" in done.stderr
        assert "whet split b.json" in done.stderr


def test_an_unknown_part_is_refused_with_those_there_are(split: Project) -> None:
    done = split.whet("run", "b.json", "--split", "test")

    assert done.code == 2
    assert '"test" is none of practice, held-out, sealed' in done.stderr


def test_a_decision_on_practice_says_so_and_one_on_what_is_held_out_does_not(split: Project) -> None:
    split.whet("run", "b.json", *ARMS)

    every, practice, held_out = (
        (split.whet("compare", *words).stdout, json.loads(split.whet("compare", *words, "--json").stdout))
        for words in ((), ("--split", "practice"), ("--split", "held-out"))
    )

    assert f"2 of 4 cases are {NOTE}" in every[0]
    assert every[1]["splits"] == {"practice": 2, "held-out": 2}
    assert f"the cases are {NOTE}" in practice[0]
    assert practice[1]["splits"] == {"practice": 2}
    assert NOTE not in held_out[0]
    assert held_out[1]["splits"] == {"held-out": 2}
    assert [case["case"] for case in held_out[1]["cases"]] == ["c2", "c3"]


def test_the_summary_of_a_run_and_a_gate_say_that_the_cases_are_practice(split: Project) -> None:
    done = split.whet("run", "b.json", *ARMS, "--split", "practice")
    gate = split.whet("gate")
    document = json.loads(split.whet("gate", "--json").stdout)

    assert "; these are practice cases" in " ".join(done.stdout.split())
    assert f"the cases are {NOTE}" in " ".join(gate.stdout.split())
    assert document["comparison"]["splits"] == {"practice": 2}
    assert any(NOTE in note for note in document["notes"])


def test_a_rate_on_practice_says_so(split: Project) -> None:
    split.whet("run", "b.json")

    gate = split.whet("gate", "--min-rate", "10")
    of_held_out = split.whet("gate", "--min-rate", "10", "--split", "held-out")

    assert f"2 of 4 cases are {NOTE}" in gate.stdout
    assert NOTE not in of_held_out.stdout


def test_two_runs_are_compared_on_the_part_that_is_asked_for(split: Project) -> None:
    first = split.whet("run", "b.json").folder.name
    second = split.whet("run", "b.json").folder.name

    document = json.loads(split.whet("compare", first, second, "--split", "held-out", "--json").stdout)

    assert document["splits"] == {"held-out": 2}


def test_a_stored_baseline_knows_the_parts(split: Project) -> None:
    split.whet("run", "b.json")
    split.whet("baseline", "save", "now")
    split.whet("run", "b.json")

    gate = json.loads(split.whet("gate", "--baseline", "now", "--split", "held-out", "--json").stdout)

    assert gate["comparison"]["splits"] == {"held-out": 2}


def test_a_run_before_the_split_was_drawn_knows_no_parts(project: Project) -> None:
    project.settings(SHELL)
    project.write("b.json", ONE_CASE)
    project.whet("run", "b.json", *ARMS)

    done = project.whet("compare", "--split", "held-out")

    assert done.code == 2
    assert "its cases had no parts when it ran" in done.stderr


def test_what_was_edited_after_it_was_held_out_is_said_everywhere(split: Project) -> None:
    split.whet("split", "b.json")
    write_suite(split, f"{PROMPT} #")

    run = split.whet("run", "b.json", *ARMS)

    assert "edited since they were held out: c2, c3" in split.whet("split", "b.json").stdout
    assert "edited since they were held out: c2, c3" in run.stdout
    assert [case["id"] for case in run.results["cases"] if case["edited"]] == ["c2", "c3"] + (
        ["c4"] if run.results["cases"][4]["split"] == "held-out" else []
    )
    assert "edited since they were held out: c2, c3" in split.whet("compare").stdout


def test_a_plan_counts_the_cases_of_a_part_and_repeats_the_words(split: Project) -> None:
    done = split.whet("plan", "b.json", "--split", "held-out")
    document = json.loads(split.whet("plan", "b.json", "--split", "held-out", "--json").stdout)

    assert "in 2 held-out cases in 80 % of runs" in done.stdout
    assert "--split held-out" in done.stdout
    assert (document["cases"], document["splits"]) == (2, ["held-out"])


def test_a_history_says_of_which_parts_a_run_was(split: Project) -> None:
    split.whet("run", "b.json", "--split", "held-out")

    done = split.whet("history", "b.json")
    document = json.loads(split.whet("history", "b.json", "--json").stdout)

    assert "2 of 5 (held-out)" in done.stdout
    assert document["points"][0]["splits"] == {"held-out": 2}


def test_a_resumed_run_and_what_failed_last_keep_to_the_part(split: Project) -> None:
    split.whet("run", "b.json", "--split", "held-out")

    again = split.whet("run", "b.json", "--last-failed")
    resumed = split.whet("run", "--resume", "latest")

    assert [case["id"] for case in again.results["cases"]] == ["c2", "c3"]
    assert resumed.code == again.code

"""Two runs of one suite: which of them say something about each other, and what a gate says of those before it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import Project

# Succeeds every second time that a case is asked, and the cases take turns.
TURNS = """
[runners.sh.agent]
type = "command"
command = "sh"
"""
SUITE = """
count = 'f={outside}/asked-$WHET_CASE_ID; echo >> $f; '
turns = count + '[ $((($(wc -l < $f) + N) % 2)) = 0 ] && echo right || echo wrong'
def right(report, ctx): assert report.final_output.strip() == "right"
suite = [
    Case(id=f"case-{number}", prompt=turns.replace("N", str(number)), check=right, tags=[["even", "odd"][number % 2]])
    for number in range(12)
]
"""


@pytest.fixture
def turns(project: Project) -> Project:
    """A project of which every run passes half of its cases, and the next run the other half."""
    project.settings(TURNS)
    project.suite(SUITE)
    return project


def _run(project: Project, *words: str) -> str:
    return project.run(*words).folder.name


def _json(project: Project, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.whet(*args, "--json").stdout)
    return found


@pytest.mark.parametrize("words", [(), ("--shared",)])
def test_what_failed_is_not_compared_with_the_run_that_it_failed_in(turns: Project, words: tuple[str, ...]):
    whole = _run(turns)
    again = _run(turns, "--last-failed")

    compared = turns.whet("compare", whole, again, *words)
    backwards = turns.whet("gate", again, whole, *words)

    assert (compared.code, backwards.code) == (2, 2)
    assert f"{again} ran only what failed in {whole}" in compared.stderr
    assert "whatever failed by chance looks better" in compared.stderr


def test_what_failed_twice_is_compared_with_neither_run(turns: Project):
    first = _run(turns, "--trials", "3")
    second = _run(turns, "--last-failed", "--trials", "3")
    third = _run(turns, "--last-failed", "--trials", "3")

    codes = [turns.whet("compare", earlier, third).code for earlier in (first, second)]

    assert codes == [2, 2]


def test_a_regraded_run_and_a_baseline_are_the_run_that_they_are_of(turns: Project):
    whole = _run(turns)
    turns.whet("baseline", "save", "release", whole)
    regraded = turns.whet("regrade", whole).folder.name
    again = _run(turns, "--last-failed")
    turns.whet("regrade", again)

    ends = [
        turns.whet("compare", regraded, again).code,
        turns.whet("compare", whole, "latest").code,
        turns.whet("gate", again, "--baseline", "release", "--shared").code,
    ]

    assert ends == [2, 2, 2]


def test_what_failed_is_compared_with_a_run_that_did_not_select_it(turns: Project):
    other = _run(turns)
    _run(turns)
    again = _run(turns, "--last-failed")

    found = _json(turns, "compare", other, again)

    assert len([case for case in found["cases"] if case["candidate"] is not None]) == 6


@pytest.mark.parametrize("words", [("--case", "case-0,case-1,case-3"), ("--tag", "odd")])
def test_a_part_of_a_suite_is_compared_on_the_cases_of_both(turns: Project, words: tuple[str, ...]):
    whole, part = _run(turns), _run(turns, *words)

    found = _json(turns, "compare", whole, part)

    cases = {case["case"] for case in found["cases"] if None not in (case["baseline"], case["candidate"])}
    assert cases == ({"case-0", "case-1", "case-3"} if words[0] == "--case" else {f"case-{n}" for n in range(1, 12, 2)})
    assert any(note.startswith(f"only in {whole}, so not compared") for note in found["notes"])


ARMS = ("--arm", "old=env:X=1", "--arm", "new=env:X=2")


def test_a_gate_names_earlier_runs_of_the_same_arms_that_it_does_not_count(turns: Project):
    turns.run("--arm", "old=env:X=1", "--arm", "new=env:X=3")
    for _ in range(3):
        turns.run(*ARMS)
    turns.whet("regrade", "latest")
    fourth = _run(turns, *ARMS)

    last, by_name = turns.whet("gate"), _json(turns, "gate", fourth)
    rate = turns.whet("gate", "--min-rate", "99")
    turns.suite(SUITE.replace("range(12)", "range(11)"))
    turns.run(*ARMS)
    changed = turns.whet("gate")

    told = "3 earlier runs of the same arms are not counted"
    assert told in last.stdout
    assert any(note.startswith(told) for note in by_name["notes"])
    assert told in rate.stdout
    assert "earlier run" not in changed.stdout


def test_the_first_run_of_its_arms_has_none_before_it(turns: Project):
    turns.run(*ARMS)

    assert "earlier run" not in turns.whet("gate").stdout


@pytest.mark.parametrize("edit", ["", "# An edit that changes the content of the suite, and no case."])
def test_what_failed_and_passes_the_second_time_is_no_change_of_the_history(turns: Project, edit: str):
    _run(turns, "--trials", "3")
    turns.suite(f"{SUITE}{edit}")
    again = _run(turns, "--last-failed", "--trials", "3")

    found = _json(turns, "history", "suite.py")

    assert found["points"][1]["run"] == again
    assert [point["changed"] for point in found["points"]] == [None, None]
    assert [case["steps"] for case in found["cases"]] == [[]] * 12
    assert all(case["cells"][0] for case in found["cases"])


def test_a_decision_on_what_failed_says_that_nothing_else_ran(turns: Project):
    whole = _run(turns, *ARMS)
    _run(turns, *ARMS, "--last-failed")

    assert f"note           only what failed in {whole} ran" in turns.whet("gate").stdout
    assert f"note        only what failed in {whole} ran" in turns.whet("compare").stdout

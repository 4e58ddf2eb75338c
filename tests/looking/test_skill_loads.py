"""What a page says about the loading of skills: by arm, and by query where cases say whether they should be loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import axe
import pytest
from browsing import Visit
from notes_project import Viewer, run_suite, viewed
from playwright.sync_api import expect

SETTINGS = """
[runners.sh.agent]
type = "command"
command = "sh"
args = ["-c", "{prompt}"]
output = "events"
"""
ALWAYS = """
[runners.{name}.agent]
type = "command"
command = "sh"
args = ["-c", {script}]
output = "events"
"""
LISTS = '{"type":"session_started","skills":["deploy"]}'


def _prints(skill: str | None) -> str:
    loads = [json.dumps({"type": "skill_signal", "skill": skill})] if skill else []
    lines = " ".join(f"'{line}'" for line in (LISTS, *loads, '{"type":"final_output","text":"Done."}'))
    return f"printf '%s\\n' {lines}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A project with a run of trigger queries in one arm, and with one in two arms."""
    folder = tmp_path_factory.mktemp("loads")
    (folder / "deploy").mkdir()
    (folder / "deploy/SKILL.md").write_text("---\nname: deploy\ndescription: Ships the site.\n---\nRun ship.sh.\n")
    fixed = {"loads": _prints("deploy"), "leaves": _prints(None)}
    runners = [ALWAYS.format(name=name, script=json.dumps(script)) for name, script in fixed.items()]
    (folder / "whet.toml").write_text("".join((SETTINGS, *runners)))
    queries = [
        {"id": "right", "query": _prints("deploy"), "should_trigger": True},
        {"id": "other", "query": _prints("lint"), "should_trigger": True},
        {"id": "wrong", "query": _prints("deploy"), "should_trigger": False},
        {"id": "alone", "query": _prints(None), "should_trigger": False},
    ]
    (folder / "queries.json").write_text(json.dumps(queries))
    case = f"Case(id='a', prompt={_prints('deploy')!r}, check=fine)"
    (folder / "suite.py").write_text(f"from whet import Case\n\ndef fine(report, ctx): pass\nsuite = [{case}]\n")
    arms = ("--arm", "old=skill:deploy", "--arm", "new=skill:deploy")
    by_runner = ("--skill", "deploy", "--arm", "old=runner:loads", "--arm", "new=runner:leaves")
    return folder, [
        run_suite(folder, "queries.json", "--skill", "deploy", "--runner", "sh"),
        run_suite(folder, "suite.py", "--runner", "sh", "--runner", "loads", *arms),
        run_suite(folder, "suite.py", *by_runner),
    ]


@pytest.fixture(scope="module")
def viewer(runs: tuple[Path, list[str]]) -> Iterator[Viewer]:
    """`whet view` over the project."""
    with viewed(runs[0]) as viewer:
        yield viewer


def test_a_run_says_how_well_the_skill_is_loaded_and_names_the_queries_that_went_wrong(
    visitor: Visit, runs: tuple[Path, list[str]]
) -> None:
    visitor.go(f"/runs/{runs[1][0]}", "Run of queries")
    loads = visitor.page.get_by_role("region", name="Skill loads")

    expect(loads).to_contain_text("loaded in 2 of 4 sessions")
    expect(loads).to_contain_text("1 loaded rightly, 1 wrongly, 1 missed, 1 left alone")
    expect(loads.get_by_role("row")).to_have_count(3)
    expect(loads.get_by_role("row", name="other load it")).to_contain_text("lint 1")
    expect(loads.get_by_role("row", name="wrong leave it")).to_contain_text("leave it")
    assert axe.violations(visitor.page, axe.source()) == []


def test_a_decision_says_how_often_each_arm_loaded_its_skill(visitor: Visit, runs: tuple[Path, list[str]]) -> None:
    visitor.go(f"/runs/{runs[1][1]}", "Run of suite")

    expect(visitor.page.get_by_role("region", name="Skill loads")).to_have_count(0)
    visitor.page.get_by_text("Statistics: ").click()
    expect(visitor.page.get_by_role("row", name="Loaded the skill")).to_contain_text("1 of 1")
    assert axe.violations(visitor.page, axe.source()) == []


def test_an_arm_that_loads_its_skill_less_often_is_named_with_what_went_wrong(
    visitor: Visit, runs: tuple[Path, list[str]]
) -> None:
    visitor.go(f"/runs/{runs[1][2]}", "Run of suite")

    wrong = visitor.page.get_by_role("region", name="What went wrong")
    expect(wrong).to_contain_text("new loads its skill less often: in 0 of 1 sessions, old in 1 of 1.")
    visitor.go(f"/runs/{runs[1][1]}", "Run of suite")
    expect(wrong).to_have_count(0)


def test_the_runner_of_a_comparison_that_you_choose_is_kept_in_the_address(
    visitor: Visit, runs: tuple[Path, list[str]]
) -> None:
    visitor.go(f"/runs/{runs[1][1]}", "Run of suite")
    visitor.page.get_by_role("button", name="new on sh").click()
    visitor.page.reload()
    expect(visitor.page.get_by_role("button", name="new on sh")).to_have_attribute("aria-pressed", "true")
    visitor.page.get_by_role("button", name="new on loads").click()
    visitor.page.reload()

    expect(visitor.page.get_by_role("button", name="new on loads")).to_have_attribute("aria-pressed", "true")
    expect(visitor.page.get_by_role("region", name="Decision on new")).to_contain_text("on loads")

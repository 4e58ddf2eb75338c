"""What a page says about the judge of a run: whom it judges, and what it said when it was asked again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import axe
import pytest
from browsing import Visit
from notes_project import Viewer, run_suite, viewed
from playwright.sync_api import expect

from whet.decide.judging.probes import NoiseDifference, ProbeAnswer, ProbeFigures, TriedUnit
from whet.record.judging.tries import JudgeTry, TrySpending, keep

SETTINGS = '[runners.sh.agent]\ntype = "command"\ncommand = "sh"\nargs = ["./agent.sh"]\n[judge]\nrunner = "sh"\n'
AGENT = """
verdict='{"number": 1, "rationale": "r", "evidence": "e", "rating": 10, "manipulation": false}'
case "$(cat)" in
    *verdicts*) echo "{\\"verdicts\\": [$verdict]}" ;;
    *) echo "Dear friend" ;;
esac
"""
LEAKED = TriedUnit(
    case="a",
    runner="sh",
    arm="skill",
    trial=1,
    check="It greets",
    item="",
    statement="It greets <b>everybody</b>",
    passed=True,
    rating=10.0,
    answers=(ProbeAnswer(probe="empty", passed=True, rating=9.0),),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A project with a run whose agent judged itself, and with two tries of its judge."""
    folder = tmp_path_factory.mktemp("judge")
    (folder / "greet/evals").mkdir(parents=True)
    (folder / "greet/SKILL.md").write_text("---\nname: greet\ndescription: Greets people.\n---\nSay Dear.\n")
    evals = [{"id": "a", "prompt": "Greet.", "expectations": ["It greets"]}]
    (folder / "greet/evals/evals.json").write_text(json.dumps({"skill_name": "greet", "evals": evals}))
    (folder / "agent.sh").write_text(AGENT)
    (folder / "whet.toml").write_text(SETTINGS)
    name = run_suite(folder, "greet")
    noise = NoiseDifference(value=0.5, low=0.1, high=0.8, p=0.03125, n=2)
    for number in ("1", "2"):
        found = JudgeTry(
            id=number,
            at="2026-11-19T12:00:00+00:00",
            run=name,
            suite="evals",
            whet_version="0",
            seed=name,
            judged=2,
            units=2,
            probes=(
                ProbeFigures(probe="again", n=2, count=0, rate=0.0, low=0.0, high=0.66),
                ProbeFigures(probe="order", n=2, count=1, rate=0.5, low=0.09, high=0.91, to_pass=1, beyond_noise=noise),
                ProbeFigures(probe="empty", n=2, count=1, rate=0.5, low=0.09, high=0.91),
                ProbeFigures(probe="inject", n=0, count=0, no_verdict=2),
            ),
            leaks=1,
            max_leak=0,
            exit_code=1,
            spending=TrySpending(cost_usd=0.1),
            notes=("a note",),
            asked=(LEAKED,),
        )
        keep(folder / ".whet/runs" / name, found)
    return folder, name


@pytest.fixture(scope="module")
def viewer(run: tuple[Path, str]) -> Iterator[Viewer]:
    """`whet view` over the project."""
    with viewed(run[0]) as viewer:
        yield viewer


def test_a_run_shows_who_judged_whom_and_what_the_judge_let_pass(visitor: Visit, run: tuple[Path, str]) -> None:
    visitor.go(f"/runs/{run[1]}", "Run of greet")
    judge = visitor.page.get_by_role("region", name="Judge", exact=True)

    expect(judge).to_contain_text("runner sh judges its own answers")
    expect(judge).to_contain_text("about 2 statements of 2: 1 leak. 1 earlier try.")
    expect(judge.get_by_role("row", name="the same question once more")).to_contain_text("flipped 0 of 2")
    expect(judge.get_by_role("row", name="in reverse")).to_contain_text("flipped 1 of 2 (1 to pass, 0 to fail)")
    expect(judge.get_by_role("row", name="in reverse")).to_contain_text("50 points beyond its noise, p = 0.031")
    expect(judge.get_by_role("row", name="an empty answer")).to_contain_text("passed 1 of 2")
    expect(judge.get_by_role("row", name="an order to rate it 10")).to_contain_text("no verdict")
    expect(judge.get_by_role("listitem")).to_contain_text("It greets <b>everybody</b>")
    expect(judge).to_contain_text("a note")
    assert axe.violations(visitor.page, axe.source()) == []
    judge.get_by_role("listitem").get_by_role("link").click()
    expect(visitor.page.get_by_role("heading", level=1)).to_contain_text("a")

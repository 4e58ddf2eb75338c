"""Goals by the real command: cheaper, faster or shorter, and not worse, with agents whose figures are known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import Project

# Takes what its arm says, and answers rightly unless its arm says otherwise.
AGENT = """
prompt=$(cat)
sleep "${PAUSE:-0}"
echo '{"type": "usage", "cost_usd": '"${PRICE:-0.01}"', "input_tokens": '"${TOKENS:-10}"', "output_tokens": 0}'
echo '{"type": "message", "role": "assistant", "text": "'"${ANSWER:-right}"'"}'
"""
SETTINGS = """
[runners.known.agent]
type = "command"
command = "sh"
args = ["./agent.sh"]
output = "events"
"""
SUITE = """
def right(report, ctx): assert report.final_output.strip() == "right"
suite = [Case(id=f"case-{number}", prompt=f"Question {number}", check=right) for number in range(10)]
"""
ALLOWED = ("--margin", "30")


@pytest.fixture
def known(project: Project) -> Project:
    """A project whose agent takes what its arm says."""
    project.write("agent.sh", AGENT)
    project.settings(SETTINGS)
    project.suite(SUITE)
    return project


def _arms(old: str, new: str, *more: str) -> tuple[str, ...]:
    return ("--arm", f"old=env:{old}", "--arm", f"new=env:{new}", *more)


def _aim(project: Project, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.whet("compare", *args, "--json").stdout)["aim"]
    return found


@pytest.mark.parametrize(
    ("goal", "old", "new", "amount", "ratio"),
    [
        ("cheaper", "PRICE=0.04", "PRICE=0.01", "cost_usd", 0.25),
        ("shorter", "TOKENS=200", "TOKENS=100", "tokens", 0.5),
    ],
)
def test_an_arm_that_takes_less_and_is_as_good_reaches_its_goal(known: Project, goal, old, new, amount, ratio):
    arms = _arms(old, new, "--until-decided", "--goal", goal, *ALLOWED)
    ran = known.run(*arms, "--reporter", "terminal", "--reporter", "markdown=o.md")

    gate = known.whet("gate")

    reached = f"new is {goal} than old, and not worse by 30 points or more on known: {ratio:.2f} times the "
    aim = _aim(known)
    assert (ran.code, ran.results["stopped"], gate.code) == (0, "decided", 0)
    assert (aim["progress"], aim["amount"]) == ("reached", amount)
    assert aim["ratio"]["value"] == pytest.approx(ratio)
    assert reached in ran.stdout.split("Decision")[1]
    assert reached in gate.stdout
    assert f"**{reached}" in (known.root / "o.md").read_text()
    assert f"{ratio:.2f} times as much (" in next(line for line in ran.stdout.splitlines() if "round 2 of 10" in line)


def test_an_arm_that_takes_seconds_less_is_faster(known: Project):
    known.run(*_arms("PAUSE=3", "PAUSE=0", "--trials", "3", "--max-parallel", "10"))

    gate = known.whet("gate", "--goal", "faster", *ALLOWED)

    assert gate.code == 0
    assert "new is faster than old, and not worse by 30 points or more" in gate.stdout
    assert _aim(known, "--goal", "faster", *ALLOWED)["amount"] == "seconds"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("PRICE=0.04", "new is dearer than old, and not cheaper on known: 4.00 times the cost ("),
        (
            "PRICE=0.001,env:ANSWER=wrong",
            "new is worse than old, so it does not matter whether it is cheaper on known: 0.10 times the cost (",
        ),
    ],
)
def test_an_arm_that_is_dearer_or_worse_misses_it(known: Project, new: str, words: str):
    ran = known.run(*_arms("PRICE=0.01", new, "--until-decided", "--goal", "cheaper", "--gate"))

    assert (ran.code, ran.results["stopped"]) == (1, "decided")
    assert len(known.journal()) == 2 * 20
    assert words in ran.stdout.split("gate: ")[1]
    assert known.whet("gate").code == 1
    assert known.whet("compare").code == 0


def test_arms_that_take_the_same_are_not_known_yet_and_a_run_gives_up(known: Project):
    ran = known.run(*_arms("PRICE=0.01", "PRICE=0.010", "--until-decided", "--goal", "cheaper"))

    gate = known.whet("gate")

    assert "10 rounds of 10 cases find 16 points or more in 80 % of runs, and you allow 5: " in ran.stdout
    assert ran.results["stopped"] == "hopeless"
    assert "whether a candidate is cheaper and not worse would hardly be known by the end" in ran.stdout
    assert gate.code == 5
    assert "more trials of this run would hardly decide it" in gate.stdout


def test_a_goal_of_which_nothing_is_known_is_open_and_says_why(known: Project):
    known.write("agent.sh", AGENT.replace('"cost_usd": \'"${PRICE:-0.01}"\', ', ""))
    known.run(*_arms("TOKENS=10", "TOKENS=11", "--trials", "2"))

    gate = known.whet("gate", "--goal", "cheaper")

    assert gate.code == 5
    assert "what a trial costs is not known in both arms" in gate.stdout
    assert "more trials would not say what they take either: let the agent report its cost" in gate.stdout


def test_a_run_that_may_stop_by_its_margin_is_told_and_gated_by_the_same(known: Project):
    ran = known.run(*_arms("PRICE=0.01", "PRICE=0.02", "--until-decided", *ALLOWED))

    gate, stricter = known.whet("gate"), known.whet("gate", "--margin", "5")

    words = "new is not worse than old by 30 points or more"
    assert ran.results["stopped"] == "decided"
    assert words in ran.stdout.split("Decision")[1]
    assert (gate.code, stricter.code) == (0, 5)
    assert words in gate.stdout

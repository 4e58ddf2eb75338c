"""What the decision of `whet improve` rests on, by the real command: its share of the error, and another goal."""

from __future__ import annotations

import json

import pytest
from improving import Hotel
from project import Project

from whet.decide.improve.spending import error_of_step
from whet.record.read.run import read_run

# A session costs a fifth if the skill says so.
PRICE = """
price=0.05
if grep -q "be brief" "$WHET_SKILL/SKILL.md"; then price=0.01; fi
"""


@pytest.fixture
def hotel(project: Project) -> Hotel:
    made = Hotel(project)
    made.open()
    return made


def test_the_share_of_the_error_is_in_the_record_of_the_confirm_step_and_in_comparisons_of_it(hotel: Hotel) -> None:
    hotel.improve("--max-cost", "9")
    hotel.improve("--max-cost", "9")

    confirm = hotel.document.rounds[0].confirm
    assert confirm is not None
    run = read_run(hotel.folder.path / confirm.run)
    compared = json.loads(hotel.project.whet("compare", str(run.run_dir), "--json").stdout)
    assert run.asked.until is not None
    assert run.asked.until.error == confirm.error == error_of_step(2)
    assert (compared["low"], compared["high"]) == (confirm.low, confirm.high)


def test_a_version_that_costs_less_and_is_as_good_is_accepted_as_cheaper(hotel: Hotel) -> None:
    agent = hotel.project.root / "agent.sh"
    text = agent.read_text()
    assert text.count('"cost_usd":0.01') == 1
    agent.write_text(text.replace("sleep", f"{PRICE}sleep", 1).replace('"cost_usd":0.01', "\"cost_usd\":'$price'"))
    hotel.write_version("brief", "Please be brief.")

    done = hotel.improve("--max-cost", "40", "--goal", "cheaper", candidates=("brief", "longer"))

    document = hotel.document
    assert done.code == 0, done.stdout + done.stderr
    [last] = document.rounds
    assert (document.outcome, last.accepted) == ("succeeded", "r1c1")
    assert last.confirm is not None
    assert last.confirm.verdict == "not-worse"
    assert last.confirm.cost_ratio is not None
    assert last.confirm.cost_ratio.value == pytest.approx(0.2)
    assert document.reason == "candidate r1c1 is cheaper and not worse on cases that nobody optimised against"

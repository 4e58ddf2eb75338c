"""`whet improve --engine gepa` by the real command, with GEPA's library: it finds a candidate, and whet decides."""

from __future__ import annotations

import pytest
from improving import AGENT, Hotel
from project import Project

from whet.record.read.run import read_run

# Both work inside the sandbox, where the project is not.
SETTINGS = """
[runners.sh.agent]
type = "command"
command = "sh"
output = "events"
args = ["-c", '''
AGENT
''']

[runners.inside.agent]
type = "command"
command = "sh"
output = "events"
args = ["-c", '''
cat > /dev/null
echo "RULE" >> skill/SKILL.md
echo '{"type":"usage","input_tokens":10,"output_tokens":1,"cost_usd":0.02}'
echo '{"type":"message","role":"assistant","text":"I added a rule."}'
''']
"""


def _hotel(project: Project, rule: str) -> Hotel:
    project.sandbox = "bubblewrap"
    hotel = Hotel(project)
    hotel.open()
    agent = "\n".join(line for line in AGENT.splitlines() if "{outside}" not in line)
    project.settings(SETTINGS.replace("AGENT", agent).replace("RULE", rule))
    return hotel


def _improve(hotel: Hotel, *words: str):
    wanted = ("--runner", "sh", "--proposer", "inside", "--engine", "gepa", "--candidates", "2")
    return hotel.project.whet("improve", "greet", *wanted, *words)


def test_what_gepa_finds_has_to_win_the_race_and_to_hold_on_cases_that_it_never_saw(project: Project) -> None:
    hotel = _hotel(project, "Please welcome each guest.")

    done = _improve(hotel, "--max-cost", "9")

    document = hotel.document
    assert done.code == 0, done.stdout + done.stderr
    [last] = document.rounds
    assert (document.outcome, last.accepted, last.candidates[0].fate) == ("succeeded", "r1c1", "accepted")
    assert "+Please welcome each guest." in last.candidates[0].diff
    assert "GEPA tried 1 version" in last.candidates[0].changes
    assert document.split is not None
    searches = [run for run in hotel.folder.run_folders() if "search" in run.parent.name]
    assert searches
    seen = {line.result.key.case for run in searches for line in read_run(run).lines}
    assert seen <= set(document.split.practice)
    assert document.cost_usd == pytest.approx(0.01 * sum(step.trials for step in document.steps) + 0.02)


def test_if_gepa_finds_nothing_there_is_no_winner_and_no_confirm_step_is_spent(project: Project) -> None:
    hotel = _hotel(project, "Stay polite.")

    done = _improve(hotel, "--max-cost", "9")

    document = hotel.document
    assert (done.code, document.outcome) == (0, "no_winner")
    [candidate] = document.rounds[0].candidates
    assert candidate.fate == "dud"
    assert "that GEPA tried does better on practice cases" in (candidate.reason or "")
    assert hotel.lock["confirms"] == {}


def test_a_search_ends_with_its_share_of_the_money(project: Project) -> None:
    hotel = _hotel(project, "Stay polite.")

    done = _improve(hotel, "--max-cost", "0.9")

    document = hotel.document
    generating = next(step for step in document.steps if step.phase == "generating")
    assert (done.code, document.outcome) == (0, "no_winner")
    # Half of what the baseline leaves of the money; a step of the search ends what it has begun.
    share = 0.5 * (0.9 - 0.36)
    assert generating.cost_usd is not None
    assert share <= generating.cost_usd <= share + 0.03 + 0.02 + 0.03

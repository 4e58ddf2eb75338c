"""`whet improve --engine gepa` by the real command, with GEPA's library: it finds a candidate, and whet decides."""

from __future__ import annotations

import signal
import time

import pytest
from improving import AGENT, Hotel
from project import PATIENCE_S, Project

from whet.record.read.run import read_run

pytestmark = pytest.mark.bubblewrap

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


def _hotel(project: Project, rule: str, pause: str = ":") -> Hotel:
    project.sandbox = "bubblewrap"
    hotel = Hotel(project)
    hotel.open()
    agent = "\n".join(line for line in AGENT.splitlines() if "{outside}" not in line)
    project.settings(SETTINGS.replace("AGENT", f"{pause}\n{agent}").replace("RULE", rule))
    return hotel


WORDS = ("greet", "--runner", "sh", "--proposer", "inside", "--engine", "gepa", "--candidates", "2")


def _improve(hotel: Hotel, *words: str):
    return hotel.project.whet("improve", *WORDS, *words)


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


def test_a_search_that_is_killed_goes_on_where_it_was(project: Project) -> None:
    hotel = _hotel(project, "Please welcome each guest.", pause="sleep 0.1")
    process = project.start(*WORDS, "--max-cost", "9", "--max-parallel", "2", command="improve")
    deadline = time.monotonic() + PATIENCE_S
    # The second run of the search is that of the first few cases, before the proposer is asked.
    while not list(project.root.glob(".whet/improve/2*/runs/round-1-search-2/*/journal.jsonl")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)

    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    before = hotel.trials()
    done = project.whet("improve", "--resume", "latest")

    document, after = hotel.document, hotel.trials()
    assert done.code == 0, done.stdout + done.stderr
    assert (document.outcome, document.rounds[0].accepted) == ("succeeded", "r1c1")
    assert len(set(after)) == len(after)
    assert set(before) <= set(after)
    assert document.cost_usd == pytest.approx(0.01 * len(after) + 0.02)
    assert project.whet("verify", hotel.folder.id).code == 0


def test_without_the_library_one_line_says_how_to_install_it_and_nothing_is_spent(project: Project) -> None:
    hotel = _hotel(project, "Stay polite.")
    project.write("no/gepa/__init__.py", "raise ModuleNotFoundError('not here', name='gepa')\n")
    project.env["PYTHONPATH"] = str(project.root / "no")

    done = project.whet("improve", *WORDS, "--max-cost", "9", cold=True)

    assert done.code == 2
    assert "--engine gepa needs GEPA, which is not installed\n  pip install 'whet-eval[improve]'\n" in done.stderr
    assert hotel.folders == []

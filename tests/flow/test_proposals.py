"""Candidates from a scripted proposer in the real sandbox: what it is shown, and what becomes of what it leaves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from project import Project, wait_for
from proposing import HELD_OUT_PROMPT, SKILL, Workshop

from whet.model import codec
from whet.record.improve.document import CandidateRecord, ConfirmRecord, LintFinding, PracticeScore, RoundRecord
from whet.record.notes import add_note, new_note
from whet.record.read.rows import RowKey
from whet.record.read.run import read_trials

pytestmark = pytest.mark.bubblewrap

# Learns from what it is shown, and writes it into the skill.
LEARNS = """
import pathlib, re
failures = sorted(pathlib.Path("failures").glob("*.md"))
wanted = {re.search("contains '?([A-Z][a-z]+) ", path.read_text())[1] for path in failures}
skill = pathlib.Path("skill/SKILL.md")
place = failures[0].stem
skill.write_text(skill.read_text() + f"Begin with {wanted.pop()} and the name, as number {place} shows.\\n")
print("Says how to greet.")
"""


@pytest.fixture
def workshop(project: Project) -> Workshop:
    return Workshop(project)


def test_each_proposer_sees_practice_and_its_own_failures_and_makes_a_candidate(workshop: Workshop) -> None:
    workshop.settle(LEARNS)
    practice = workshop.practise()

    proposed = workshop.propose(evidence=[practice.folder])

    assert proposed.code == 0, proposed.stderr
    assert [record.id for record in proposed.records] == ["r1c1", "r1c2", "r1c3"]
    assert {record.fate for record in proposed.records} <= {"proposed", "same"}
    first = proposed.records[0]
    assert first.fate == "proposed"
    assert first.changes == "Says how to greet."
    assert "+Begin with Dear and the name" in first.diff
    assert 5 < first.token_growth < 30
    assert "Begin with Dear" in (proposed.skill("r1c1") / "SKILL.md").read_text()
    assert not (proposed.skill("r1c1") / "evals").exists()
    assert (proposed.place / "candidates" / "r1c1" / "session" / "session.json").exists()
    shown = {path.name for path in proposed.shown("r1c1").iterdir()}
    assert shown == {"skill", "cases", "failures", "successes", "rules.md"}
    assert len(list((proposed.shown("r1c1") / "cases").iterdir())) == 5


def test_what_people_say_of_practice_is_shown_and_outranks_the_checks(workshop: Workshop) -> None:
    workshop.settle(LEARNS, agent=AGENT_OF_TWO)
    folder = workshop.practise().folder
    for case, text, verdict in (
        ("letter-for-ada", "The letter is cold.", "failed"),
        ("letter-for-bob", "Fine as it is.", "passed"),
    ):
        add_note(folder, RowKey(case, "agent", "current", 1), new_note(text, verdict, "ann"))

    proposed = workshop.propose(evidence=[folder], candidates=1)
    shown = proposed.shown("r1c1")

    assert "- this failed: The letter is cold." in (shown / "failures" / "001.md").read_text()
    assert "- this passed: Fine as it is." in (shown / "successes" / "002.md").read_text()


# Passes for Ada without being told, and does one thing more.
AGENT_OF_TWO = """
import sys
prompt = sys.stdin.read()
name = prompt.split("to ")[1].split()[0]
print(("Dear " if name == "Ada" else "Hi ") + name)
"""


def test_a_proposer_that_changes_nothing_makes_a_dud_and_one_that_always_fails_ends_the_phase(
    workshop: Workshop,
) -> None:
    workshop.settle("import sys; print('It is perfect.')")

    (idle,) = workshop.propose(candidates=1).records

    assert (idle.fate, idle.reason, idle.digest) == ("dud", "nothing was changed", "")

    workshop.settle("import sys; open('skill/SKILL.md', 'a').write('More.'); sys.exit(3)")

    failing = workshop.propose(candidates=1, place=workshop.project.root / ".whet" / "improve" / "2")

    assert (failing.code, failing.records) == (1, [])
    assert "failed: the proposer made no candidate: ended with exit code 3" in failing.stderr
    (session,) = read_trials(failing.run).results.values()
    assert len(session.attempts) == 3
    assert not failing.skill("r1c1").exists()


def test_files_that_were_added_moved_or_removed_are_taken(workshop: Workshop) -> None:
    workshop.project.write("greet/references/old.md", "Old.\n")
    workshop.settle(
        """
import pathlib
skill = pathlib.Path("skill")
(skill / "references" / "old.md").unlink()
(skill / "references").rmdir()
(skill / "more" / "deep").mkdir(parents=True)
(skill / "more" / "deep" / "new.md").write_text("New.\\n")
pathlib.Path("elsewhere.md").write_text("This is nowhere.")
pathlib.Path("rules.md").unlink()
"""
    )

    proposed = workshop.propose(candidates=1, part="all")

    (record,) = proposed.records
    files = sorted(
        path.relative_to(proposed.skill("r1c1")) for path in proposed.skill("r1c1").rglob("*") if path.is_file()
    )
    assert files == [Path("SKILL.md"), Path("more/deep/new.md")]
    assert "elsewhere" not in record.diff


def test_the_diff_of_a_candidate_is_a_patch_for_git(workshop: Workshop) -> None:
    workshop.project.write("greet/references/old.md", "Old, without an end")
    workshop.settle(
        """
import pathlib
skill = pathlib.Path("skill/SKILL.md")
skill.write_text(skill.read_text().replace("Begin", "Start") + "No end")
pathlib.Path("skill/references/old.md").unlink()
pathlib.Path("skill/new.md").write_text("New.\\n")
"""
    )
    (record,) = workshop.propose(candidates=1, part="all").records
    patch = workshop.project.root / "candidate.patch"
    patch.write_text(record.diff)

    subprocess.run(["git", "apply", "--directory=greet", patch.name], cwd=workshop.project.root, check=True)

    assert (workshop.skill / "SKILL.md").read_text() == SKILL.replace("Begin", "Start") + "No end"
    assert (workshop.skill / "new.md").read_text() == "New.\n"
    assert not (workshop.skill / "references" / "old.md").exists()


def test_the_next_round_is_told_what_was_tried_and_nothing_of_held_out_cases(workshop: Workshop) -> None:
    finding = LintFinding(rule="leak", message=f"repeats the prompt of invite: {HELD_OUT_PROMPT}", told="repeats text")
    leaking = CandidateRecord(id="r1c1", digest="1", fate="refused", lint=(finding,), diff=f"+{HELD_OUT_PROMPT}")
    tried = CandidateRecord(
        id="r1c2",
        digest="2",
        fate="rejected",
        diff="+Be kind.",
        changes="Asks for kindness.",
        practice=PracticeScore(score=0.75, trials=9),
    )
    confirm = ConfirmRecord(step=1, error=0.03, verdict="worse", difference=-0.2, low=-0.4, high=-0.1)
    last = RoundRecord(
        number=1,
        start="0",
        candidates=(leaking, tried),
        current=PracticeScore(score=0.5, trials=9),
        chosen="r1c2",
        confirm=confirm,
    )
    workshop.settle("print('Nothing.')")

    proposed = workshop.propose(candidates=1, number=2, earlier=[codec.decode(codec.encode(last), dict)])

    text = (proposed.shown("r2c1") / "refused.md").read_text()
    assert "Refused before anything ran: repeats text." in text
    assert "Practice score: 75 %, and 50 % without the change." in text
    assert "on other cases it was worse" in text
    assert "+Be kind." in text
    assert "Asks for kindness." in text
    assert "harbour" not in text
    assert (
        "refused.md" in json.loads((proposed.place / "propose-2" / "proposals.json").read_text())["cases"][0]["prompt"]
    )


def test_a_kill_costs_no_session_that_has_ended(workshop: Workshop) -> None:
    workshop.settle(
        """
import pathlib, time
skill = pathlib.Path("skill/SKILL.md")
skill.write_text(skill.read_text() + "Number " + str(time.time_ns()))
""",
        more="[run]\nmax_parallel = 1\n",
    )
    under_way = workshop.begin(candidates=6)
    wait_for(under_way.place, pattern="propose-1/runs/2*/trials/r1c2/*/*/*/*/session.json")
    under_way.kill()

    proposed = workshop.propose(candidates=6)
    again = workshop.propose(candidates=6)

    assert [record.fate for record in proposed.records] == ["proposed"] * 6
    ended_trials = [json.loads(line) for line in (proposed.run / "journal.jsonl").read_text().splitlines()]
    cases = [line["key"]["case"] for line in ended_trials if "key" in line]
    assert sorted(cases) == [f"r1c{number}" for number in range(1, 7)]
    assert again.records == proposed.records


def test_a_proposer_that_cannot_work_ends_the_phase_and_starts_anew_on_resume(workshop: Workshop) -> None:
    workshop.settle("print('Nothing.')", more="")
    text = (workshop.project.root / "whet.toml").read_text()
    workshop.project.settings(text.replace('command = "python3"', 'command = "no-such-program"'))

    broken = workshop.propose(candidates=2)

    assert broken.code == 1
    assert "no-such-program" in broken.stderr
    assert broken.records == []


def test_money_ends_the_phase_below_its_limit_and_more_of_it_goes_on(workshop: Workshop) -> None:
    spends = """
import json, pathlib, time
skill = pathlib.Path("skill/SKILL.md")
skill.write_text(skill.read_text() + "Number " + str(time.time_ns()))
print(json.dumps({"type": "usage", "input_tokens": 10, "output_tokens": 1, "cost_usd": 0.25}))
print(json.dumps({"type": "final_output", "text": "Counts."}))
"""
    workshop.settle(spends, more='output = "events"\n[run]\nmax_parallel = 1\n')

    short = workshop.propose(candidates=4, money_left_usd=0.4)
    more = workshop.propose(candidates=4, money_left_usd=5)

    assert [record.fate for record in short.records] == ["proposed", "proposed", "dud", "dud"]
    assert "the money was spent" in (short.records[2].reason or "")
    assert [record.cost_usd for record in more.records] == [0.25] * 4
    assert more.records[:2] == short.records[:2]


def test_a_proposer_without_a_boundary_or_in_your_home_is_refused(workshop: Workshop) -> None:
    workshop.settle("print('Nothing.')")

    local = workshop.propose(flags={"sandbox": "local"})

    assert local.code == 1
    assert "could read the held-out cases" in local.stderr
    assert "--candidate DIR" in local.stderr

    workshop.settle("print('Nothing.')", more="inherit_home = true")

    assert "cannot work in your own home" in workshop.propose().stderr


def test_versions_of_people_are_taken_without_what_belongs_to_suites(workshop: Workshop) -> None:
    workshop.settle("raise SystemExit(1)")
    for name, text in (("better", "Begin with Dear."), ("same", "Begin with Dear."), ("idle", "")):
        workshop.project.write(f"versions/{name}/SKILL.md", SKILL + text)
        workshop.project.write(f"versions/{name}/evals/evals.json", "{}")
    folders = [str(workshop.project.root / "versions" / name) for name in ("better", "same", "idle")]

    proposed = workshop.propose(own_candidates=folders)

    assert [(record.fate, record.reason) for record in proposed.records] == [
        ("proposed", None),
        ("same", "the same as r1c1"),
        ("dud", "it is the same as the skill"),
    ]
    assert not (proposed.skill("r1c1") / "evals").exists()
    assert "Begin with Dear." in proposed.records[0].diff


def test_a_proposer_whose_model_cannot_be_asked_alone_is_refused_before_anything_is_spent(workshop: Workshop) -> None:
    workshop.settle("print('Nothing.')")
    settings = (workshop.project.root / "whet.toml").read_text()
    workshop.project.settings(settings + '[runners.subscribed.agent]\ntype = "claude-code"\n')

    done = workshop.project.whet(
        *("improve", "greet", "--runner", "agent", "--proposer", "subscribed", "--max-cost", "1", "--yes"),
        *("--suite", "greet/evals/evals.json"),
    )

    assert done.code == 2, done.stdout
    assert "runners.subscribed cannot write candidates" in done.stderr
    assert "there is no key in ANTHROPIC_API_KEY" in done.stderr
    assert "--candidate DIR" in done.stderr
    assert not workshop.project.output_dir.exists()

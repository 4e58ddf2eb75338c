"""A record shows whether it was touched: `whet verify`, and everybody who reads a record looks first."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from project import SHELL, Outcome, Project


@pytest.fixture
def done(project: Project) -> Outcome:
    """A run with one trial that passed and one that failed, so that a workspace is kept."""
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="a", prompt="echo x > f", check=ok), Case(id="b", prompt="echo y > g", check=no)]
    """)
    return project.run("--schedule", "serial")


def replaced(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def reseal(results: Path) -> None:
    """Give results.json the hash that fits it, as somebody would who knows the format."""
    body, _, _ = results.read_bytes().rpartition(b',"digest":"')
    results.write_bytes(body + b',"digest":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n}\n')


def test_a_whole_record_is_whole_and_tells_its_last_hash(project: Project, done: Outcome) -> None:
    verified = project.whet("verify", "latest")

    assert verified.code == 0, verified.stdout + verified.stderr
    assert f"whole, 2 lines in the journal, the last hash is {done.results['record']['hash']}" in verified.stdout
    assert json.loads((done.folder / "journal.jsonl").read_bytes().splitlines()[-1])["chain"] in verified.stdout


def test_what_is_not_a_run_is_said_before_anything_is_verified(project: Project, done: Outcome) -> None:
    verified = project.whet("verify", str(done.folder), "nonsense")

    assert verified.code == 2
    assert 'there is no run "nonsense"' in verified.stderr
    assert verified.stdout == ""


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a line": (
        lambda run: replaced(run / "journal.jsonl", b'"status":"failed"', b'"status":"passed"'),
        "journal.jsonl: line 2 has changed: its hash does not fit",
    ),
    "what was asked": (
        lambda run: replaced(run / "run.json", b'"trials": 2', b'"trials": 3'),
        "run.json: has changed since line 1",
    ),
    "the end of the journal": (
        lambda run: (run / "journal.jsonl").write_bytes((run / "journal.jsonl").read_bytes().splitlines(True)[0]),
        "results.json: is of 2 lines of the journal, which has 1",
    ),
    "results": (
        lambda run: replaced(run / "results.json", b'"interrupted": false', b'"interrupted": true '),
        "results.json: has changed: its content does not fit",
    ),
    "a transcript": (
        lambda run: (run / "trials/a/sh/default/1/1/transcript.txt").write_text("made up"),
        "trials/a/sh/default/1/1/transcript.txt: is new since line 1",
    ),
    "grades": (
        lambda run: replaced(run / "trials/b/sh/default/1/1/grades.json", b"0.0", b"1.0"),
        "trials/b/sh/default/1/1/grades.json: has changed since line 2",
    ),
    "a file that is gone": (
        lambda run: (run / "trials/a/sh/default/1/1/changes.tar").unlink(),
        "trials/a/sh/default/1/1/changes.tar: is gone since line 1",
    ),
    "a kept workspace": (
        lambda run: (run / "workspaces/b/sh/default/1/1/g").write_text("z"),
        "workspaces/b/sh/default/1/1/g: has changed",
    ),
    "what agents started from": (
        lambda run: replaced(run / "sources.json", b"{", b"{ "),
        "sources.json: has changed",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_named_with_its_place(project: Project, done: Outcome, what: str) -> None:
    change, said = CHANGES[what]
    change(done.folder)

    verified = project.whet("verify", "latest")

    assert verified.code == 1
    assert f"{done.folder}: changed\n" in verified.stdout
    assert said in verified.stdout


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"status":"failed","passed":false,"score":0.0,"flaky"', b'"status":"passed","passed":false,"score":0.0,"flaky"', 'status is "passed", and the journal says "failed"'),
        (b'"score":1.0,"flaky"', b'"score":0.5,"flaky"', "trials[0].score is 0.5, and the journal says 1.0"),
        (b'"failed": 1,', b'"failed": 0,', "counts.failed is 0, and the journal says 1"),
        (b'"score":1.0,"rate"', b'"score":0.9,"rate"', "executions[0].score is 0.9, and the journal says 1.0"),
    ],
)  # fmt: skip
def test_results_are_compared_with_the_journal_also_where_their_own_hash_fits(
    project: Project, done: Outcome, old: bytes, new: bytes, said: str
) -> None:
    results = done.folder / "results.json"
    replaced(results, old, new)
    reseal(results)

    verified = project.whet("verify", "latest")

    assert verified.code == 1
    assert "does not fit" not in verified.stdout
    assert said in verified.stdout


@pytest.mark.parametrize("reading", [("run", "--resume", "latest"), ("regrade", "latest"), ("run", "suite.py", "--last-failed")])  # fmt: skip
def test_whoever_reads_a_changed_journal_refuses_it(project: Project, done: Outcome, reading: tuple[str, ...]) -> None:
    replaced(done.folder / "journal.jsonl", b'"status":"failed"', b'"status":"passed"')
    before = sorted(project.output_dir.iterdir())

    refused = project.whet(*reading)

    assert refused.code == 2, refused.stdout
    assert "error[changed]" in refused.stderr
    assert "journal.jsonl: line 2 has changed" in refused.stderr
    assert "bring back a copy of it, or start a new run" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert sorted(project.output_dir.iterdir()) == before


def test_regrading_and_explaining_refuse_a_changed_file_of_the_trial(project: Project, done: Outcome) -> None:
    replaced(done.folder / "trials/b/sh/default/1/1/session.json", b'"exit_code": 0', b'"exit_code": 1')

    regraded = project.whet("regrade", "latest")
    explained = project.whet("explain", str(done.folder / "trials/b"), "--ask", "Why?")

    for refused in (regraded, explained):
        assert refused.code == 2
        assert "session.json: has changed since line 2 of the journal was written" in refused.stderr


def test_a_replay_refuses_a_changed_recording_and_plays_its_trials_as_they_are(project: Project, done: Outcome) -> None:
    shutil.copytree(done.folder, project.root / "recording")
    project.settings('[runners.sh.agent]\ntype = "replay"\nscript = "recording"\n')
    whole = project.run("--case", "a")
    # What a repository leaves out is no change of what is played.
    (project.root / "recording/results.json").unlink()
    replaced(project.root / "recording/trials/a/sh/default/1/1/session.json", b'"sh"', b'"hs"')

    refused = project.run("--case", "a")
    project.settings('[runners.sh.agent]\ntype = "replay"\nscript = "recording/trials"\n')
    played = project.run("--case", "a")

    assert whole.code == 0, whole.stderr
    assert refused.code == 2
    assert "session.json: has changed" in refused.stderr
    assert played.code == 0, played.stderr


def test_an_agent_that_rewrites_the_journal_in_place_ends_the_run_and_is_not_believed(project: Project) -> None:
    project.settings(SHELL)
    project.suite(r"""
        FORGE = '''
        journal=$(ls -d {outside}/../project/.whet/runs/2*)/journal.jsonl
        python3 - "$journal" <<END
        import pathlib, sys
        path = pathlib.Path(sys.argv[1])
        data = path.read_bytes()
        with path.open("r+b") as file: file.write(data.replace(b'"failed"', b'"passed"'))
        END
        '''
        suite = [Case(id="bad", prompt="true", check=no), Case(id="forger", prompt=FORGE, check=ok)]
    """)
    assert project.root.name == "project"

    run = project.run("--schedule", "serial")
    resumed = project.whet("run", "--resume", "latest")
    verified = project.whet("verify", "latest")

    assert run.code == 4, run.stdout + run.stderr
    assert "journal.jsonl was changed by something else while the run was under way: line 1 has changed" in run.stderr
    assert not (run.folder / "results.json").exists()
    assert resumed.code == 2
    assert "line 1 has changed" in resumed.stderr
    assert verified.code == 1


def test_a_record_of_an_older_whet_can_be_resumed_and_verify_says_what_it_cannot_know(
    project: Project, done: Outcome
) -> None:
    first = json.loads((done.folder / "journal.jsonl").read_bytes().splitlines()[0])
    bare = {name: value for name, value in first.items() if name not in ("files", "run", "chain")}
    (done.folder / "journal.jsonl").write_text(json.dumps(bare) + "\n")
    facts = json.loads((done.folder / "run.json").read_bytes())
    (done.folder / "run.json").write_text(
        json.dumps({name: value for name, value in facts.items() if name not in ("journal", "sources", "typed")})
    )
    (done.folder / "results.json").unlink()

    before = project.whet("verify", "latest")
    resumed = project.whet("run", "--resume", "latest")
    after = project.whet("verify", "latest")

    assert before.code == after.code == 0
    assert "no line has a hash, because an older whet wrote them" in before.stdout
    assert resumed.code == 1, resumed.stderr
    assert resumed.results["counts"]["total"] == 2
    assert "none of the first 1 lines has a hash" in after.stdout


def test_a_torn_last_line_is_a_crash_and_no_change(project: Project, done: Outcome) -> None:
    journal = done.folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-30])
    (done.folder / "results.json").unlink()

    verified = project.whet("verify", "latest")

    assert verified.code == 0
    assert "the journal ends in a line that was cut off" in verified.stdout
    assert "there is no results.json" in verified.stdout


def test_only_its_user_may_read_a_record_whatever_the_umask(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="echo said; echo x > f; exit 1", check=ok)]')
    before = os.umask(0)

    try:
        run = project.run()
    finally:
        os.umask(before)

    files = [path for path in (*run.folder.glob("*"), *run.folder.glob("trials/**/*")) if path.is_file()]
    assert stat.S_IMODE(run.folder.stat().st_mode) == 0o700
    assert len(files) > 8
    assert {path.name: oct(path.stat().st_mode & 0o077) for path in files if path.stat().st_mode & 0o077} == {}


def test_the_record_of_a_regrading_is_whole_too(project: Project, done: Outcome) -> None:
    del done

    regraded = project.whet("regrade", "latest")
    verified = project.whet("verify", "latest")

    assert regraded.code == 1
    assert verified.code == 0, verified.stdout


@pytest.mark.parametrize("name", ["results.json", "run.json", "journal.jsonl"])
def test_a_file_that_is_not_text_any_more_is_said_to_have_changed(project: Project, name: str) -> None:
    project.settings(SHELL)
    project.suite("suite = [Case(id='a', prompt='true', check=ok)]\n")
    path = project.run().folder / name
    data = bytearray(path.read_bytes())
    data[data.index(b"suite")] = 0xFF
    path.write_bytes(data)

    done = project.whet("verify", "latest")

    assert done.code == 1, done.stderr
    assert name in done.stdout + done.stderr

"""A record shows whether it was touched: `whet verify`, and everybody who reads a record looks first."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from project import PATIENCE_S, SHELL, Outcome, Project, wait_for


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


def added(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def linked(run: Path, name: str) -> None:
    """Put a link in the place of *name* that leads to the very same."""
    elsewhere = (run / name).rename(run.parent / f"elsewhere-{Path(name).name}")
    (run / name).symlink_to(elsewhere)


def piped(run: Path, name: str) -> None:
    """Put a pipe in the place of *name*, into which nobody ever writes."""
    (run / name).unlink()
    os.mkfifo(run / name)


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


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
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
    "results of a number of lines that cannot be": (
        lambda run: replaced(run / "results.json", b'"lines":2', b'"lines":-9'),
        "results.json: has changed: it is not the document of a run any more",
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
    "a kept workspace that is gone": (
        lambda run: shutil.rmtree(run / "workspaces/b/sh/default/1/1"),
        "workspaces/b/sh/default/1/1: is gone",
    ),
    "garbage after the end": (
        lambda run: added(run / "journal.jsonl", b"garbage"),
        "journal.jsonl: line 3 has changed: it does not begin as a line does",
    ),
    "half a line after the end": (
        lambda run: added(run / "journal.jsonl", (run / "journal.jsonl").read_bytes()[:40]),
        "journal.jsonl: line 3 is new: 40 bytes come after the line of the last trial",
    ),
    "a link instead of the journal": (
        lambda run: linked(run, "journal.jsonl"),
        "journal.jsonl: has been replaced by a symbolic link",
    ),
    "a pipe instead of the journal": (
        lambda run: piped(run, "journal.jsonl"),
        "journal.jsonl: has been replaced by something that is not a file",
    ),
    "a pipe instead of results": (
        lambda run: piped(run, "results.json"),
        "results.json: has been replaced by something that is not a file",
    ),
    "a link instead of all trials": (
        lambda run: linked(run, "trials"),
        "trials: has been replaced by a symbolic link",
    ),
    "a link instead of a trial": (
        lambda run: linked(run, "trials/a/sh/default/1"),
        "trials/a/sh/default/1: is a symbolic link",
    ),
    "a trial that was added": (
        lambda run: shutil.copytree(run / "trials/a", run / "trials/c"),
        "trials/c/sh/default/1: is new: no line of the journal names it",
    ),
    "a sample that was added": (
        lambda run: (run / "trials/a/sh/default/2").mkdir(),
        "trials/a/sh/default/2: is new: no line of the journal names it",
    ),
    "a file among trials": (
        lambda run: (run / "trials/a/note").touch(),
        "trials/a/note: is new: no line of the journal names it",
    ),
    "a workspace that was added": (
        lambda run: shutil.copytree(run / "workspaces/b", run / "workspaces/a"),
        "workspaces/a/sh/default/1/1: is new: no line of the journal names it",
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
    assert "restore a copy of it, or start a new run" in refused.stderr
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
    assert "journal.jsonl was changed by something else during the run: line 1 has changed" in run.stderr
    assert not (run.folder / "results.json").exists()
    assert resumed.code == 2
    assert "line 1 has changed" in resumed.stderr
    assert verified.code == 1


@pytest.mark.parametrize("schema", ["whet/run/999", None])
@pytest.mark.parametrize(
    "command",
    [
        ("verify", "latest"),
        ("run", "--resume", "latest"),
        ("compare", "latest"),
        ("regrade", "latest"),
        ("merge", "latest"),
        ("export", "latest", "--format", "jsonl"),
    ],
    ids=lambda command: command[0],
)
def test_a_record_of_another_format_is_refused_by_whoever_reads_it(
    project: Project, done: Outcome, command: tuple[str, ...], schema: str | None
) -> None:
    run_file = done.folder / "run.json"
    facts = json.loads(run_file.read_bytes())
    run_file.write_text(json.dumps({**facts, "schema": schema}))
    before = (done.folder / "journal.jsonl").read_bytes()

    outcome = project.whet(*command)

    assert outcome.code not in (0, 1)
    which = f"the format {schema}" if schema else "no known format"
    assert f"{run_file} is of {which}, and this whet reads whet/run/3" in outcome.stderr
    assert "use the version of whet that wrote it, or run the suite again" in outcome.stderr
    assert (done.folder / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize("schema", ["whet/results/999", None])
@pytest.mark.parametrize(
    "command",
    [("verify", "latest"), ("compare", "latest"), ("export", "latest", "--format", "jsonl")],
    ids=lambda command: command[0],
)
def test_results_of_another_format_are_refused_by_whoever_reads_them(
    project: Project, done: Outcome, command: tuple[str, ...], schema: str | None
) -> None:
    results = done.folder / "results.json"
    document = json.loads(results.read_bytes())
    results.write_text(json.dumps({**document, "schema": schema}))

    outcome = project.whet(*command)

    assert outcome.code not in (0, 1)
    which = f"the format {schema}" if schema else "no known format"
    assert f"{results} is of {which}, and this whet reads whet/results/2" in outcome.stderr
    assert "use the version of whet that wrote it, or run the suite again" in outcome.stderr


def test_a_torn_last_line_is_a_crash_and_no_change(project: Project, done: Outcome) -> None:
    journal = done.folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-30])
    (done.folder / "results.json").unlink()

    verified = project.whet("verify", "latest")

    assert verified.code == 0
    assert "the journal ends in a line that was cut off" in verified.stdout
    assert "there is no results.json" in verified.stdout


SHARED_CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file": (lambda run: (run / "workspaces/shared/f").write_text("z"), "workspaces/shared/f: has changed"),
    "a new file": (lambda run: (run / "workspaces/shared/h").touch(), "workspaces/shared/h: is new"),
    "a file that is gone": (lambda run: (run / "workspaces/shared/f").unlink(), "workspaces/shared/f: is gone"),
    "its list": (lambda run: replaced(run / "shared.json", b"{", b"{ "), "shared.json: has changed since results.json"),
    "all of it": (lambda run: shutil.rmtree(run / "workspaces/shared"), "workspaces/shared: is gone"),
    "a link": (lambda run: linked(run, "workspaces/shared"), "workspaces/shared: has changed"),
    "another one": (
        lambda run: shutil.copytree(run / "workspaces/shared", run / "workspaces/shared-2"),
        "workspaces/shared-2/f: is new: no line of the journal names it",
    ),
    "what its bootstrap command said": (
        lambda run: (run / "workspaces/bootstrap.log").write_text("made up"),
        "workspaces/bootstrap.log: has changed",
    ),
}


@pytest.fixture
def shared(project: Project) -> Outcome:
    """A run that kept the one workspace of its two trials."""
    project.settings(SHELL + '[run.workspace]\nmode = "shared"\n')
    project.suite("""
        workspace = Workspace(mode="shared", bootstrap=Bootstrap(command="sh", args=["-c", "echo said"]))
        suite = [Case(id="a", prompt="echo x > f", check=ok), Case(id="b", prompt="echo y > g", check=no)]
    """)
    return project.run("--schedule", "serial")


def test_a_shared_workspace_that_was_kept_is_whole(project: Project, shared: Outcome) -> None:
    verified = project.whet("verify", "latest")

    assert (shared.folder / "workspaces/shared/g").exists()
    assert verified.code == 0, verified.stdout + verified.stderr
    assert "note" not in verified.stdout


@pytest.mark.parametrize("what", SHARED_CHANGES)
def test_a_change_of_what_a_shared_workspace_left_is_named(project: Project, shared: Outcome, what: str) -> None:
    change, said = SHARED_CHANGES[what]
    change(shared.folder)

    verified = project.whet("verify", "latest")

    assert verified.code == 1, verified.stderr
    assert said in verified.stdout


def interrupted(project: Project) -> Path:
    """A run of which one trial ended, one was cut short and one never began; its folder."""
    process = project.start("suite.py", "--schedule", "serial")
    wait_for(project.outside / "began")
    process.send_signal(signal.SIGINT)
    return project.outcome(process, within_s=PATIENCE_S).folder


@pytest.mark.parametrize("mode", ["isolated", "shared"])
def test_what_an_interrupted_trial_left_is_no_change_and_neither_is_what_a_resume_adds(
    project: Project, mode: str
) -> None:
    project.settings(SHELL + f'[run.workspace]\nmode = "{mode}"\n')
    project.suite(f"""
        workspace = Workspace(mode="{mode}", bootstrap=Bootstrap(command="sh", args=["-c", "date +%N"]))
        slow = "test -e {{outside}}/began || {{ touch {{outside}}/began; echo said; sleep 60; }}"
        suite = [Case(id="a", prompt="echo x > f", check=no), Case(id="b", prompt=slow, check=ok),
                 Case(id="c", prompt="true", check=ok)]
    """)
    folder = interrupted(project)

    before = project.whet("verify", str(folder))
    resumed = project.whet("run", "--resume", str(folder))
    after = project.whet("verify", str(folder))

    assert before.code == 0, before.stdout
    assert "no line of the journal names trials/b/sh/default/1: a trial that did not end" in before.stdout
    assert resumed.code == 1, resumed.stderr
    assert after.code == 0, after.stdout
    assert "note" not in after.stdout


def test_what_whet_and_people_put_into_a_run_folder_later_is_no_change(project: Project, done: Outcome) -> None:
    folder = done.folder
    attempt = folder / "trials/a/sh/default/1/1"
    (attempt / "explanations").mkdir()
    (attempt / "explanations/1.txt").touch()
    (attempt / "explanations.json").write_text("{}")
    (folder / "report.xml").touch()
    regraded = project.whet("regrade", folder.name)
    again = project.whet("run", "--resume", folder.name)

    verified = project.whet("verify", folder.name)

    assert (regraded.code, again.code) == (1, 1), regraded.stderr + again.stderr
    assert verified.code == 0, verified.stdout


@pytest.mark.parametrize("reading", [("run", "--resume", "latest"), ("regrade", "latest")])
@pytest.mark.parametrize(
    "what", ["garbage after the end", "half a line after the end", "a link instead of the journal"]
)
def test_a_journal_that_was_added_to_or_replaced_is_refused(
    project: Project, done: Outcome, what: str, reading: tuple[str, ...]
) -> None:
    change, said = CHANGES[what]
    change(done.folder)
    data = (done.folder / "journal.jsonl").read_bytes()

    refused = project.whet(*reading)

    assert refused.code == 2, refused.stdout
    assert said in refused.stderr
    assert (done.folder / "journal.jsonl").read_bytes() == data


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

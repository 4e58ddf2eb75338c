"""Kill and resume: nothing is lost, nothing is done twice, nothing is left running."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from project import PATIENCE_S, SHELL, Project, wait_for

from whet.record import sources
from whet.record.sources import SourceFile
from whet.run.scratch import clear_scratch

KILLS = 20
CASES, TRIALS, LANES = 20, 3, 4
# Each run of an agent leaves a file when it begins and another when it is about to end well.
COUNTED = """
    import os
    AGENT = '''
    mark=$WHET_CASE_ID.$$.$(date +%s%N)
    : > begun.$mark
    (setsid env -i sh -c 'trap "" TERM HUP; sleep 60; : {token}' >/dev/null 2>&1 &)
    sleep 0.15
    : > ended.$mark
    echo $WHET_CASE_ID
    '''
    def named(report, ctx):
        Path("{outside}", f"checked.{report.final_output}.{os.urandom(8).hex()}").touch()
    suite = [Case(id=f"c{n:02}", prompt=AGENT, check=named) for n in range(20)]
"""


@pytest.fixture
def counted(boxed: Project) -> Project:
    # A given folder is the one place that agents of both sandboxes can write to and we can look into.
    boxed.settings(
        SHELL
        + 'env = { PROOF = "{token}" }\n[run]\ncwd = "{outside}"\nschedule = "parallel"\nmax_parallel = 4\ntrials = 3\n'
    )
    boxed.suite(COUNTED)
    return boxed


def keys(project: Project) -> Counter[str]:
    """How often each trial stands in the journal; a line that was cut off is none."""
    return Counter(f"{line['key']['case']}#{line['key']['number']}" for line in project.journal())


def marks(folder: Path, kind: str) -> Counter[str]:
    return Counter(path.name.split(".")[1] for path in folder.glob(f"{kind}.*"))


@pytest.mark.slow
def test_a_run_killed_twenty_times_loses_nothing_and_doubles_nothing(counted: Project) -> None:
    chance = random.Random(20260)
    arguments: tuple[str, ...] = ("suite.py",)
    finished: Counter[str] = Counter()
    hit = 0

    for _ in range(KILLS):
        running = counted.start(*arguments, cold=True)
        _wait_for_some(counted, running, finished.total() + chance.choice([0, 0, 0, 1, 2]))
        time.sleep(chance.uniform(0, 0.4) if chance.random() < 0.3 else chance.uniform(0, 0.05))
        hit += running.poll() is None
        running.kill()
        running.communicate()
        assert counted.left_after_a_while() == [], "something outlived the killed run"
        if (counted.output_dir / "latest" / "run.json").exists():
            arguments = ("--resume", "latest")
            now = keys(counted)
            assert not finished - now, "a finished trial was lost"
            finished = now
    done = counted.outcome(counted.start(*arguments, cold=True), within_s=60)

    assert done.code == 0, done.stderr
    assert hit == KILLS, "the run was done before it was killed often enough"
    assert keys(counted) == Counter({f"c{case:02}#{number}": 1 for case in range(CASES) for number in range(1, 4)})
    assert len(done.trials) == CASES * TRIALS
    assert done.results["counts"]["passed"] == CASES * TRIALS
    assert counted.left_after_a_while() == []
    begun, ended = marks(counted.outside, "begun"), marks(counted.outside, "ended")
    assert all(ended[f"c{case:02}"] >= TRIALS for case in range(CASES))
    # What is done again is what was under way: at most one trial of each lane for each kill.
    assert begun.total() <= CASES * TRIALS + KILLS * LANES


def _wait_for_some(project: Project, running: subprocess.Popen[bytes], lines: int) -> None:
    """Until so many trials have ended, or the run has."""
    path = project.output_dir / "latest" / "journal.jsonl"
    while lines and running.poll() is None and not (path.exists() and path.read_bytes().count(b"\n") >= lines):
        time.sleep(0.005)


def test_a_finished_trial_is_never_run_again_after_a_kill(counted: Project) -> None:
    running = counted.start("suite.py", "--schedule", "serial")
    wait_for(counted.outside, pattern="ended.*", count=9)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    finished = keys(counted)
    ran_before = marks(counted.outside, "begun")

    done = counted.whet("run", "--resume", "latest", "--schedule", "parallel", "--max-parallel", "8")

    ran = marks(counted.outside, "begun")
    again = ran.total() - CASES * TRIALS
    assert done.code == 0, done.stderr
    assert finished.total() >= 7
    assert ran_before.total() - finished.total() <= 1
    # Only what was under way when the kill came was begun a second time.
    assert 0 <= again <= 1
    assert counted.left_after_a_while() == []


def test_an_agent_and_its_daemons_end_with_a_killed_run_before_any_resume(boxed: Project) -> None:
    boxed.settings(SHELL + 'env = { PROOF = "{token}" }\n[run]\ncwd = "{outside}"\n')
    boxed.suite("""
        AGENT = "setsid env -i sh -c 'sleep 600; : {token}' & : > begun; sleep 600"
        suite = [Case(id="slow", prompt=AGENT, check=ok)]
    """)
    running = boxed.start("suite.py")
    wait_for(boxed.outside / "begun")

    os.kill(running.pid, signal.SIGKILL)
    running.communicate()

    assert boxed.left_after_a_while() == []


@pytest.mark.parametrize("starts", ["subprocess.run(argv)", "ctx.run(argv)"])
def test_what_a_check_started_ends_with_a_killed_run_before_any_resume(boxed: Project, starts: str) -> None:
    boxed.settings(SHELL)
    boxed.suite(f"""
        def slow(report, ctx):
            argv = ["sh", "-c", "(env -i setsid sh -c 'sleep 600; : {{token}}' &); sleep 600; : {{token}}"]
            Path("{{outside}}/begun").touch()
            {starts}
        suite = [Case(id="slow", prompt="true", check=slow)]
    """)
    running = boxed.start("suite.py")
    wait_for(boxed.outside / "begun")
    _wait_until(boxed.left)

    os.kill(running.pid, signal.SIGKILL)
    running.communicate()

    assert boxed.left_after_a_while() == []


def _wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def test_scratch_folders_of_a_killed_run_are_cleared_by_the_resume(project: Project, tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    project.env["TMPDIR"] = str(scratch)
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="slow", prompt="test -e {outside}/begun && exit; : > {outside}/begun; sleep 600", check=ok)]
    """)
    running = project.start("suite.py")
    wait_for(project.outside / "begun")
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()

    done = project.whet("run", "--resume", "latest")

    assert done.code == 0, done.stderr
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "mode", "stays"),
    [("whet-12345678", 0o700, False), ("whet-12345678", 0o755, True), ("my-documents", 0o700, True)],
    ids=["a scratch folder", "open to others", "another name"],
)
def test_a_note_of_a_scratch_folder_is_not_followed_to_anything_else(
    tmp_path: Path, name: str, mode: int, stays: bool
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / name).mkdir()
    (tmp_path / name).chmod(mode)
    (tmp_path / "run" / ".scratch").symlink_to(tmp_path / name)

    clear_scratch(tmp_path / "run")

    assert (tmp_path / name).exists() is stays
    assert list((tmp_path / "run").iterdir()) == []


def test_a_torn_last_line_is_done_again_and_a_resume_of_a_whole_run_does_nothing(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id=f"c{n}", prompt="echo x >> {outside}/ran.$WHET_CASE_ID", check=ok) for n in range(3)]
    """)
    project.run("--schedule", "serial")
    journal = project.output_dir / "latest" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    # A run that a crash cut short has no results yet; where it has, a shorter journal was cut by somebody else.
    journal.with_name("results.json").unlink()

    torn = project.whet("run", "--resume", "latest")
    whole = project.whet("run", "--resume", "latest")

    assert torn.code == whole.code == 0, torn.stderr
    assert "the last line of the journal was cut off and is dropped" in torn.stdout + torn.stderr
    assert "cut off" not in whole.stdout + whole.stderr
    assert keys(project) == Counter({f"c{n}#1": 1 for n in range(3)})
    assert [(project.outside / f"ran.c{n}").read_text().count("x") for n in range(3)] == [1, 1, 2]
    assert whole.results["counts"]["passed"] == 3


def test_a_resume_tells_of_failures_that_an_earlier_part_found(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="exit 1", check=ok), Case(id="b", prompt="true", check=ok)]')
    project.run()

    again = project.whet("run", "--resume", "latest")

    assert again.code == 1
    assert again.statuses == {"a": "failed", "b": "passed"}


def test_of_two_resumes_at_once_one_is_refused(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="slow", prompt="test -e {outside}/first || { : > {outside}/first; sleep 600; }; : > {outside}/second; while [ ! -e {outside}/go ]; do sleep 0.02; done",
                      check=ok)]
    """)
    first = project.start("suite.py")
    wait_for(project.outside / "first")
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    one = project.start("--resume", "latest")
    wait_for(project.outside / "second")

    two = project.whet("run", "--resume", "latest")
    (project.outside / "go").touch()
    ended = project.outcome(one)

    assert two.code == 2
    assert "in use by another whet" in two.stderr
    assert ended.code == 0, ended.stderr
    assert keys(project) == Counter({"slow#1": 1})


def test_a_changed_suite_a_changed_setting_and_other_flags_are_refused(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok), Case(id="b", prompt="true", check=ok)]')
    project.run()

    flags = project.whet("run", "--resume", "latest", "--trials", "3")
    selection = project.whet("run", "--resume", "latest", "--case", "a")
    project.settings(SHELL + "[defaults]\ntimeout_ms = 5\n")
    settings = project.whet("run", "--resume", "latest")
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="false", check=ok), Case(id="b", prompt="true", check=ok)]')
    suite = project.whet("run", "--resume", "latest")
    nothing = project.whet("run", "--resume", "20200101T000000-abcdef")

    assert [done.code for done in (flags, selection, settings, suite, nothing)] == [2] * 5
    assert "cannot change trials" in flags.stderr
    assert "cannot change selection" in selection.stderr
    assert "settings have changed" in settings.stderr
    assert "suite.py has changed" in suite.stderr
    assert "there is no run" in nothing.stderr


def test_reporters_and_parallelism_may_differ_in_a_resume(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')
    project.run()

    done = project.whet("run", "--resume", "latest", "--max-parallel", "3", "--reporter", "json=out.json")

    assert done.code == 0, done.stderr
    assert (project.root / "out.json").exists()


def test_an_interrupted_run_goes_on_where_it_stopped(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id=f"c{n}", prompt="echo x >> {outside}/ran.$WHET_CASE_ID; touch {outside}/begun.$WHET_CASE_ID; "
                      "test -e {outside}/go || test $WHET_CASE_ID = c0 || sleep 60", check=ok) for n in range(4)]
    """)
    running = project.start("suite.py", "--schedule", "serial")
    wait_for(project.outside / "begun.c1")
    running.send_signal(signal.SIGINT)
    stopped = project.outcome(running)
    (project.outside / "go").touch()

    done = project.whet("run", "--resume", stopped.folder.name)

    assert stopped.code == 130
    assert "--resume" in stopped.stdout
    assert done.code == 0, done.stderr
    assert [(project.outside / f"ran.c{n}").read_text().count("x") for n in range(4)] == [1, 2, 1, 1]
    assert done.results["interrupted"] is False


@pytest.fixture
def templated(project: Project) -> Project:
    """A project whose agent is a script, in workspaces that are copies of a template; it was run once."""
    project.write("agent.sh", "echo one")
    project.write("template/src/a.txt", "a")
    project.write("template/.git/HEAD", "ref: refs/heads/main")
    project.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\nargs = ["./agent.sh"]\n')
    project.suite("""
        workspace = Workspace(mode="isolated", template_dir="template")
        suite = [Case(id="a", prompt="x", check=ok)]
    """)
    assert project.run("--reporter", "json=template/out.json").code == 0
    return project


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("agent.sh", "echo two", "agent.sh has changed"),
        ("template/src/a.txt", "b", "template/src/a.txt has changed"),
        ("template/src/b.txt", "b", "template/src/b.txt is new"),
        ("template/src/a.txt", None, "template/src/a.txt is gone"),
    ],
)
def test_a_changed_template_or_agent_script_is_refused_and_named(
    templated: Project, name: str, text: str | None, said: str
) -> None:
    if text is None:
        (templated.root / name).unlink()
    else:
        templated.write(name, text)

    refused = templated.whet("run", "--resume", "latest")

    assert refused.code == 2, refused.stdout
    assert said in refused.stderr
    assert "its results would mix two things" in refused.stderr


def test_a_changed_mode_counts_and_new_times_and_the_books_of_git_do_not(templated: Project) -> None:
    for path in ("agent.sh", "template/src/a.txt", "template/src"):
        os.utime(templated.root / path, (1, 1))
    templated.write("template/.git/index", "seen")
    templated.write("template/__pycache__/x.pyc", "made")

    same = templated.whet("run", "--resume", "latest")
    (templated.root / "template/src/a.txt").chmod(0o755)
    other = templated.whet("run", "--resume", "latest")

    assert same.code == 0, same.stderr
    assert other.code == 2
    assert "a.txt has changed" in other.stderr


def test_of_a_template_that_is_too_much_to_hash_size_and_time_count(
    templated: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = templated.root / "template/src/a.txt"
    before = path.stat()
    seen = SourceFile(mode=0o644, size=before.st_size, mtime_ns=before.st_mtime_ns, digest=None)

    same = sources._is_same(seen, seen, str(path))
    touched = sources._is_same(seen, replace(seen, mtime_ns=1), str(path))
    # Something else was left out of the hashing the second time: content still decides.
    monkeypatch.setattr(sources, "digest_of", lambda *_: "d")
    hashed = sources._is_same(replace(seen, digest="d"), replace(seen, mtime_ns=1), str(path))

    assert (same, touched, hashed) == (True, False, True)


def test_a_trial_that_a_full_disk_stopped_is_done_again_by_the_resume(project: Project, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    project.settings(SHELL)
    project.suite('suite = [Case(id=f"c{n}", prompt="true", check=ok) for n in range(3)]')
    whet = f"{sys.executable} -m whet run"
    # A file system of our own, with room for the folder of the run and for nothing else; then another one.
    script = f"""
        mount -t tmpfs -o nr_inodes=3 tmpfs {disk} || exit 99
        TMPDIR={disk} {whet} suite.py --max-parallel 1; echo "code $?"
        TMPDIR={tmp_path} {whet} --resume latest; echo "code $?"
    """
    apart = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]

    ended = subprocess.run(
        [*apart, "sh", "-c", script], cwd=project.root, env=project.environment(), capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip

    if ended.returncode in (1, 99) and "code" not in ended.stdout:
        pytest.skip(f"no file system of our own can be mounted here: {ended.stderr.strip()}")
    codes = [line for line in ended.stdout.splitlines() if line.startswith("code ")]
    journal = project.journal()
    assert codes == ["code 3", "code 0"], ended.stdout + ended.stderr
    assert "--resume runs this trial again" in ended.stdout
    assert [line["failure"] and line["failure"]["code"] for line in journal] == ["disk"] * 3 + [None] * 3
    assert project.whet("verify", "latest").code == 0
    results = json.loads((project.output_dir / "latest" / "results.json").read_bytes())
    assert results["counts"]["passed"] == results["counts"]["total"] == 3


# Sends the signal in the middle of the making of the event loop.
EARLY = """
import os, selectors, signal, sys

class Signalled(selectors.DefaultSelector):
    def __init__(self):
        if sys._getframe(1).f_globals["__name__"] == "asyncio.selector_events":
            os.kill(os.getpid(), signal.SIGINT)
        super().__init__()

selectors.DefaultSelector = Signalled
"""


def test_a_signal_while_the_event_loop_is_made_ends_without_a_word(project: Project):
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')
    (project.outside / "sitecustomize.py").write_text(EARLY)

    done = project.run(env={"PYTHONPATH": str(project.outside)})

    assert done.code == 130
    assert "Exception ignored" not in done.stderr
    assert "Traceback" not in done.stderr
    assert project.whet("run", "--resume", "latest").code == 0

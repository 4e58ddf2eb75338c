"""Checks that reach for what lies around them: each costs its own trial, and no other."""

# ruff: noqa: E501 - suites stand here as their authors would write them

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from project import PATIENCE_S, PYTHON, SHELL, Project, wait_for


@pytest.mark.parametrize("ending", ["SIGTERM", "SIGKILL", "SIGSTOP"])
def test_a_check_that_reaches_for_its_parent_harms_no_other_trial(project: Project, ending: str) -> None:
    project.settings(SHELL)
    project.suite(f"""
        def kills():
            os.kill(os.getppid(), signal.{ending})
            time.sleep(0.5)
            assert False
        suite = [Case(id="kills", prompt="true", check=kills), *(Case(id=f"c{{n}}", prompt="true", check=ok) for n in range(4))]
    """)

    done = project.run("--max-parallel", "2")

    assert done.statuses.pop("kills") in ("errored", "failed")
    assert {done.statuses[f"c{number}"] for number in range(4)} == {"passed"}


def test_a_check_can_neither_write_into_the_journal_nor_hold_the_lock(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def looks():
            held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
            print(*held, sep="\\n")
            assert not [path for path in held if path.endswith(("journal.jsonl", ".lock"))]
        suite = [Case(id="a", prompt="true", check=looks)]
    """)

    done = project.run()

    assert done.code == 0, done.message("a")


def test_a_check_that_garbles_its_own_answer_costs_its_trial_and_no_memory(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def garbles():
            for fd in range(3, 100):
                try:
                    os.write(fd, b"\\xff" * 64)
                except OSError:
                    pass
        suite = [Case(id="garbles", prompt="true", check=garbles), Case(id="b", prompt="true", check=ok)]
    """)

    done = project.run("--schedule", "serial")

    assert done.codes == {"garbles": "checker-died", "b": None}


def test_a_check_that_is_killed_during_a_command_leaves_nothing_in_the_temporary_folder(project: Project) -> None:
    temporary = project.outside / "temporary"
    temporary.mkdir()
    project.settings(SHELL + "[defaults]\ncheck_timeout_ms = 500\n")
    project.suite('suite = [Case(id="a", prompt="true", check=lambda s, ctx: ctx.run("sleep 600"))]')

    done = project.run(env={"TMPDIR": str(temporary)})

    assert done.codes == {"a": "check-timeout"}
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_whoever_started_us_ignores_does_not_end_the_run(
    project: Project, number: signal.Signals
) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="a", prompt="touch {outside}/began; while ! test -e {outside}/go; do sleep 0.05; done", check=ok)]
    """)
    line = f"trap '' {number.name[3:]}; exec \"{sys.executable}\" -m whet run suite.py"
    whet = subprocess.Popen(["sh", "-c", line], cwd=project.root, env=project.environment(), start_new_session=True)

    wait_for(project.outside / "began")
    os.kill(whet.pid, number)
    (project.outside / "go").touch()

    assert whet.wait(PATIENCE_S) == 0


def test_a_signal_before_the_first_trial_leaves_nothing_behind(project: Project) -> None:
    temporary = project.outside / "temporary"
    temporary.mkdir()
    project.settings(SHELL)
    project.write("slow.py", SLOW)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')

    whet = project.start("suite.py", "--reporter", "slow:Slow", env={"TMPDIR": str(temporary)})
    wait_for(Path(project.outside / "telling"))
    whet.send_signal(signal.SIGTERM)
    done = project.outcome(whet)

    assert done.code == 130, done.stderr
    assert list(temporary.iterdir()) == []


# Holds the run between the making of its folders and its first trial.
SLOW = """
import pathlib, time
class Slow:
    def __init__(self, context): pass
    def __call__(self, event):
        if type(event).__name__ == "RunStarted":
            pathlib.Path("{outside}/telling").touch()
            time.sleep(1)
    def close(self): pass
"""


HOLE = "open('answer.txt', 'wb').truncate(8 << 30)"


def test_a_file_larger_than_memory_fails_its_trial_and_takes_nothing_else_along(project: Project) -> None:
    project.settings(PYTHON)
    project.suite(f"""
        def reads(ctx): assert "42" in ctx.read("answer.txt")
        def contains(ctx): expect.files.contains(ctx, "answer.txt", "42")
        def reads_itself(ctx): assert "42" in (ctx.workspace / "answer.txt").read_text()
        suite = [Case(id=check.__name__, prompt={HOLE!r}, check=check) for check in (reads, contains, reads_itself)]
    """)

    done = project.run()

    assert done.codes == {"reads": "check-crash", "contains": "assertion", "reads_itself": "check-crash"}
    assert "has more than 64 MiB" in done.message("reads")
    assert "MemoryError" in done.message("reads_itself")

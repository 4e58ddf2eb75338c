"""Nothing that an attempt started outlives it: not after success, a timeout, an interrupt or a kill."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import contextlib
import os
import pty
import signal
import sys
import time
from pathlib import Path

import pytest
from project import EVENTS, PATIENCE_S, PYTHON, Outcome, Project, wait_for

# It leaves its session, forks twice, and lets go of everything that could give it away but its arguments.
DAEMON = """
import os, sys, time
def daemon(env):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2): os.dup2(null, fd)
            os.execve("/bin/sh", ["sh", "-c", "trap '' TERM HUP INT; while :; do sleep 1; done; : {token}"], env)
        os._exit(0)
    os.wait()
daemon(dict(os.environ))
daemon({})
time.sleep(0.2)
print("ready", flush=True)
"""
SLEEPS = (
    DAEMON
    + """
open("begun", "w").close()
time.sleep(600)
"""
)
STUBBORN = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.execv("/bin/sh", ["sh", "-c", "trap '' TERM; while :; do sleep 1; done; : {token}"])
open("begun", "w").close()
while True: time.sleep(1)
"""
# Forks, leaves its session, forks again and executes without environment: by the time it writes, its agent has ended.
LATE = """
import os, time
until = time.time() + 300
while not os.path.exists("beside") and time.time() < until: time.sleep(0.01)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sh", ["sh", "-c", "sleep 0.4; : > {outside}/answer; : {token}"], {})
    os._exit(0)
os.wait()
"""
BESIDE = """
import time
open("beside", "w").close()
time.sleep(3)
"""


@pytest.fixture
def daemons(boxed: Project) -> Project:
    # One shared folder that we can look into while agents work, whatever the sandbox.
    boxed.settings(PYTHON + '[run]\ncwd = "{outside}"\nmax_parallel = 2\nschedule = "parallel"\n')
    return boxed


def test_a_daemon_is_dead_after_success(daemons: Project) -> None:
    daemons.suite(f"""
        suite = [Case(id=f"c{{n}}", prompt={DAEMON!r}, check=lambda report, ctx: expect.ok(ctx.final_output() == "ready"))
                 for n in range(4)]
    """)

    done = daemons.run()

    assert done.code == 0, done.trials
    assert daemons.left() == []


def test_a_daemon_is_dead_when_its_own_attempt_ends_not_only_at_the_end_of_the_run(daemons: Project) -> None:
    daemons.suite(f"""
        def alone(report, ctx):
            left = [p.name for p in Path("/proc").glob("[0-9]*") if b"{{token}}" in read(p / "cmdline") and p.name != str(os.getpid())]
            assert not left, left
        def read(path):
            try: return path.read_bytes()
            except OSError: return b""
        suite = [Case(id=f"c{{n}}", prompt={DAEMON!r}, check=alone) for n in range(2)]
    """)

    done = daemons.run("--schedule", "serial")

    assert done.code == 0, [trial["failure"] for trial in done.trials]


def test_a_daemon_is_dead_after_a_timeout(daemons: Project) -> None:
    daemons.suite(f"""
        suite = [Case(id="late", prompt={SLEEPS!r}, timeout_ms=1500, check=ok), Case(id="good", prompt="1", check=ok)]
    """)

    done = daemons.run()

    assert done.code == 1
    assert done.statuses == {"late": "failed", "good": "passed"}
    assert done.codes["late"] == "timeout"
    assert done.trial("late")["failure_class"]["id"] == "timeout"
    assert daemons.left() == []


def test_a_daemon_without_environment_cannot_turn_a_verdict_while_another_trial_runs(daemons: Project) -> None:
    daemons.suite(f"""
        def later(report, ctx):
            time.sleep(1)
            assert not Path("{{outside}}/answer").exists(), "it was written after the agent had ended"
        suite = [Case(id="beside", prompt={BESIDE!r}, check=ok), Case(id="late", prompt={LATE!r}, check=later)]
    """)

    done = daemons.run()

    assert done.statuses == {"beside": "passed", "late": "passed"}, done.message("late")
    assert (daemons.outside / "beside").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_daemon_is_dead_after_an_interrupt_and_the_record_is_kept(daemons: Project, number: int) -> None:
    daemons.suite(f"""
        suite = [Case(id="good", prompt="1", check=ok), Case(id="slow", prompt={SLEEPS!r}, check=ok),
                 Case(id="never", prompt="1", check=ok)]
    """)
    running = daemons.start("suite.py", "--schedule", "serial")
    wait_for(daemons.outside / "begun")

    running.send_signal(number)
    done = daemons.outcome(running)

    assert done.code == 130, done.stderr
    assert daemons.left() == []
    assert done.statuses == {"good": "passed"}
    assert done.results["interrupted"] is True
    assert done.results["counts"]["not_run"] == 2
    assert "Traceback" not in done.stderr


def test_an_agent_that_ignores_sigterm_is_killed_with_its_children(daemons: Project) -> None:
    daemons.suite(f"""
        suite = [Case(id="late", prompt={STUBBORN!r}, timeout_ms=1000, check=ok), Case(id="good", prompt="1", check=ok)]
    """)

    done = daemons.run()

    assert done.statuses == {"late": "failed", "good": "passed"}
    assert done.codes["late"] == "timeout"
    assert daemons.left() == []


def test_an_agent_may_tidy_up_when_it_is_stopped_and_still_timed_out(daemons: Project) -> None:
    tidy = """
import signal, sys, time
def leave(*_):
    open("tidied", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
time.sleep(600)
"""
    daemons.suite(f"suite = [Case(id='late', prompt={tidy!r}, timeout_ms=1000, check=ok)]")

    done = daemons.run()

    assert done.codes == {"late": "timeout"}
    assert daemons.sandbox == "bubblewrap" or (daemons.outside / "tidied").exists()


def test_a_second_interrupt_ends_everything_at_once(daemons: Project) -> None:
    daemons.suite(f"suite = [Case(id='slow', prompt={STUBBORN!r}, check=ok)]")
    running = daemons.start("suite.py")
    wait_for(daemons.outside / "begun")

    running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGINT)
    done = daemons.outcome(running)

    assert done.code == 130
    assert daemons.left_after_a_while() == []


def test_a_terminal_that_closes_ends_the_run_with_its_results_however_often_it_says_so(daemons: Project) -> None:
    daemons.suite(f"""
        suite = [Case(id="good", prompt="1", check=ok), Case(id="slow", prompt={SLEEPS!r}, check=ok)]
    """)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(daemons.root)
        argv = [sys.executable, "-m", "whet", "run", "suite.py", "--schedule", "serial"]
        os.execve(sys.executable, argv, daemons.environment())
    _look_at(terminal, until=daemons.outside / "begun")

    os.close(terminal)
    code = _end_of(pid, told_again=signal.SIGHUP)

    done = Outcome(code, "", "", daemons.output_dir)
    assert (done.code, done.statuses) == (130, {"good": "passed"})
    assert done.results["interrupted"] is True
    assert daemons.left() == []


def _look_at(terminal: int, *, until: Path) -> None:
    """Read what is shown, as a terminal does, until the file is there."""
    os.set_blocking(terminal, False)
    deadline = time.monotonic() + PATIENCE_S
    while not until.exists():
        assert time.monotonic() < deadline, f"{until} never came"
        with contextlib.suppress(BlockingIOError):
            os.read(terminal, 65536)
        time.sleep(0.01)


def _end_of(pid: int, *, told_again: signal.Signals) -> int:
    """The exit code of a child; as a shell in a closing terminal does, it is told again, here until it has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        os.kill(pid, told_again)
        time.sleep(0.01)
    raise AssertionError("it does not end")


def test_what_interrupted_trials_had_spent_is_in_the_results_and_stays_after_a_resume(project: Project) -> None:
    project.settings(EVENTS)
    project.suite("""
        AGENT = '''
        echo '{"type": "usage", "input_tokens": 100, "output_tokens": 10, "cost_usd": 0.25}'
        test -e {outside}/begun || { : > {outside}/begun; sleep 600; }
        echo '{"type": "final_output", "text": "done"}'
        echo '{"type": "session_ended", "ok": true}'
        '''
        suite = [Case(id="slow", prompt=AGENT, check=ok)]
    """)
    running = project.start("suite.py")
    wait_for(project.outside / "begun")
    time.sleep(0.2)

    running.send_signal(signal.SIGINT)
    cut = project.outcome(running)
    found = cut.results
    whole = project.whet("run", "--resume", "latest")

    assert (cut.code, whole.code) == (130, 0), whole.stderr
    assert found["interrupted"] is True
    assert found["total_usage"] == found["interrupted_usage"]
    assert found["total_usage"]["cost_usd"] == 0.25
    assert whole.results["interrupted_usage"]["cost_usd"] == 0.25
    assert whole.results["total_usage"]["cost_usd"] == 0.5
    assert whole.results["total_usage"]["input_tokens"] == 200
    assert whole.trial("slow")["total_usage"]["cost_usd"] == 0.25


def test_a_daemon_of_a_bootstrap_command_is_dead_with_it(boxed: Project) -> None:
    boxed.settings(PYTHON)
    boxed.write("boot.py", DAEMON)
    boxed.suite("""
        workspace = Workspace(mode="isolated", bootstrap=Bootstrap(command="python3", args=["./boot.py"]))
        suite = [Case(id="a", prompt="1", check=ok)]
    """)

    done = boxed.run()

    assert done.code == 0, done.message("a")
    assert boxed.left() == []

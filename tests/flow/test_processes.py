"""Nothing that an attempt started outlives it: not after success, a timeout, an interrupt or a kill."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import signal

import pytest
from project import PYTHON, Project, wait_for

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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

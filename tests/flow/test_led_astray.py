"""Suites, reporters and surroundings that would lead a run astray: the verdict stands, and nothing is destroyed."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from project import EVENTS, PATIENCE_S, SHELL, Project, wait_for


@pytest.fixture
def failing(project: Project) -> Project:
    """A project whose only case fails."""
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=no)]')
    return project


def test_a_report_into_a_pipe_is_written_into_it_and_does_not_take_its_place(failing: Project) -> None:
    pipe = failing.root / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()

    done = failing.run("--reporter", "junit=pipe")

    reader.join(PATIENCE_S)
    assert done.code == 1, done.stderr
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert b"<testsuites" in read[0]


@pytest.mark.parametrize("target", ["suite.py", "whet.toml", ".whet/runs/latest/results.json"])
def test_a_report_over_a_file_that_whet_needs_is_refused(failing: Project, target: str) -> None:
    failing.run()
    before = (failing.root / target).read_bytes()

    done = failing.run("--reporter", f"junit={target}")

    assert done.code == 2
    assert "whet needs" in done.stderr
    assert (failing.root / target).read_bytes() == before


@pytest.mark.parametrize(
    ("reporter", "code"),
    [
        (
            "class Rude:\n    def __init__(self, context): pass\n    def __call__(self, event): pass\n    def close(self): raise SystemExit(0)",
            1,
        ),
        ("def Rude(context): raise SystemExit(0)", 2),
        ("raise SystemExit(0)", 2),
    ],
    ids=["as it is let go", "as it is made", "as it is loaded"],
)
def test_a_reporter_that_exits_cannot_make_a_failed_run_look_good(failing: Project, reporter: str, code: int) -> None:
    failing.write("rude.py", reporter + "\n")

    done = failing.run("--reporter", "rude:Rude")

    assert done.code == code, done.stderr


def test_an_exit_handler_of_a_suite_cannot_either(project: Project) -> None:
    project.settings(SHELL)
    project.suite(
        'import atexit\natexit.register(lambda: os._exit(0))\nsuite = [Case(id="a", prompt="true", check=no)]'
    )

    done = project.run()

    assert done.code == 1


def test_a_check_that_yields_is_refused_because_nothing_would_run_it(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        @case(prompt="true")
        def once(report):
            yield
            assert False
        @case(prompt="true")
        async def later(report):
            yield
            assert False
        class Later:
            async def __call__(self, report):
                yield
                assert False
        suite = [once, later, Case(id="object", prompt="true", check=Later())]
    """)

    done = project.run()

    assert done.code == 2
    assert done.stderr.count("check: must not yield") == 3


def test_a_generator_that_a_check_makes_and_drops_is_refused_because_nothing_in_it_runs(project: Project) -> None:
    project.settings(SHELL)
    project.write("helpers.py", "async def asks(report):\n    yield\n    assert False\n")
    project.suite("""
        import helpers
        from contextlib import contextmanager
        from helpers import asks
        def each(report):
            yield report
        @contextmanager
        def fine(report):
            yield report
        def drops(report):
            asks(report)
            helpers.asks(report)
            each(report)
            assert each(report)
        def drops_its_own(report):
            def inner():
                yield
            inner()
        async def goes_through(report, each=print):
            fine(report)
            each(report)
            assert [*map(helpers.asks, [report])]
            def inner():
                yield
            inner = print
            inner()
        suite = [Case(id=f.__name__, prompt="true", check=f) for f in (drops, drops_its_own, goes_through)]
    """)

    done = project.run()

    lines = (project.root / "suite.py").read_text().splitlines()
    told = re.findall(r"line (\d+): (\S+)\(\.\.\.\) makes a generator", done.stderr)
    assert done.code == 2, done.stdout
    assert [name for _, name in told] == ["asks", "helpers.asks", "each", "each", "inner"]
    assert all(f"{name}(" in lines[int(line) - 1] for line, name in told)


@pytest.mark.parametrize("where", ["suite", "helper", "helper of a check"])
def test_an_assertion_that_cannot_fail_is_refused(project: Project, where: str) -> None:
    project.settings(SHELL)
    project.write("helpers.py", 'def look(report):\n    assert (report is None, "there is one")\n')
    before, inside = {
        "suite": ("", 'assert (report is None, "there is one")'),
        "helper": ("from helpers import look", "look(report)"),
        "helper of a check": ("", "from helpers import look"),
    }[where]
    project.suite(f"{before}\n@case(prompt='true')\ndef asks(report):\n    {inside}\n")

    done = project.run()

    told = done.message("asks") if where == "helper of a check" else done.stderr
    assert "the assertion is always true" in told
    assert "SyntaxWarning" not in done.stderr
    if where == "helper of a check":
        assert done.codes["asks"] == "check-mistake"
    else:
        assert done.code == 2


def test_a_thread_that_a_suite_leaves_behind_does_not_hold_the_run(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        import threading
        threading.Thread(target=lambda: time.sleep(10_000)).start()
        suite = [Case(id="a", prompt="true", check=ok)]
    """)

    done = project.run()

    assert done.code == 0, done.stderr


@pytest.mark.parametrize("parallel", ["1", "4"])
def test_what_one_check_does_to_its_process_reaches_no_other(project: Project, parallel: str) -> None:
    project.settings(SHELL)
    project.suite("""
        import builtins, json
        seen = []
        def spoils():
            seen.append(1); os.environ["LEAK"] = "1"; os.chdir("/usr"); json.loads = None; builtins.len = lambda x: 42
            signal.alarm(1)
        def clean():
            time.sleep(0.3)
            assert seen == [] and "LEAK" not in os.environ and os.getcwd() != "/usr"
            assert json.loads("1") == 1 and len("ab") == 2
        suite = [Case(id="spoils", prompt="true", check=spoils), *(Case(id=f"c{n}", prompt="true", check=clean) for n in range(5))]
    """)

    done = project.run("--max-parallel", parallel)

    assert done.code == 3, [done.message(case) for case in done.statuses]
    assert done.codes == {"spoils": "checker-died", **{f"c{number}": None for number in range(5)}}


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_whoever_started_us_closed_are_missed_by_nobody(failing: Project, closed: str) -> None:
    line = f'"{sys.executable}" -m whet run suite.py {closed}'

    ended = subprocess.run(
        line, shell=True, cwd=failing.root, env=failing.environment(), timeout=PATIENCE_S, check=False
    )

    assert ended.returncode == 1


def test_the_way_to_go_on_that_is_printed_works_where_the_record_lies_elsewhere(failing: Project) -> None:
    first = failing.run("--output-dir", "elsewhere")
    hint = next(line for line in first.stdout.splitlines() if "--last-failed" in line)

    again = failing.whet(*hint.split("whet ", 1)[1].split())

    assert again.code == 1, again.stderr


def test_what_a_suite_does_to_the_process_while_it_loads_ends_with_its_loading(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        os.chdir("/usr")
        sys.path.clear()
        os.fork()
        suite = [Case(id="a", prompt="echo x >> {outside}/ran", check=ok)]
    """)

    done = project.run("--reporter", "junit=report.xml")

    assert done.code == 0, done.stderr
    assert (project.root / "report.xml").exists()
    assert (project.outside / "ran").read_text() == "x\n"


def test_numbers_beyond_reason_are_refused_and_large_ones_start_no_more_than_there_is_to_do(failing: Project) -> None:
    failing.settings(SHELL + "[run]\nmax_parallel = 99999999999999999999\ntrials = 99999999999999999999\n")

    done = failing.run()
    many = failing.run("--config", str(failing.write("other.toml", SHELL)), "--max-parallel", "10000")

    assert done.code == 2
    assert "run.max_parallel" in done.stderr
    assert "run.trials" in done.stderr
    assert many.code == 1, many.stderr


def test_ids_of_any_script_have_folders_that_can_be_read(project: Project) -> None:
    project.settings(SHELL)
    project.suite("suite = [Case(id=i, prompt='true', check=ok) for i in ('日本', '中国', '-rf', 'é')]")

    done = project.run()

    assert done.code == 0, done.stderr
    assert {path.name for path in (done.folder / "trials").iterdir()} == {"日本", "中国", "_-rf", "é"}


def test_marked_functions_that_a_suite_imports_from_beside_it_are_its_cases_too(project: Project) -> None:
    project.settings(SHELL)
    project.write("others.py", "from whet import case\n@case(prompt='true')\ndef theirs(): pass\n")
    project.suite("from others import *\n@case(prompt='true')\ndef mine(): pass\n")

    done = project.run()

    assert list(done.statuses) == ["mine", "theirs"]


@pytest.mark.parametrize(
    "line",
    ['{"type": "usage", "input_tokens": -5}', '{"type": "tool_call", "tool": "x", "args": ' + "[" * 100_000],
    ids=["negative usage", "nested without end"],
)
def test_an_event_that_cannot_be_is_unreadable_and_no_fault_of_ours(project: Project, line: str) -> None:
    project.settings(EVENTS)
    (project.root / "line.json").write_text(line)
    project.suite(f'suite = [Case(id="a", prompt="cat {project.root}/line.json", check=ok)]')

    done = project.run()

    assert done.codes == {"a": "normalization"}


def test_a_password_in_an_address_is_masked_like_any_other_secret(project: Project) -> None:
    project.settings(
        SHELL + 'env = { DATABASE_URL = "postgres://me:hunter2hunter2@db/x", GH_PAT = "abcdefgh12345678" }\n'
    )
    project.suite('suite = [Case(id="a", prompt="echo $DATABASE_URL $GH_PAT", check=no)]')

    done = project.run()

    for path in done.folder.rglob("*"):
        if path.is_file():
            assert b"hunter2" not in path.read_bytes(), path
            assert b"abcdefgh12345678" not in path.read_bytes(), path


def test_the_workspace_of_an_unexpected_pass_is_kept_and_that_of_an_expected_failure_is_not(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="passes", prompt="echo x > f", check=ok, expected_fail=True),
                 Case(id="fails", prompt="echo x > f", check=no, expected_fail=True)]
    """)

    done = project.run()

    assert (done.folder / done.trial("passes")["workspace_dir"] / "f").exists()
    assert done.trial("fails")["workspace_dir"] is None


def test_a_record_that_cannot_be_begun_is_one_clear_error(failing: Project) -> None:
    line = f'ulimit -f 0; "{sys.executable}" -m whet run suite.py 2>&1'

    ended = subprocess.run(
        ["sh", "-c", line],
        cwd=failing.root,
        env=failing.environment(),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert ended.returncode == 2
    assert b"Traceback" not in ended.stdout
    assert b"error[store]" in ended.stdout


def test_losing_the_parent_of_the_workers_is_told_as_what_it_is(project: Project) -> None:
    project.settings(SHELL)
    wait = "touch {outside}/begun; while [ ! -e {outside}/go ]; do sleep 0.05; done"
    project.suite(f"""
        def spoil(report, ctx): os.environ["SPOILT"] = "so that b needs another worker"
        suite = [Case(id="a", prompt="{wait}", check=spoil), Case(id="b", prompt="true", check=ok)]
    """)
    process = project.start("suite.py", "--schedule", "serial", cold=True)
    wait_for(project.outside / "begun")

    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [child for child in children if b"suite.py" in Path(f"/proc/{child}/cmdline").read_bytes()]
    for child in workers:
        os.kill(int(child), signal.SIGKILL)
    (project.outside / "go").touch()
    done = project.outcome(process)

    assert workers
    assert done.code == 3, done.stdout
    assert "workers are forked from" in done.message("b")

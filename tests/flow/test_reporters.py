"""Reporters: several at once, one's own, and none that can harm a run."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from project import EVENTS, PATIENCE_S, SHELL, Project

SUITE = 'suite = [Case(id="a", prompt="true", check=ok), Case(id="b", prompt="true", check=no)]'


def test_several_reporters_report_one_run(project: Project) -> None:
    project.settings(SHELL)
    project.suite(SUITE)

    done = project.run(
        "--reporter", "terminal", "--reporter", "junit=out.xml", "--reporter", "json=out.json",
        "--reporter", "markdown=out.md", "--reporter", "github",
        env={"GITHUB_STEP_SUMMARY": str(project.root / "summary.md")},
    )  # fmt: skip

    assert done.code == 1
    assert "1 of 2 trials" in done.stdout
    assert "it is not so" in done.stdout
    assert "::error" in done.stdout
    assert len(ET.parse(project.root / "out.xml").findall(".//testcase")) == 2
    assert json.loads((project.root / "out.json").read_text()) == done.results
    assert "it is not so" in (project.root / "out.md").read_text()
    assert (project.root / "summary.md").exists()


def test_json_alone_has_stdout_for_itself(project: Project) -> None:
    project.settings(SHELL)
    project.suite("print('loading')\n" + SUITE)

    done = project.run("--reporter", "json")

    assert json.loads(done.stdout) == done.results


@pytest.mark.parametrize("target", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_can_be_named_as_the_file_of_a_document(project: Project, target: str) -> None:
    project.settings(SHELL)
    project.suite(SUITE)

    done = project.run("--reporter", f"junit={target}", "--reporter", "terminal")

    assert len(ET.fromstring(done.stdout).findall(".//testcase")) == 2
    assert "1 of 2 trials" in done.stderr


def test_a_document_is_written_into_a_pipe_that_lies_in_a_folder_of_somebody_else(project: Project) -> None:
    project.settings(SHELL)
    project.suite(SUITE)

    done = project.run("--reporter", "junit=/dev/stderr", "--reporter", "terminal")

    assert len(ET.fromstring(done.stderr).findall(".//testcase")) == 2
    assert "1 of 2 trials" in done.stdout


def test_ones_own_reporter_sees_every_event(project: Project) -> None:
    project.settings(SHELL + '[run]\nreporters = ["mine:Mine"]\n')
    project.write(
        "mine.py",
        """
        class Mine:
            def __init__(self, context): pass
            def __call__(self, event): print(type(event).__name__, flush=True)
    """,
    )
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')

    done = project.run()

    assert done.code == 0, done.stderr
    assert done.stdout.split() == ["RunStarted", "TrialStarted", "TrialEnded", "RunEnded"]


@pytest.mark.parametrize("error", ["ValueError('broken')", "SystemExit(0)"])
@pytest.mark.parametrize("event", ["RunStarted", "TrialStarted", "TrialEnded", "RunEnded"])
def test_a_reporter_that_raises_is_named_and_dropped_and_the_run_goes_on(
    project: Project, event: str, error: str
) -> None:
    project.settings(SHELL)
    project.write(
        "mine.py",
        f"""
        class Mine:
            def __init__(self, context): pass
            def __call__(self, event):
                if type(event).__name__ == "{event}": raise {error}
    """,
    )
    project.suite('suite = [Case(id=f"c{n}", prompt="true", check=ok) for n in range(3)]')

    done = project.run("--reporter", "mine:Mine", "--reporter", "terminal")

    assert done.code == 0, done.stderr
    assert done.results["counts"]["passed"] == 3
    assert "mine:Mine" in done.stderr
    assert "3 of 3 trials went as expected" in done.stdout


def test_a_reporter_that_cannot_be_had_is_an_error_before_anything_runs(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt=": > {outside}/ran", check=ok)]')

    unknown = project.run("--reporter", "junti")
    missing = project.run("--reporter", "nowhere:Thing")
    folder = project.run("--reporter", "junit=no/such/out.xml")

    assert [done.code for done in (unknown, missing, folder)] == [2, 2, 2]
    assert 'did you mean "junit"?' in unknown.stderr
    assert "nowhere:Thing" in missing.stderr
    assert "no/such" in folder.stderr
    assert not (project.outside / "ran").exists()
    assert not project.output_dir.exists()


def test_a_reader_that_goes_away_does_not_stop_the_run(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id=f"c{n}", prompt="sleep 0.1", check=ok) for n in range(4)]')
    running = project.start("suite.py", "--schedule", "serial")
    assert running.stdout is not None

    running.stdout.readline()
    running.stdout.close()
    running.wait(timeout=30)

    assert running.stderr is not None
    running.stderr.close()
    results = json.loads((project.output_dir / "latest" / "results.json").read_bytes())
    assert results["counts"]["passed"] == 4


IMPATIENT = """
import sys
from whet.cli.main import main
from whet.report import choose
from whet.report.guard import Patience
choose.PATIENCE = Patience(event_s=1, whole_s=2)
main()
"""


def impatient(project: Project, mine: str) -> subprocess.CompletedProcess[str]:
    """A run with somebody's reporter, by a whet that waits no longer than a test can."""
    project.settings(SHELL)
    project.suite('suite = [Case(id=f"c{n}", prompt="true", check=ok) for n in range(3)]')
    project.write("mine.py", mine)
    arguments = ["run", "suite.py", "--reporter", "mine:Mine", "--reporter", "terminal"]
    return subprocess.run(
        [sys.executable, "-c", IMPATIENT, *arguments],
        cwd=project.root,
        env=project.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("hang", ["time.sleep(3600)", "threading.Thread(target=time.sleep, args=[3600]).run()"])
@pytest.mark.parametrize("where", ["RunStarted", "TrialStarted", "TrialEnded", "RunEnded", "close"])
def test_a_reporter_that_hangs_is_named_and_dropped_and_the_run_ends_as_it_should(
    project: Project, where: str, hang: str
) -> None:
    done = impatient(
        project,
        f"""
        import threading, time
        class Mine:
            def __init__(self, context): pass
            def __call__(self, event): self.hang(type(event).__name__)
            def close(self): self.hang("close")
            def hang(self, where):
                if where == "{where}": {hang}
    """,
    )

    assert done.returncode == 0, done.stderr
    assert "3 of 3 trials went as expected" in done.stdout
    assert done.stderr.count('reporter "mine:Mine" did not return within') == 1


def test_a_reporter_that_hangs_while_it_is_imported_is_an_error_before_anything_runs(project: Project) -> None:
    done = impatient(project, "import time\ntime.sleep(3600)")

    assert done.returncode == 2
    assert done.stderr.startswith('error[plugin]: reporter "mine:Mine" cannot be loaded: its code did not return')
    assert not project.output_dir.exists()


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)"])
def test_a_reporter_that_exits_while_it_is_imported_does_not_pass_for_a_good_run(project: Project, leave: str) -> None:
    project.settings(SHELL)
    project.suite(SUITE)
    project.write("mine.py", f"import os, sys\n{leave}\n")

    done = project.run("--reporter", "mine:Mine")

    assert done.code == 2
    assert done.stderr.splitlines() == [
        'error[plugin]: "mine:Mine" cannot be loaded: it tried to end the program, with exit code 0'
    ]


def test_what_earlier_attempts_cost_is_told_and_adds_up(project: Project) -> None:
    project.settings(EVENTS + "[run]\nretries = 2\n")
    project.suite("""
        SPEND = 'echo x >> {outside}/tries; N=$(wc -l < {outside}/tries)\\n'
        SPEND += 'echo \\'{"type": "usage", "input_tokens": 100, "output_tokens": \\'$N\\', "cost_usd": 0.1}\\''
        def third(report, ctx): assert Path("{outside}/tries").read_text().count("x") == 3
        suite = [Case(id="a", prompt=SPEND, check=third), Case(id="silent", prompt="true", check=ok)]
    """)

    done = project.run("--schedule", "serial")

    trial = done.trial("a")
    assert done.code == 0, done.stdout + done.stderr
    assert [attempt["usage"]["output_tokens"] for attempt in trial["attempts"]] == [1, 2, 3]
    assert (trial["usage"]["output_tokens"], trial["cost_usd"]) == (3, 0.1)
    for total in (trial["total_usage"], done.results["total_usage"]):
        assert (total["input_tokens"], total["output_tokens"], total["cost_usd"]) == (300, 6, 0.3)
        assert (total["cached_tokens"], total["cost_source"]) == (None, "agent")
    assert done.trial("silent")["total_usage"]["cost_usd"] is None
    assert "  retries    up to 2 per trial" in done.stdout
    assert "4 attempts · trial time" in done.stdout
    assert "300 tokens in · 6 tokens out · $0.300" in done.stdout


def test_durations_are_rounded_alike_everywhere(project: Project) -> None:
    project.settings(SHELL + "[run]\nretries = 1\n")
    project.suite(SUITE)

    done = project.run()

    found = [done.results["duration_s"]]
    for trial in done.trials:
        found += [part["duration_s"] for part in (trial, *trial["attempts"], *trial["grades"])]
    assert len(found) == 1 + 2 + 3 + 2
    assert all(seconds == round(seconds, 6) for seconds in found)

"""Reporters: several at once, one's own, and none that can harm a run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import pytest
from project import EVENTS, PATIENCE_S, SHELL, Project, wait_for

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
    running.wait(timeout=300)

    assert running.stderr is not None
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.returncode == 141
    results = json.loads((project.output_dir / "latest" / "results.json").read_bytes())
    assert results["counts"]["passed"] == 4


@pytest.mark.parametrize(
    "reporters",
    ["terminal", "json", "junit", "markdown", "github", "mine:Mine"],
)
def test_a_reader_that_goes_away_is_no_mistake_of_a_reporter(project: Project, reporters: str) -> None:
    project.settings(SHELL)
    project.suite(SUITE)
    project.write(
        "mine.py", "class Mine:\n  def __init__(self, c): pass\n  def __call__(self, e): print(e, flush=True)"
    )
    running = project.start("suite.py", "--reporter", reporters, "--reporter", "junit=out.xml")
    assert running.stdout is not None

    running.stdout.close()
    running.wait(timeout=PATIENCE_S)

    assert running.stderr is not None
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.returncode == 1
    assert len(ET.parse(project.root / "out.xml").findall(".//testcase")) == 2
    assert (project.output_dir / "latest" / "results.json").exists()


def test_a_pipe_of_a_reporters_own_that_breaks_is_a_mistake_of_that_reporter(project: Project) -> None:
    project.settings(SHELL)
    project.suite(SUITE)
    project.write(
        "mine.py", "class Mine:\n  def __init__(self, c): pass\n  def __call__(self, e): raise BrokenPipeError"
    )

    done = project.run("--reporter", "mine:Mine", "--reporter", "terminal")

    assert 'reporter "mine:Mine" raised BrokenPipeError and was dropped' in done.stderr
    assert "1 of 2 trials" in done.stdout


IMPATIENT = """
import sys
from whet.cli.main import main
from whet.report import choose
from whet.report._thread import Patience
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
    assert "4 attempts · time with checks" in done.stdout
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


def test_a_traceback_has_the_lines_of_the_suite_and_its_helpers_and_none_of_whet(project: Project) -> None:
    project.settings(SHELL)
    project.write("helpers.py", "def price(order):\n    return order['cost']\n")
    project.suite("""
        import helpers, json
        def crashes(): helpers.price({})
        async def crashes_later():
            await asyncio.sleep(0)
            json.loads("{")
        def chained():
            try: helpers.price({})
            except KeyError as error: raise RuntimeError("no price") from error
        def returned(): return True
        suite = [Case(id=f.__name__, prompt="true", check=f) for f in (crashes, crashes_later, chained, returned)]
    """)

    project.run("--reporter", "junit=out.xml")

    said = {
        case.get("name", "").split()[0]: case.findtext("failure") or case.findtext("error") or ""
        for case in ET.parse(project.root / "out.xml").iter("testcase")
    }
    files = {name: re.findall(r'File ".*/(.*)", line', text) for name, text in said.items()}
    assert files["crashes"] == ["suite.py", "helpers.py"]
    # A library that the check calls says where it went wrong.
    assert files["crashes_later"] == ["suite.py", "__init__.py", "decoder.py", "decoder.py"]
    assert files["chained"] == ["suite.py", "helpers.py", "suite.py"]
    assert "The above exception was the direct cause" in said["chained"]
    assert "Traceback" not in said["returned"]
    assert "the check returned True" in said["returned"]


def places_on_github(project: Project, suite: str) -> list[str]:
    """The file and line of each annotation of a run of *suite*."""
    done = project.whet("run", suite, "--reporter", "github", env={"GITHUB_WORKSPACE": str(project.root)})
    return re.findall(r"^::\w+ file=(.*),line=(.*),title", done.stdout, re.MULTILINE)


def line_of(project: Project, file: str, text: str) -> tuple[str, str]:
    lines = (project.root / file).read_text().splitlines()
    return file, str(1 + next(number for number, line in enumerate(lines) if text in line))


def test_a_timeout_is_annotated_where_its_case_is_written(project: Project) -> None:
    project.settings(SHELL + "[defaults]\ntimeout_ms = 100\n")
    project.write("helpers.py", "from whet import Case\ndef made(f): return Case(id='made', prompt='sleep 9', check=f)")
    project.suite("""
        import helpers
        @case(
            prompt="sleep 9",
        )
        def marked(): pass
        suite = [
            Case(id="listed", prompt="sleep 9", check=ok),
            marked,
            helpers.made(ok),
        ]
    """)

    found = places_on_github(project, "suite.py")

    assert found == [
        line_of(project, "suite.py", 'Case(id="listed"'),
        line_of(project, "suite.py", "@case("),
        line_of(project, "helpers.py", "def made"),
    ]


@pytest.mark.parametrize("name", ["bench.yaml", "bench.json", "evals.yaml"])
def test_a_timeout_of_a_document_is_annotated_where_its_case_is_written(project: Project, name: str) -> None:
    project.settings(SHELL + "[defaults]\ntimeout_ms = 100\n")
    project.write("bench.yaml", """
        name: slow
        cases:
          - id: first
            prompt: sleep 9
            timeout: 1
            expect: ["file:a exists"]
          - id: second
            prompt: sleep 9
            timeout: 1
            expect: ["file:a exists"]
    """)  # fmt: skip
    project.write("bench.json", """
        {"name": "slow", "cases": [
            {"id": "first", "prompt": "sleep 9", "timeout": 1, "expect": ["file:a exists"]},
            {"id": "second", "prompt": "sleep 9", "timeout": 1, "expect": ["file:a exists"]}]}
    """)  # fmt: skip
    project.write("evals.yaml", """
        name: slow
        source_kind: manual
        verifier_kind: deterministic
        supports_no_skill: false
        resource_limits_json: {timeout_ms: 100}
        cases_json:
          - {case_kind: exact_match, task_id: first, instruction: sleep 9, expected: a}
          - {case_kind: exact_match, task_id: second, instruction: sleep 9, expected: a}
    """)  # fmt: skip

    found = places_on_github(project, name)

    assert found == [line_of(project, name, "first"), line_of(project, name, "second")]


def test_notes_prints_and_the_last_action_are_shown_with_the_failure(project: Project) -> None:
    project.settings(EVENTS + "[defaults]\ntimeout_ms = 3000\n")
    project.suite("""
        acts = '''echo '{"type": "command", "command": "npm test"}'; sleep 60'''
        def prints():
            print("the cart held", 3)
            assert False, "the cart is wrong"
        def confused(result): raise KeyError("cost")
        suite = [
            Case(id="printing", prompt="true", check=prints, classify_failure=confused),
            Case(id="slow", prompt=acts, check=ok),
        ]
    """)

    done = project.run("--reporter", "terminal", "--reporter", "markdown=out.md", "--reporter", "junit=out.xml")

    markdown, junit = (project.root / "out.md").read_text(), (project.root / "out.xml").read_text()
    assert done.codes == {"printing": "assertion", "slow": "timeout"}
    assert "printed   │ the cart held 3" in done.stdout
    assert "note      classify_failure raised KeyError: 'cost'" in done.stdout
    assert "last seen $ npm test" in done.stdout
    for text in (markdown, junit):
        assert "the cart held 3" in text
        assert "classify_failure raised KeyError: 'cost'" in text
        assert "last seen: " in text


QUICK_HEART = """
from whet.cli.main import main
from whet.report.terminal import progress
progress.FIRST_S = progress.LONGEST_S = 0.2
main()
"""


def with_a_quick_heart(project: Project, reporter: str) -> subprocess.Popen[str]:
    """A run whose trial waits for a file, by a whet that says quickly what is running."""
    project.settings(SHELL)
    waits = f"while [ ! -e {project.outside}/go ]; do sleep 0.05; done"
    project.suite(f'suite = [Case(id="slow", prompt="{waits}", check=ok)]')
    return subprocess.Popen(
        [sys.executable, "-c", QUICK_HEART, "run", "suite.py", "--reporter", reporter],
        cwd=project.root,
        env=project.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_log_says_what_is_running(project: Project) -> None:
    running = with_a_quick_heart(project, "terminal")
    assert running.stdout is not None

    said = next(line for line in running.stdout if "still running" in line)
    (project.outside / "go").touch()
    rest, stderr = running.communicate(timeout=PATIENCE_S)

    assert said.startswith("  0/1  still running: slow @ sh (")
    assert "1 of 1 trial went as expected" in rest
    assert stderr == ""


def test_a_document_on_stdout_is_not_spoiled_by_a_sign_of_life(project: Project) -> None:
    running = with_a_quick_heart(project, "json")

    wait_for(project.output_dir / "latest" / "trials", count=1, pattern="*")
    time.sleep(1)
    (project.outside / "go").touch()
    stdout, stderr = running.communicate(timeout=PATIENCE_S)

    assert json.loads(stdout)["counts"]["passed"] == 1
    assert stderr == ""


def test_the_results_of_runs_are_sent_from_the_reports_of_evaluations_to_compare(project: Project):
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')
    results = str(project.run().folder / "results.json")

    done = project.whet("report", "diff", results, results)

    assert done.code == 2
    assert "is the result of a run, and not the reports of an evaluation" in done.stderr
    assert "whet compare RUN RUN" in done.stderr

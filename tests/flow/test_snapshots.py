"""Usage snapshots in the real command: taken, held to, and never compared with something else."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from project import SHELL, Outcome, Project

AGENT = """
[runners.{runner}.agent]
type = "command"
command = "sh"
args = ["./agent.sh"]
output = "events"
"""
# Uses as many tokens as the first line of the case's file says; the last line stays.
SCRIPT = """
    file={outside}/tokens-$WHET_CASE_ID
    echo '{"type": "usage", "input_tokens": '$(head -n 1 $file)', "output_tokens": 0}'
    [ $(wc -l < $file) -le 1 ] || sed -i 1d $file
"""
SNAPSHOTS = "[snapshots.tolerance]\npercent = 10\n"
SUITE = """
    suite = [Case(id="a", prompt="Go.", check=ok), Case(id="b", prompt="Go.", check=ok)]
"""


class Tokens:
    """A project whose agent uses as many tokens as a file says."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.path = project.root / "whet.snapshots.json"
        self.settings()
        project.write("agent.sh", SCRIPT)
        project.suite(SUITE)
        self.use(a=100, b=200)

    def settings(self, snapshots: str = SNAPSHOTS, *, runner: str = "demo", model: str = "") -> None:
        agent = AGENT.format(runner=runner)
        self.project.settings(f"{agent.rstrip()}\n{model}\n{snapshots}\n")

    def use(self, **tokens: object) -> None:
        for case, figure in tokens.items():
            (self.project.outside / f"tokens-{case}").write_text(f"{figure}\n")

    def run(self, *args: str, **env: str) -> Outcome:
        return self.project.run(*args, env=env)

    @property
    def stored(self) -> dict[str, Any]:
        entries: dict[str, Any] = json.loads(self.path.read_text())["entries"]
        return {key: entry["value"] for key, entry in entries.items()}


@pytest.fixture
def tokens(project: Project) -> Tokens:
    return Tokens(project)


def _snapshots(done: Outcome) -> dict[str, str]:
    return {case["id"]: case["executions"][0]["snapshot"]["status"] for case in done.results["cases"]}


def _execution(done: Outcome, case: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in done.results["cases"] if each["id"] == case)["executions"][0]
    return found


def test_a_first_run_takes_snapshots_and_says_so(tokens: Tokens) -> None:
    done = tokens.run()

    assert done.code == 0, done.stderr
    assert tokens.stored == {"suite.py::a@demo/default": 100, "suite.py::b@demo/default": 200}
    assert "snapshot created: suite.py::a@demo/default: total_tokens is now 100" in done.stdout + done.stderr
    assert _snapshots(done) == {"a": "created", "b": "created"}


def test_what_stays_within_its_tolerance_holds(tokens: Tokens) -> None:
    tokens.run()
    before = tokens.path.read_bytes()
    tokens.use(a=110, b=150)

    done = tokens.run()

    assert done.code == 0, done.stderr
    assert _snapshots(done) == {"a": "held", "b": "held"}
    assert "snapshot" not in done.stdout + done.stderr
    assert tokens.path.read_bytes() == before


def test_what_exceeds_its_tolerance_fails_the_run(tokens: Tokens) -> None:
    tokens.run()
    tokens.use(a=150)

    done = tokens.run()

    message = "total_tokens is 150, allowed 110: +50 (+50.0 %) over the snapshot of 100"
    message += " (--update-snapshots takes the new one)"
    assert done.code == 1
    assert f"snapshot exceeded: suite.py::a@demo/default: {message}" in done.stdout + done.stderr
    assert "1 snapshot does not hold" in done.stdout
    assert done.results["passed"] is False
    found = _execution(done, "a")
    assert (found["status"], found["passed"], found["snapshot"]["message"]) == ("failed", False, message)
    assert found["trials"][0]["status"] == "passed"
    assert tokens.stored["suite.py::a@demo/default"] == 100


def test_in_ci_a_missing_snapshot_is_not_made_up(tokens: Tokens) -> None:
    done = tokens.run(CI="1")

    assert done.code == 3
    assert not tokens.path.exists()
    assert "snapshot missing: suite.py::a@demo/default: there is no snapshot" in done.stdout + done.stderr
    assert _execution(done, "a")["status"] == "errored"


def test_in_ci_a_missing_snapshot_is_taken_where_it_is_asked_for(tokens: Tokens) -> None:
    done = tokens.run("--update-snapshots", CI="true")

    assert done.code == 0, done.stderr
    assert tokens.stored == {"suite.py::a@demo/default": 100, "suite.py::b@demo/default": 200}


def test_only_what_is_run_is_updated(tokens: Tokens) -> None:
    tokens.run()
    tokens.use(a=500, b=500)

    done = tokens.run("--update-snapshots", "--case", "a")

    assert done.code == 0, done.stderr
    assert tokens.stored == {"suite.py::a@demo/default": 500, "suite.py::b@demo/default": 200}
    assert "snapshot updated: suite.py::a@demo/default" in done.stdout + done.stderr
    assert "unused" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"snapshots": '[snapshots]\nmetric = "input_tokens"\ntolerance = { percent = 10 }\n'},
            "metric total_tokens, this run of input_tokens",
        ),
        ({"model": 'model = "large"'}, "model none, this run of large"),
    ],
)
def test_another_metric_or_model_is_an_error_that_says_so(tokens: Tokens, change: dict[str, str], said: str) -> None:
    tokens.run()
    tokens.settings(**change)

    done = tokens.run()

    assert done.code == 3
    assert f"the snapshot is of {said}: they cannot be compared" in done.stdout + done.stderr
    assert _snapshots(done) == {"a": "mismatch", "b": "mismatch"}
    assert tokens.run("--update-snapshots").code == 0
    assert tokens.run().code == 0


def test_another_agent_is_an_error_that_says_so(tokens: Tokens) -> None:
    tokens.run()
    tokens.project.write("steps.toml", "[[steps]]\nusage = { input_tokens = 90, output_tokens = 10 }\n")
    tokens.project.settings('[runners.demo.agent]\ntype = "scripted"\nscript = "steps.toml"\n' + SNAPSHOTS)

    done = tokens.run()

    assert done.code == 3
    assert (
        "the snapshot is of agent command, this run of scripted: they cannot be compared" in done.stdout + done.stderr
    )


def test_a_figure_that_the_agent_does_not_tell_is_unavailable(project: Project) -> None:
    project.settings(SHELL + SNAPSHOTS)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')

    done = project.run()

    assert done.code == 3
    assert (
        "snapshot unavailable: suite.py::a@sh/default: command does not report total_tokens"
        in done.stdout + done.stderr
    )
    assert not (project.root / "whet.snapshots.json").exists()


def test_time_can_be_held_to_whatever_the_agent_tells(project: Project) -> None:
    project.settings(SHELL + '[snapshots]\nmetric = "duration_s"\ntolerance = { absolute = 60 }\n')
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')

    codes = [project.run().code, project.run(env={"CI": "1"}).code]

    assert codes == [0, 0]


def test_time_is_that_of_the_deciding_attempt(project: Project) -> None:
    project.settings(SHELL + '[snapshots]\nmetric = "duration_s"\ntolerance = { absolute = 60 }\n')
    again = "test -e {outside}/been && exit 0; touch {outside}/been; sleep 0.3; exit 1"
    project.suite(f'suite = [Case(id="a", prompt="{again}", check=ok)]')

    done = project.run("--retries", "1")

    trial = done.trial("a")
    value = done.results["cases"][0]["executions"][0]["snapshot"]["value"]
    assert round(value, 6) == trial["attempts"][-1]["duration_s"] < trial["duration_s"]


def test_entries_that_nothing_answers_to_are_told_and_kept(tokens: Tokens) -> None:
    tokens.run()
    tokens.project.suite('suite = [Case(id="a", prompt="Go.", check=ok)]')

    done = tokens.run()

    assert done.code == 0, done.stderr
    assert "snapshot unused: suite.py::b@demo/default" in done.stdout + done.stderr
    assert "delete the entry" in done.stdout + done.stderr
    assert "suite.py::b@demo/default" in tokens.stored


def test_a_case_that_is_only_not_selected_is_not_unused(tokens: Tokens) -> None:
    tokens.run()

    done = tokens.run("--case", "a")

    assert "unused" not in done.stdout + done.stderr


def test_asking_for_an_update_without_settings_is_a_usage_error(tokens: Tokens) -> None:
    tokens.settings(snapshots="")

    done = tokens.run("--update-snapshots")

    assert done.code == 2
    assert "--update-snapshots needs [snapshots]" in done.stderr
    assert not tokens.project.output_dir.exists()


def test_settings_without_a_tolerance_are_an_error(tokens: Tokens) -> None:
    tokens.settings(snapshots='[snapshots]\nmetric = "total_tokens"\n')

    done = tokens.run()

    assert done.code == 2
    assert "whet.toml: snapshots.tolerance: is missing (give absolute, percent or both)" in done.stderr
    assert not tokens.project.output_dir.exists()


def test_the_mean_over_the_trials_is_compared(tokens: Tokens) -> None:
    tokens.use(a="100\n130\n160", b=200)

    done = tokens.run("--trials", "3", "--schedule", "serial")

    assert done.code == 0, done.stderr
    assert tokens.stored == {"suite.py::a@demo/default": 130, "suite.py::b@demo/default": 200}
    entry = json.loads(tokens.path.read_text())["entries"]["suite.py::a@demo/default"]
    assert entry["trials"] == 3


@pytest.mark.parametrize("text", ["{", '{"version": 99, "entries": {}}', '{"version": 1, "entries": {"a": 1}}'])
def test_a_corrupt_file_is_found_before_anything_runs(tokens: Tokens, text: str) -> None:
    tokens.path.write_text(text)

    done = tokens.run()

    assert done.code == 2
    assert "whet.snapshots.json" in done.stderr
    assert tokens.path.read_text() == text
    assert not tokens.project.output_dir.exists()


def test_an_execution_that_fails_takes_no_snapshot_and_is_not_compared(tokens: Tokens) -> None:
    tokens.project.suite('suite = [Case(id="a", prompt="Go.", check=no), Case(id="b", prompt="Go.", check=ok)]')

    done = tokens.run()

    assert done.code == 1
    assert tokens.stored == {"suite.py::b@demo/default": 200}
    assert _execution(done, "a")["snapshot"] is None


def test_a_failing_trial_among_good_ones_takes_no_snapshot(tokens: Tokens) -> None:
    tokens.project.suite("""
        def once(report):
            flag = Path("{outside}/flag")
            seen = flag.exists()
            flag.touch()
            assert seen
        suite = [Case(id="a", prompt="Go.", check=once)]
    """)

    done = tokens.run("--trials", "2", "--schedule", "serial")

    assert done.code == 1
    assert not tokens.path.exists()


def test_runners_have_snapshots_of_their_own(tokens: Tokens) -> None:
    two = "".join(AGENT.format(runner=name) for name in ("one", "two"))
    tokens.project.settings(two + SNAPSHOTS)

    done = tokens.run("--case", "a")

    assert done.code == 0, done.stderr
    assert sorted(tokens.stored) == ["suite.py::a@one/default", "suite.py::a@two/default"]


def test_a_dry_run_takes_no_snapshot(tokens: Tokens) -> None:
    done = tokens.run("--dry-run")

    assert done.code == 0
    assert not tokens.path.exists()


def test_a_path_of_the_settings_is_relative_to_them(tokens: Tokens) -> None:
    tokens.settings(snapshots='[snapshots]\npath = "kept/usage.json"\ntolerance = { absolute = 1 }\n')

    done = tokens.project.whet("run", str(tokens.project.root / "suite.py"), cwd=tokens.project.outside)

    assert done.code == 0, done.stderr
    assert (tokens.project.root / "kept" / "usage.json").is_file()


def test_a_file_that_cannot_be_written_costs_no_results(tokens: Tokens) -> None:
    tokens.project.write("taken", "a file where a folder should be\n")
    tokens.settings(snapshots='[snapshots]\npath = "taken/usage.json"\ntolerance = { absolute = 1 }\n')

    done = tokens.run()

    assert "Traceback" not in done.stderr
    assert "taken" in done.stdout + done.stderr


def test_a_run_that_fails_only_by_its_snapshot_is_red_everywhere(tokens: Tokens) -> None:
    tokens.run()
    tokens.use(a=150)
    reporters = ("junit=junit.xml", "markdown=report.md", "bench=bench.json", "github", "terminal")

    done = tokens.run(*(word for name in reporters for word in ("--reporter", name)))

    reason = "total_tokens is 150, allowed 110"
    junit = ET.parse(tokens.project.root / "junit.xml").getroot()
    failures = [case.get("name") for case in junit.iter("testcase") if case.find("failure") is not None]
    assert (done.code, junit.get("failures"), failures) == (1, "1", ["a @ demo usage snapshot"])
    assert junit.get("tests") == str(len(list(junit.iter("testcase")))) == "3"
    annotation = next(line for line in done.stdout.splitlines() if line.startswith("::error"))
    assert reason in annotation
    markdown = (tokens.project.root / "report.md").read_text()
    assert reason in markdown
    assert "--update-snapshots" in markdown
    bench = {case["id"]: case for case in json.loads((tokens.project.root / "bench.json").read_text())["cases"]}
    assert (bench["a"]["status"], bench["b"]["status"]) == ("failed", "passed")
    assert reason in bench["a"]["error"]
    assert "--last-failed" in done.stdout
    assert "Usage snapshot" in done.stdout


def test_what_failed_only_by_its_snapshot_is_run_again_by_last_failed(tokens: Tokens) -> None:
    tokens.run()
    tokens.use(a=150)
    tokens.run()
    tokens.use(a=100)

    done = tokens.run("--last-failed")

    assert done.code == 0, done.stderr
    assert [case["id"] for case in done.results["cases"]] == ["a"]


def test_two_suites_of_one_name_hold_to_snapshots_of_their_own(tokens: Tokens) -> None:
    project = tokens.project
    project.suite("suite = [Case(id='a', prompt='Go.', check=ok)]", "one/suite.py")
    project.suite("suite = [Case(id='b', prompt='Go.', check=ok)]", "two/suite.py")

    runs = [project.whet("run", f"{place}/suite.py", env={}) for place in ("one", "two", "one")]

    assert tokens.stored == {"one/suite.py::a@demo/default": 100, "two/suite.py::b@demo/default": 200}
    assert "unused" not in "".join(run.stdout + run.stderr for run in runs)


def test_a_ceiling_can_leave_out_what_was_read_from_a_cache(tokens: Tokens) -> None:
    tokens.settings('[snapshots]\nmetric = "uncached_input_tokens"\ntolerance = { percent = 10 }\n')
    tokens.project.write(
        "agent.sh",
        """
        echo '{"type": "usage", "input_tokens": 1000, "cached_tokens": 900, "output_tokens": 5}'
        """,
    )

    done = tokens.run()

    assert done.code == 0, done.stderr
    assert set(tokens.stored.values()) == {100}

"""What somebody types who has not read the manual: it works, or it is answered with what to type."""

from __future__ import annotations

import json

import pytest
from project import SHELL, Outcome, Project

FAILING = """
    suite = [Case(id="good", prompt="true", check=ok), Case(id="bad", prompt="true", check=no),
             Case(id="bad/too", prompt="true", check=no)]
"""
EVALS = {"skill_name": "polite", "evals": [{"id": "greets", "prompt": "true", "should_trigger": True}]}


@pytest.fixture
def failing(project: Project) -> Project:
    """Return a project whose suite has a case that passes and two that fail."""
    project.settings(SHELL)
    project.suite(FAILING)
    return project


@pytest.fixture
def skilled(project: Project) -> Project:
    """Return a project with a skill for agents and its suite."""
    project.settings(SHELL)
    project.write(
        "polite/SKILL.md", "---\nname: polite\ndescription: Greets people. Use when asked to greet.\n---\nGreet.\n"
    )
    project.write("polite/evals/evals.json", json.dumps(EVALS))
    return project


def ran(outcome: Outcome) -> list[str]:
    return [trial["case"] for trial in outcome.trials if trial["status"] != "not-run"]


def test_the_id_that_a_failure_prints_runs_that_case_again(failing: Project) -> None:
    words = failing.run().stdout.split()
    printed = [word for word in words if word.startswith("suite::bad/too@sh/default")]

    again = [failing.whet("run", word) for word in (*printed, "suite::bad/too@sh/default#1")]

    assert printed
    assert [(outcome.code, ran(outcome)) for outcome in again] == [(1, ["bad/too"])] * len(again)


@pytest.mark.parametrize("typed", ["polite::thanks", "polite::thanks@sh/skill#1", "polite::thanks@sh/skill"])
def test_a_case_of_a_skill_is_named_after_its_folder(skilled: Project, typed: str) -> None:
    evals = [{"id": name, "prompt": "true", "should_trigger": True} for name in ("greets", "thanks")]
    skilled.write("polite/evals/evals.json", json.dumps({"skill_name": "polite", "evals": evals}))

    outcome = skilled.whet("run", typed)

    assert set(ran(outcome)) == {"thanks"}, outcome.stderr


def test_a_case_is_named_after_its_suite(failing: Project) -> None:
    outcome = failing.whet("run", "suite.py::good")

    assert (outcome.code, ran(outcome)) == (0, ["good"])


def test_x_starts_nothing_after_the_first_failure_and_a_resume_runs_the_rest(failing: Project) -> None:
    stopped = failing.run("-x", "--max-parallel", "1")
    ran_at_first = ran(stopped)
    resumed = failing.whet("run", "--resume", "latest")

    assert stopped.code == 1
    assert ran_at_first == ["good", "bad"]
    assert "suite::bad@sh/default#1 failed, so no more trials start (-x)" in stopped.stderr + stopped.stdout
    assert "To resume: whet run --resume" in stopped.stdout
    assert ran(resumed) == ["good", "bad", "bad/too"]


def test_what_failed_is_found_in_the_folder_of_runs_that_was_named(failing: Project) -> None:
    failing.run("--output-dir", "elsewhere")

    listed = failing.whet("explain", "--output-dir", "elsewhere")

    assert listed.code == 0, listed.stderr
    assert "bad/too" in listed.stdout


@pytest.mark.parametrize("words", [("run",), ("test",)])
def test_run_in_the_folder_of_a_skill_runs_its_suites(skilled: Project, words: tuple[str, ...]) -> None:
    outcome = skilled.whet(*words, "--dry-run", cwd=skilled.root / "polite")

    assert outcome.code == 0, outcome.stderr
    assert "greets" in outcome.stdout
    assert "no_skill" in outcome.stdout


@pytest.mark.parametrize(("folder", "skill"), [(".", "loud"), ("loud", "."), ("polite", "../loud")])
def test_settings_for_a_skill_are_written_where_you_are_or_beside_it_and_not_into_it(
    skilled: Project, folder: str, skill: str
) -> None:
    (skilled.root / "whet.toml").unlink()
    skilled.write("loud/SKILL.md", "---\nname: loud\ndescription: Shouts. Use when asked to shout.\n---\n")

    outcome = skilled.whet("init", skill, cwd=skilled.root / folder)

    assert outcome.code == 0, outcome.stderr
    assert (skilled.root / "whet.toml").is_file()
    assert sorted(path.name for path in (skilled.root / "loud").iterdir()) == ["SKILL.md", "evals"]


@pytest.mark.parametrize(
    ("typed", "agent"), [("codex", "codex"), ("claude-code", "claude-code"), ("claude", "claude-code")]
)
def test_an_agent_is_a_runner_without_settings_by_its_type_or_its_program(
    skilled: Project, typed: str, agent: str
) -> None:
    (skilled.root / "whet.toml").unlink()

    outcome = skilled.whet("run", "polite", "--runner", typed, "--dry-run")

    assert outcome.code == 0, outcome.stderr
    assert [line.split()[:3] for line in outcome.stdout.splitlines() if "/skill " in line] == [
        ["greets", f"{typed}/skill", f"({agent})"]
    ]


def test_an_agent_is_a_runner_beside_those_of_the_settings(failing: Project) -> None:
    outcome = failing.run("--runner", "codex,sh", "--dry-run")

    assert outcome.code == 0, outcome.stderr
    assert "on 2 runners" in outcome.stdout


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("eval polite", "scores callable skills, which have a skill.json\n  whet run polite\n"),
        ("eval polite/evals/evals.json", "and whet eval scores callable skills\n  whet run polite/evals/evals.json\n"),
        ("run shout", "shout: there are no suites in this folder\n  it is a callable skill: whet eval shout\n"),
        ("eval", "which skills?\n  name their folders\n"),
        ("validate polit", 'there is no such file\n  did you mean "polite"?\n'),
        ("gate lastest", 'there is no run "lastest" in RUNS\n  whet run SUITE makes the first one\n'),
        ("export latest", "'--format'. Choose from: atif, csv, jsonl, otlp, parquet\n  see \"whet export --help\"\n"),
        ("callable create", "the skill needs a name\n  whet create my-skill\n"),
        ("compare polite loud", "run them first: whet run polite --arm old=skill:polite --arm new=skill:loud\n"),
        ("gate polite loud", "run them first: whet run polite --arm old=skill:polite --arm new=skill:loud\n"),
        ("run polite --arm old=loud --arm new=polite", "write it as --arm old=skill:loud\n"),
        ("run polite --arm polite --arm loud", "write it as --arm polite=skill:polite\n"),
        ("run polite::", "polite::: needs a suite and a case\n  such as suite.py::my-case\n"),
        ("run polite -k bye", 'no case fits "*bye*"\n  known: "greets"\n'),
        ("init polite/SKILL.md", "is a file and not a folder\n  name the folder of a project or a skill\n"),
        ("find --skills-dir polite/SKILL.md", "is a file and not a folder\n  name one with --skills-dir\n"),
        ("schema setings", 'no schema is called "setings"; did you mean "settings"?\n  see "whet schema --help"\n'),
        ("schema xyz", 'no schema is called "xyz"; whet schema lists them\n  see "whet schema --help"\n'),
        ("runs --older-than 3y", "'3y' is not a time: write 30d or 12h\n  see \"whet runs list --help\"\n"),
    ],
)  # fmt: skip
def test_what_is_meant_for_another_command_is_answered_with_it(skilled: Project, words: str, answer: str) -> None:
    skilled.whet("create", "shout", "--skills-dir", ".")
    skilled.write("loud/SKILL.md", "---\nname: loud\ndescription: Shouts. Use when asked to shout.\n---\nShout.\n")

    outcome = skilled.whet(*words.split())

    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.replace(str(skilled.output_dir), "RUNS").endswith(answer)


@pytest.mark.parametrize(
    "words", [("init", ""), ("validate", ""), ("history", " "), ("runs", ""), ("runs", "remove", "--suite", "")]
)
def test_an_empty_word_never_means_everything_or_the_folder_where_you_are(
    skilled: Project, words: tuple[str, ...]
) -> None:
    outcome = skilled.whet(*words)

    assert outcome.code == 2
    assert "must not be empty" in outcome.stderr
    assert not (skilled.root / "bench").exists()


def test_a_skill_that_is_read_only_runs(skilled: Project) -> None:
    for folder in ("polite/evals", "polite"):
        (skilled.root / folder).chmod(0o555)

    outcome = skilled.whet("run", "polite", "--dry-run")

    (skilled.root / "polite").chmod(0o755)
    assert outcome.code == 0, outcome.stderr


def test_a_place_where_no_skill_can_be_copied_to_is_named_with_what_to_do(skilled: Project) -> None:
    skilled.write("closed/.whet", "")

    there = skilled.whet("run", "polite", "--dry-run", "--output-dir", "closed")
    elsewhere = skilled.whet("run", "polite", "--dry-run", "--output-dir", "open")

    assert there.code == 2
    assert "error[usage]: the skill " in there.stderr
    assert there.stderr.endswith(
        "closed/.whet/skills: Not a directory\n"
        "  choose another folder for runs with --output-dir: copies of skills are kept beside them\n"
    )
    assert elsewhere.code == 0, elsewhere.stderr


def test_a_callable_skill_is_found_by_its_name(project: Project) -> None:
    project.whet("create", "shout")

    evaluated = project.whet("eval", "shout", "--benchmark", "skills/shout/tests/basic.eval.json")
    called = project.whet("task", "shout", "--input", '{"query": "hello"}', "--contains", "hello")
    listed = project.whet("find", "shout")

    assert (evaluated.code, called.code) == (0, 0), evaluated.stderr + called.stderr
    assert "1 found" in listed.stdout


def test_plan_audit_and_history_take_folders_as_run_does(failing: Project) -> None:
    failing.suite(FAILING, "more/other.py")
    failing.whet("run", ".")

    planned = json.loads(failing.whet("plan", ".", "--json").stdout)
    audited = failing.whet("audit", ".", "--json")
    told = failing.whet("history", ".")

    assert planned["schema"] == "whet/plans/1"
    assert [plan["suite"] for plan in planned["plans"]] == ["suite.py", "more/other.py"]
    assert [audit["suite"] for audit in json.loads(audited.stdout)["audits"]] == ["suite", "other"]
    assert audited.code == 1
    assert [line for line in told.stdout.splitlines() if line.endswith(": 1 run")] == [
        f"{failing.root}/suite.py: 1 run",
        f"{failing.root}/more/other.py: 1 run",
    ]


def test_a_skill_is_planned_and_looked_back_at_by_its_folder(skilled: Project) -> None:
    skilled.whet("run", "polite", "--trials", "1")

    planned = skilled.whet("plan", "polite")
    told = skilled.whet("history", "polite")

    assert (planned.code, told.code) == (0, 0), planned.stderr + told.stderr
    assert "in 1 case " in planned.stdout
    assert "evals.json: 1 run" in told.stdout

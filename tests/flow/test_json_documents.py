"""What commands print with `--json`: one document on stdout, as its schema says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema
import pytest
from project import SHELL, Project

from whet.cli.grammar.application import application
from whet.record.judging.judged import judged_units
from whet.record.judging.labelling import new_label
from whet.record.judging.labels_file import add_labels
from whet.record.read.run import read_run

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from judged_run import JudgedTrial, make_judged_run

SUITE = """
def written(report, ctx): assert (ctx.workspace / "done").exists()
suite = [Case(id="a", prompt="true", check=ok), Case(id="b", prompt='test -n "$NEW" && touch done', check=written)]
"""
# Words of the command, the name of its document and the exit code. RUN and ARMS are runs that were recorded before.
TABLE = [
    ("validate suite.py", "validation", 0),
    ("validate suite.py broken.json", "validation", 2),
    ("split suite.py --dry-run", "splits", 0),
    ("verify ARMS", "verification", 0),
    ("runs", "runs", 0),
    ("runs list --limit 1", "runs", 0),
    ("runs remove --keep 99 --yes", "removal", 0),
    ("runs remove RUN --dry-run", "removal", 0),
    ("search RUN text:done", "search", 0),
    ("history suite.py", "history", 0),
    ("history suite.py other.py", "histories", 0),
    ("status suite.py", "status", 0),
    ("status --check --trials 9 suite.py", "status", 1),
    ("run suite.py", "results", 1),
    ("run suite.py --dry-run", "dry-run", 0),
    ("run suite.py other.py --dry-run", "dry-runs", 0),
    ("bench suite.py --runs 2", "results", 1),
    ("regrade RUN", "results", 1),
    ("merge SHARD1 SHARD2", "results", 1),
    ("compare ARMS", "comparison", 0),
    ("compare THREE", "comparisons", 0),
    ("gate ARMS", "gate", 5),
    ("gate THREE", "gate", 5),
    ("gate ARMS --min-rate 10 --min-score 0.1", "gate", 5),
    ("baseline save stored ARMS", "stored-baseline", 0),
    ("judge report JUDGED", "judge-report", 0),
    ("plan suite.py", "plan", 0),
    ("plan suite.py other.py --effect 20", "plans", 0),
    ("audit suite.py", "audit", 1),
    ("audit suite.py other.py", "audits", 1),
    ("eval skills/shout --benchmark skills/shout/tests/basic.eval.json", "results", 0),
    ("eval skills/shout --benchmark skills/shout/tests/basic.eval.json --dry-run", "dry-run", 0),
    ('task skills/shout --input {"query":"a"} --contains a', "results", 0),
    ("explain", "failures", 0),
    ("find", "skills", 0),
    ("report diff reports.json reports.json", "skill-changes", 0),
    ("doctor", "readiness", 0),
    ("config", "config", 0),
    ("clean --images --dry-run", "cleaning", 0),
    ("keys create --org ours", "key", 0),
    ("keys list", "keys", 0),
    ("keys revoke PREFIX", "key", 0),
    ("orgs list", "organisations", 0),
    ("orgs quota ours --runs 3", "organisation", 0),
]
# These ask a service, which tests/server has, and a judge, which test_judge_try.py has; test_improve.py has the last.
ELSEWHERE = {"suites list", "suites run", "suites improve", "suites proposals", "judge try", "judge pairs", "improve"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dict[str, str]]]:
    """A project that all tests here share, and the runs in it that words of the table name."""
    folder = tmp_path_factory.mktemp("documents")
    project = Project(folder / "project")
    project.settings(SHELL)
    project.suite(SUITE)
    project.suite('suite = [Case(id="c", prompt="true", check=ok)]', "other.py")
    project.write("broken.json", '{"name": "x", "cases": [{"id": 1}]}')
    assert project.whet("create", "shout").code == 0
    evaluation = ["eval", "skills/shout", "--benchmark", "skills/shout/tests/basic.eval.json", "--format", "json"]
    assert project.whet(*evaluation).code == 0
    [report] = (project.root / "reports").glob("*.json")
    report.rename(project.root / "reports.json")
    arms = ["--arm", "old=env:NEW=", "--arm", "new=env:NEW=1"]
    runs = {
        "RUN": project.run(),
        "ARMS": project.run(*arms),
        "THREE": project.run(*arms, "--arm", "third=env:NEW=3"),
        "SHARD1": project.run("--shard", "1/2"),
        "SHARD2": project.run("--shard", "2/2"),
    }
    project.whet("run", "other.py")
    names = sorted(path.name for path in project.output_dir.iterdir() if path.is_dir() and not path.is_symlink())
    words = dict(zip(runs, names[1:], strict=False))
    judged = JudgedTrial(case="a", arm="new", number=1, answer="It is done.", ratings={"It is done.": [8]})
    run = make_judged_run(folder / "judged", project.root / "suite.py", [judged])
    add_labels(project.root / "labels.jsonl", [new_label(unit, "true", "me") for unit in judged_units(read_run(run))])
    words["JUDGED"] = str(run)
    key = json.loads(project.whet("keys", "create", "--org", "ours", "--json").stdout)
    yield project, words | {"PREFIX": key["prefix"]}
    project.clear()
    subprocess.run(["rm", "-rf", str(folder)], check=False)


@pytest.mark.parametrize(("command", "name", "code"), TABLE)
def test_json_is_one_document_that_its_schema_describes(
    recorded: tuple[Project, dict[str, str]], command: str, name: str, code: int
) -> None:
    project, words = recorded
    schema = json.loads(project.whet("schema", name).stdout)

    outcome = project.whet(*(words.get(word, word) for word in command.split()), "--json")

    assert outcome.code == code, outcome.stdout + outcome.stderr
    jsonschema.validate(json.loads(outcome.stdout), schema)


def test_every_command_with_json_is_in_the_table() -> None:
    commands = {command for command, _, _ in TABLE} | ELSEWHERE

    with_json = set(_commands_with_json(application(), ""))

    assert {name for name in with_json if not any(f"{words} ".startswith(f"{name} ") for words in commands)} == set()
    assert len(with_json) > 20


def _commands_with_json(group: click.Group, prefix: str) -> Iterator[str]:
    """Yield the words of each command that has --json, without those of families: members are found alone too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands_with_json(command, "" if name in ("callable", "service") else f"{prefix}{name} ")
        elif command is not None and any("--json" in option.opts for option in command.params):
            yield f"{prefix}{name}"


def test_the_files_of_a_run_of_several_suites_are_described_too(recorded: tuple[Project, dict[str, str]]) -> None:
    project, _ = recorded
    schemas = {name: json.loads(project.whet("schema", name).stdout) for name in ("batch", "results")}

    outcome = project.whet("run", "suite.py", "other.py", "--json")
    batch = project.output_dir / "latest"

    jsonschema.validate(json.loads(outcome.stdout), schemas["results"])
    jsonschema.validate(json.loads((batch / "results.json").read_bytes()), schemas["results"])
    jsonschema.validate(json.loads((batch / "batch.json").read_bytes()), schemas["batch"])


def test_every_schema_has_a_name_of_its_own_and_is_one(project: Project) -> None:
    names = project.whet("schema").stdout.split()

    schemas = [json.loads(project.whet("schema", name).stdout) for name in names]

    assert {name for _, name, _ in TABLE} < set(names)
    assert [schema["$id"].split(":")[2] for schema in schemas] == names
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)


def test_a_schema_refuses_a_field_that_is_missing_or_new(recorded: tuple[Project, dict[str, str]]) -> None:
    project, words = recorded
    validator = jsonschema.Draft202012Validator(json.loads(project.whet("schema", "gate").stdout))
    document = json.loads(project.whet("gate", words["ARMS"], "--json").stdout)

    fewer = {name: value for name, value in document.items() if name != "notes"}

    assert [validator.is_valid(changed) for changed in (document, fewer, document | {"news": 1})] == [
        True,
        False,
        False,
    ]


def test_a_problem_of_a_suite_is_in_the_document_and_not_on_stderr(project: Project) -> None:
    project.suite(SUITE)
    project.write("broken.json", '{"name": "x", "cases": [{"id": "a", "prompt": "p", "expect": ["fil:a exists"]}]}')

    outcome = project.whet("validate", "--json", "broken.json", "suite.py")

    document = json.loads(outcome.stdout)
    assert (outcome.stderr, document["ok"]) == ("", False)
    assert [(problem["case"], problem["field"]) for problem in document["problems"]] != []
    assert [file["file"] for file in document["files"]] == ["suite.py"]


def test_validate_looks_at_suites_beside_callable_skills(project: Project) -> None:
    project.suite(SUITE)
    project.whet("create", "shout")

    files = [file["file"] for file in json.loads(project.whet("validate", "--json").stdout)["files"]]

    assert files == ["skills/shout/skill.json", "suite.py"]

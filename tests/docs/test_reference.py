"""The reference names everything that there is."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from msgspec import structs
from pages import ROOT, blocks_of

import whet
from whet import errors, expect
from whet.agents.scripted.agent import STEPS
from whet.callable import manifest as skill_files
from whet.checks.basics import Basics
from whet.checks.context import CheckContext, Ran
from whet.cli.grammar.application import application
from whet.model import eval_cases as kinds
from whet.model.callable import ADAPTERS, EVALUATORS, SCORING_METHODS
from whet.model.eval_cases import CASE_KINDS, SOURCE_KINDS, VERIFIER_KINDS
from whet.model.events import EVENT_TYPES, ToolCall
from whet.model.grade import STATUSES, Changes, Failure, FailureClass
from whet.model.run import METRICS, SCHEDULES, AttemptResult, SnapshotStatus, TrialResult
from whet.model.session import Session, Usage
from whet.model.skills import SkillDetection
from whet.plan.settings._sources import from_file
from whet.plan.settings.table import GIVEN, SETTINGS, Setting, Table
from whet.reading.toml import SettingsFile
from whet.report.export._tables import COLUMNS
from whet.run.explain._question import Explanation, Explanations, ExplanationStatus
from whet.shell._arguments import Arguments, SimpleCommand
from whet.shell.match import CommandMatcher
from whet.suites import benchmark as read
from whet.suites import benchmark as task
from whet.suites.evals.documents import suite_schema
from whet.suites.python import authoring
from whet.suites.skills.rules import RULES

REFERENCE = ROOT / "docs" / "reference"


def _page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text()


def _keys(table: Table, prefix: str = "") -> Iterator[str]:
    for name, row in table.items():
        shown = name if name != "*" else "<id>" if prefix == "runners." else "<NAME>"
        if isinstance(row, Setting):
            yield f"{prefix}{shown}"
        else:
            yield from _keys(row, f"{prefix}{shown}.")


def _members(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")} - {"of"}


def _properties(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for part in schema.values():
            yield from _properties(part)


def _attempt_errors(kind: type[errors.AttemptError]) -> Iterator[type[errors.AttemptError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _attempt_errors(below)


def _unnamed(words: Iterator[str] | set[str] | list[str], page: str) -> list[str]:
    return sorted(word for word in words if not re.search(rf"`{re.escape(word)}(\(.*?\))?`", page))


def test_every_settings_key_is_in_the_reference_of_settings() -> None:
    page = _page("settings")

    assert _unnamed([*_keys(SETTINGS)], page) == []


def test_every_variable_that_sets_something_is_in_the_reference_of_settings() -> None:
    variables = {f"WHET_{name.upper()}" for name, (_, row) in GIVEN.items() if row.variable}

    assert _unnamed(variables, _page("settings")) == []


def test_the_reference_of_settings_names_no_key_that_does_not_exist() -> None:
    sections = "|".join(SETTINGS)
    named = set(re.findall(rf"^\| `((?:{sections})\.[^`]+)`", _page("settings"), re.MULTILINE))

    assert named - {*_keys(SETTINGS)} == set()


def test_every_settings_example_is_accepted() -> None:
    examples = [
        tomllib.loads(block.text)
        for block in blocks_of(REFERENCE / "settings.md")
        if block.language == "toml" and block.file != "wrong.toml"
    ]

    files = [SettingsFile(Path("/whet.toml"), "", data.get("tool", {}).get("whet", data)) for data in examples]
    problems = [problem for file in files for problem in from_file(file, None).findings.problems]

    assert problems == []


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_every_event_and_each_of_its_fields_is_in_the_reference_of_events(kind: type) -> None:
    known = {each.name: each.default for each in structs.fields(kind)}
    name = known.pop("type")
    sections = re.split(r"^### ", _page("events"), flags=re.MULTILINE)

    section = next((text for text in sections if text.startswith(f"`{name}`")), "")

    assert _unnamed([field for field in known if field != "at"], section) == []


def test_every_step_of_the_scripted_agent_is_in_the_reference_of_events() -> None:
    words = [*STEPS, *(other for others in STEPS.values() for other in others)]

    assert _unnamed(words, _page("events")) == []


def test_every_failure_code_and_class_is_in_the_reference_of_suites() -> None:
    kinds = list(_attempt_errors(errors.AttemptError))
    # A base class that is never raised itself has no failures.
    raised = [kind for kind in kinds if kind is not errors.AgentError]

    words = {word for kind in raised for word in (kind.code, kind.class_id)} | {"assertion", "unexpected-passed"}

    assert _unnamed(words, _page("suites")) == []


@pytest.mark.parametrize("kind", [authoring.Case, authoring.Workspace, authoring.Bootstrap])
def test_every_field_that_an_author_may_write_is_in_the_reference_of_suites(kind: type[authoring.Case]) -> None:
    assert _unnamed(list(kind.known), _page("suites")) == []


@pytest.mark.parametrize(
    "kind",
    [
        CheckContext,
        Ran,
        Session,
        Changes,
        Usage,
        SkillDetection,
        ToolCall,
        TrialResult,
        AttemptResult,
        Failure,
        FailureClass,
    ],
)
def test_everything_that_a_check_can_use_is_in_the_reference_of_suites(kind: type) -> None:
    assert _unnamed(_members(kind), _page("suites")) == []


def test_every_public_name_is_in_the_reference_of_suites() -> None:
    assert _unnamed(list(whet.__all__), _page("suites")) == []


@pytest.mark.parametrize("group", ["skills", "commands", "file_reads", "tool_calls", "output", "files", "usage"])
def test_every_method_of_a_group_is_in_the_reference_of_expectations(group: str) -> None:
    sections = re.split(r"^## ", _page("expect"), flags=re.MULTILINE)
    methods = [name for name, _ in inspect.getmembers(getattr(expect, group), inspect.ismethod) if name[0] != "_"]

    section = next((text for text in sections if f"`expect.{group}`" in text.split("\n", 1)[0]), "")

    assert _unnamed(methods, section) == []


def test_every_basic_and_every_part_of_a_command_matcher_is_in_the_reference_of_expectations() -> None:
    basics = [f"expect.{name}" for name, _ in inspect.getmembers(Basics, inspect.isfunction) if name[0] != "_"]

    assert _unnamed([*basics, *_members(CommandMatcher)], _page("expect")) == []
    parts = _members(SimpleCommand) - {"depth", "carriers", "scope"} | _members(Arguments)
    assert _unnamed(parts, _page("expect")) == []


def test_every_outcome_of_a_snapshot_and_every_metric_is_explained() -> None:
    assert _unnamed(list(get_args(SnapshotStatus)), _page("expect")) == []
    assert _unnamed(list(METRICS), _page("settings")) == []


def test_every_field_and_status_of_an_explanation_is_in_its_reference() -> None:
    names = [*Explanation.__struct_fields__, *Explanations.__struct_fields__]

    assert _unnamed([*names, *get_args(ExplanationStatus)], _page("explanations")) == []


def test_every_verdict_and_schedule_is_explained() -> None:
    assert _unnamed(list(STATUSES), _page("suites")) == []
    assert _unnamed(list(SCHEDULES), _page("settings")) == []


def test_every_field_of_the_results_is_in_the_reference_of_results() -> None:
    schema = json.loads((ROOT / "src/whet/record/results.schema.json").read_text())

    assert _unnamed(set(_properties(schema)), _page("results")) == []


def test_every_field_and_word_of_eval_suites_is_in_their_reference() -> None:
    schema = suite_schema()
    words = {*CASE_KINDS, *SOURCE_KINDS, *VERIFIER_KINDS, *kinds.OPS, *kinds.EXTRACTS, *kinds.INVOCATION_TYPES}

    assert _unnamed({*_properties(schema), *words} - {"$schema"}, _page("eval-suites")) == []


def test_every_field_of_benchmarks_and_skills_is_in_their_reference() -> None:
    of_benchmarks = [*read._KNOWN, *task._TASK, *task._EVALUATOR, *EVALUATORS, *task.ALIASES, *SCORING_METHODS]
    of_skills = [*skill_files._MANIFEST_KEYS, *skill_files._CONFIG_KEYS, *ADAPTERS]
    expected = [f"expectedOutput.{name}" for name in task._EXPECTED if name != "value"]

    assert _unnamed({*of_benchmarks, *expected} - {"$schema", "type"}, _page("benchmarks")) == []
    assert _unnamed(set(of_skills) - {"$schema"}, _page("skills")) == []


def test_the_benchmark_of_the_reference_is_accepted(tmp_path: Path) -> None:
    block = next(block for block in blocks_of(REFERENCE / "benchmarks.md") if block.file)
    file = tmp_path / "b.json"
    file.write_text(block.text)

    assert read.read_benchmark(file).notes == ()


def test_every_column_of_a_table_is_in_the_reference_of_exports() -> None:
    assert _unnamed(list(COLUMNS), _page("export")) == []


def test_every_rule_for_a_skill_is_in_its_reference_with_its_level() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (error|warning) \|", _page("skill-rules"), re.MULTILINE)

    assert dict(rows) == {name: rule.level for name, rule in RULES.items()}


def test_every_command_and_option_is_in_the_reference_of_commands() -> None:
    top = application()
    commands = list(_commands(top))

    options = {option for command in commands for each in command.params for option in each.opts}

    page = _page("commands")
    assert [name for name in top.list_commands(click.Context(top)) if f"## `whet {name}`" not in page] == []
    assert sorted(word for word in options if word.startswith("--") and f"`{word}" not in page) == []


def _commands(group: click.Group) -> Iterator[click.Command]:
    """Yield every command below *group*, at any depth."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from _commands(command)

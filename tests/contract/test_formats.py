"""The contract of a format, held against every one of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet import plugins
from whet.suites.bench import BenchFormat
from whet.testing import ContractBroken, check_format

PYTHON = """from whet import Workspace, case, expect

workspace = Workspace(mode="isolated")


@case(prompt="Say yes.", tags=["quick"])
def says_yes(session):
    assert session.final_output == "yes"


@case(prompt="List the files.")
def lists(session):
    expect.commands.includes(session, "ls")
"""
BENCH = {
    "name": "greetings",
    "cases": [
        {"id": "hello", "prompt": "Write hello.txt.", "expect": ["file:hello.txt exists"]},
        {"id": "tidy", "prompt": "Tidy up.", "expect": ["no-file:draft.txt", "test:true"], "timeout": 60},
    ],
}
EVALS = {
    "name": "release-notes",
    "source_kind": "manual",
    "verifier_kind": "deterministic",
    "supports_no_skill": True,
    "cases_json": [
        {"case_kind": "exact_match", "task_id": "sum", "instruction": "What is 6 * 7?", "expected": 42},
        {
            "case_kind": "boolean_assertion",
            "task_id": "notes",
            "instruction": "Write NOTES.md.",
            "assertions": [{"op": "contains", "value": "NOTES.md"}],
        },
    ],
}
AGENT_SKILLS = {
    "skill_name": "deploy",
    "evals": [
        {"id": 1, "prompt": "Ship it.", "expected_output": "It is live.", "expectations": ["The site is live"]},
        {"id": "two", "prompt": "Roll back.", "assertions": [{"text": "The old version is live"}]},
    ],
}
SCENARIOS = """scenarios:
  - name: Counts the lines
    prompt: How many lines has notes.txt?
    setup:
      files:
        - path: notes.txt
          content: one
    assertions:
      - type: output_contains
        value: "1"
    rubric:
      - Names the file
"""
EVAL_SET = [
    {"query": "Put the site online.", "should_trigger": True},
    {"query": "What is 2 + 2?", "should_trigger": False},
]
VALLY = """\
stimuli:
  - name: says-hello
    prompt: Say hello.
    graders:
      - {type: output-contains, config: {substring: hello}}
"""
PROMPTFOO = """prompts:
  - Translate {{text}} to German.
tests:
  - vars:
      text: cat
    assert:
      - type: icontains
        value: katze
"""
PLUGIN_EVAL = """schema_version: "1.1"
name: greets
execution:
  prompt: Greet Ann.
graders:
  - {name: says-ann, type: regex, pattern: Ann}
  - {name: no-files, type: file_exists, path: "**", exists: false}
"""
TASK = {
    "task.toml": '[agent]\ntimeout_sec = 60\n[environment]\nmemory = "2G"\n[[steps]]\nname = "a"\nmin_reward = 0.5\n',
    "environment/Dockerfile": "FROM scratch\n",
    "steps/a/instruction.md": "Do it.\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
}
SUITES = {
    "agent-skills": ("evals.json", json.dumps(AGENT_SKILLS, indent=2)),
    "eval-set": ("set.json", json.dumps(EVAL_SET, indent=2)),
    "plugin-evals": ("case.yaml", PLUGIN_EVAL),
    "promptfoo": ("promptfooconfig.yaml", PROMPTFOO),
    "scenarios": ("eval.yaml", SCENARIOS),
    "vally": ("eval.yaml", VALLY),
    "python": ("suite.py", PYTHON),
    "bench": ("bench.json", json.dumps(BENCH, indent=2)),
    "evals": ("evals.json", json.dumps(EVALS, indent=2)),
}


@pytest.mark.parametrize("name", [name for name in plugins.names("formats") if name != "harbor"])
def test_a_format_of_ours_keeps_the_contract(name: str, tmp_path: Path) -> None:
    file, text = SUITES[name]
    (tmp_path / file).write_text(text)

    suite = check_format(plugins.find("formats", name), tmp_path / file)

    assert suite.cases


def test_the_format_of_tasks_keeps_the_contract_for_a_folder(tmp_path: Path) -> None:
    for name, text in TASK.items():
        (tmp_path / "task" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "task" / name).write_text(text)

    suite = check_format(plugins.find("formats", "harbor"), tmp_path / "task")

    assert [case.id for case in suite.cases] == ["task"]


class _LikeBench(BenchFormat):
    """A format of another package that recognizes what is plainly a bench suite."""


class _UndeclaredFolders(BenchFormat):
    def recognizes(self, path: Path) -> bool:
        return path.is_dir()


def test_a_format_that_whet_never_asks_about_its_file_breaks_the_contract(tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text(json.dumps(BENCH))

    with pytest.raises(ContractBroken, match=r'whet reads suite\.json as "bench", so it never asks this format'):
        check_format(_LikeBench, tmp_path / "suite.json")


def test_a_format_of_folders_that_does_not_declare_it_breaks_the_contract(tmp_path: Path) -> None:
    with pytest.raises(ContractBroken, match="has no `takes_folders = True`"):
        check_format(_UndeclaredFolders, tmp_path)

"""The contract of a format, held against every one of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.model import plugins
from whet.testing import check_format

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
SUITES = {
    "python": ("suite.py", PYTHON),
    "bench": ("bench.json", json.dumps(BENCH, indent=2)),
    "evals": ("evals.json", json.dumps(EVALS, indent=2)),
}


@pytest.mark.parametrize("name", plugins.names("formats"))
def test_a_format_of_ours_keeps_the_contract(name: str, tmp_path: Path) -> None:
    file, text = SUITES[name]
    (tmp_path / file).write_text(text)

    suite = check_format(plugins.find("formats", name), tmp_path / file)

    assert suite.cases

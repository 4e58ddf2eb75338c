"""Digests of cases: other for what asks or checks something else, and the same wherever it is written."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from whet.suites.digests import case_digest
from whet.suites.format import load_suite

PYTHON = """
from functools import partial
from whet import Case

WORDS = ["one", "two"]
def known(word, depth=0): return word in WORDS or (depth < 3 and again(word, depth))
def again(word, depth): return known(word, depth + 1)
def made(word):
    def check(session): assert word in session.final_output
    return check
def looks(session, ctx): assert known(session.final_output)
def asks(session, word): assert word in session.final_output
suite = [
    Case(id="a", prompt="Go.", check=looks),
    Case(id="b", prompt="Go.", check=made("one")),
]
"""


def _digests(folder: Path, text: str, name: str = "suite.py") -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(dedent(text))
    return {case.id: case_digest(case) for case in load_suite(path).cases}


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ('"two"]', '"three"]', {"a"}),
        ("depth < 3", "depth < 4", {"a"}),
        ("depth + 1", "depth + 2", {"a"}),
        ('made("one")', 'made("two")', {"b"}),
        ('id="a", prompt="Go."', 'id="a", prompt="Stop."', {"a"}),
        ("def asks(session, word): assert", "def asks(session, word): assert not", set()),
        ("from functools", "\n\n# Elsewhere.\nfrom functools", set()),
    ],
)
def test_a_check_is_its_text_and_that_of_what_it_names_in_its_file(
    tmp_path: Path, before: str, after: str, changed: set[str]
):
    first = _digests(tmp_path / "one", PYTHON)
    second = _digests(tmp_path / "two", PYTHON.replace(before, after))

    assert before in PYTHON
    assert {case for case in first if first[case] != second[case]} == changed


def test_an_expectation_is_what_it_says_and_not_where(tmp_path: Path):
    case = {"id": "a", "prompt": "Go.", "expect": ["file:out.txt contains 'yes'"]}
    written = json.dumps({"name": "s", "cases": [case]})
    spread = "\n\n" + json.dumps({"name": "s", "cases": [{**case, "id": "0"}, case]}, indent=3)
    other = written.replace("'yes'", "'no'")

    found = [
        _digests(tmp_path / str(number), text, "suite.json")["a"]
        for number, text in enumerate((written, spread, other))
    ]

    assert found[0] == found[1] != found[2]

"""A case that passes with less than its author asked for says so, and can be refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import SHELL, Project

ASSERTIONS: list[Any] = [{"type": "contains", "value": "hi"}, {"type": "perplexity", "threshold": 5}]
TESTS = [{"description": "whole", "assert": ASSERTIONS[:1]}, {"description": "less", "assert": ASSERTIONS}]
LINE = "less: tests[1].assert[1].type: whet has no equivalent of perplexity"


@pytest.fixture
def lossy(project: Project) -> Project:
    """A project with a configuration of promptfoo, of which one check is lost."""
    project.settings(SHELL)
    project.write("p.json", json.dumps({"prompts": ["echo hi"], "providers": ["echo"], "tests": TESTS}))
    return project


def test_results_and_reports_mark_the_case(lossy: Project) -> None:
    done = lossy.whet("run", "p.json", "--reporter", "terminal", "--reporter", "markdown=out.md")

    assert done.code == 0
    assert [len(case["lost_checks"]) for case in done.results["cases"]] == [0, 1]
    assert lossy.whet("verify", "latest").code == 0
    for text in (done.stdout, (lossy.root / "out.md").read_text()):
        assert "Checks not carried over" in text
        assert LINE in text


def test_a_strict_run_starts_nothing(lossy: Project) -> None:
    done = lossy.whet("run", "p.json", "--strict")

    assert done.code == 2
    assert "less: 1 check not carried over" in done.stderr
    assert not lossy.output_dir.exists()


def test_validate_counts_what_is_lost_and_refuses_it_if_asked(lossy: Project) -> None:
    plain = lossy.whet("validate", "p.json")
    strict = lossy.whet("validate", "p.json", "--strict")
    document = json.loads(lossy.whet("validate", "p.json", "--json").stdout)

    assert (plain.code, strict.code) == (0, 2)
    assert plain.stdout == "p.json: 2 cases with 2 checks; 1 check not carried over\n"
    assert "less: 1 check not carried over" in strict.stderr
    assert (document["files"][0]["lost_checks"], document["files"][0]["lost_cases"]) == (1, 0)

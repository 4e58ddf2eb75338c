"""`whet validate` of a skill for agents: its manifest, its files, and what of its cases stands in them."""

from __future__ import annotations

import json

import pytest
from project import SHELL, Project

FRONT = "---\nname: {}\ndescription: Greets people. Use when asked to greet.\n---\n"
PROMPT = "Write a letter to Ada that says when the train to Berlin leaves."
EVALS = {"evals": [{"id": "letter", "prompt": PROMPT, "expectations": [{"type": "contains", "value": "nine"}]}]}


@pytest.fixture
def skilled(project: Project) -> Project:
    """A project with a skill that has evals, and text of one of them in it."""
    project.settings(SHELL)
    project.write("greet/SKILL.md", FRONT.format("greet") + f"\nFor example: {PROMPT}\n[More](more.md)\n")
    project.write("greet/evals/evals.json", json.dumps(EVALS))
    return project


@pytest.mark.parametrize("path", ["greet", "greet/SKILL.md", "."])
def test_a_skill_is_looked_at_by_its_folder_its_manifest_and_a_folder_around(skilled: Project, path: str) -> None:
    done = skilled.whet("validate", path)

    assert done.code == 0
    assert "greet/SKILL.md: skill greet, about 42 tokens, 1 warning\n" in done.stdout
    assert "greet/evals/evals.json: 1 case with 1 check, no problems\n" in done.stdout
    assert "greet/SKILL.md: line 7: links to more.md, and there is no such file [link]" in done.stderr
    assert "greet/SKILL.md: letter: line 6: leak: text of the prompt of this case: Write a letter to Ada" in done.stderr
    assert done.stderr.count("[link]") == done.stderr.count("[leak]") == 1


def test_a_suite_alone_has_its_skill_looked_at_without_a_line_of_its_own(skilled: Project) -> None:
    done = skilled.whet("validate", "greet/evals/evals.json")

    assert done.stdout == "greet/evals/evals.json: 1 case with 1 check, no problems\n"
    assert (done.stderr.count("[link]"), done.stderr.count("[leak]")) == (1, 1)


def test_json_has_the_rule_of_each_finding(skilled: Project) -> None:
    document = json.loads(skilled.whet("validate", "greet", "--json").stdout)

    assert [(warning["rule"], warning["field"], warning["case"]) for warning in document["warnings"]] == [
        ("leak", "line 6", "letter"),
        ("link", "line 7", None),
    ]
    assert document["files"][0]["file"] == "greet/SKILL.md"


def test_what_keeps_agents_from_a_skill_is_an_error_of_validate_and_a_warning_of_a_run(
    project: Project,
) -> None:
    project.settings(SHELL)
    project.write("greet/SKILL.md", "# Greet\n")
    project.write("greet/evals/evals.json", json.dumps(EVALS))

    validated, ran = project.whet("validate", "greet"), project.whet("run", "greet", "--dry-run")

    assert (validated.code, ran.code) == (2, 0)
    for done in (validated, ran):
        assert "SKILL.md: line 1: has no front matter [front-matter]" in done.stderr


def test_a_manifest_in_lower_case_is_an_error_and_a_run_without_the_skill_says_why(project: Project) -> None:
    project.settings(SHELL)
    project.write("greet/skill.md", FRONT.format("greet"))
    project.write("greet/evals/evals.json", json.dumps(EVALS))

    validated, ran = project.whet("validate", "greet"), project.whet("run", "greet/evals/evals.json", "--dry-run")

    assert (validated.code, ran.code) == (2, 0)
    for done in (validated, ran):
        assert "greet/skill.md: must be called SKILL.md [file-name]" in done.stderr


def test_a_skill_without_suites_is_valid(project: Project) -> None:
    project.write("greet/SKILL.md", FRONT.format("greet"))

    done = project.whet("validate", "greet")

    assert (done.code, done.stdout) == (0, "greet/SKILL.md: skill greet, about 18 tokens, no problems\n")


def test_evals_in_no_known_format_are_an_error_of_a_skill_that_has_no_others(skilled: Project) -> None:
    skilled.write("greet/evals/evals.json", "[]")

    done = skilled.whet("validate", "greet")

    assert done.code == 2
    assert "greet/evals/evals.json: is in no known format: it is an empty list" in done.stderr


def test_strict_refuses_a_leak(skilled: Project) -> None:
    done = skilled.whet("validate", "greet", "--strict")

    assert done.code == 2
    assert "leak: text of the prompt" in done.stderr


def test_an_audit_says_where_a_case_leaks(skilled: Project) -> None:
    done = skilled.whet("audit", "greet")
    document = json.loads(skilled.whet("audit", "greet", "--json").stdout)

    assert 'leak         "letter": text of its prompt stands in greet/SKILL.md:6: Write a letter to Ada' in done.stdout
    (leak,) = document["leaks"]
    assert (leak["line"], leak["part"], leak["cases"]) == (6, "prompt", ["letter"])


def test_the_skills_of_runners_are_looked_at_too_and_once(project: Project) -> None:
    project.settings(f'[runners.sh]\nskills = ["other"]\n{SHELL}')
    project.write("other/SKILL.md", FRONT.format("Other"))
    for name in ("a.json", "b.json"):
        project.write(
            name, json.dumps({"name": name, "cases": [{"id": "a", "prompt": "x", "expect": ["file:x exists"]}]})
        )

    done = project.whet("validate", "a.json", "b.json")

    assert done.code == 2
    assert done.stderr.count('other/SKILL.md: line 2: the name "Other" may have only') == 1

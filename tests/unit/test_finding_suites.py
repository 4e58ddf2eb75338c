"""Which files of a folder are suites, read and never imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whet.errors import UsageError
from whet.suites.find import find_suites

CASES = '{"name": "x", "cases": [{"id": "a", "prompt": "p", "expect": ["file:a exists"]}]}'


def _names(root: Path) -> list[str]:
    return [str(each.path.relative_to(root)) for each in find_suites([root]).suites]


@pytest.mark.parametrize(
    ("text", "is_suite"),
    [
        ("from whet import Case\nsuite = [Case(id='a', prompt='p', check=print)]\n", True),
        ("import whet\nsuite: list = []\n", True),
        ("from whet import case\n@case\ndef a(session, ctx): ...\n", True),
        ("import whet\n@whet.case(prompt='p')\nasync def a(session, ctx): ...\n", True),
        ("from whet import Case\ncases = []\n", False),
        ("from .whet import case\n@case\ndef a(): ...\n", False),
        ("import whetstone\nsuite = []\n", False),
        ("def f():\n    from whet import case\nsuite = []\n", False),
    ],
)
def test_python_is_a_suite_if_it_imports_whet_and_declares_cases(tmp_path: Path, text: str, is_suite: bool):
    (tmp_path / "other.json").write_text(CASES)
    (tmp_path / "file.py").write_text(text)

    assert ("file.py" in _names(tmp_path)) == is_suite


def test_a_file_is_read_and_not_imported(tmp_path: Path):
    (tmp_path / "suite.py").write_text(f"import whet\nopen({str(tmp_path / 'ran')!r}, 'w')\nsuite = []\n")

    assert _names(tmp_path) == ["suite.py"]
    assert not (tmp_path / "ran").exists()


def test_what_nobody_writes_suites_into_is_passed_over(tmp_path: Path):
    for name in ("node_modules", ".hidden", ".venv", "build", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "suite.json").write_text(CASES)

    assert _names(tmp_path) == ["kept/suite.json"]
    assert [str(over).removeprefix(f"{tmp_path}/") for over in find_suites([tmp_path]).passed_over] == [
        ".hidden: is not looked into: it is hidden",
        ".venv: is not looked into: it is hidden",
        "build: is not looked into: other tools write such folders",
        "node_modules: is not looked into: other tools write such folders",
    ]


def _skill(folder: Path) -> None:
    (folder / "evals").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: x\n---\n")
    (folder / "evals" / "evals.json").write_text(CASES)


def test_skills_are_found_where_agents_look_for_them_in_a_project(tmp_path: Path):
    """Both agents see one skill: it is found once, and nothing else of the hidden folders is looked at."""
    _skill(tmp_path / ".agents" / "skills" / "tidy")
    _skill(tmp_path / ".claude" / "skills" / "sort")
    (tmp_path / ".claude" / "skills" / "tidy").symlink_to("../../.agents/skills/tidy")
    (tmp_path / ".claude" / "suite.json").write_text(CASES)
    (tmp_path / ".claude" / "plans").mkdir()
    (tmp_path / ".claude" / "plans" / "suite.json").write_text(CASES)

    found = [each.skill and each.skill.relative_to(tmp_path) for each in find_suites([tmp_path]).suites]

    assert found == [Path(".agents/skills/tidy"), Path(".claude/skills/sort")]


def test_copies_of_skills_that_whet_keeps_are_not_found_beside_the_skill_itself(tmp_path: Path):
    _skill(tmp_path / "tidy")
    _skill(tmp_path / ".whet" / "skills" / "0123456789abcdef" / "tidy")

    search = find_suites([tmp_path])

    assert [suite.path.relative_to(tmp_path) for suite in search.suites] == [Path("tidy/evals/evals.json")]
    assert "whet keeps runs and copies of skills there" in str(search.passed_over[-1])


def test_a_link_to_a_skill_is_one_and_other_links_are_said(tmp_path: Path):
    _skill(tmp_path / "elsewhere" / "tidy")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "tidy").symlink_to("../elsewhere/tidy")
    (tmp_path / "here" / "loop").symlink_to(".")

    found = find_suites([tmp_path / "here"])

    assert [each.skill for each in found.suites] == [tmp_path / "here" / "tidy"]
    assert [over.path.name for over in found.passed_over] == ["loop"]


def test_odd_things_in_a_folder_are_no_suites_and_no_harm(tmp_path: Path):
    (tmp_path / "good.json").write_text(CASES)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "gone.py").symlink_to("nowhere")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\x00\xff\xfe")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "whet.py").write_text("import whet\n" + "(" * 10_000)

    assert _names(tmp_path) == ["good.json"]


def test_a_suite_that_is_named_twice_is_found_once(tmp_path: Path):
    (tmp_path / "good.json").write_text(CASES)

    found = find_suites([tmp_path, tmp_path / "good.json", tmp_path / "*.json"])

    assert len(found.suites) == 1


def test_a_broken_file_in_the_place_of_a_skill_is_a_suite(tmp_path: Path):
    (tmp_path / "SKILL.md").write_text("---\nname: x\n---\n")
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "evals.json").write_text("{")

    found = find_suites([tmp_path / "SKILL.md"])

    assert [(each.path.name, each.skill) for each in found.suites] == [("evals.json", tmp_path)]


def test_evals_of_a_skill_in_no_known_format_are_never_passed_over_in_silence(tmp_path: Path):
    (tmp_path / "SKILL.md").write_text("---\nname: x\n---\n")
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "good.json").write_text(CASES)
    (tmp_path / "evals" / "evals.json").write_text('{"evals": [{"id": 1, "task": "p", "files": []}]}')

    found = find_suites([tmp_path])

    assert [suite.path.name for suite in found.suites] == ["good.json"]
    (skipped,) = found.passed_over
    assert skipped.broken
    assert "nearest: evals.json, whose cases have prompt and expectations, and these have files" in skipped.reason


def test_evals_with_graders_are_one_suite_with_and_without_a_plug_in(tmp_path: Path):
    for folder in ("bare/evals/a", "evals/evals/a", "plugin/evals/a", "prompts/evals/a"):
        (tmp_path / folder / "graders").mkdir(parents=True)
        (tmp_path / folder / "prompt.md").write_text("Hi.")
    (tmp_path / "prompts/evals/a/graders").rmdir()
    (tmp_path / "bare/evals/b").mkdir()
    (tmp_path / "bare/evals/b/case.yaml").write_text("execution: {}\ngraders: []\n")
    (tmp_path / "plugin/plugin.json").write_text('{"name": "p"}')

    found = find_suites([tmp_path])

    assert [(suite.path.relative_to(tmp_path).as_posix(), suite.skill) for suite in found.suites] == [
        ("bare/evals", None),
        ("evals/evals", None),
        ("plugin/evals", tmp_path / "plugin"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "is_broken"),
    [
        ("tsconfig.json", '{ // settings\n"a": 1}', False),
        ("chart.yaml", "{{ .Values.name }}: 1", False),
        ("rest.yaml", "scenarios:\n  - step: one", False),
        ("my-suite.json", "{", True),
        ("odd.json", '{"cases": [', True),
        ("odd.yaml", "a: [\nstimuli:\n", True),
        ("dump.yaml", "a: *b\nc:\n  scenarios: 1\n", False),
    ],
)
def test_in_a_folder_only_what_looks_like_a_suite_is_a_broken_one(
    tmp_path: Path, name: str, text: str, is_broken: bool
):
    (tmp_path / "good.json").write_text(CASES)
    (tmp_path / name).write_text(text)

    found = find_suites([tmp_path])

    assert [suite.path.name for suite in found.suites] == ["good.json"]
    assert [(over.path.name, over.broken) for over in found.passed_over] == [(name, is_broken)]


def test_a_path_that_does_not_exist_is_one_clear_error(tmp_path: Path):
    with pytest.raises(UsageError, match="no such file or folder"):
        find_suites([tmp_path / "nowhere"])


def test_skills_that_share_a_suite_by_a_link_are_both_found(tmp_path: Path):
    (tmp_path / "shared.json").write_text(CASES)
    for name in ("one", "two"):
        (tmp_path / name / "evals").mkdir(parents=True)
        (tmp_path / name / "SKILL.md").write_text("---\nname: x\n---\n")
        (tmp_path / name / "evals" / "evals.json").symlink_to(tmp_path / "shared.json")

    found = find_suites([tmp_path / "one", tmp_path / "two", tmp_path / "one"])

    assert [each.skill and each.skill.name for each in found.suites] == ["one", "two"]


def test_a_pattern_passes_over_a_link_that_leads_nowhere(tmp_path: Path):
    (tmp_path / "good.json").write_text(CASES)
    (tmp_path / "SKILL.md").symlink_to("SKILL.md")

    found = find_suites([tmp_path / "*"])

    assert [each.path.name for each in found.suites] == ["good.json"]
    assert [each.reason for each in found.passed_over] == ["is a link that leads nowhere"]


def test_what_is_neither_a_file_nor_a_folder_is_called_so(tmp_path: Path):
    os.mkfifo(tmp_path / "evals.json")

    with pytest.raises(UsageError, match=r"evals\.json: is a pipe or a device, not a file"):
        find_suites([tmp_path / "evals.json"])

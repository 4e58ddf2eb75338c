"""The rules for a skill: what each finds, on which line, and what strangers put into a folder to break the look."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent

import pytest

from whet.suites.skills.rules import RULES, SkillReport, check_skill
from whet.workspace.make import described

FRONT = "---\nname: greet\ndescription: Greets people. Use when asked to greet.\n---\n"


def report_of(folder: Path, text: str | bytes, *, name: str = "SKILL.md") -> SkillReport:
    skill = folder / "greet"
    skill.mkdir(exist_ok=True)
    (skill / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return check_skill(skill)


def rules_in(report: SkillReport) -> list[str | None]:
    return [problem.rule for problem in report.findings]


def with_fields(*lines: str) -> str:
    return "\n".join(("---", *lines, "---", "", "Greet.", ""))


@pytest.mark.parametrize(
    "text",
    [
        FRONT,
        FRONT.replace("\n", "\r\n"),
        "\ufeff" + FRONT,
        FRONT + "Ünïcödé ✓ 你好\n",
        with_fields(
            "name: greet",
            "description: d",
            "license: MIT",
            "compatibility: Needs git",
            'metadata: {version: "1.0"}',
            "allowed-tools: Bash(git add:*) Read, mcp__a__b",
            "disable-model-invocation: true",
        ),
    ],
    ids=["plain", "crlf", "bom", "unicode", "fields"],
)
def test_a_skill_as_agentskills_io_asks_for_it_has_no_findings(tmp_path: Path, text: str) -> None:
    assert report_of(tmp_path, text).findings == ()


@pytest.mark.parametrize(
    ("text", "rule", "field", "words"),
    [
        ("Greet.\n", "front-matter", "line 1", "has no front matter"),
        ("", "front-matter", "line 1", "has no front matter"),
        ("---\nname: greet\n", "front-matter", "line 1", "without an end"),
        ("---\n- a\n---\n", "front-matter", "line 1", "not an object"),
        ("---\nname: greet\ndescription: Use when: asked\n---\n", "front-matter", "line 3", "mapping values"),
        (with_fields("name: greet", "name: x", "description: d"), "front-matter", "line 3", "the first is in line 2"),
        (with_fields("description: d"), "name", None, "has no name"),
        (with_fields("name: 7", "description: d"), "name", "line 2", "must be a text, not 7"),
        (with_fields("name: [greet]", "description: d"), "name", "line 2", "must be a text"),
        (with_fields("name: greet"), "description", None, "has no description"),
        (with_fields("name: greet", "description: ' '"), "description", None, "has no description"),
        (with_fields("name: greet", f"description: {'x' * 1025}"), "description", "line 3", "1,025 characters"),
        (with_fields("name: greet", "description: d", "licence: MIT"), "unknown-field", "line 4", '"licence"'),
        (with_fields("name: greet", "description: d", "license: [MIT]"), "field-type", "line 4", "license must be"),
        (with_fields("name: greet", "description: d", f"compatibility: {'x' * 501}"), "field-type", "line 4", "501"),
        (with_fields("name: greet", "description: d", "metadata: {version: 1.0}"), "field-type", "line 4", "quotes"),
        (with_fields("name: greet", "description: d", "metadata: x"), "field-type", "line 4", "must be a map"),
        (with_fields("name: greet", "description: d", "allowed-tools: Reed"), "allowed-tools", "line 4", '"Reed"'),
        (with_fields("name: greet", "description: d", "allowed-tools: [Read, Bsh]"), "allowed-tools", "line 4", "Bsh"),
        (with_fields("name: greet", "description: d", "allowed-tools: 7"), "allowed-tools", "line 4", "not 7"),
        (FRONT + "x\n" * 501, "size", None, "lines, and 500 are"),
        (FRONT + "word " * 5000, "size", None, "about 6,250 tokens"),
        (FRONT + "See [it](no.md).\n", "link", "line 5", "links to no.md, and there is no such file"),
        (FRONT + "[a]: <no file.md>\n", "link", "line 5", "no file.md"),
        (FRONT + "![x](img/a.png 'title')\n", "link", "line 5", "img/a.png"),
        (FRONT + "See [it](../other/SKILL.md).\n", "link", "line 5", "not in the skill"),
    ],
)
def test_each_rule_finds_what_it_is_for_and_says_where(
    tmp_path: Path, text: str, rule: str, field: str | None, words: str
) -> None:
    (problem,) = report_of(tmp_path, text).findings

    assert (problem.rule, problem.field) == (rule, field)
    assert words in problem.message
    assert rule in RULES


@pytest.mark.parametrize(
    "name", ["Greet", "greet_people", "-greet", "greet-", "greet--people", "grüße", "a b", "x" * 65]
)
def test_a_name_has_the_form_that_agentskills_io_asks_for(tmp_path: Path, name: str) -> None:
    assert rules_in(report_of(tmp_path, with_fields(f"name: {name}", "description: d")))[0] == "name"


def test_a_name_is_that_of_the_folder_unless_that_is_a_clone(tmp_path: Path) -> None:
    text = with_fields("name: hello", "description: d")

    assert rules_in(report_of(tmp_path, text)) == ["name-folder"]
    (tmp_path / "greet" / ".git").mkdir()
    assert check_skill(tmp_path / "greet").findings == ()


def test_a_manifest_in_lower_case_is_named(tmp_path: Path) -> None:
    report = report_of(tmp_path, FRONT, name="skill.md")

    assert rules_in(report) == ["file-name"]
    assert report.findings[0].file.endswith("greet/skill.md")


def test_links_in_code_to_other_hosts_to_headings_and_to_files_that_are_there_are_no_findings(tmp_path: Path) -> None:
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet" / "a b.md").write_text("x")
    body = dedent("""\
        [a](a%20b.md#part) [b](<a b.md>) [c](https://example.org/x.md) [d](#here) [e](mailto:a@b.c) [f](/etc/hosts)
        `[g](no.md)` ``[h](`no`.md)`` [i]() a[0](1 + 2)
        ```md
        [j](no.md)
        ~~~
        [k](no.md)
        ```
        """)

    assert report_of(tmp_path, FRONT + body).findings == ()


def write_script(folder: Path, text: str, mode: int) -> None:
    script = folder / "greet" / "scripts" / "run.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(text)
    script.chmod(mode)


@pytest.mark.parametrize(
    ("mode", "body", "expected"),
    [
        (0o644, "Run scripts/run.py.", ["script"]),
        (0o644, "", ["script"]),
        (0o755, "Run scripts/run.py.", []),
        (0o644, "Run `python3 scripts/run.py --fast`.", []),
        (0o644, "Run `uv run ./scripts/run.py`.", []),
        (0o644, "Run `python -u ${CLAUDE_SKILL_DIR}/scripts/run.py`.", []),
    ],
)
def test_a_script_needs_a_run_bit_unless_the_text_says_what_runs_it(
    tmp_path: Path, mode: int, body: str, expected: list[str]
) -> None:
    write_script(tmp_path, "#!/usr/bin/env python3\n", mode)

    assert rules_in(report_of(tmp_path, FRONT + body)) == expected


def test_a_file_that_names_no_interpreter_is_no_script(tmp_path: Path) -> None:
    write_script(tmp_path, "import os\n", 0o644)

    assert report_of(tmp_path, FRONT).findings == ()


ALIASES = "\n".join(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in ("ab", "bc", "cd", "de"))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (FRONT + "\0", "readable"),
        (b"\xff\xfe" + FRONT.encode("utf-16-le"), "readable"),
        (FRONT.encode() + bytes(range(128, 256)) * 9_999, "readable"),
        (f"---\na: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n{ALIASES}\n---\n", "front-matter"),
        ("---\na: &a [*a]\n---\n", "front-matter"),
        (f"---\nname: {'x' * 70_000}\n---\n", "front-matter"),
        (f"---\nname: {'[' * 5_000}\n---\n", "front-matter"),
        ("---\n\x07\n---\n", "front-matter"),
    ],
    ids=["nul", "utf-16", "binary", "aliases", "loop", "long", "deep", "bell"],
)
def test_what_is_made_to_break_the_look_is_one_finding(tmp_path: Path, text: str | bytes, rule: str) -> None:
    assert rules_in(report_of(tmp_path, text)) == [rule]
    # The reader of a run shares the limits.
    assert described(tmp_path / "greet").name == "greet"


@pytest.mark.parametrize("piece", ["[" * 400, "](" * 400, "`" * 400, "](" + "(" * 400, "- " * 400, "#!" * 400])
def test_a_huge_text_of_one_piece_is_looked_at_in_passing(tmp_path: Path, piece: str) -> None:
    report = report_of(tmp_path, FRONT + f"{piece * 40}\n" * 200)

    assert "size" in rules_in(report)


def make_places(folder: Path) -> Iterable[Path]:
    for name in ("folder", "pipe", "loop", "nowhere"):
        (folder / name).mkdir()
    (folder / "folder" / "SKILL.md").mkdir()
    os.mkfifo(folder / "pipe" / "SKILL.md")
    (folder / "loop" / "SKILL.md").symlink_to("SKILL.md")
    (folder / "nowhere" / "SKILL.md").symlink_to("/nowhere/SKILL.md")
    return sorted(folder.iterdir())


def test_a_manifest_that_is_no_file_cannot_be_read_and_nothing_waits_for_it(tmp_path: Path) -> None:
    for skill in make_places(tmp_path):
        assert rules_in(check_skill(skill)) == ["readable"]


def test_a_loop_of_folders_ends(tmp_path: Path) -> None:
    (tmp_path / "greet" / "scripts").mkdir(parents=True)
    (tmp_path / "greet" / "scripts" / "again").symlink_to(tmp_path / "greet")

    assert report_of(tmp_path, FRONT + "[x](scripts/again/scripts/again)\n").findings == ()


def test_every_rule_has_a_level_and_a_reason() -> None:
    assert {rule.level for rule in RULES.values()} == {"error", "warning"}
    assert all(rule.reason for rule in RULES.values())

"""Every example in README, docs and examples does what it says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from pages import EXAMPLES, PAGES, ROOT, Block, Shell, blocks_of, folder_of, matches, parse

from whet_process import type_whet

_ROW = re.compile(r"^\| \[(?P<name>\w+)\]\((?P=name)/README\.md\) \|.*\| (?P<code>\d+) \|$", re.MULTILINE)


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _documented_exit_codes() -> dict[str, int]:
    table = (ROOT / "examples" / "README.md").read_text()
    return {row["name"]: int(row["code"]) for row in _ROW.finditer(table)}


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_block_of_a_page_can_be_parsed(page: Path) -> None:
    blocks = list(blocks_of(page))

    for block in blocks:
        parse(block)

    assert page.read_text().count("\n```") == 2 * len(blocks), "a fence is not closed"


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_a_page_can_be_followed_from_its_first_block_to_its_last(page: Path, tmp_path: Path) -> None:
    folder, home = tmp_path / "here", tmp_path / "home"
    home.mkdir()
    if start := folder_of(page):
        shutil.copytree(start, folder, ignore=shutil.ignore_patterns(".whet", "__pycache__"))
    else:
        folder.mkdir()
    shell = Shell(folder, home)

    for block in blocks_of(page):
        shell.play(block, _named(page))

    shell.finish(_named(page))


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)

    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_make_command_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    named = set(re.findall(r"`make (\w+)|^make (\w+)", page.read_text(), re.MULTILINE))

    assert {word for pair in named for word in pair if word} <= targets


@pytest.mark.parametrize("sandbox", ["local", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_ends_with_its_documented_exit_code(example: Path, sandbox: str, tmp_path: Path) -> None:
    folder = tmp_path / example.name
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns(".whet", "__pycache__"))

    ended = type_whet("run", "suite.py", "--sandbox", sandbox, cwd=folder)

    assert ended.returncode == _documented_exit_codes()[example.name], ended.stdout + ended.stderr
    assert (folder / ".whet" / "runs" / "latest" / "results.json").is_file()


def test_the_table_of_examples_names_each_of_them() -> None:
    documented = _documented_exit_codes()

    assert sorted(documented) == sorted(example.name for example in EXAMPLES)
    assert sorted(documented) == ["basic", "failure_classes", "skill_selection", "workspace_isolation"]


def test_the_readme_is_short_enough_to_be_read() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()

    assert len(lines) < 120


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("a\n...\nd", "a\nb\nc\nd\n"),
        ("in 0.3 s. Results in 20260105T101530-a1b2c3", "in 74 ms. Results in 20261115T210221-410230\n"),
        ("  1/2  ✓ one  demo\n  2/2  ✓ two  demo", "  1/2  ✓ two  demo\n  2/2  ✓ one  demo\n"),
        ("  sandbox    bubblewrap\n", "  sandbox    local\n  warning: bubblewrap (bwrap) is not installed: ...\n"),
    ],
)
def test_what_differs_from_run_to_run_is_not_compared(expected: str, printed: str) -> None:
    assert matches(expected, printed)


@pytest.mark.parametrize(("expected", "printed"), [("a\n...\nd", "a\nb\n"), ("1 failed", "2 failed"), ("a", "a\nb")])
def test_what_matters_is_compared(expected: str, printed: str) -> None:
    assert not matches(expected, printed)


def test_a_failing_command_whose_exit_code_is_not_shown_is_found(tmp_path: Path) -> None:
    shell = Shell(tmp_path, tmp_path)

    shell.play(Block("console", None, "$ false\n", 1), "page")

    with pytest.raises(AssertionError, match="exit code 1"):
        shell.finish("page")

"""Python suites as the model sees them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from whet.errors import SuiteError
from whet.model.suite import Suite
from whet.suites.format import load_suite


def load(folder: Path, text: str, name: str = "sample_suite.py") -> Suite:
    path = folder / name
    path.write_text("from whet import Bootstrap, Case, Workspace, case\ndef ok(): pass\n" + dedent(text))
    return load_suite(path)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        load(folder, text)
    return [str(problem) for problem in caught.value.problems]


def test_units_are_converted_and_defaults_settled(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        """
        suite = [Case(id="a", prompt="p", check=ok, tags=["x", "y", "x"],
                      timeout_ms=1500, max_steps=3, expected_fail=True),
                 Case(id="b", prompt="p", check=ok)]
        """,
    )

    first, second = suite.cases
    assert (first.limits.timeout_s, first.limits.max_steps, first.expected_fail) == (1.5, 3, True)
    assert first.tags == ("x", "y")
    assert (second.limits.timeout_s, second.expected_fail, second.tags) == (None, False, ())
    assert suite.name == "sample_suite"
    assert suite.tags == ("x", "y")


def test_marked_functions_are_cases_in_the_order_of_the_file(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        """
        @case(prompt="p")
        def zeta(): pass
        @case(prompt="p", id="first letter")
        def alpha(): pass
        """,
    )

    assert [found.id for found in suite.cases] == ["zeta", "first letter"]


def test_loading_twice_gives_the_same_cases_once(tmp_path: Path) -> None:
    text = "@case(prompt='p')\ndef a(): pass\n"

    load(tmp_path, text)
    again = load(tmp_path, text)

    assert [found.id for found in again.cases] == ["a"]


def test_the_digest_follows_the_text(tmp_path: Path) -> None:
    one = load(tmp_path, "suite = [Case(id='a', prompt='p', check=ok)]")
    two = load(tmp_path, "suite = [Case(id='a', prompt='q', check=ok)]")

    assert one.digest != two.digest


def test_workspace_paths_are_taken_from_the_suites_folder(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()

    suite = load(
        tmp_path,
        """
        workspace = Workspace(mode="isolated", template_dir="base",
                              bootstrap=Bootstrap(command="./boot.sh", args=["../data", "plain", "."], timeout_ms=10))
        suite = [Case(id="a", prompt="p", check=ok)]
        """,
    )

    assert suite.workspace is not None
    assert suite.workspace.template_dir == tmp_path / "base"
    bootstrap = suite.workspace.bootstrap
    assert bootstrap is not None
    assert bootstrap.command == str(tmp_path / "boot.sh")
    assert bootstrap.args == (str(tmp_path.parent / "data"), "plain", str(tmp_path))
    assert bootstrap.timeout_s == 0.01


def test_an_import_error_names_the_line_of_the_suite(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "x = 1\nraise ValueError('why')\n")

    assert "line 4" in found
    assert "ValueError: why" in found


@pytest.mark.parametrize("identifier", ["../x", "a/b", "/etc", "a\\\\b", "é"])
def test_odd_ids_stay_inside_the_run_folder(tmp_path: Path, identifier: str) -> None:
    from whet.model.run import folder_name

    suite = load(tmp_path, f"suite = [Case(id='{identifier}', prompt='p', check=ok)]")

    name = folder_name(suite.cases[0].id)
    assert "/" not in name
    assert name not in {".", ".."}


@pytest.mark.parametrize("identifier", [".", "..", "", " ", "\\n", "x" * 121])
def test_ids_that_escape_or_cannot_be_shown_are_refused(tmp_path: Path, identifier: str) -> None:
    found = problems(tmp_path, f"suite = [Case(id='{identifier}', prompt='p', check=ok)]")

    assert any(": id: " in line for line in found)

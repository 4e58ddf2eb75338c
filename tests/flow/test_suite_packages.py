"""Suites in packages: they import as any module of their package does."""

from __future__ import annotations

import pytest
from project import SHELL, Project

SUITE = "suite = [Case(id='a', prompt='echo hi', check=greets)]\n"
HELPER = "def greets(session):\n    assert session.final_output.strip() == WORD\n"


@pytest.fixture
def packaged(project: Project) -> Project:
    """A package with helpers at two levels, and a suite below."""
    project.settings(SHELL)
    for folder in ("pkg", "pkg/suites"):
        project.write(f"{folder}/__init__.py", "")
    project.write("pkg/words.py", "WORD = 'hi'\n")
    project.write("pkg/suites/helpers.py", f"from ..words import WORD\n{HELPER}")
    return project


@pytest.mark.parametrize(
    "imports",
    [
        "from .helpers import greets",
        "from pkg.suites.helpers import greets",
        "from pkg.suites import helpers; greets = helpers.greets",
        "from ..suites.helpers import greets",
    ],
)
def test_a_suite_in_a_package_imports_its_helpers(packaged: Project, imports: str) -> None:
    packaged.suite(f"{imports}\n{SUITE}", name="pkg/suites/suite.py")

    done = packaged.whet("run", "pkg/suites/suite.py")

    assert done.statuses == {"a": "passed"}, done.stdout + done.stderr


def test_marked_functions_in_a_package_are_cases_and_their_asserts_explain_themselves(packaged: Project) -> None:
    marked = "@case(prompt='echo ho')\ndef greets(session):\n    assert session.final_output == WORD\n"
    packaged.suite(f"from ..words import WORD\n{marked}", name="pkg/suites/suite.py")

    done = packaged.whet("run", "pkg/suites/suite.py")

    assert done.statuses == {"greets": "failed"}, done.stdout + done.stderr
    assert "WORD" in done.message("greets")


def test_a_run_of_a_suite_whose_helpers_two_folders_up_have_changed_is_not_resumed(packaged: Project) -> None:
    packaged.suite(f"from .helpers import greets\n{SUITE}", name="pkg/suites/suite.py")
    packaged.whet("run", "pkg/suites/suite.py")
    packaged.write("pkg/words.py", "WORD = 'ho'\n")

    again = packaged.whet("run", "--resume", "latest")

    assert again.code == 2
    assert "changed" in again.stderr


def test_a_relative_import_without_a_package_says_what_is_missing(project: Project) -> None:
    project.settings(SHELL)
    project.suite(f"from .helpers import greets\n{SUITE}", name="suites/suite.py")

    done = project.whet("run", "suites/suite.py")

    assert done.code == 2
    assert "add __init__.py to" in done.stderr


def test_an_import_by_the_name_of_a_folder_above_says_what_is_missing(project: Project) -> None:
    project.settings(SHELL)
    project.suite(f"from suites.helpers import greets\n{SUITE}", name="suites/suite.py")

    done = project.whet("run", "suites/suite.py")

    assert done.code == 2
    assert "suites is not a package: add __init__.py" in done.stderr


def test_a_package_with_the_name_of_another_one_is_told_instead_of_taking_its_helpers(project: Project) -> None:
    project.settings(SHELL)
    project.write("below/colorsys/__init__.py", "")
    project.suite(f"from .helpers import greets\n{SUITE}", name="below/colorsys/suite.py")

    done = project.whet("run", "below/colorsys/suite.py")

    assert done.code == 2
    assert "which Python finds first: rename it" in done.stderr

"""Fixtures of whole runs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import EVENTS, Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project that runs agents in the local sandbox."""
    made = Project(tmp_path / "project")
    yield made
    made.clear()
    # pytest's own removal recurses, which hostile trees do not survive.
    subprocess.run(["rm", "-rf", str(tmp_path / "project"), str(tmp_path / "outside")], check=False)


@pytest.fixture
def boxed(project: Project, sandbox_name: str) -> Project:
    """The same in each sandbox."""
    project.sandbox = sandbox_name
    return project


@pytest.fixture
def bench(project: Project) -> Project:
    """A project with a repository of its own, and a file to work on."""
    (project.root / ".git").mkdir()
    project.write("README.md", "# Old\n")
    project.settings(EVENTS)
    return project

"""What can be wrong around a run: limits of the system, places that are not there, a record that is lost."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import subprocess
import sys

import pytest
from project import PATIENCE_S, SHELL, Project


def shell(project: Project, line: str) -> subprocess.CompletedProcess[str]:
    """Type *line* into a shell, with `whet` for the command."""
    return subprocess.run(
        ["bash", "-c", f'whet() {{ "{sys.executable}" -m whet "$@"; }}; {line}'],
        cwd=project.root,
        env=project.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture
def passing(project: Project) -> Project:
    """A project whose only case passes."""
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')
    return project


def test_a_low_limit_of_open_files_is_raised_as_far_as_it_may_be(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.suite('suite = [Case(id=f"c{n}", prompt="sleep 0.3", check=ok) for n in range(24)]')

    done = shell(boxed, "ulimit -Sn 40; whet run suite.py --max-parallel 64")

    assert done.returncode == 0, done.stdout
    assert "files may be open" not in done.stdout + done.stderr


def test_where_it_may_not_be_fewer_trials_run_at_a_time_and_one_line_says_so(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.suite('suite = [Case(id=f"c{n}", prompt="sleep 0.1", check=ok) for n in range(24)]')

    done = shell(boxed, "ulimit -n 64; whet run suite.py --max-parallel 64")

    assert done.returncode == 0, done.stdout
    assert (done.stdout + done.stderr).count("2 at a time instead of 24") == 1


def test_mounts_and_templates_that_are_not_there_are_found_before_anything_starts(passing: Project) -> None:
    passing.settings(
        SHELL
        + 'mounts = [".", "gone"]\n[run]\nmounts = ["absent", "suite.py/below"]\n[run.workspace]\nmode = "isolated"\ntemplate_dir = "nowhere"\n'
    )

    done = passing.run()

    assert done.code == 2
    for line in (
        f"run.mounts[0]: {passing.root}/absent does not exist",
        f"run.mounts[1]: {passing.root}/suite.py/below cannot be used: Not a directory",
        f"runners.sh.agent.mounts[1]: {passing.root}/gone does not exist",
        f"run.workspace.template_dir: {passing.root}/nowhere does not exist",
    ):
        assert line in done.stderr
    assert not passing.output_dir.exists()

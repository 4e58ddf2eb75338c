"""A user who is in no list of users and has no home, as in a container that is started with a number."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ordinary import UNLISTED, as_user, folder_of, give, python_for

EXAMPLES = Path(__file__).parents[2] / "examples"
# Without a list of users, everybody is unlisted.
NO_LIST = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", os.devnull, "/etc/passwd", "--"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of that user, with a suite and a callable skill."""
    with folder_of(UNLISTED) as folder:
        (folder / "whet.toml").write_text('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n')
        (folder / "suite.py").write_text(
            "from whet import Case\n"
            "def says(report, ctx): assert 'hello' in report.final_output, report.final_output\n"
            "suite = [Case(id='a', prompt='echo hello', check=says)]\n"
        )
        shutil.copytree(EXAMPLES / "skills" / "calculator", folder / "calculator")
        give(folder, UNLISTED)
        yield folder


def whet(place: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run `whet` as that user: by number where we are root, else as ourselves in a place without a list."""
    uid = UNLISTED if os.getuid() == 0 else os.getuid()
    python, variables = python_for(uid)
    before = as_user(uid) if os.getuid() == 0 else NO_LIST
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", **variables}
    argv = [*before, python, "-m", "whet", *args]
    return subprocess.run(argv, env=env, cwd=place, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.bubblewrap
def test_trials_run(place: Path) -> None:
    done = whet(place, "run", "suite.py", "--sandbox", "bubblewrap")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.bubblewrap
def test_skills_are_evaluated(place: Path) -> None:
    done = whet(place, "eval", "--skills", "calculator", "--benchmark", "coding-easy", "--sandbox", "bubblewrap")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_path_that_begins_with_a_home_is_a_clear_error(place: Path) -> None:
    done = whet(place, "run", "suite.py", "--sandbox", "local", "--reporter", "json=~/results.json")

    assert done.returncode == 2
    assert "~/results.json" in done.stderr
    assert "Traceback" not in done.stderr

"""A clone of whet with one commit, and what is built of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
# What a build reads.
_SOURCES = ("LICENSE", "README.md", "hatch_build.py", "pyproject.toml", "src")
GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


class Built(Struct, frozen=True):
    """A clone, the folder with its wheel and source distribution, and what `whet --version` must print."""

    clone: Path
    folder: Path
    version_line: str

    @property
    def wheel(self) -> Path:
        """The wheel."""
        return next(self.folder.glob("*.whl"))

    @property
    def sdist(self) -> Path:
        """The source distribution."""
        return next(self.folder.glob("*.tar.gz"))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Copy what belongs to the project, commit it, and build both kinds of distribution."""
    clone, folder = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("dist")
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__", "commit.txt"))
        else:
            shutil.copy(ROOT / name, clone / name)
    (clone / ".gitignore").write_text("__pycache__/\n")
    for command in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Begin")):
        run([*GIT, *command], clone)
    run([sys.executable, "-m", "hatchling", "build", "--directory", str(folder)], clone)
    commit = run([*GIT, "log", "-1", "--abbrev=9", "--format=%h %cs"], clone).strip()
    return Built(clone=clone, folder=folder, version_line=f"whet 0.1.0 ({commit})\n")


def run(command: list[str], folder: Path, **variables: str) -> str:
    """Run a command to its end and return what it printed; fail with that if it does not end with 0."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | variables,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout

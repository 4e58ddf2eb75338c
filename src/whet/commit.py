"""The commit that this whet was made from, so that you can tell an old installation from a new one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

# Beside this module in wheels and source distributions, where hatch_build.py puts it. A clone has none, and asks git.
BUILT = "commit.txt"
_COMMIT = re.compile(r"[0-9a-f]{7,64} \d{4}-\d{2}-\d{2}(, with changes)?")
_PATIENCE_S = 10


def commit_of_package() -> str | None:
    """Return the short hash and the date of the commit; None if nothing says which it is."""
    package = Path(__file__).resolve().parent
    if (built := commit_of_build(package)) is not None:
        return built
    return commit_of_clone(package.parents[1])


def commit_of_build(package: Path) -> str | None:
    """Return the commit that was written into `package` when it was built."""
    try:
        text = (package / BUILT).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return text if _COMMIT.fullmatch(text) else None


def commit_of_clone(root: Path) -> str | None:
    """Return the commit that is checked out in the clone `root`, and whether its files differ from that commit."""
    # A copy without .git may lie in a repository of somebody else, and git would name a commit of that.
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "log", "-1", "--no-show-signature", "--abbrev=9", "--format=%h %cs").strip()
        changes = _git(root, "status", "--porcelain", "--", "src", "pyproject.toml")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    text = f"{commit}, with changes" if changes else commit
    return text if _COMMIT.fullmatch(text) else None


def _git(root: Path, *arguments: str) -> str:
    # In a hook of git, its variables name the repository that the hook runs for.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "--no-optional-locks", *arguments],  # noqa: S607 - whichever git you use
        cwd=root,
        env=environment,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=_PATIENCE_S,
    )
    return done.stdout

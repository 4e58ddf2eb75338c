"""Running things as an ordinary user where the tests run as root, and as oneself where they do not."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest

import whet

# Not in any list of users, as in a container that is started with a number.
UNLISTED = 4242


def as_user(uid: int) -> list[str]:
    """What to put before a command so that this user runs it."""
    if os.getuid() == uid:
        return []
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]


def held_to_permissions() -> list[str]:
    """What to put before a command so that the permissions of files hold for it, also where root runs it."""
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.getuid() == 0 else []


@contextmanager
def folder_of(uid: int) -> Iterator[Path]:
    """A folder that belongs to this user, at a place where he may go."""
    folder = Path(tempfile.mkdtemp(prefix="whet-user-"))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def give(folder: Path, uid: int) -> None:
    """Everything in *folder* to this user."""
    if os.getuid() == 0:
        for place, _, names in os.walk(folder):
            for path in (place, *(Path(place, name) for name in names)):
                os.lchown(path, uid, uid)


@lru_cache
def python_for(uid: int) -> tuple[str, dict[str, str]]:
    """An interpreter that this user may start, and the variables by which it finds whet."""
    packages = [str(Path(whet.__file__).parents[1]), *site.getsitepackages()]
    env = {"PYTHONPATH": os.pathsep.join(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    for python in (sys.executable, os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        tried = subprocess.run(
            [*as_user(uid), "env", f"PYTHONPATH={env['PYTHONPATH']}", python, "-c", "import whet.cli.main"],
            capture_output=True,
            check=False,
            cwd="/",
        )
        if tried.returncode == 0:
            return python, env
    pytest.skip(f"no Python that has whet's libraries can be started by user {uid}, for tests of bubblewrap")

"""The Pythons of this machine that whet runs on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
_ASK = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"


@lru_cache
def find_pythons() -> dict[str, str]:
    """Return one program for each version that is here and can make virtual environments, the oldest version first."""
    programs = {version: next(_working(version), None) for version in VERSIONS}
    return {version: program for version, program in programs.items() if program is not None}


def _working(version: str) -> Iterator[str]:
    for program in _candidates(version):
        said = subprocess.run([program, "-c", _ASK], capture_output=True, check=False, text=True)
        if said.stdout == f"{version}\n":
            yield program


def _candidates(version: str) -> Iterator[str]:
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        yield sys.executable
    named = shutil.which(f"python{version}")
    if named is not None:
        yield named
        # Where pyenv chooses a version, also those that it does not choose.
        yield from map(str, sorted(Path(named).parent.parent.glob(f"versions/{version}.*/bin/python3")))
    # The system's own, which a shim or an activated environment hides.
    for path in (f"/usr/bin/python{version}", "/usr/bin/python3"):
        if Path(path).exists():
            yield path

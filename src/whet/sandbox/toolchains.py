"""What programs are installed with: a program alone is often not enough to start it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from whet.sandbox.programs import is_there
from whet.sandbox.shown import lies_in_system

_PACKAGES = "node_modules"
# A folder that holds one of these is somebody's work, whatever else lies in it.
_OF_PROJECTS = (".git", "whet.toml", "pyproject.toml")
_MOST_LINKS = 40


@lru_cache(maxsize=64)
def toolchains(path: str, program: str) -> tuple[Path, ...]:
    """Programs installed outside the system: what stands on PATH, the program itself and the running Python."""
    wanted = {Path(sys.prefix), Path(sys.base_prefix)}
    home = os.environ.get("HOME")
    for entry in path.split(os.pathsep):
        # A PATH may name folders that are not ours to look into.
        if Path(entry).is_absolute() and entry != home and os.access(entry, os.X_OK):
            wanted.update(_installation(Path(entry)))
    for place in _hops(Path(program)):
        # The program alone: its folder may be anybody's home.
        wanted.update(folder for folder in _installation(place.parent) if folder != place.parent)
        wanted.add(place)
    wanted.update(_linked_package(Path(program)))
    return tuple(_uncovered(wanted))


def _hops(program: Path) -> Iterator[Path]:
    """The program, every link on the way, and what is at the end of it."""
    place = program
    for _ in range(_MOST_LINKS):
        yield place
        if not place.is_symlink():
            break
        place = Path(os.path.normpath(place.parent / place.readlink()))
    yield program.resolve()


def _installation(folder: Path) -> Iterator[Path]:
    """A folder of programs, and the installation around it where it looks like one.

    `~/.pyenv/shims` is nothing without `~/.pyenv`, and `node/v20/bin` needs `node/v20/lib`; but `~/.cargo` also holds
    credentials and `~/.local` anything at all, so those show their `bin` and their packages only.
    """
    yield folder
    yield from _packages_around(folder)
    whole = folder.parent
    if folder.name == "shims" and not _holds_home(whole):
        yield whole
    elif folder.name == "bin" and (whole / "lib").is_dir():
        if not _is_personal(whole):
            yield whole
        elif (whole / "lib" / _PACKAGES).is_dir():
            yield whole / "lib" / _PACKAGES


def _holds_home(folder: Path) -> bool:
    home = Path(os.environ.get("HOME") or "/nonexistent")
    return any(each.is_relative_to(folder) for each in (home, home.resolve()))


def _is_personal(folder: Path) -> bool:
    """Whether more lies there than an installation: the home or what holds it, or somebody's work."""
    return _holds_home(folder) or folder.name == ".local" or any((folder / name).exists() for name in _OF_PROJECTS)


def _packages_around(folder: Path) -> Iterator[Path]:
    """The outermost `node_modules`: a package finds others beside it, and beside whatever it lies in."""
    if _PACKAGES in folder.parts:
        yield Path(*folder.parts[: folder.parts.index(_PACKAGES) + 1])


def _linked_package(program: Path) -> Iterator[Path]:
    """The package of a program that `node_modules` only links to, as those of the project itself."""
    found = program.resolve()
    if _PACKAGES in found.parts or not any(_PACKAGES in place.parts for place in _hops(program)):
        return
    yield from [folder for folder in found.parents if (folder / "package.json").is_file()][:1]


def _uncovered(paths: Iterable[Path]) -> Iterator[Path]:
    """Those that are there and not below another one, or below the system."""
    covered: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if path == Path("/") or lies_in_system(path) or not is_there(path):
            continue
        if not any(path.is_relative_to(other) for other in covered):
            covered.append(path)
            yield path

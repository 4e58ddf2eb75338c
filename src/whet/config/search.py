"""The search for settings: from a folder upwards, and no further than the project and what its user may trust."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from whet.config.files import PROJECT_FILE, PYPROJECT, SettingsFile, find_own, find_shared
from whet.errors import ConfigError

_REPOSITORY = ".git"
_ROOT = 0


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found.

    `last` is the folder that it ended in, where that is not the top of the file system, and `foreign` says which file
    it ended at and did not read.
    """

    file: SettingsFile | None = None
    last: Path | None = None
    foreign: str | None = None


def search_settings(folder: Path) -> Search:
    """The settings file in force for *folder*: of the first folder upwards that has one, within the project."""
    for place in (folder, *folder.parents):
        for path in (place / PROJECT_FILE, place / PYPROJECT):
            if reason := _distrusted(path):
                return Search(last=place, foreign=reason)
        own, shared = find_own(place / PROJECT_FILE), find_shared(place / PYPROJECT)
        if own and shared:
            raise ConfigError(
                f"{place}: both {PROJECT_FILE} and [tool.whet] of {PYPROJECT} hold settings",
                hint="keep one of them",
            )
        if own or shared:
            return Search(own or shared, last=place)
        if is_project_root(place):
            return Search(last=place)
    return Search()


def find_project(folder: Path) -> Path | None:
    """The project that *folder* belongs to: the nearest folder upwards with a `.git`, else the one with settings."""
    root = next((place for place in (folder, *folder.parents) if is_project_root(place)), None)
    if root is not None:
        return root
    found = search_settings(folder).file
    return found.path.parent if found else None


def is_project_root(folder: Path) -> bool:
    """Whether a repository begins in *folder*; one that somebody else put there, as in `/tmp`, is not ours."""
    mark = folder / _REPOSITORY
    return os.path.lexists(mark) and _stranger(mark) is None


def _distrusted(path: Path) -> str | None:
    """Why the settings at *path* are not read, though they are there: who can write them could run commands as us."""
    owner = _stranger(path)
    if owner is None or not _may_hold_settings(path):
        return None
    return f"{path} is not read: it belongs to {owner}, not to you"


def _may_hold_settings(path: Path) -> bool:
    """Most pyproject files are not about us; one that cannot be read might be."""
    if path.name != PYPROJECT:
        return True
    try:
        return "whet" in path.read_text("utf-8", errors="replace")
    except OSError:
        return path.is_file()


def _stranger(path: Path) -> str | None:
    """Whose *path* is, where it is neither ours nor root's; a link counts as well as what it leads to."""
    trusted = _trusted()
    for look in (os.lstat, os.stat):
        try:
            owner = look(path).st_uid
        except OSError:
            # Not there, a folder that may not be looked into, or a link to nowhere: whoever reads it says so.
            continue
        if owner not in trusted:
            return _name_of(owner)
    return None


def _trusted() -> frozenset[int]:
    """Root, ourselves, and whoever became root to start us."""
    user = os.geteuid()
    before = os.environ.get("SUDO_UID", "")
    return frozenset({_ROOT, user, *([int(before)] if user == _ROOT and before.isdecimal() else [])})


def _name_of(user: int) -> str:
    try:
        return f"{pwd.getpwuid(user).pw_name} (uid {user})"
    except KeyError:
        return f"uid {user}"

"""What lies in the folder of a skill and no agent is given with it: suites with all that belongs to them, and settings.

Names by which suites are found decide, and not the suite of a run: the same skill in another folder, in an archive or
at a commit has its answers too.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from whet.errors import PathRefused, SuiteError
from whet.reading.paths import refusals
from whet.reading.plugin_folder import can_be_given, is_plugin
from whet.reading.skill_manifest import manifest_text
from whet.reading.toml import PROJECT_FILE, PYPROJECT
from whet.suites.find import SUITES_OF_A_SKILL, is_suite
from whet.suites.format import format_of, lower_suite
from whet.suites.split.lock import NAME as SPLIT_LOCK
from whet.workspace.copy import clear
from whet.workspace.make import MANIFEST

# Repositories and records, and what Python leaves where a script ran: neither git nor an archive has these.
_ANYWHERE = frozenset((".git", ".whet", "__pycache__"))
# Beside the manifest. Everything in the folder of suites belongs to them: fixtures, answers, labels, splits, notes.
_FOLDER = "evals"
_OURS = frozenset((PROJECT_FILE, "whet.snapshots.json", "labels.jsonl", "judge.lock.json"))
_PATHS = re.compile(r"(?<![\w./:-])[\w.][\w./-]*")
_OWN_FORMATS = frozenset(("bench", "evals", "python"))


def left_out(skill: Path) -> frozenset[str]:
    """Return what is left out of every copy of the folder *skill*, as paths from there; of skills inside of it too.

    Of a folder it is all or nothing: beside a suite lie its fixtures and answers.
    """
    paths: set[str] = set()
    for place, folders, names in os.walk(skill):
        folder = Path(place)
        out = {name for name in (*folders, *names) if name in _ANYWHERE}
        if MANIFEST in names or is_plugin(folder):
            out.update(name for name in folders if _is_of_suites(folder / name))
            out.update(name for name in names if _is_ours(folder / name))
        folders[:] = [name for name in folders if name not in out]
        paths.update((folder / name).relative_to(skill).as_posix() for name in out)
    return frozenset(paths)


def warning_of_lost(skill: Path, paths: Collection[str]) -> str | None:
    """Return a sentence if the manifest of *skill* names files that are below the *paths* paths: no agent has them."""
    if not (skill / MANIFEST).is_file():
        # A plug-in need not have one.
        return None
    text = manifest_text(skill / MANIFEST)
    words = dict.fromkeys(word.removeprefix("./").rstrip("./") for word in _PATHS.findall(text))
    missing_words = [word for word in words if _is_lost(word, paths) and os.path.lexists(skill / word)]
    if not missing_words:
        return None
    more = f" and {len(missing_words) - 1:,} more" if len(missing_words) > 1 else ""
    names = f"{MANIFEST} names {missing_words[0]}{more}"
    return (
        f"{names}, but agents are not given the suites of a skill and what lies beside them; move it to another folder"
    )


def _is_lost(word: str, paths: Collection[str]) -> bool:
    # Names such as `.git` are of the project that the skill is about, and a word such as `evals` may be just a word.
    path = PurePosixPath(word)
    if ("." not in word and "/" not in word) or not _ANYWHERE.isdisjoint(path.parts):
        return False
    return any(str(place) in paths for place in (path, *path.parents))


def take_out(skill: Path) -> None:
    """Remove from the folder *skill*, if it is one, what would be left out of a copy."""
    if can_be_given(skill):
        for path in left_out(skill):
            clear(skill / path)


def _is_of_suites(folder: Path) -> bool:
    """Return whether a folder beside a manifest holds suites, by its own name or by those in it."""
    name = folder.name.lower()
    if name == _FOLDER:
        return True
    return any(_is_named_like_a_suite(f"{name}/{inside.lower()}") for inside in _names_in(folder))


def _is_ours(file: Path) -> bool:
    """Return whether a file beside a manifest is a suite or of whet."""
    name = file.name.lower()
    if name in _OURS or name.endswith(SPLIT_LOCK) or _is_named_like_a_suite(name):
        return True
    if name == PYPROJECT:
        return _is_only_settings(file)
    return name != MANIFEST.lower() and _is_suite(file)


def _is_named_like_a_suite(path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in SUITES_OF_A_SKILL)


def _names_in(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry.name for entry in entries)
    except OSError:
        # A link that leads nowhere, or a folder that cannot be read: copying it says so.
        return


def _is_only_settings(file: Path) -> bool:
    """Return whether a `pyproject.toml` says nothing but [tool.whet]; scripts of the skill may need any other."""
    try:
        project = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return list(project) == ["tool"] and list(project["tool"]) == ["whet"]


def _is_suite(file: Path) -> bool:
    """Return whether a file with any name is a suite; one of another tool if it also says what it expects.

    A list of prompts alone is like a suite of those, and the skill may need it.
    """
    if not is_suite(file):
        return False
    if format_of(file) in _OWN_FORMATS:
        return True
    try:
        with refusals():
            lower_suite(file)
    except (SuiteError, PathRefused):
        return False
    return True

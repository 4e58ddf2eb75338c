"""Where the evals of a plug-in are: its suite folder, the folders of its cases, and the plug-in of a case."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from whet.errors import Problem, SuiteError
from whet.reading.plugin_folder import CLAUDE_MANIFEST, SKILL_MANIFEST, PluginManifest, is_plugin, plugin_manifest

PROMPT, CASE = "prompt.md", "case.yaml"
USUAL_FOLDER = "evals"
# Folders that hold no cases, wherever they are.
_NEVER = frozenset((".git", "node_modules", ".claude", "results", "mocks"))
_COMPONENTS = frozenset(("skills", "commands", "agents", "hooks", "bin", "themes", "output-styles", "workflows"))
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
_DOCUMENTS = (".md", ".yaml", ".yml", ".json")
_LONGEST, _MOST_PARTS = 200, 8
_MOST_LEVELS_TO_MANIFEST = 3
_DEEPEST, _MOST_ENTRIES, _MOST_LEVELS_UP = 16, 100_000, 32


def is_case(folder: Path) -> bool:
    """Return whether *folder* is one case."""
    return any(os.path.isfile(folder / name) for name in (PROMPT, CASE))  # noqa: PTH113 - folders may be closed


def plugin_of(folder: Path) -> Path | None:
    """Return the nearest folder from *folder* upwards that is a plug-in, or a skill, which is one too."""
    above = islice((folder, *folder.parents), _MOST_LEVELS_UP)
    return next((place for place in above if is_plugin(place) or (place / SKILL_MANIFEST).is_file()), None)


def unread_manifests(folder: Path) -> Iterator[Problem]:
    """Yield the manifests around *folder* that are none: without a plug-in, cases run in one arm."""
    for place in islice((folder, *folder.parents), _MOST_LEVELS_TO_MANIFEST):
        file = place / CLAUDE_MANIFEST
        if os.path.isfile(file) and not is_plugin(place):  # noqa: PTH113 - folders may be closed
            message = "is no JSON object with a name, so that there is no plug-in under test"
            yield Problem(file=str(file), message=message)


def suite_folder(root: Path) -> Path | None:
    """Return the folder of the evals of the plug-in or skill in *root*, if it has cases."""
    manifest = plugin_manifest(root)
    name = (manifest and _named_in(manifest)) or USUAL_FOLDER
    folder = root / name
    return folder if next(case_folders(folder), None) is not None else None


def _named_in(manifest: PluginManifest) -> str | None:
    """Return the folder that a manifest names, if its tool would take it."""
    value = _experimental(manifest)
    return value if isinstance(value, str) and folder_problem(value) is None else None


def _experimental(manifest: PluginManifest) -> Any:
    table = manifest.values.get("experimental")
    value = table.get("evals") if isinstance(table, dict) else None
    # Of several, the first counts.
    return value[0] if isinstance(value, list) and value else value


def manifest_warnings(manifest: PluginManifest) -> Iterator[Problem]:
    """Yield what a manifest says about its evals and their tool does not follow."""
    if "evals" in manifest.values:
        message = 'is ignored: write "experimental": {"evals": ...}'
        yield Problem(file=str(manifest.path), field="evals", message=message)
    value = _experimental(manifest)
    problem = None if value is None else folder_problem(value)
    if problem is not None:
        message = f"{problem}, so the folder {USUAL_FOLDER} is used"
        yield Problem(file=str(manifest.path), field="experimental.evals", message=message)


def folder_problem(value: object) -> str | None:
    """Return why *value* cannot name the folder of the evals of a plug-in; None if it can."""
    if not isinstance(value, str) or not value:
        return "must be the path of a folder"
    parts = value.removeprefix("./").rstrip("/").split("/")
    if len(value) > _LONGEST or len(parts) > _MOST_PARTS:
        return f"must have at most {_LONGEST} characters and {_MOST_PARTS} parts"
    wrong = next((part for part in parts if not _PART.fullmatch(part)), None)
    if wrong is not None:
        return f'"{wrong}" is not the plain name of a folder'
    if value.endswith(_DOCUMENTS):
        return "must be a folder, not a file"
    reserved = next((part for part in parts if part in _NEVER), parts[0] if parts[0] in _COMPONENTS else None)
    return None if reserved is None else f"must not be in the folder {reserved}"


def case_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of cases below *folder*, sorted by path; raises `SuiteError` where it is too deep or large."""
    entries = 0
    seen = {os.path.realpath(folder)}

    def walk(place: Path, depth: int) -> Iterator[Path]:
        nonlocal entries
        if depth > _DEEPEST:
            raise _too_much(place, f"is more than {_DEEPEST} folders deep")
        for name in sorted(_folders_in(place)):
            entries += 1
            if entries > _MOST_ENTRIES:
                raise _too_much(folder, f"has more than {_MOST_ENTRIES:,} folders")
            inner = place / name
            if name in _NEVER or not _is_new(inner, seen, folder):
                continue
            if is_case(inner):
                yield inner
            else:
                yield from walk(inner, depth + 1)

    yield from walk(folder, 1)


def _is_new(folder: Path, seen: set[str], root: Path) -> bool:
    """Note a folder; return whether it was not seen under another name, and does not lead out of *root*."""
    real = os.path.realpath(folder)
    if real in seen:
        return False
    seen.add(real)
    if not folder.is_symlink():
        return True
    base = os.path.realpath(root)
    if base == real or base.startswith(f"{real}/"):
        raise _too_much(folder, "is a link to a folder above it")
    return real.startswith(f"{base}/")


def _folders_in(place: Path) -> list[str]:
    try:
        with os.scandir(place) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _too_much(path: Path, message: str) -> SuiteError:
    return SuiteError([Problem(file=str(path), message=message)])

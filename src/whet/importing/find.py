"""What lies at a path that is to be imported: a manifest, or tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whet.errors import Problem, SuiteError, UsageError
from whet.importing.base import Imported
from whet.importing.harbor import import_tasks
from whet.importing.manifest import import_manifest

_TASK = "task.toml"
_LARGEST = 64 * 1024 * 1024


def import_path(path: Path, folder: Path, *, name: str | None = None, oracle: bool = False) -> Imported:
    """The suite of what lies at *path*, to be written into *folder*; *oracle* lets solutions run before verifiers."""
    if path.is_file() and path.name != _TASK:
        return import_manifest(_document(path), path, folder)
    root = path.parent if path.name == _TASK else path
    if not root.is_dir():
        raise UsageError(f"{path} does not exist")
    tasks = _tasks(root)
    if not tasks:
        raise UsageError(
            f"{root} holds no tasks", hint=f"a task is a folder with {_TASK}; name one, or a folder of them"
        )
    return import_tasks(tasks, name or root.resolve().name, folder, oracle=oracle)


def _tasks(root: Path) -> list[Path]:
    """A task, a folder of tasks, or a project with them in `tasks`."""
    if (root / _TASK).is_file():
        return [root]
    for place in (root, root / "tasks"):
        if found := sorted(file.parent for file in place.glob(f"*/{_TASK}") if file.is_file()):
            return found
    return []


def _document(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST:
            raise SuiteError([Problem(file=str(path), message="is too large for a manifest")])
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SuiteError([Problem(file=str(path), message=f"cannot be read as JSON: {error}")]) from error

"""Removal of what an agent left: any depth, permissions taken away, other processes still writing."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from whet.wire import printable
from whet.workspace.tree import Descent, grant, walk

_TRIES = 3
_MAX_PROBLEMS = 20


def remove_tree(path: Path) -> list[str]:
    """Delete *path* and all below it; gives a sentence for each thing that stays."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        return _unlinked(path)
    except OSError:
        return _emptied(path)
    return []


def _emptied(path: Path) -> list[str]:
    try:
        # Much quicker with what is not deep and resists nobody, which is nearly everything.
        shutil.rmtree(path)
    except (OSError, RecursionError):
        return _Removal(path).run()
    return []


def make_presentable(root: Path) -> None:
    """Ready what an agent left for a person: every folder opens to its owner; sockets, fifos and devices are gone."""
    with Descent(root, open_up=True) as place:
        for step in walk(place):
            if step.kind == "item" and not (stat.S_ISREG(step.stat.st_mode) or stat.S_ISLNK(step.stat.st_mode)):
                with suppress(OSError):
                    os.unlink(step.name, dir_fd=place.fd)


def _unlinked(path: Path) -> list[str]:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return [_problem(str(path), error)]
    return []


def _problem(path: str, error: OSError) -> str:
    return f"cannot remove {printable(path)}: {error.strerror or error}"


class _Removal:
    """Moves every folder it meets beside the first one, so that no path ever gets long, and empties them in turn."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hold = path.with_name(path.name + ".x")
        self._waiting: list[tuple[Path, str]] = []
        self._moved = 0
        self._problems: list[str] = []
        self._more = 0

    def run(self) -> list[str]:
        try:
            self._hold.mkdir(mode=stat.S_IRWXU, exist_ok=True)
            self._move(str(self._path), None, str(self._path))
        except OSError as error:
            return [_problem(str(self._path), error)]
        while self._waiting:
            self._empty(*self._waiting.pop())
        with suppress(OSError):
            # Where something stays, so does this.
            self._hold.rmdir()
        more = [f"and {self._more} more below {self._path}"] if self._more else []
        return self._problems + more

    def _empty(self, folder: Path, shown: str) -> None:
        for attempt in range(_TRIES):
            try:
                with Descent(folder, force=True) as place:
                    os.fchmod(place.fd, stat.S_IRWXU)
                    self._clear(place.fd, shown)
                folder.rmdir()
            except OSError as error:
                # Not empty: something was added in the meantime, or could not be removed and is told already.
                if attempt == _TRIES - 1:
                    self._tell(shown, error)
            else:
                return

    def _clear(self, fd: int, shown: str) -> None:
        for name, is_folder in list(_names(fd)):
            try:
                if is_folder:
                    self._move(name, fd, f"{shown}/{name}")
                else:
                    os.unlink(name, dir_fd=fd)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._tell(f"{shown}/{name}", error)

    def _move(self, name: str, dir_fd: int | None, shown: str) -> None:
        target = self._hold / str(self._moved)
        self._moved += 1
        try:
            os.rename(name, target, src_dir_fd=dir_fd)
        except PermissionError:
            # To move a folder is to write its `..`.
            grant(name, stat.S_IRWXU, dir_fd=dir_fd)
            os.rename(name, target, src_dir_fd=dir_fd)
        self._waiting.append((target, shown))

    def _tell(self, shown: str, error: OSError) -> None:
        sentence = _problem(shown, error)
        if sentence in self._problems:
            return
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(sentence)
        else:
            self._more += 1


def _names(fd: int) -> Iterator[tuple[str, bool]]:
    with os.scandir(fd) as entries:
        for entry in entries:
            yield entry.name, entry.is_dir(follow_symlinks=False)

"""Versions of a skill as folders: copies without what no agent is given, their digests, and how two of them differ."""

from __future__ import annotations

import difflib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from whet.errors import UsageError
from whet.plan.skill_copies import tree_digest
from whet.suites.left_out import left_out

_EXECUTABLE, _PLAIN = "100755", "100644"


def copy_skill(skill: Path, place: Path) -> None:
    """Copy the folder *skill* to *place*, without suites, settings and repositories; links stay links."""
    out = left_out(skill)

    def ignored(root: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(root, name).relative_to(skill).as_posix() in out]

    try:
        shutil.copytree(skill, place, symlinks=True, ignore=ignored)
    except (OSError, shutil.Error) as error:
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        raise UsageError(f"the skill {skill} cannot be copied to {place}: {why}") from error
    _make_writable(place)


def _make_writable(folder: Path) -> None:
    """Let its owner write everything: a skill of a read-only installation is there to be changed."""
    for root, _, names in os.walk(folder):
        Path(root).chmod(stat.S_IMODE(Path(root).stat().st_mode) | stat.S_IRWXU)
        for path in (Path(root, name) for name in names):
            if not path.is_symlink():
                path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IRUSR | stat.S_IWUSR)


def version_digest(folder: Path) -> str:
    """Return the digest of a version: of the names, contents and modes of its files."""
    return tree_digest(folder, frozenset())


def version_diff(old: Path, new: Path) -> str:
    """Return how *new* differs from *old*, as a patch in the form of git for the folder of the skill."""
    return "".join(_differences(_files(old), _files(new)))


def _files(folder: Path) -> dict[str, Path]:
    paths = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _differences(old: dict[str, Path], new: dict[str, Path]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        old_data, new_data = _content(before), _content(after)
        old_mode, new_mode = _mode(before), _mode(after)
        if (old_data, old_mode) == (new_data, new_mode):
            continue
        yield f"diff --git a/{name} b/{name}\n"
        if old_mode is None:
            yield f"new file mode {new_mode}\n"
        elif new_mode is None:
            yield f"deleted file mode {old_mode}\n"
        elif old_mode != new_mode:
            yield f"old mode {old_mode}\nnew mode {new_mode}\n"
        if b"\0" in old_data + new_data:
            yield f"Binary files a/{name} and b/{name} differ\n"
        elif old_data != new_data:
            yield from _hunks(name, _lines(old_data) if before else None, _lines(new_data) if after else None)


def _content(path: Path | None) -> bytes:
    if path is None:
        return b""
    return os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()


def _mode(path: Path | None) -> str | None:
    if path is None:
        return None
    if path.is_symlink():
        return "120000"
    return _EXECUTABLE if path.stat().st_mode & stat.S_IXUSR else _PLAIN


def _lines(data: bytes) -> list[str]:
    # Not by `splitlines`, which ends a line at more than a line break.
    *whole, last = data.decode("utf-8", "replace").split("\n")
    return [*(f"{line}\n" for line in whole), *filter(None, [last])]


def _hunks(name: str, old: list[str] | None, new: list[str] | None) -> Iterator[str]:
    places = ("/dev/null" if old is None else f"a/{name}", "/dev/null" if new is None else f"b/{name}")
    for line in difflib.unified_diff(old or [], new or [], *places):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"

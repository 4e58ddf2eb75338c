"""The folder of a skill as an agent may have it: without a suite that lies in it, its history and our own records."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from whet.errors import UsageError
from whet.workspace import remove_tree

_NEVER = frozenset((".git", ".whet"))


def left_out(folder: Path, suite: Path, own: tuple[Path, ...]) -> frozenset[Path]:
    """What lies in *folder* and is no part of the skill: the suite with what is beside it, and folders of our *own*.

    An agent that is given the suite is given the answers.
    """
    asked = {suite, *own}
    if suite.parent != folder and suite.is_relative_to(folder):
        # Its packages, scripts and settings lie there too; a suite at the top of a skill is left out alone.
        asked.add(suite.parent)
    named = (folder / name for name in _NEVER)
    return frozenset(path for path in (*asked, *named) if path.is_relative_to(folder) and os.path.lexists(path))


def tree_digest(folder: Path, leave: frozenset[Path]) -> str:
    """A digest of the names and contents of all that lies below *folder*; links count as what they say."""
    whole = hashlib.sha256()
    for path in _files(folder, leave):
        told = path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
        whole.update(b"%d:%s" % (len(told), told))
        whole.update(_content_digest(path))
    return whole.hexdigest()


def apart(folder: Path, leave: frozenset[Path], digest: str, store: Path) -> Path:
    """*folder*, or where something of it is left out a copy without that, below *store*."""
    if not leave:
        return folder
    copy = store / digest[:16] / folder.name
    if copy.is_dir():
        return copy
    draft = store / f"{digest[:16]}-{os.getpid()}"
    try:
        shutil.copytree(
            folder, draft / folder.name, symlinks=True, ignore=lambda root, names: _ignored(root, names, leave)
        )
        if not copy.parent.exists():
            draft.rename(copy.parent)
    except (OSError, shutil.Error) as error:
        raise UsageError(f"--skill: {folder} cannot be copied to {copy}: {error}") from error
    finally:
        remove_tree(draft)
    return copy


def _ignored(root: str, names: list[str], leave: frozenset[Path]) -> list[str]:
    return [name for name in names if Path(root, name) in leave]


def _files(folder: Path, leave: frozenset[Path]) -> Iterator[Path]:
    """The files and links below *folder*, in an order of their own."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if Path(root, name) not in leave)
        links = [name for name in folders if Path(root, name).is_symlink()]
        yield from (path for name in sorted((*names, *links)) if (path := Path(root, name)) not in leave)


def _content_digest(path: Path) -> bytes:
    if path.is_symlink():
        return hashlib.sha256(b"link " + os.fsencode(path.readlink())).digest()
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise UsageError(f"--skill: {path} cannot be read: {error.strerror}") from error

"""The scratch folder of a run: made by us, noted in the run folder, and removed; a record alone is not believed."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from whet.workspace import remove_tree

_PREFIX = "whet-"
_NOTE = ".scratch"
# As `mkdtemp` names them.
_NAME = re.compile(r"whet-[a-z0-9_]{8}")


@contextmanager
def new_scratch(run_dir: Path) -> Iterator[Path]:
    """A folder for live workspaces, outside of the user's project, so that no tool finds its way up into it."""
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    with noted_scratch(run_dir, scratch):
        yield scratch


@contextmanager
def noted_scratch(run_dir: Path, scratch: Path) -> Iterator[None]:
    """Remove *scratch* in the end; until then the run folder tells whoever comes after us where it is."""
    note = run_dir / _NOTE
    note.symlink_to(scratch)
    try:
        yield
    finally:
        remove_tree(scratch)
        # In a record that was closed meanwhile it stays: what became of the run is worth more than a note.
        with suppress(OSError):
            note.unlink(missing_ok=True)


def clear_scratch(run_dir: Path) -> None:
    """Remove what an earlier whet could not, because it was itself killed."""
    note = run_dir / _NOTE
    if note.is_symlink():
        # Run folders are handed around, and a link in one may lead to anything that is dear to the user.
        if _is_ours(note.readlink()):
            remove_tree(note.readlink())
        note.unlink()


def starts_nothing(scratch: Path) -> str | None:
    """What to say where no program in a workspace could be started, because its disk is mounted so."""
    if not os.statvfs(scratch).f_flag & os.ST_NOEXEC:
        return None
    return (
        f"{scratch.parent} is mounted noexec, so that no script or program in a workspace can be started by its path:"
        " let TMPDIR name a folder on another disk"
    )


def names_scratch(path: Path) -> bool:
    """Whether *path* is one that we could have chosen: absolute, without detours, and named as we name them."""
    return path.is_absolute() and ".." not in path.parts and _NAME.fullmatch(path.name) is not None


def _is_ours(path: Path) -> bool:
    """Whether a scratch folder lies at *path*: of our user, and closed to all others, as it was made."""
    try:
        found = path.lstat()
    except OSError:
        return False
    closed = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o077 == 0
    return names_scratch(path) and closed and found.st_uid == os.geteuid()

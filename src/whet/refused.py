"""What the system refused to do with a path, for a person: which path, what was wanted, why not, and what to do.

Commands touch paths of the user in a hundred places, and any of them may be closed, on a read-only disk or too long.
None of these places has to foresee it: an `OSError` that names its path comes here, and becomes one line.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whet.errors import PathRefused, UsageError

# What a path can be that is the user's to change. That a file is not there is not among them: we look before we use
# one, so that one which is missing all the same is a mistake of ours.
_REFUSALS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENXIO,
        errno.EIO,
        errno.ESTALE,
    }
)
_CLOSED = frozenset({errno.EACCES, errno.EPERM})


def refusal(error: BaseException) -> UsageError | None:
    """The error as a user can act on it, where it is about a path of theirs; none where it is a mistake of ours."""
    if not isinstance(error, OSError):
        return None
    if isinstance(error, FileNotFoundError) and error.filename is None and _here_is_gone():
        return UsageError("the current folder is not there any more", hint="change to a folder that is: cd")
    if error.errno not in _REFUSALS:
        return None
    # Of two paths the second is the one that was to be made.
    paths = [Path(os.fsdecode(name)) for name in (error.filename2, error.filename) if isinstance(name, str | bytes)]
    if not paths:
        return None
    reason = error.strerror or type(error).__name__
    for path in paths if error.errno in _CLOSED else ():
        if found := _closed(path):
            tried, hint = found
            return PathRefused(str(path), f"{tried}: {reason}", hint=hint)
    return PathRefused(str(paths[0]), f"cannot be used: {reason}", hint="name another path, or change this one")


@contextmanager
def refusals() -> Iterator[None]:
    """For code that can go on without a path: what the system refuses in here is raised as a `PathRefused`."""
    try:
        yield
    except OSError as error:
        if refused := refusal(error):
            raise refused from error
        raise


def _here_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _closed(path: Path) -> tuple[str, str] | None:
    """What cannot be done with *path*, and what stands in the way; nothing where it looks open."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() asks the very folders that are closed
    for folder in reversed(path.parents):
        if not os.access(folder, os.X_OK):
            return "cannot be reached", _open_it(folder, "enter")
    if os.path.lexists(path):
        if not os.access(path, os.R_OK):
            return "cannot be read", _open_it(path, "read")
        if path.is_dir() and not os.access(path, os.X_OK):
            return "cannot be entered", _open_it(path, "enter")
        if not os.access(path, os.W_OK):
            return "cannot be written to", _open_it(path, "write to")
    if not os.access(path.parent, os.W_OK):
        return "cannot be made or replaced", _open_it(path.parent, "write to")
    return None


def _open_it(path: Path, deed: str) -> str:
    found = path.stat()
    owner, group = _user(found.st_uid), _group(found.st_gid)
    facts = f"{path} belongs to {owner}, group {group}, mode {stat.S_IMODE(found.st_mode):04o}"
    return f"{facts}: let {_user(os.geteuid())} {deed} it, or name another path"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return f"gid {number}"

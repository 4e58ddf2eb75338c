"""The contract of a workspace, and how its troubles are told."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from whet.errors import WorkspaceError
from whet.model.changes import Changes
from whet.wire import printable

Method = Literal["empty", "overlay", "copy", "given"]

# What a machine can run out of; everything else that keeps a workspace from being read or written is in it.
SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)

_HINTS = {
    errno.ENOSPC: "the disk is full: free some space, or let TMPDIR name a folder on a larger disk",
    errno.EDQUOT: "the disk quota is used up: free some space, or let TMPDIR name a folder on another disk",
    errno.EACCES: "check who owns the folder and its permissions",
    errno.EPERM: "check who owns the folder and its permissions",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EMFILE: "too many files are open: raise `ulimit -n` or run fewer trials at a time",
    errno.ENOENT: "something removed it: see whether the agent or a process it left behind did",
    errno.ENOTDIR: "something put a file or link where a folder was: see whether the agent did",
    errno.ELOOP: "something put a link where a folder was: see whether the agent did",
    errno.ENOTEMPTY: "choose a destination that is not there yet",
    errno.EEXIST: "choose a destination that is not there yet",
}


@contextmanager
def explained(what: str, where: Path) -> Iterator[None]:
    """Turns what the system says into an error that names *what* failed, *where*, and what to do."""
    try:
        yield
    except OSError as error:
        raise trouble(what, where, error) from error


def trouble(what: str, where: Path | str, error: OSError) -> WorkspaceError:
    """The error for *what* failed *where*."""
    reason = error.strerror or str(error)
    return WorkspaceError(f"{what}: {printable(str(where))}: {reason}", hint=_HINTS.get(error.errno or 0))


class Workspace(ABC):
    """A folder in which an agent works, and what became of it."""

    path: Path
    method: Method

    @abstractmethod
    def mark(self) -> None:
        """Everything from here on is the agent's doing."""

    @property
    def untouched(self) -> bool:
        """Whether a glance is enough to see that there are no changes."""
        return False

    @abstractmethod
    def changes(self) -> Changes:
        """What was created, modified and deleted since the mark."""

    @abstractmethod
    def keep(self, destination: Path) -> None:
        """Move what is there to *destination*, for a person to look at."""

    @abstractmethod
    def remove(self) -> list[str]:
        """Delete it; gives a sentence for each thing that could not be deleted."""

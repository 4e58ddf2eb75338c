"""What a workspace holds at the paths of claims, before its agent starts and afterwards."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from whet.workspace.protecting import Protected
from whet.workspace.tree import GIT, Descent, open_file, walk

Kind = Literal["absent", "file", "folder", "other", "outside"]
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What was at a path: its kind and a digest of its content; where only a list of changes is known, `changed`."""

    kind: Kind
    digest: str | None = None
    changed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What the claims of a case need to know of the workspace as its agent found it.

    `held` says of each claim whether it held then already; None where that takes a command to know,
    or a search that is not needed or does not end.
    """

    before: Mapping[str, Before] = field(default_factory=dict)
    protected: tuple[Protected, ...] = ()
    held: tuple[bool | None, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """What was a folder: a list of changes tells of files only."""
        return tuple(path.rstrip("/") for path, before in self.before.items() if before.kind == "folder")

    @property
    def vacuous(self) -> bool:
        """Whether the agent had nothing to do."""
        return bool(self.held) and all(self.held)


@dataclass(frozen=True, slots=True)
class Found:
    """What is at a path now; `real` is where it lies once links are followed, if that is inside of the workspace.

    `linked` says of what is absent that there is a link to it, `whole` of a folder that it is the workspace itself.
    """

    kind: Kind
    real: str | None = None
    linked: bool = False
    whole: bool = False


def find(workspace: Path, path: str) -> Found:
    """What is at *path*; links are followed as long as they stay in the workspace."""
    full = os.path.join(workspace, path)  # noqa: PTH118 - a hot path
    try:
        real, mode = _followed(full)
    except (FileNotFoundError, NotADirectoryError):
        return Found("absent", linked=os.path.islink(full))  # noqa: PTH114
    except OSError as error:
        if error.errno == errno.ELOOP:
            return Found("absent", linked=True)
        raise
    root = next((each for each in _roots(workspace) if _is_in(real, each)), None)
    if root is None:
        return Found("outside")
    kind: Kind = "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
    return Found(kind, real, whole=real == root)


def _roots(workspace: Path) -> Iterator[str]:
    """The workspace as it is named, and where that leads."""
    yield str(workspace)
    yield _followed(workspace)[0]


def _is_in(real: str, root: str) -> bool:
    return real == root or real.startswith(f"{root.rstrip('/')}/")


def _followed(path: Path | str) -> tuple[str, int]:
    """Where *path* leads, and the mode of what is there; the kernel follows links quicker than we could."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_mode  # noqa: PTH115
    finally:
        os.close(fd)


def take_before(workspace: Path, paths: Iterable[str], *, digests: Iterable[str]) -> dict[str, Before]:
    """What is at *paths*; those in *digests* with their content."""
    wanted = set(digests)
    found = {}
    for path in paths:
        here = find(workspace, path)
        found[path] = Before(kind=here.kind, digest=digest_of(here) if path in wanted else None)
    return found


def digest_of(found: Found) -> str | None:
    """A digest of the content of a file, or of all that a folder holds: names, links and content.

    The `.git` folder of the workspace itself is left out, as it is from the list of changes.
    """
    if found.real is None:
        return None
    if found.kind == "file":
        return _content(open_file(found.real)).hex()
    skip = GIT if found.whole else frozenset[str]()
    return _folder(Path(found.real), skip) if found.kind == "folder" else None


def _folder(folder: Path, skip: frozenset[str]) -> str:
    lines = []
    names: list[str] = []
    with Descent(folder, force=True) as place:
        for step in walk(place, skip=skip):
            if step.kind == "enter":
                names.append(step.name)
                continue
            if step.kind == "leave":
                names.pop()
                continue
            path = "/".join((*names, step.name)).encode("utf-8", "surrogateescape")
            lines.append(path + b"\0" + _item(step.name, step.stat.st_mode, place.fd))
    return hashlib.sha256(b"\n".join(sorted(lines))).hexdigest()


def _item(name: str, mode: int, dir_fd: int) -> bytes:
    if stat.S_ISLNK(mode):
        return b"link" + os.readlink(name, dir_fd=dir_fd).encode("utf-8", "surrogateescape")
    return _content(open_file(name, dir_fd=dir_fd)) if stat.S_ISREG(mode) else b"other"


def _content(fd: int) -> bytes:
    digest = hashlib.sha256()
    with open(fd, "rb", buffering=0) as file:
        while part := file.read(_CHUNK):
            digest.update(part)
    return digest.digest()

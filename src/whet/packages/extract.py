"""Write the members of an archive into a folder, and refuse any that is unsafe or would end up outside of it."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from whet.errors import PackageError
from whet.packages.settings import MIB, PackageLimits, printable_name

LONGEST_PATH = 1024
_LONGEST_NAME = 255
_DEEPEST = 64

# As many as Linux follows before it gives up.
_MOST_FOLLOWED = 40
# Links that point to one another can take hours to follow.
_MOST_STEPS = 2_000_000

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE = 0o755
_CHUNK = MIB


class ExtractionFolder:
    """Takes members one by one and refuses the first unsafe one; makes links last, after everything else."""

    def __init__(self, root: Path, archive_bytes: int, limits: PackageLimits) -> None:
        self._root = root
        self._limits = limits
        self._most_bytes = limits.most_unpacked(archive_bytes)
        self._bytes = 0
        self._entries = 0
        # What is at each path below the root: a folder, a file or a link.
        self._kinds: dict[str, str] = {}
        self._links: dict[str, str] = {}

    def add_folder(self, name: str) -> None:
        """Add a folder, unless it is already there."""
        self._count()
        path = path_of(name)
        if path and self._kinds.get(path) != "folder":
            self._claim(path, "folder")
            self._make(path)

    def add_file(self, name: str, content: Readable, *, size: int, executable: bool) -> None:
        """Add a file of *size* bytes; its mode keeps only whether it is executable."""
        path = self._new(name, "file")
        size_on_disk = self._write(path, content, executable=executable)
        if size_on_disk != size:
            raise PackageError(
                f"{printable_name(path)} should have {size} bytes but has {size_on_disk}: the archive is damaged"
            )

    def add_copy(self, name: str, of: str) -> None:
        """Add a copy of a file in place of a hard link to it, so that nothing writes through the link."""
        source = path_of(of)
        if self._kinds.get(source) != "file":
            raise PackageError(
                f"{printable_name(name)} is a hard link to {printable_name(of)}, which is not an earlier file"
            )
        path = self._new(name, "file")
        with (self._root / source).open("rb") as content:
            executable = bool(os.fstat(content.fileno()).st_mode & stat.S_IXUSR)
            self._write(path, content, executable=executable)

    def add_link(self, name: str, target: str) -> None:
        """Add a symbolic link; `finish` checks that it stays inside."""
        path = self._new(name, "link")
        self._links[path] = target

    def finish(self) -> None:
        """Make the links, each of which must stay inside, directly and through other links."""
        if not self._kinds:
            raise PackageError("the archive is empty")
        check_links(self._links)
        for path, target in self._links.items():
            (self._root / path).symlink_to(target)

    def _new(self, name: str, kind: str) -> str:
        self._count()
        path = path_of(name)
        if not path:
            raise PackageError(f'the archive contains a {kind} called "{printable_name(name)}"')
        self._claim(path, kind)
        return path

    def _claim(self, path: str, kind: str) -> None:
        """Note what is at *path*, and make the folders above it."""
        if path in self._kinds:
            raise PackageError(f"{printable_name(path)} is in the archive twice")
        above = path.rpartition("/")[0]
        if above and self._kinds.get(above) != "folder":
            if above in self._kinds:
                raise PackageError(
                    f"{printable_name(path)} is below {printable_name(above)}, which is a {self._kinds[above]}"
                )
            self._claim(above, "folder")
            self._make(above)
        self._kinds[path] = kind

    def _make(self, path: str) -> None:
        (self._root / path).mkdir(mode=_FOLDER_MODE)

    def _count(self) -> None:
        self._entries += 1
        if self._entries > self._limits.entries:
            raise PackageError(f"the archive has more than {self._limits.entries:,} entries")

    def _write(self, path: str, content: Readable, *, executable: bool) -> int:
        """Write *content* to a new file; return its size."""
        file = os.open(self._root / path, _CREATE, 0o755 if executable else 0o644)
        size = 0
        with os.fdopen(file, "wb") as copy:
            while chunk := content.read(_CHUNK):
                size += len(chunk)
                self._bytes += len(chunk)
                if self._bytes > self._most_bytes:
                    raise too_large(self._most_bytes, self._limits, path)
                copy.write(chunk)
        return size


def path_of(name: str) -> str:
    """Return the path below the root of the member *name*, empty for the root; raises `PackageError` if unsafe."""
    if name.startswith("/"):
        raise _unsafe_path(name, "the path is absolute")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _unsafe_path(name, "the path contains `..`")
    if "\\" in name or any(ord(character) < ord(" ") or ord(character) == 0x7F for character in name):  # noqa: PLR2004
        raise _unsafe_path(name, "the name contains a backslash or a control character")
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        raise _unsafe_path(name, "the name is not UTF-8") from None
    if sum(sizes) + len(sizes) > LONGEST_PATH or max(sizes, default=0) > _LONGEST_NAME:
        raise _unsafe_path(name, "the name is too long for a file system")
    if len(parts) > _DEEPEST:
        raise _unsafe_path(name, f"the path is more than {_DEEPEST} folders deep")
    return "/".join(parts)


def _unsafe_path(name: str, why: str) -> PackageError:
    return PackageError(f"{printable_name(name)}: {why}")


def check_links(links: Mapping[str, str]) -> None:
    """Refuse *links* (targets by path) if one is absolute or leads out, directly or through other links."""
    steps = 0
    for path, target in links.items():
        if target.startswith("/"):
            raise PackageError(f"{printable_name(path)} is a link to an absolute path: {printable_name(target)}")
        if not target or "\0" in target or len(target.encode("utf-8", "surrogateescape")) > LONGEST_PATH:
            raise PackageError(f"{printable_name(path)} is a link whose target is not a path")
        steps += _follow(path, links)
        if steps > _MOST_STEPS:
            raise PackageError("the links of the archive point to one another too often")


def _follow(path: str, links: Mapping[str, str]) -> int:
    """Follow *path* from the root as the kernel would; return the number of steps."""
    ahead = deque(path.split("/"))
    path_so_far: list[str] = []
    link_count = steps = 0
    while ahead:
        steps += 1
        part = ahead.popleft()
        if part in ("", "."):
            continue
        if part == "..":
            if not path_so_far:
                raise PackageError(
                    f"{printable_name(path)} is a link that leads out of the archive: {printable_name(links[path])}"
                )
            path_so_far.pop()
            continue
        path_so_far.append(part)
        target = links.get("/".join(path_so_far))
        if target is not None:
            link_count += 1
            if link_count > _MOST_FOLLOWED:
                raise PackageError(f"{printable_name(path)} is a link that leads to itself")
            path_so_far.pop()
            if target.startswith("/"):
                raise PackageError(
                    f"{printable_name(path)} is a link that leads to an absolute path: {printable_name(target)}"
                )
            ahead.extendleft(reversed(target.split("/")))
    return steps


class Readable(Protocol):
    """The content of a member, read in pieces."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most *size*; empty at the end."""


def too_large(most_bytes: int, limits: PackageLimits, path: str = "") -> PackageError:
    """Return the error for an archive that unpacks to more than allowed."""
    message = (
        f"the archive unpacks to more than {most_bytes // MIB:,} MiB{f' at {printable_name(path)}' if path else ''}"
    )
    if most_bytes == limits.unpacked_bytes:
        return PackageError(message, hint="raise packages.max_unpacked_mb if that size is right")
    swells = f"{message}, which is more than {limits.ratio} times its size"
    return PackageError(swells, hint="if that is right, use it as a folder or as a plain .tar")

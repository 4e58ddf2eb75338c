"""The members of a tar, each put into the growing folder or refused."""

from __future__ import annotations

import io
import stat
import tarfile
from pathlib import Path

from whet.errors import PackageError
from whet.packages.growing import GrowingFolder
from whet.packages.limits import MIB
from whet.packages.naming import shown

# A header with names and attributes is some hundred bytes; tarfile would read one of gigabytes into memory.
_LARGEST_READ = 4 * MIB


def unpack_tar(archive: Path, folder: GrowingFolder) -> None:
    """Put every member of the plain tar *archive* into *folder*."""
    with _Sparing(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
        while (member := tar.next()) is not None:
            _add(tar, member, folder)
            # It would remember every member, and nobody asks for one again.
            vars(tar)["members"].clear()


def _add(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: GrowingFolder) -> None:
    if member.issparse():
        raise PackageError(f"{shown(member.name)} is a sparse file, which is not unpacked")
    if member.isdir():
        folder.add_folder(member.name)
    elif member.isreg():
        content = tar.extractfile(member)
        assert content is not None
        folder.add_file(member.name, content, size=member.size, executable=bool(member.mode & stat.S_IXUSR))
    elif member.issym():
        folder.add_link(member.name, member.linkname)
    elif member.islnk():
        folder.add_copy(member.name, member.linkname)
    else:
        what = (
            "a device" if member.isdev() and not member.isfifo() else "a named pipe" if member.isfifo() else "no file"
        )
        raise PackageError(f"{shown(member.name)} is {what}, which is not unpacked")


class _Sparing(io.FileIO):
    """A file that is read in reasonable pieces only."""

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes."""
        if size is None or not 0 <= size <= _LARGEST_READ:
            raise PackageError("the archive has a header without end")
        return super().read(size) or b""

"""Safe unpacking: an archive becomes a folder as a whole, or is refused with a reason and leaves nothing behind."""

from __future__ import annotations

import errno
import lzma
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

from whet.errors import PackageError
from whet.packages.growing import GrowingFolder
from whet.packages.limits import PackageLimits
from whet.packages.packed import is_zip, plain_tar
from whet.packages.tars import unpack_tar
from whet.packages.zips import unpack_zip
from whet.workspace import remove_tree
from whet.workspace.base import explained

# All that the standard library says of archives that are none, or were made to trouble it.
_UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    struct.error,
    OverflowError,
    NotImplementedError,
    RecursionError,
    MemoryError,
)


def unpack(archive: Path, target: Path, limits: PackageLimits | None = None) -> None:
    """Unpack *archive* (tar, packed by gzip, bzip2 or xz, or zip) to the new folder *target*."""
    limits = limits or PackageLimits()
    growing, plain = target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.tar")
    try:
        with explained("cannot unpack to", target):
            growing.mkdir(parents=True)
            _fill(archive, growing, plain, limits)
            growing.rename(target)
    finally:
        plain.unlink(missing_ok=True)
        remove_tree(growing)


def _fill(archive: Path, growing: Path, plain: Path, limits: PackageLimits) -> None:
    with archive.open("rb") as file:
        start = file.read(8)
    folder = GrowingFolder(growing, archive.stat().st_size, limits)
    try:
        if is_zip(start):
            unpack_zip(archive, folder)
        else:
            unpack_tar(plain_tar(archive, plain, limits), folder)
    except _UNREADABLE as error:
        raise _unreadable(error) from error
    except OSError as error:
        # Of the disk or of the data: gzip and bz2 tell both in this way, and a header may lead to before the beginning.
        if error.errno not in (None, errno.EINVAL, errno.EOVERFLOW):
            raise
        raise _unreadable(error) from error
    folder.finish()


def _unreadable(error: Exception) -> PackageError:
    said = str(error) or type(error).__name__
    return PackageError(
        f"the archive cannot be read: {said}", hint="it must be a tar, .tar.gz, .tar.bz2, .tar.xz or zip"
    )

"""Unpack tar and zip archives from untrusted sources, within limits."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from whet.errors import PackageError
from whet.packages.extract import LONGEST_PATH, ExtractionFolder, Readable, too_large
from whet.packages.settings import MIB, PackageLimits, printable_name
from whet.workspace.copy import remove_tree
from whet.workspace.walk import explained

_CHUNK = MIB
# The largest dictionary that xz -9 uses is 64 MiB.
_XZ_MEMORY = 128 * MIB
# The bytes of a tar for name, mode and padding of each entry.
_TAR_OVERHEAD = 2048

_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")

# A header has some hundred bytes; tarfile would read one of gigabytes into memory.
_LARGEST_READ = 4 * MIB

_UNIX = 3
_ENCRYPTED = 0x1
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
# zipfile reads the whole list of members into memory; 64 MiB are more than half a million members.
_LARGEST_LIST = 64 * MIB
_END, _END_64, _WHERE_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_LONGEST_COMMENT = 65_535
_END_SIZE, _WHERE_64_SIZE = 22, 20
_ZIP64 = 0xFFFFFFFF

# What the standard library raises for files that are not archives, or that are made to break it.
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
    """Unpack *archive* (zip, or tar, also with gzip, bzip2 or xz) to the new folder *target*."""
    draft = target.with_name(f"{target.name}.part")
    try:
        with explained("cannot unpack to", target), archive.open("rb") as file:
            draft.mkdir(parents=True)
            _fill(draft, file, archive.stat().st_size, limits or PackageLimits())
            draft.rename(target)
    finally:
        remove_tree(draft)


def _fill(draft: Path, file: IO[bytes], packed_bytes: int, limits: PackageLimits) -> None:
    folder = ExtractionFolder(draft, packed_bytes, limits)
    start = file.read(8)
    file.seek(0)
    try:
        if start.startswith(_ZIPS):
            _unpack_zip(file, folder)
        else:
            _unpack_tar(_TarStream(_plain(file, start), packed_bytes, limits), folder)
    except _UNREADABLE as error:
        raise _unreadable(error) from error
    except OSError as error:
        # gzip and bz2 raise OSError for bad data too, without an errno.
        if error.errno not in (None, errno.EINVAL, errno.EOVERFLOW):
            raise
        raise _unreadable(error) from error
    folder.finish()


def _unreadable(error: Exception) -> PackageError:
    reason = str(error) or type(error).__name__
    return PackageError(
        f"the archive cannot be read: {reason}", hint="it must be a tar, .tar.gz, .tar.bz2, .tar.xz or zip"
    )


def _plain(file: IO[bytes], start: bytes) -> Readable:
    """Return the uncompressed content of *file*, which begins with *start*."""
    if start.startswith(_ZSTD):
        raise PackageError("the archive is compressed with zstd, which whet cannot read", hint="pack it as .tar.gz")
    opener = next((how for magic, how in _PACKERS.items() if start.startswith(magic)), None)
    return opener(file) if opener else file


class _TarStream:
    """A tar that is read once from beginning to end, within limits of size; tarfile only skips forward in it."""

    def __init__(self, source: Readable, packed_bytes: int, limits: PackageLimits) -> None:
        self._source = source
        self._limits = limits
        self._most_bytes = limits.most_unpacked(packed_bytes)
        self._at = 0

    def read(self, size: int) -> bytes:
        """Return the next *size* bytes, or what is left; refuse to read a very large piece."""
        if not 0 <= size <= _LARGEST_READ:
            raise PackageError("the archive has a header that is too long")
        data = b""
        while len(data) < size and (part := self._source.read(size - len(data))):
            data += part
        self._at += len(data)
        if self._at > self._most_bytes + _TAR_OVERHEAD * self._limits.entries:
            raise too_large(self._most_bytes, self._limits)
        return data

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._at

    def seek(self, to: int) -> None:
        """Skip to the byte *to*, or to the end."""
        if to < self._at:
            raise tarfile.ReadError("a member begins before the end of another")
        while self._at < to and self.read(min(_CHUNK, to - self._at)):
            pass


class _XzStream:
    """Reads xz within a limit of memory: `lzma.open` takes as much as the file asks for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = self._fresh()

    def _fresh(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        """Return the next bytes; empty at the end."""
        while True:
            if self._decoder.eof:
                remainder = self._decoder.unused_data or self._file.read(_CHUNK)
                if not remainder.strip(b"\0"):
                    return b""
                self._decoder = self._fresh()
                data = self._decoder.decompress(remainder, size)
            else:
                compressed_data = self._file.read(_CHUNK) if self._decoder.needs_input else b""
                if not compressed_data and self._decoder.needs_input:
                    raise EOFError("the archive ends too early")
                data = self._decoder.decompress(compressed_data, size)
            if data:
                return data


_PACKERS: dict[bytes, Callable[[IO[bytes]], Readable]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": _XzStream,
}


def _unpack_tar(stream: _TarStream, folder: ExtractionFolder) -> None:
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as tar:
        while (member := tar.next()) is not None:
            _add_member(tar, member, folder)
            # tarfile would remember every member, and we need none again.
            vars(tar)["members"].clear()
    # What follows must be sound as well: a compressed file has its checksum at the end.
    while stream.read(_CHUNK):
        pass


def _add_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: ExtractionFolder) -> None:
    if member.issparse():
        raise PackageError(f"{printable_name(member.name)} is a sparse file, which whet does not unpack")
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
        # A named pipe is a device too, for tarfile.
        kind = "a device" if member.isdev() else "not a file"
        if member.isfifo():
            kind = "a named pipe"
        raise PackageError(f"{printable_name(member.name)} is {kind}, which whet does not unpack")


def _unpack_zip(file: IO[bytes], folder: ExtractionFolder) -> None:
    if _list_size(file) > _LARGEST_LIST:
        raise PackageError("the archive has too many entries")
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            _add_entry(archive, member, folder)


def _add_entry(archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: ExtractionFolder) -> None:
    mode = member.external_attr >> 16 if member.create_system == _UNIX else 0
    kind = stat.S_IFMT(mode)
    # Not `filename`, which is cut at a zero byte.
    name = member.orig_filename
    if member.flag_bits & _ENCRYPTED:
        raise PackageError(f"{printable_name(name)} is encrypted")
    if member.compress_type not in _METHODS:
        raise PackageError(
            f"{printable_name(name)} is compressed with a method that whet cannot read", hint="pack it with plain zip"
        )
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        raise PackageError(f"{printable_name(name)} is a device or a named pipe, which whet does not unpack")
    if member.is_dir():
        folder.add_folder(name)
    elif kind == stat.S_IFDIR:
        raise PackageError(f"{printable_name(name)} is marked as both a folder and a file")
    elif kind == stat.S_IFLNK:
        with archive.open(member) as content:
            folder.add_link(name, os.fsdecode(content.read(LONGEST_PATH + 1)))
    else:
        with archive.open(member) as content:
            folder.add_file(name, content, size=member.file_size, executable=bool(mode & stat.S_IXUSR))


def _list_size(file: IO[bytes]) -> int:
    """Return the size of the list of members, from the end of the file; 0 if it does not say."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _LONGEST_COMMENT - _END_SIZE - _WHERE_64_SIZE)
    file.seek(start)
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + _END_SIZE:
        return 0
    length = int(struct.unpack_from("<L", tail, at + 12)[0])
    where = at - _WHERE_64_SIZE
    if where >= 0 and tail.startswith(_WHERE_64, where):
        file.seek(int(struct.unpack_from("<Q", tail, where + 8)[0]) if length == _ZIP64 else start + where - 56)
        record = file.read(56)
        if record.startswith(_END_64):
            length = max(0 if length == _ZIP64 else length, int(struct.unpack_from("<Q", record, 40)[0]))
    return length

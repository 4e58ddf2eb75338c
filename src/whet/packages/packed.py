"""What packs an archive: recognized by its first bytes, and taken off piece by piece, so that it swells in sight."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import IO

from whet.errors import PackageError
from whet.packages.growing import Readable, too_large
from whet.packages.limits import MIB, PackageLimits

_CHUNK = MIB
# The largest dictionary that xz -9 uses is 64 MiB.
_XZ_MEMORY = 128 * MIB
# What names, modes and padding may take in a tar beside its files.
_TAR_OVERHEAD = 2048

_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")


def is_zip(start: bytes) -> bool:
    """Whether a file that begins so is a zip archive."""
    return start.startswith(_ZIPS)


def plain_tar(archive: Path, target: Path, limits: PackageLimits) -> Path:
    """The tar in *archive* without what packs it: the file itself, or a new one at *target*."""
    with archive.open("rb") as file:
        start = file.read(8)
        file.seek(0)
        if start.startswith(_ZSTD):
            raise PackageError("the archive is packed by zstd, which is not read", hint="pack it as .tar.gz")
        opened = next((how for magic, how in _PACKERS.items() if start.startswith(magic)), None)
        if opened is None:
            return archive
        with target.open("xb") as copy:
            _unpack(opened(file), copy, archive.stat().st_size, limits)
    return target


def _unpack(source: Readable, copy: IO[bytes], packed_bytes: int, limits: PackageLimits) -> None:
    most = limits.most_unpacked(packed_bytes)
    allowed = most + _TAR_OVERHEAD * limits.entries
    written = 0
    while chunk := source.read(_CHUNK):
        written += len(chunk)
        if written > allowed:
            raise too_large(most, limits)
        copy.write(chunk)


class _XzStream:
    """Reads xz within bounds: `lzma.open` takes as much memory as the file asks for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = self._fresh()

    def _fresh(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        """The next bytes; none at the end."""
        while True:
            if self._decoder.eof:
                rest = self._decoder.unused_data or self._file.read(_CHUNK)
                if not rest.strip(b"\0"):
                    return b""
                self._decoder = self._fresh()
                data = self._decoder.decompress(rest, size)
            else:
                packed = self._file.read(_CHUNK) if self._decoder.needs_input else b""
                if not packed and self._decoder.needs_input:
                    raise EOFError("the archive ends too early")
                data = self._decoder.decompress(packed, size)
            if data:
                return data


_PACKERS: dict[bytes, Callable[[IO[bytes]], Readable]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": _XzStream,
}

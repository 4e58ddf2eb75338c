"""The members of a zip, each put into the growing folder or refused."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from pathlib import Path
from typing import IO

from whet.errors import PackageError
from whet.packages.growing import GrowingFolder
from whet.packages.limits import MIB
from whet.packages.naming import LONGEST_PATH, shown

_UNIX = 3
_ENCRYPTED = 0x1
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
# The list of members is read into memory before anybody can count them; 64 MiB are more than half a million.
_LARGEST_LIST = 64 * MIB
_END, _END_64, _WHERE_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_LONGEST_COMMENT = 65_535
_END_SIZE, _WHERE_64_SIZE = 22, 20
_ZIP64 = 0xFFFFFFFF


def unpack_zip(archive: Path, folder: GrowingFolder) -> None:
    """Put every member of *archive* into *folder*."""
    with archive.open("rb") as file:
        if _list_size(file) > _LARGEST_LIST:
            raise PackageError("the archive holds more entries than are unpacked")
        with zipfile.ZipFile(file) as whole:
            for member in whole.infolist():
                _add(whole, member, folder)


def _add(whole: zipfile.ZipFile, member: zipfile.ZipInfo, folder: GrowingFolder) -> None:
    mode = member.external_attr >> 16 if member.create_system == _UNIX else 0
    kind = stat.S_IFMT(mode)
    # `filename` is cut at a zero byte.
    name = member.orig_filename
    if member.flag_bits & _ENCRYPTED:
        raise PackageError(f"{shown(name)} is encrypted")
    if member.compress_type not in _METHODS:
        raise PackageError(f"{shown(name)} is packed by a method that is not read", hint="pack it with plain zip")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        raise PackageError(f"{shown(name)} is a device or a named pipe, which is not unpacked")
    if member.is_dir():
        folder.add_folder(name)
    elif kind == stat.S_IFDIR:
        raise PackageError(f"{shown(name)} says that it is a folder and a file")
    elif kind == stat.S_IFLNK:
        with whole.open(member) as content:
            folder.add_link(name, os.fsdecode(content.read(LONGEST_PATH + 1)))
    else:
        with whole.open(member) as content:
            folder.add_file(name, content, size=member.file_size, executable=bool(mode & stat.S_IXUSR))


def _list_size(file: IO[bytes]) -> int:
    """How many bytes the list of members has, as the end of the file tells; 0 where it tells nothing."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _LONGEST_COMMENT - _END_SIZE - _WHERE_64_SIZE)
    file.seek(start)
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + _END_SIZE:
        return 0
    told = int(struct.unpack_from("<L", tail, at + 12)[0])
    where = at - _WHERE_64_SIZE
    if where >= 0 and tail.startswith(_WHERE_64, where):
        file.seek(int(struct.unpack_from("<Q", tail, where + 8)[0]) if told == _ZIP64 else start + where - 56)
        record = file.read(56)
        if record.startswith(_END_64):
            told = max(0 if told == _ZIP64 else told, int(struct.unpack_from("<Q", record, 40)[0]))
    return told

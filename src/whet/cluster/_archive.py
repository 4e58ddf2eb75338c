"""Folders that travel between machines: packed into one stream of bytes, and unpacked from its pieces.

A stream is a sequence of entries, each a header and its content. It holds files, folders, links and pipes with their
modes and times, which is what a template or a kept workspace is made of.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from whet.errors import WorkspaceError
from whet.sandbox.process.disk import used_by
from whet.workspace.copy import remove_tree
from whet.workspace.walk import DirectoryWalk, Folders, WalkStep, open_file, walk

_LENGTH = struct.Struct("!I")
_PIECE = 1024 * 1024
_LONGEST_HEADER = 64 * 1024
# Returns another content for a file.
Change: TypeAlias = Callable[[bytes], bytes]
_SMALL = 4 * 1024 * 1024
# Archives unused for this long are removed; above this size, those unused for longest are too.
KEPT_S = 7 * 86_400
MOST_KEPT = 10 * 1024**3


class _Header(msgspec.Struct, array_like=True):
    kind: str
    path: bytes
    mode: int
    mtime_ns: int
    size: int


class Unpackable(WorkspaceError):
    """A stream that is not a folder archive, or one that would write outside of its folder."""


def pack(
    root: Path,
    name: str,
    *,
    skip: Callable[[str], bool] = lambda _: False,
    excluded_folders: Folders = frozenset(),
    change: Change | None = None,
) -> Iterator[bytes]:
    """Yield the stream of the file or folder *root*, to be unpacked as *name*; *skip* leaves out folders by path.

    *change* is asked for the content of each file that is not large.
    """
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode):
        yield from _entry(WalkStep("item", str(root), status), name, None, change)
        return
    yield _encode_header("d", name, status, 0)
    above, left_out = [name], 0
    with DirectoryWalk(root, force=True) as place:
        for step in walk(place, own=excluded_folders):
            if step.kind == "leave":
                left_out = max(0, left_out - 1)
                above.pop()
            elif step.kind == "enter":
                above.append(step.name)
                left_out += bool(left_out or skip("/".join(above[1:])))
                if not left_out:
                    yield _encode_header("d", "/".join(above), step.stat, 0)
            elif step.kind == "item" and not left_out:
                yield from _entry(step, "/".join((*above, step.name)), place.fd, change)


def _entry(step: WalkStep, path: str, dir_fd: int | None, change: Change | None) -> Iterator[bytes]:
    mode = step.stat.st_mode
    if stat.S_ISLNK(mode):
        target = os.fsencode(os.readlink(step.name, dir_fd=dir_fd))
        yield _encode_header("l", path, step.stat, len(target)) + target
    elif stat.S_ISREG(mode):
        with open_file(step.name, dir_fd=dir_fd, force=True) as file:
            # The file may have grown since it was listed.
            size = os.fstat(file.fileno()).st_size
            if change is not None and size <= _SMALL:
                data = change(file.read())
                yield _encode_header("f", path, step.stat, len(data)) + data
                return
            yield _encode_header("f", path, step.stat, size)
            bytes_left = size
            while bytes_left:
                piece = file.read(min(_PIECE, bytes_left)) or bytes(min(_PIECE, bytes_left))
                bytes_left -= len(piece)
                yield piece
    elif stat.S_ISFIFO(mode):
        yield _encode_header("p", path, step.stat, 0)


def _encode_header(kind: str, path: str, status: os.stat_result, size: int) -> bytes:
    header = _Header(kind, os.fsencode(path), stat.S_IMODE(status.st_mode), status.st_mtime_ns, size)
    data = msgspec.msgpack.encode(header)
    return _LENGTH.pack(len(data)) + data


def unpack(stream: IO[bytes], target: Path) -> None:
    """Write the entries of *stream* below *target*, which exists.

    A stream cannot write outside: every folder above an entry must be one that the same stream made.
    """
    folders: dict[str, _Header] = {}
    while length := stream.read(_LENGTH.size):
        header = _header(stream, length)
        path = os.fsdecode(header.path)
        above, _, name = path.rpartition("/")
        if name in ("", ".", "..") or "\0" in path or (above and above not in folders):
            raise Unpackable(f"a folder archive has an entry that it must not have: {path!r}")
        _write(stream, header, target / path)
        if header.kind == "d":
            folders[path] = header
    # In the end: a closed folder takes no files, and a new file changes the time of its folder.
    for path, header in reversed(folders.items()):
        os.chmod(target / path, header.mode)  # noqa: PTH101 - with `os.utime`
        os.utime(target / path, ns=(header.mtime_ns, header.mtime_ns))


def _header(stream: IO[bytes], length: bytes) -> _Header:
    size = _LENGTH.unpack(length)[0] if len(length) == _LENGTH.size else _LONGEST_HEADER + 1
    if size > _LONGEST_HEADER:
        raise Unpackable("a folder archive was garbled on its way")
    try:
        return msgspec.msgpack.decode(stream.read(size), type=_Header)
    except msgspec.DecodeError as error:
        raise Unpackable(f"a folder archive was garbled on its way: {error}") from error


def _write(stream: IO[bytes], header: _Header, place: Path) -> None:
    match header.kind:
        case "d":
            place.mkdir(mode=0o700)
        case "p":
            os.mkfifo(place, 0o600)
            place.chmod(header.mode)
            os.utime(place, ns=(header.mtime_ns, header.mtime_ns))
        case "l":
            os.symlink(os.fsdecode(stream.read(header.size)), place)  # noqa: PTH211 - the target comes first
            os.utime(place, ns=(header.mtime_ns, header.mtime_ns), follow_symlinks=False)
        case "f":
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(place, flags, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
                _copy(stream, file, header.size)
                file.flush()
                os.fchmod(file.fileno(), header.mode)
                os.utime(file.fileno(), ns=(header.mtime_ns, header.mtime_ns))
        case _:
            raise Unpackable(f"a folder archive has an entry of an unknown kind: {header.kind!r}")


def _copy(stream: IO[bytes], file: IO[bytes], size: int) -> None:
    """Copy *size* bytes; a piece of zeros becomes a hole."""
    for start in range(0, size, _PIECE):
        piece = _exactly(stream, min(_PIECE, size - start))
        if piece.strip(b"\0"):
            file.write(piece)
        else:
            file.seek(len(piece), os.SEEK_CUR)
    file.truncate(size)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise Unpackable("a folder archive ends too early")
    return data


def write_archive(pieces: Iterator[bytes], file: IO[bytes], most: float = math.inf) -> tuple[str, int]:
    """Write a stream to *file*, no further than the piece that makes it larger than *most*; return digest and size."""
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
        file.write(piece)
        if size > most:
            # The rest could fill the disk.
            break
    return digest.hexdigest(), size


def keep_archive(file: IO[bytes], digest: str, store: Path) -> Path:
    """Unpack the folder archive with that *digest* into *store*, in one step; return its folder."""
    file.seek(0)
    checksum = hashlib.sha256()
    while piece := file.read(_PIECE):
        checksum.update(piece)
    if checksum.hexdigest() != digest:
        raise Unpackable("a folder archive was garbled on its way: it has another digest")
    place, growing = store / digest, store / f".{digest}.{os.getpid()}"
    if not place.is_dir():
        growing.mkdir(mode=0o700)
        try:
            file.seek(0)
            unpack(file, growing)
            growing.rename(place)
        except BaseException:
            remove_tree(growing)
            # Another process of this machine may have been quicker.
            if not place.is_dir():
                raise
    return place


def lock_archive(digest: str, store: Path) -> bool:
    """Keep the folder archive with that *digest* for as long as this process lives; return whether it is there."""
    try:
        descriptor = os.open(store / digest, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    # `clear_archives` renames an archive before it removes it.
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if not (store / digest).is_dir():
        os.close(descriptor)
        return False
    os.utime(descriptor)
    return True


def clear_archives(store: Path, most: int = MOST_KEPT) -> None:
    """Remove folder archives that were unused for a week, and the oldest of a store with more than *most* bytes."""
    archives: list[tuple[float, Path]] = []
    for place in store.iterdir():
        with suppress(OSError):
            archives.append((place.stat().st_mtime, place))
    total = 0
    for used_at, place in sorted(archives, reverse=True):
        total += used_by((place,))
        # A name with a dot is one that another process is unpacking.
        too_much = total > most and not place.name.startswith(".")
        if too_much or used_at < time.time() - KEPT_S:
            _remove(place)


def _remove(place: Path) -> None:
    """Remove a folder archive, unless a process holds it."""
    with suppress(OSError):
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            going = place.with_name(f".{place.name}.{os.getpid()}.going")
            place.rename(going)
            remove_tree(going)
        finally:
            os.close(lock)

"""Run folders: make one, find one, lock one, and write files into it in one step."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO

from whet.errors import StoreError, UsageError
from whet.reading.files import UnfitFile, read_file

RUN_FILE = "run.json"
JOURNAL_FILE = "journal.jsonl"
RESULTS_FILE = "results.json"
SPENT_FILE = "spent.jsonl"
SOURCES_FILE = "sources.json"
CONTENTS_FILE = "contents.json"
# Lists the runs that one command started, in a folder beside theirs.
BATCH_FILE = "batch.json"
LATEST = "latest"
# The mode of files that hold what agents said.
PRIVATE = 0o600
_ELSEWHERE = "free some space, or choose another folder with --output-dir"


def create_run_folder(output_dir: Path) -> Path:
    """Make a new folder whose name sorts by time; two runs in the same moment get two."""
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        _keep_out_of_repositories(output_dir)
        while True:
            folder = output_dir / datetime.now(UTC).strftime("%Y%m%dT%H%M%S-%f")
            try:
                # The folder holds what agents said and did, whatever the umask lets others see.
                folder.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise StoreError(
            f"no run folder can be made in {output_dir}: {error.strerror}", hint="choose another one with --output-dir"
        ) from error


def _keep_out_of_repositories(output_dir: Path) -> None:
    """Keep records, which hold whole workspaces, out of commits; a folder that the user chose is left alone."""
    note = output_dir.parent / ".gitignore"
    if output_dir.parent.name == ".whet" and not note.exists():
        with suppress(OSError):
            note.write_text("*\n")


def point_latest(folder: Path) -> None:
    """Point the link `latest` at *folder*, in one step, so that it never points nowhere."""
    link = folder.parent / LATEST
    fresh = folder.parent / f".{LATEST}-{os.urandom(3).hex()}"
    fresh.symlink_to(folder.name)
    try:
        fresh.replace(link)
    except OSError as error:
        fresh.unlink()
        raise StoreError(f"{link} cannot be set: {error.strerror}", hint="move away whatever has that name") from error


def find_run_folder(reference: str, output_dir: Path) -> Path:
    """Find the run that *reference* names: a path, a run id, or `latest`."""
    for folder in (output_dir / reference, Path(reference)):
        if (folder / RUN_FILE).is_file():
            return folder.resolve()
        if (folder / BATCH_FILE).is_file():
            raise UsageError(f'"{reference}" is several runs', hint=f"name one of those in {folder / BATCH_FILE}")
    names = sorted(path.parent.name for path in output_dir.glob(f"*/{RUN_FILE}"))
    if not names:
        raise UsageError(f'there is no run "{reference}" in {output_dir}', hint="whet run SUITE makes the first one")
    near = get_close_matches(reference, [LATEST, *names], n=1)
    hint = f'did you mean "{near[0]}"?' if near else "name a run folder, a run id, or latest"
    raise UsageError(f'there is no run "{reference}" in {output_dir}', hint=hint)


def write_atomically(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write *data* to *path* so that no reader ever sees half of it."""
    fresh = path.with_name(f".{path.name}-{os.urandom(3).hex()}")
    with open_new(fresh, mode) as file:
        file.write(data)
    fresh.replace(path)


def open_new(path: Path, mode: int = PRIVATE) -> BinaryIO:
    """Open a new file for writing; only our user may read it, unless *mode* says otherwise."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    return os.fdopen(descriptor, "wb")


def write_new(path: str, data: bytes) -> None:
    """Write a small new file that only our user may read; in a third of the time that `Path.write_bytes` takes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def file_hash(path: Path) -> str | None:
    """Return the SHA-256 of a file, or None if there is none that a run can have written."""
    try:
        return hashlib.sha256(read_file(path)).hexdigest()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, UnfitFile):
        return None


@contextmanager
def writing(place: Path, hint: str = _ELSEWHERE) -> Iterator[None]:
    """Turn an `OSError` into a `StoreError` that says that *place* cannot be written."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{place} cannot be written: {error.strerror}", hint=hint) from error


_locks: set[tuple[int, int]] = set()


@contextmanager
def alone_in(folder: Path, refusal: str | None = None) -> Iterator[None]:
    """Lock *folder* against every other whet: wait until it is free, or with a *refusal*, fail at once.

    The folder itself is locked, so that there is no lock file, and nothing is left after a kill.
    A lock with a *refusal* is for the whole run, and the run does not wait for itself.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    name = (status.st_dev, status.st_ino)
    try:
        if name in _locks:
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError as error:
            raise UsageError(f"{folder} is in use by another whet", hint=refusal) from error
        if refusal:
            _locks.add(name)
        try:
            yield
        finally:
            if refusal:
                _locks.discard(name)
    finally:
        os.close(descriptor)


_LOCK_FILE = ".lock"
# Who looks whether a run is under way holds its lock for a moment.
_TRIES, _MOMENT_S = 20, 0.01


def lock(folder: Path) -> int:
    """Lock the run until our process ends, however it ends."""
    fd = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    for left in range(_TRIES, -1, -1):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if left:
                time.sleep(_MOMENT_S)
                continue
            os.close(fd)
            raise UsageError(f"{folder} is in use by another whet", hint="wait until it has ended") from error
        break
    return fd


def is_locked(folder: Path) -> bool:
    """Return whether a whet works in *folder* now; changes nothing, and several may ask at once."""
    try:
        # A record may be anybody's: its lock could be a link or a pipe.
        fd = os.open(folder / _LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False

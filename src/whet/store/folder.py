"""The run folder: its name, its lock, and the pointer to the newest one."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from whet import wire
from whet.errors import StoreError, UsageError

RUN_FILE = "run.json"
JOURNAL_FILE = "journal.jsonl"
RESULTS_FILE = "results.json"
SPENT_FILE = "spent.jsonl"
LATEST = "latest"
_ELSEWHERE = "free some space, or choose another folder with --output-dir"


def create_run_folder(output_dir: Path) -> Path:
    """A fresh folder whose name sorts by time; two runs in the same moment get two."""
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        _keep_out_of_repositories(output_dir)
        while True:
            folder = output_dir / datetime.now(UTC).strftime("%Y%m%dT%H%M%S-%f")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise StoreError(
            f"no run folder can be made in {output_dir}: {error.strerror}", hint="choose another one with --output-dir"
        ) from error


def _keep_out_of_repositories(output_dir: Path) -> None:
    """Records hold whole workspaces, which nobody wants to commit; a folder of the user's own choice is left alone."""
    note = output_dir.parent / ".gitignore"
    if output_dir.parent.name == ".whet" and not note.exists():
        with suppress(OSError):
            note.write_text("*\n")


def point_latest(folder: Path) -> None:
    """Let `latest` beside *folder* name it, in one step, so that it never points nowhere."""
    link = folder.parent / LATEST
    fresh = folder.parent / f".{LATEST}-{secrets.token_hex(3)}"
    fresh.symlink_to(folder.name)
    try:
        fresh.replace(link)
    except OSError as error:
        fresh.unlink()
        raise StoreError(f"{link} cannot be set: {error.strerror}", hint="move away whatever has that name") from error


def find_run_folder(reference: str, output_dir: Path) -> Path:
    """The run that *reference* names: a path, a run id, or `latest`."""
    for folder in (output_dir / reference, Path(reference)):
        if (folder / RUN_FILE).is_file():
            return folder.resolve()
    raise UsageError(f'there is no run "{reference}" in {output_dir}', hint="name a run folder, a run id, or latest")


def write_atomically(path: Path, data: bytes) -> None:
    """Put *data* into *path* so that no reader ever sees half of it."""
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(3)}")
    fresh.write_bytes(data)
    fresh.replace(path)


def write_run_file(folder: Path, facts: Mapping[str, Any]) -> None:
    """Keep what was asked."""
    try:
        write_atomically(folder / RUN_FILE, wire.encode_pretty(facts))
    except OSError as error:
        raise StoreError(f"{folder / RUN_FILE} cannot be written: {error.strerror}", hint=_ELSEWHERE) from error


def read_run_file(folder: Path) -> dict[str, Any]:
    """What was asked of an earlier run."""
    try:
        facts = msgspec.json.decode((folder / RUN_FILE).read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"{folder / RUN_FILE} cannot be read: {error}") from error
    if not isinstance(facts, dict):
        raise StoreError(f"{folder / RUN_FILE} is not the record of a run")
    return facts


def lock(folder: Path) -> int:
    """Hold the run for ourselves until our process ends, however it ends."""
    fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise UsageError(f"{folder} is in use by another whet", hint="wait until it has ended") from error
    return fd

"""What is in a run folder that no line of the journal names: a shared workspace, remains of trials, and additions."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from whet import wire
from whet.store.chain import Line
from whet.store.folder import PRIVATE, RESULTS_FILE, write_atomically
from whet.store.sealing import differences, digest_of, tree_hashes

FOLDERS = _TRIALS, _WORKSPACES = "trials", "workspaces"
# CASE/RUNNER/VARIANT/NUMBER, and for a kept workspace the attempt.
_TRIAL_DEPTH, _ATTEMPT_DEPTH = 4, 5
_SHARED = re.compile(r"shared(-\d+)?")


def shared_hashes(run_dir: Path) -> dict[str, str]:
    """The hash of each thing that trials with a shared workspace left, by its path; results hold it.

    A workspace that was kept may have very many files, so they are listed in a file of their own. The list is made
    once: what is changed before the run is gone on with stays a change.
    """
    return {f"{_WORKSPACES}/{name}": _hash_of(run_dir, name) for name in _names(run_dir / _WORKSPACES)}


def _hash_of(run_dir: Path, name: str) -> str:
    """Of a workspace, the hash of its list; what bootstrap commands leave beside it is small."""
    path, listed = run_dir / _WORKSPACES / name, _list_of(run_dir, name)
    if not _SHARED.fullmatch(name) or not _is_folder(path):
        return _hash_now(path)
    if not listed.is_file():
        write_atomically(listed, _listed(path), mode=PRIVATE)
    return hashlib.sha256(listed.read_bytes()).hexdigest()


def _hash_now(path: Path) -> str:
    if _is_folder(path):
        return hashlib.sha256(_listed(path)).hexdigest()
    return digest_of(str(path), path.lstat(), mode=True)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _listed(folder: Path) -> bytes:
    return wire.encode_pretty(tree_hashes(folder))


def _list_of(run_dir: Path, name: str) -> Path:
    return run_dir / f"{name}.json"


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_shared(where: str) -> bool:
    """Whether a path that results name is one of those; a record may come from anywhere."""
    folder, _, name = where.partition("/")
    return folder == _WORKSPACES and "/" not in name and name not in ("", ".", "..")


def shared_problems(run_dir: Path, hashes: Mapping[str, str], *, over: bool) -> Iterator[str]:
    """What a shared workspace left that is not as results say; bootstrap commands of a resume write theirs anew."""
    for where, due in sorted(hashes.items()):
        name = where.removeprefix(f"{_WORKSPACES}/")
        path = run_dir / _WORKSPACES / name
        if not over and not _SHARED.fullmatch(name):
            continue
        if not os.path.lexists(path):
            yield f"{where}: is gone"
        elif _hash_now(path) != due:
            yield from _changes(run_dir, name, due)


def _changes(run_dir: Path, name: str, due: str) -> Iterator[str]:
    """The files that differ, where the list that was made of them can be believed."""
    path, listed = run_dir / _WORKSPACES / name, _list_of(run_dir, name)
    data = listed.read_bytes() if listed.is_file() else b""
    if hashlib.sha256(data).hexdigest() != due or not _is_folder(path):
        yield f"{_WORKSPACES}/{name}: has changed"
        return
    now = {wire.printable(path): digest for path, digest in tree_hashes(path).items()}
    yield from (f"{_WORKSPACES}/{name}/{what}" for what in differences(wire.decode(data, dict[str, str]), now))


def list_problems(run_dir: Path, hashes: Mapping[str, str]) -> Iterator[str]:
    """Whether the lists of shared workspaces are those that results name; a resume takes them over."""
    for where, due in sorted(hashes.items()):
        name = where.removeprefix(f"{_WORKSPACES}/")
        listed = _list_of(run_dir, name)
        if _SHARED.fullmatch(name) and (not listed.is_file() or hashlib.sha256(listed.read_bytes()).hexdigest() != due):
            yield f"{listed.name}: has changed since {RESULTS_FILE} was written"


def unnamed_trials(run_dir: Path, lines: list[Line]) -> list[str]:
    """What is in the place of trials and of no trial that a line is of, a sentence for each."""
    named = {os.path.dirname(line.result.artifact_dir) for line in lines}  # noqa: PTH120 - a path in the record
    return list(_unnamed(run_dir, _TRIALS, named, _TRIAL_DEPTH))


def unnamed_workspaces(run_dir: Path, lines: list[Line], hashes: Mapping[str, str]) -> list[str]:
    """What is in the place of kept workspaces, and neither a line nor results name, likewise."""
    kept = {attempt.workspace_dir for line in lines for attempt in line.result.attempts if attempt.workspace_dir}
    return list(_unnamed(run_dir, _WORKSPACES, kept | set(hashes), _ATTEMPT_DEPTH))


def _unnamed(run_dir: Path, folder: str, named: set[str], depth: int) -> Iterator[str]:
    """Folders above trials may be empty: a resume removes what a trial left that did not end."""
    for name in _names(run_dir / folder):
        where = f"{folder}/{name}"
        path = run_dir / where
        if path.is_symlink():
            yield f"{wire.printable(where)}: is a symbolic link, which whet never makes there"
        elif where not in named:
            if depth > 1 and path.is_dir():
                yield from _unnamed(run_dir, where, named, depth - 1)
            else:
                yield f"{wire.printable(where)}: is new: no line of the journal names it"

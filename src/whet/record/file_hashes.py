"""Hash the files of a trial when it has ended, and check them before anything reads them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from whet.model import codec
from whet.model.run import TrialResult
from whet.reading.text import escape_surrogates
from whet.record.folder import PRIVATE, RESULTS_FILE, file_hash, open_new, write_atomically
from whet.record.journal.chain import JournalLine
from whet.workspace.copy import extents
from whet.workspace.walk import DirectoryWalk, walk

WORKSPACE_FILE = "workspace.json"
# Written later, when the agent is asked about its trial.
_LATER = ("explanations.json", "explanations")
# Copies of an agent's own files keep their modes.
_STATE = "state"
_SMALL = _PIECE = 256 * 1024
_LARGE = 64 * 1024 * 1024
_BLOCK = 1024 * 1024


class FileHashes:
    """Hashes the recorded files of a trial that has just ended."""

    def __init__(self, run_dir: Path, result: TrialResult) -> None:
        self._run_dir = run_dir
        self._result = result
        self._files = list(_trial_files(run_dir, result))
        # Whether there is so little to hash that it takes no time.
        self.light = not any(attempt.workspace_dir for attempt in result.attempts) and (
            sum(status.st_size for _, status in self._files) < _SMALL
        )

    def hashes(self) -> dict[str, str]:
        """Return the hash of each file, by its path in the run folder; from now on only our user may read them."""
        if not self.light:
            self._list_workspaces()
        return {
            path: digest_of(f"{self._run_dir}/{path}", status, private=f"/{_STATE}/" not in path)
            for path, status in self._files
        }

    def _list_workspaces(self) -> None:
        """List the files of kept workspaces in a file of their own, because there may be very many."""
        for attempt in self._result.attempts:
            folder = self._run_dir / attempt.workspace_dir if attempt.workspace_dir else None
            if folder is not None and folder.is_dir():
                with open_new(self._run_dir / attempt.artifact_dir / WORKSPACE_FILE) as file:
                    file.write(_hash_list(folder))
        self._files = list(_trial_files(self._run_dir, self._result))


def tree_hashes(root: Path) -> dict[str, str]:
    """Return the hash of every file and link below *root*, by its path; an empty folder does not count.

    An agent made the tree, so it may have any depth and size.
    """
    hashes: dict[str, str] = {}
    above: list[str] = []
    with DirectoryWalk(root) as place:
        for step in walk(place):
            if step.kind == "enter":
                above.append(step.name)
            elif step.kind == "leave":
                above.pop()
            else:
                path = "/".join((*above, step.name))
                is_unreadable = step.kind == "unread"
                hashes[path] = (
                    "unreadable" if is_unreadable else digest_of(step.name, step.stat, mode=True, dir_fd=place.fd)
                )
    return dict(sorted(hashes.items()))


def digest_of(
    path: str, status: os.stat_result, *, mode: bool = False, private: bool = False, dir_fd: int | None = None
) -> str:
    """Return the hash of a file's bytes or a link's target, with its *mode* if asked."""
    mode_text = f"{stat.S_IMODE(status.st_mode):04o} " if mode and not stat.S_ISLNK(status.st_mode) else ""
    if stat.S_ISLNK(status.st_mode):
        return "link " + hashlib.sha256(os.fsencode(os.readlink(path, dir_fd=dir_fd))).hexdigest()
    if not stat.S_ISREG(status.st_mode):
        return f"{mode_text}no file"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=dir_fd)
    except PermissionError:
        # An agent closed it to all users.
        return f"{mode_text}unreadable"
    try:
        if private and status.st_mode & 0o077:
            os.fchmod(descriptor, PRIVATE)
        return mode_text + (_hash(descriptor) if status.st_size <= _LARGE else _hash_large(descriptor))
    finally:
        os.close(descriptor)


def _hash(descriptor: int) -> str:
    """Hash piece by piece; most files are one piece, for which `hashlib.file_digest` takes longer."""
    digest = hashlib.sha256()
    while piece := os.read(descriptor, _PIECE):
        digest.update(piece)
        if len(piece) < _PIECE:
            # The end of a file; asking again would take as long as the hash.
            break
    return digest.hexdigest()


def _hash_large(descriptor: int) -> str:
    """Hash a file that may be mostly holes: blocks of zeros do not count, whether they are holes or not."""
    status = os.fstat(descriptor)
    digest = hashlib.sha256(b"%d" % status.st_size)
    last = -1
    for start, end in extents(descriptor, status):
        for block in range(max(last + 1, start // _BLOCK), -(-end // _BLOCK)):
            last = block
            piece = os.pread(descriptor, _BLOCK, block * _BLOCK)
            if piece.strip(b"\0"):
                digest.update(b"%d:" % block + piece)
    return f"blocks {digest.hexdigest()}"


def file_problems(
    run_dir: Path,
    line: JournalLine,
    is_checked: Callable[[str], bool] = lambda _: True,
    *,
    workspaces: bool = True,
    files: Iterable[tuple[str, os.stat_result]] | None = None,
) -> Iterator[str]:
    """Yield a sentence for each file of a trial that is not as its line says; *is_checked* chooses the paths.

    *files* are those of the trial by their paths in its folder, if somebody has looked already.
    """
    if files is None:
        files = _trial_files(run_dir, line.result)
    else:
        trial = trial_folder(line.result)
        files = ((f"{trial}/{path}", status) for path, status in files if _is_hashed(path))
    entries = {escape_surrogates(path): (f"{run_dir}/{path}", status) for path, status in files}
    since = f"since line {line.number} of the journal was written"
    now = {path: digest_of(*entries[path]) for path in entries if is_checked(path) and path in line.files}
    now |= {path: "" for path in entries if is_checked(path) and path not in line.files}
    before = {path: digest for path, digest in line.files.items() if is_checked(path)}
    yield from (f"{what} {since}" for what in differences(before, now))
    if workspaces:
        yield from _workspace_problems(run_dir, line)


def _workspace_problems(run_dir: Path, line: JournalLine) -> Iterator[str]:
    """Yield the same for kept workspaces, by the list that was made of each."""
    for attempt in line.result.attempts:
        list_file = run_dir / attempt.artifact_dir / WORKSPACE_FILE
        if attempt.workspace_dir is None or not list_file.is_file():
            continue
        folder = run_dir / attempt.workspace_dir
        if not _is_folder(folder):
            yield f"{attempt.workspace_dir}: is gone"
            continue
        yield from (f"{attempt.workspace_dir}/{what}" for what in _tree_differences(list_file, folder))


def _tree_differences(list_file: Path, folder: Path) -> Iterator[str]:
    """Yield a sentence for each path at which *folder* differs from the list that was made of it."""
    try:
        before = codec.decode_file(list_file, dict[str, str])
    except (OSError, codec.WireError):
        # The list itself has changed, which is reported as a change of that file.
        return
    now = {escape_surrogates(path): digest for path, digest in tree_hashes(folder).items()}
    yield from differences(before, now)


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each path at which two trees differ."""
    for path in sorted({*before, *now}):
        if path not in now:
            yield f"{path}: is gone"
        elif path not in before:
            yield f"{path}: is new"
        elif before[path] != now[path]:
            yield f"{path}: has changed"


def _trial_files(run_dir: Path, result: TrialResult) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files of a trial, of all attempts, by their paths in the run folder."""
    trial = trial_folder(result)
    for path, status in _below(f"{run_dir}/{trial}", ""):
        if _is_hashed(path):
            yield f"{trial}/{path}", status


def trial_folder(result: TrialResult) -> str:
    """Return the folder of all attempts at a trial, as a path in the record."""
    return result.artifact_dir.rpartition("/")[0]


def _is_hashed(path: str) -> bool:
    """Return whether a line has the hash of that file in the folder of a trial."""
    attempt, _, inner = path.partition("/")
    return not attempt.isdecimal() or inner.partition("/")[0] not in _LATER


def _below(root: str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every path below *root* that is not a folder, in order."""
    try:
        with os.scandir(f"{root}/{prefix}") as entries:
            ordered_entries = sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for entry in ordered_entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(root, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry.stat(follow_symlinks=False)


FOLDERS = _TRIALS, _WORKSPACES = "trials", "workspaces"
# CASE/RUNNER/ARM/NUMBER, and for a kept workspace the attempt.
_TRIAL_DEPTH, _ATTEMPT_DEPTH = 4, 5
_SHARED = re.compile(r"shared(-\d+)?")


def shared_hashes(run_dir: Path) -> dict[str, str]:
    """Return the hash of each thing that trials with a shared workspace left, by its path, for results.json.

    A kept workspace may have very many files, so they are listed in a file of their own. The list is made once: a
    change before the run is resumed still counts as a change.
    """
    return {f"{_WORKSPACES}/{name}": _hash_of(run_dir, name) for name in _names(run_dir / _WORKSPACES)}


def _hash_of(run_dir: Path, name: str) -> str:
    """Return the hash of the list of a workspace; what bootstrap commands leave next to it is hashed directly."""
    path, list_file = run_dir / _WORKSPACES / name, _list_of(run_dir, name)
    if not _SHARED.fullmatch(name) or not _is_folder(path):
        return _hash_now(path)
    if not list_file.is_file():
        write_atomically(list_file, _hash_list(path), mode=PRIVATE)
    return file_hash(list_file) or ""


def _hash_now(path: Path) -> str:
    if _is_folder(path):
        return hashlib.sha256(_hash_list(path)).hexdigest()
    return digest_of(str(path), path.lstat(), mode=True)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _hash_list(folder: Path) -> bytes:
    return codec.encode_pretty(tree_hashes(folder))


def _list_of(run_dir: Path, name: str) -> Path:
    return run_dir / f"{name}.json"


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_shared(where: str) -> bool:
    """Return whether a path in results is one of those; the record may not be ours."""
    folder, _, name = where.partition("/")
    return folder == _WORKSPACES and "/" not in name and name not in ("", ".", "..")


def shared_problems(run_dir: Path, hashes: Mapping[str, str], *, over: bool) -> Iterator[str]:
    """Yield what a shared workspace left and is not as results say; a resume runs bootstrap commands again."""
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
    """Yield the files that differ, if their list has not changed."""
    path, list_file = run_dir / _WORKSPACES / name, _list_of(run_dir, name)
    if file_hash(list_file) != due or not _is_folder(path):
        yield f"{_WORKSPACES}/{name}: has changed"
        return
    yield from (f"{_WORKSPACES}/{name}/{what}" for what in _tree_differences(list_file, path))


def list_problems(run_dir: Path, hashes: Mapping[str, str]) -> Iterator[str]:
    """Yield the lists of shared workspaces that are not those that results name; a resume uses the lists."""
    for where, due in sorted(hashes.items()):
        name = where.removeprefix(f"{_WORKSPACES}/")
        list_file = _list_of(run_dir, name)
        if _SHARED.fullmatch(name) and file_hash(list_file) != due:
            yield f"{list_file.name}: has changed since {RESULTS_FILE} was written"


def unnamed_trials(run_dir: Path, names: set[str]) -> list[str]:
    """Return a sentence for each path below `trials` that is not the folder of a trial that a line names."""
    return list(_find_unnamed(run_dir, _TRIALS, names, _TRIAL_DEPTH))


def unnamed_workspaces(run_dir: Path, names: set[str]) -> list[str]:
    """Return a sentence for each path below `workspaces` that neither a line nor results name."""
    return list(_find_unnamed(run_dir, _WORKSPACES, names, _ATTEMPT_DEPTH))


def _find_unnamed(run_dir: Path, folder: str, names: set[str], depth: int) -> Iterator[str]:
    """Yield the paths that are not in *names*; empty folders above trials are fine, because a resume leaves them."""
    for name in _names(run_dir / folder):
        where = f"{folder}/{name}"
        path = run_dir / where
        if path.is_symlink():
            yield f"{escape_surrogates(where)}: is a symbolic link, which whet never makes there"
        elif where not in names:
            if depth > 1 and path.is_dir():
                yield from _find_unnamed(run_dir, where, names, depth - 1)
            else:
                yield f"{escape_surrogates(where)}: is new: no line of the journal names it"

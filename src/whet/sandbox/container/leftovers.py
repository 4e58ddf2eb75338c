"""What must be found again after a kill: a whet that may have containers leaves a mark, and the next one looks for it.

Every container has labels: the run and the attempt that it belongs to, and the whet that owns it. If that is killed,
the next start of any run finds the mark of a process that is gone, and removes what it had. The same holds for files
that are handed to an engine, such as those with the variables of an agent.

Podman without root starts a pause process, which keeps its user namespace. whet ends the one that it started.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Self

from whet.errors import SandboxError
from whet.reading.paths import own_state
from whet.sandbox.engine import Engine
from whet.sandbox.process.pool import reaper
from whet.sandbox.process.procfs import all_processes, is_running
from whet.workspace.copy import remove_tree

_PATIENCE_S = 5.0
_MARKS, _PAUSES, _HANDED = "containers", "pauses", "handed"
_PAUSE_COMMANDS = {("catatonit", b"-P"), ("podman", b"pause")}


def state_folder(part: str) -> Path:
    """Return the folder of this user for what must be found again after a kill, whatever HOME and TMPDIR say."""
    folder = own_state()
    with contextlib.suppress(FileExistsError), _writing(folder):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise SandboxError(f"{folder} is not a folder that only you can use", hint="remove it")
    return folder / part


def this_process() -> str:
    """Return a name for this process that no other process ever has."""
    return _name_of(os.getpid())


def _name_of(pid: int) -> str:
    return f"{pid}-{_began(pid)}-{_boot()}"


def _began(pid: int) -> str | None:
    """Return when a process began; None if there is none."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if data[0] in (b"Z", b"X") else data[19].decode()


@lru_cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]


def _is_alive(owner: str) -> bool:
    pid, _, rest = owner.partition("-")
    return pid.isdigit() and f"{_began(int(pid))}-{_boot()}" == rest


class Mark:
    """The mark that this process may have containers, by which a later whet finds them."""

    def __init__(self, engine: Engine) -> None:
        self.owner = this_process()
        self.engine = engine
        self._file = state_folder(_MARKS) / self.owner
        with _writing(self._file.parent):
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_text(json.dumps([engine.program, engine.here.env]))
        _begin_pause(engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what is left, and the mark if nothing is."""
        # The one of the beginning may be gone, and podman would start another.
        _begin_pause(self.engine)
        if self._file.exists() and self.engine.remove_owned(self.owner) is None:
            self._file.unlink(missing_ok=True)
        _end_pauses()


def _begin_pause(engine: Engine) -> None:
    """Let podman start its pause process, and note that it is ours to end; one that is there already is not."""
    if not engine.is_rootless:
        return

    with _alone():
        if _pauses():
            return
        if not engine.ask("unshare", "true").ok:
            return
        deadline = time.monotonic() + _PATIENCE_S
        # Podman does not wait until it has become the program by which we know it.
        while not (pids := _pauses()) and time.monotonic() < deadline:
            time.sleep(0.001)
        for pid in pids:
            reaper.adopt(pid)
            (state_folder(_PAUSES) / _name_of(pid)).touch()


def _end_pauses() -> None:
    """End the pause processes that a whet of this user started, unless another one has containers now.

    Podman can do without: it joins the namespace of a container that runs, or makes a new one.
    """
    if not own_state().joinpath(_PAUSES).is_dir():
        return
    with _alone():
        if any(_is_alive(note.name) for note in state_folder(_MARKS).iterdir()):
            return
        for note in state_folder(_PAUSES).iterdir():
            if _is_alive(note.name):
                _kill(int(note.name.partition("-")[0]))
            note.unlink(missing_ok=True)


def _kill(pid: int) -> None:
    """Kill a process, and wait until it can no longer be taken for one that lives."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _PATIENCE_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.001)


def _pauses() -> list[int]:
    """Return the processes that keep the user namespace of podman for this user."""
    pids = []
    for pid in all_processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}").stat().st_uid != os.getuid():
                continue
            words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            if (Path(os.fsdecode(words[0])).name, *words[1:]) in _PAUSE_COMMANDS:
                pids.append(pid)
    return pids


@contextlib.contextmanager
def _alone(part: str = _PAUSES) -> Iterator[None]:
    """Keep other whets of this user from starting and ending pause processes, or from removing, meanwhile."""
    folder = state_folder(part)
    folder.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise SandboxError(f"{folder} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def handing_over() -> Iterator[Path]:
    """Make a folder for files that an engine reads, closed to all others; a later whet removes it after a kill."""
    place = state_folder(_HANDED)
    with _writing(place):
        place.mkdir(exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix=f"{this_process()}.", dir=place, ignore_cleanup_errors=True)
    with made as name:
        yield Path(name)


def _remove_handed() -> None:
    """Remove the files of every whet that was killed."""
    if own_state().joinpath(_HANDED).is_dir():
        for folder in state_folder(_HANDED).iterdir():
            if not _is_alive(folder.name.partition(".")[0]):
                remove_tree(folder)


def remove_abandoned() -> list[str]:
    """Remove the containers of every whet that was killed; return what could not be removed, as sentences."""
    with contextlib.suppress(OSError, SandboxError):
        _remove_handed()
    notes = _abandoned()
    if not notes:
        return []
    # One at a time: podman lists too few while another removes.
    with _alone(_MARKS):
        problems = list(_swept(notes))
    _end_pauses()
    return problems


def _abandoned() -> list[Path]:
    """Return the marks of every whet that was killed."""
    try:
        return [note for note in sorted(state_folder(_MARKS).iterdir()) if not _is_alive(note.name)]
    except (OSError, SandboxError):
        return []


def abandoned_containers() -> list[str]:
    """Return the containers of every whet that was killed, by their names."""
    containers: list[str] = []
    for note in _abandoned():
        with contextlib.suppress(OSError, ValueError):
            program, env = json.loads(note.read_text())
            engine = Engine(program, tuple((name, value) for name, value in env))
            _begin_pause(engine)
            containers += engine.owned(note.name)
    _end_pauses()
    return containers


def _swept(notes: Iterable[Path]) -> Iterator[str]:
    for note in notes:
        try:
            program, env = json.loads(note.read_text())
        except (OSError, ValueError):
            # Another whet was faster; or it was killed before it had written all, and so before it had containers.
            note.unlink(missing_ok=True)
            continue
        engine = Engine(program, tuple((name, value) for name, value in env))
        _begin_pause(engine)
        problem = engine.remove_owned(note.name) if shutil.which(program) else f"{program} is not there"
        if problem is None:
            note.unlink(missing_ok=True)
        else:
            yield f"containers of a whet that was killed could not be removed: {problem}"

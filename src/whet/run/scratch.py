"""The scratch folder of a run: made by us, noted in the run folder, and removed; a record alone is not believed."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import anyio

from whet.agents.agent import AgentCommand, Unpacking
from whet.errors import AttemptError, OutputTooLarge
from whet.ground.copying import remove_tree
from whet.ground.sandbox import Boundary, Command, Sandbox
from whet.ground.secrets import MaskedStream, Masker

_TAIL = 2000
_PREFIX = "whet-"
_NOTE = ".scratch"
# As `mkdtemp` names them.
_NAME = re.compile(r"whet-[a-z0-9_]{8}")
_PATIENCE_S = 120.0
_PASSED_ON = ("PATH", "LANG", "LC_ALL")


@contextmanager
def new_scratch(run_dir: Path) -> Iterator[Path]:
    """A folder for live workspaces, outside of the user's project, so that no tool finds its way up into it."""
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    with noted_scratch(run_dir, scratch):
        yield scratch


@contextmanager
def noted_scratch(run_dir: Path, scratch: Path) -> Iterator[None]:
    """Remove *scratch* in the end; until then the run folder tells whoever comes after us where it is."""
    note = run_dir / _NOTE
    note.symlink_to(scratch)
    try:
        yield
    finally:
        remove_tree(scratch)
        # In a record that was closed meanwhile it stays: what became of the run is worth more than a note.
        with suppress(OSError):
            note.unlink(missing_ok=True)


def clear_scratch(run_dir: Path) -> None:
    """Remove what an earlier whet could not, because it was itself killed."""
    note = run_dir / _NOTE
    if note.is_symlink():
        # Run folders are handed around, and a link in one may lead to anything that is dear to the user.
        if _is_ours(note.readlink()):
            remove_tree(note.readlink())
        note.unlink()


def starts_nothing(scratch: Path) -> str | None:
    """What to say where no program in a workspace could be started, because its disk is mounted so."""
    if not os.statvfs(scratch).f_flag & os.ST_NOEXEC:
        return None
    return (
        f"{scratch.parent} is mounted noexec, so that no script or program in a workspace can be started by its path:"
        " let TMPDIR name a folder on another disk"
    )


def names_scratch(path: Path) -> bool:
    """Whether *path* is one that we could have chosen: absolute, without detours, and named as we name them."""
    return path.is_absolute() and ".." not in path.parts and _NAME.fullmatch(path.name) is not None


def _is_ours(path: Path) -> bool:
    """Whether a scratch folder lies at *path*: of our user, and closed to all others, as it was made."""
    try:
        found = path.lstat()
    except OSError:
        return False
    closed = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o077 == 0
    return names_scratch(path) and closed and found.st_uid == os.geteuid()


class Capture:
    """A sink that writes to a file and passes on what it wrote."""

    def __init__(
        self, path: Path, *, masker: Masker, most_bytes: int, then: Callable[[bytes], None] | None = None
    ) -> None:
        self.path = path
        self.tail = b""
        self._stream = MaskedStream(masker)
        self._left = most_bytes
        self._most = most_bytes
        self._then = then
        self._file: int | None = None

    def __call__(self, chunk: bytes) -> None:
        """Take one piece of output; raises where there is too much of it."""
        taken = chunk[: self._left]
        self._left -= len(taken)
        self._write(self._stream.feed(taken))
        if len(taken) < len(chunk):
            # The ceiling may have cut a secret in two; its beginning is not to be written either.
            self._stream.forget()
            raise OutputTooLarge(
                f"printed more than {self._most} bytes and was stopped",
                hint="raise defaults.max_output_bytes if this is what it should do",
            )

    @property
    def written(self) -> bool:
        """Whether there was any output."""
        return self._file is not None

    def close(self) -> None:
        """Write what was held back and close the file."""
        self._write(self._stream.finish())
        if self._file is not None:
            os.close(self._file)

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self.tail = (self.tail + data)[-_TAIL:]
        if self._then:
            self._then(data)


@dataclass(slots=True)
class Unpacked:
    """The folders that were made so far; whoever needs one while it is being made waits for it."""

    scratch: Path
    sandbox: Sandbox
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    _folders: dict[Unpacking, Path | None] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def given_to(self, asked: AgentCommand) -> AgentCommand:
        """*asked* with the folder, unless its runner names another; without it where it could not be made."""
        wanted = asked.unpacking
        if wanted is None or wanted.variable in asked.env:
            return asked
        async with self._lock:
            if wanted not in self._folders:
                self._folders[wanted] = await self._make(wanted, asked)
        folder = self._folders[wanted]
        if folder is None:
            return asked
        return replace(asked, env={**asked.env, wanted.variable: str(folder)}, readable=(*asked.readable, folder))

    async def _make(self, wanted: Unpacking, asked: AgentCommand) -> Path | None:
        """Start the program for nothing else, without network and in a home of its own; nobody's secrets are there."""
        number = next(self._numbers)
        folder, home = self.scratch / f"u{number}", self.scratch / f"uh{number}"
        folder.mkdir()
        home.mkdir()
        env = {name: asked.env[name] for name in _PASSED_ON if name in asked.env}
        env |= {"HOME": str(home), "TMPDIR": str(home), "TERM": "dumb", wanted.variable: str(folder)}
        command = Command(argv=wanted.argv, env=env, cwd=home)
        boundary = Boundary(writable=(folder, home), readable=asked.readable, network=False)
        try:
            ended = await self.sandbox.run(command, boundary, timeout_s=_PATIENCE_S, stdout=_ignore, stderr=_ignore)
        except AttemptError:
            # A program that cannot be started is the trouble of the attempt, which says so.
            return None
        return folder if ended.exit_code == 0 else None


def _ignore(chunk: bytes) -> None:
    del chunk

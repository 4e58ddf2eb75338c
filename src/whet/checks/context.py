"""What a check gets: the session, the workspace and its changes, and a shell in the agent's kind of sandbox."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath
from typing import ClassVar

import anyio
from msgspec import Struct, field

from whet import plugins
from whet.errors import AgentNotFound, AgentNotStarted, Cause, GraderError
from whet.model.events import ToolCall
from whet.model.grade import Changes
from whet.model.session import Session
from whet.model.skills import SkillDetection
from whet.model.suite import Ceilings
from whet.sandbox.contract import Boundary, Command, InImage, Sandbox

_OUTPUT_KEPT = 16 * 1024 * 1024
_LARGEST_READ = 64 * 1024 * 1024
_NOT_FOUND = 127
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ")
# An agent may have named a program in the settings of its repository that git starts with every command. Hooks stay:
# a check may be about them.
_SAFE_GIT = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "false"}


# What ends a path in a line of shell.
_END = r"[\s'\"`;:&|<>()$]"
_SUITE_VARIABLE = re.compile(r"\$\{?WHET_SUITE_DIR\b\}?")


def plain_environment(home: Path) -> dict[str, str]:
    """Return what a command that decides something gets of our variables, and what keeps an agent out of it."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed_on, **_SAFE_GIT, "HOME": str(home), "TMPDIR": str(home)}


class Ran(Struct, frozen=True, kw_only=True):
    """How a command of a check ended, and what it printed; too much of that is cut off."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    duration_s: float

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out


class Shell(Struct, frozen=True, kw_only=True):
    """Where the commands of a check run; plain data, because it is sent to the process that runs the check."""

    sandbox: str
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    network: bool = True
    # The folder of the suite, of which commands see only what is readable.
    suite_dir: str | None = None
    ceilings: Ceilings = field(default_factory=Ceilings)
    env: Mapping[str, str] = field(default_factory=dict)
    # Where the homes of commands are: a check that is killed leaves one behind, and the run removes it.
    scratch: str | None = None
    # The image, if the sandbox is one of containers.
    place: InImage | None = None

    def run(self, workspace: Path, argv: Sequence[str], timeout_s: float) -> Ran:
        """Run *argv* to its end, also if an async check has an event loop running."""
        if not argv:
            raise ValueError("there is no command to run: the list is empty")
        self._refuse_undeclared(workspace, argv)
        with tempfile.TemporaryDirectory(prefix="whet-check-", dir=self.scratch) as home:
            call = partial(anyio.run, self._run, workspace, tuple(argv), timeout_s, Path(home))
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return call()
            with ThreadPoolExecutor(max_workers=1) as thread:
                return thread.submit(call).result()

    def prepare(self, *writable: Path) -> tuple[Sandbox, Boundary]:
        """Return the sandbox, and what a command in it sees, of which only *writable* can be changed."""
        boundary = Boundary(
            writable=writable,
            readable=tuple(map(Path, self.readable)),
            hidden=tuple(map(Path, self.hidden)),
            apart=tuple(map(Path, self.apart)),
            network=self.network,
            ceilings=self.ceilings,
        )
        kind = plugins.find("sandboxes", self.sandbox)
        return kind() if self.place is None else kind(self.place), boundary

    def _refuse_undeclared(self, workspace: Path, argv: Sequence[str]) -> None:
        """Raise `ValueError` if a command names a file of the suite that it does not see.

        In every sandbox alike, so that a suite that holds in one holds in the others.
        """
        if self.suite_dir is None:
            return
        path = re.compile(rf"{re.escape(self.suite_dir)}(?:/[^{_END[1:]}*|(?={_END}|$))")
        # A program that a command starts is shown with what belongs to it, and so is Python.
        visible = (str(workspace), *self.readable, argv[0], sys.prefix, sys.base_prefix)
        for word in argv:
            for suite_path in path.findall(_SUITE_VARIABLE.sub(lambda _: str(self.suite_dir), str(word))):
                if os.path.lexists(suite_path) and not any(_overlap(suite_path, place) for place in visible):
                    name = os.path.relpath(suite_path, self.suite_dir)
                    raise ValueError(
                        f"the command names {name} of the suite's folder, which commands of checks do not see: "
                        f'declare it in the suite, as in check_files = ["{name}"]'
                    )

    async def _run(self, workspace: Path, argv: tuple[str, ...], timeout_s: float, home: Path) -> Ran:
        sandbox, boundary = self.prepare(workspace, home)
        places = {"WHET_WORKSPACE": str(workspace), **({"WHET_SUITE_DIR": self.suite_dir} if self.suite_dir else {})}
        env = {**plain_environment(home), **self.env, **places}
        out, err = _PrintedText(), _PrintedText()
        command = Command(argv=argv, env=env, cwd=workspace)
        try:
            exit_status = await sandbox.run(command, boundary, timeout_s=timeout_s, stdout=out, stderr=err)
        except (AgentNotFound, AgentNotStarted) as error:
            # As a shell reports it: this is the command of a check, not an agent.
            return Ran(exit_code=_NOT_FOUND, stdout="", stderr=error.message, timed_out=False, duration_s=0.0)
        return Ran(
            exit_code=exit_status.exit_code,
            stdout=out.text(),
            stderr=err.text(),
            timed_out=exit_status.timed_out,
            duration_s=exit_status.duration_s,
        )


def _overlap(path: str, place: str) -> bool:
    """Return whether one of them is the other, or below it."""
    folder, other_folder = f"{path.rstrip('/')}/", f"{place.rstrip('/')}/"
    return folder.startswith(other_folder) or other_folder.startswith(folder)


class _PrintedText:
    """Keeps the beginning of what a command prints, as text."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __call__(self, chunk: bytes) -> None:
        self._data += chunk[: _OUTPUT_KEPT - len(self._data)]

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")


class NotRecorded(GraderError):
    """A check needs something that was not recorded."""

    code = "not-recorded"
    cause: ClassVar[Cause] = "infrastructure"
    class_id = "not-recorded"
    class_label = "Not recorded"


class Gaps(Struct, frozen=True, kw_only=True):
    """Why the workspace is incomplete and why its changes are unknown, if so; `paths` can be read anyway."""

    workspace: str | None = None
    changes: str | None = None
    paths: tuple[str, ...] = ()


class CheckContext(Struct, frozen=True):
    """Convenient access to the evidence; the session stays the source of truth."""

    session: Session
    _workspace: Path
    _changes: Changes
    _run: Callable[[Sequence[str], float], Ran]
    _gaps: Gaps = field(default_factory=Gaps)
    # The arm that the trial belongs to.
    arm: str = "default"
    # The time limit of the check, which its commands share.
    _limit_s: float = 30.0
    # What was asked for and not recorded, even if the check goes on without it.
    _lacked: list[str] = field(default_factory=list)

    # The text of a context says nothing that an explanation could use.
    __unexplained__ = True

    def __repr__(self) -> str:
        return f"<context of {self.session.runner}>"

    @property
    def workspace(self) -> Path:
        """Where the agent worked."""
        self._need("the workspace", self._gaps.workspace)
        return self._workspace

    def get_commands(self) -> list[str]:
        """The shell commands that were run, in order."""
        return list(self.session.commands())

    def get_tool_calls(self, tool: str | None = None) -> list[ToolCall]:
        """The tool calls, all or those of one tool."""
        return list(self.session.tool_calls(tool))

    def get_file_reads(self) -> list[str]:
        """The files that were read, in order."""
        return list(self.session.file_reads())

    def detected_skills(self) -> list[SkillDetection]:
        """The skills that were used, each with its evidence."""
        return list(self.session.detected_skills)

    def final_output(self) -> str:
        """The agent's answer."""
        return self.session.final_output

    def changes(self) -> Changes:
        """What the agent created, modified and deleted in its workspace."""
        self._need("the changes", self._gaps.changes)
        return self._changes

    def read(self, path: str | Path) -> str:
        """The text of a file in the workspace, of 64 MiB at most; a link that leads out of it is not followed."""
        if str(PurePosixPath(path)) not in self._gaps.paths:
            self._need(str(path), self._gaps.workspace)
        try:
            file_path = (self._workspace / path).resolve()
        except RuntimeError as error:
            raise OSError(errno.ELOOP, f"{path} is a link to itself") from error
        if not file_path.is_relative_to(self._workspace.resolve()):
            raise PermissionError(f"{path} is outside of the workspace")
        if file_path.exists() and not file_path.is_file():
            raise IsADirectoryError(f"{path} is not a file")
        with file_path.open("rb") as file:
            # A hole takes no disk, and would take all memory.
            data = file.read(_LARGEST_READ + 1) if os.fstat(file.fileno()).st_size <= _LARGEST_READ else None
        if data is None or len(data) > _LARGEST_READ:
            raise OSError(errno.EFBIG, f"{path} has more than {_LARGEST_READ // 2**20} MiB, too much to be read")
        return data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")

    def run(self, command: str | Sequence[str], *, timeout_s: float | None = None) -> Ran:
        """Run a shell command line, or a program with its arguments, in the workspace and inside the sandbox.

        Without *timeout_s*, it may take as long as the check.
        """
        self._need("the workspace", self._gaps.workspace)
        if timeout_s is not None and timeout_s > self._limit_s:
            raise ValueError(
                f"timeout_s={timeout_s:g} is longer than the {self._limit_s:g} s that the whole check may take: "
                f"set check_timeout_ms = {timeout_s * 1000:.0f} or more in the table [defaults], or allow less"
            )
        argv = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
        # The end of the check ends it too; with the same limit, either of them could come first.
        return self._run(argv, 2 * self._limit_s if timeout_s is None else timeout_s)

    def _need(self, what: str, gap: str | None) -> None:
        """Raise `NotRecorded` if there is a gap instead of *what* the check asks for."""
        if gap is not None:
            self._lacked.append(f"the check looks at {what}, which was not recorded: {gap}")
            raise NotRecorded(self._lacked[-1])


def list_gaps(ctx: CheckContext) -> list[str]:
    """Return what the check asked for and the record does not have."""
    return ctx._lacked  # noqa: SLF001 - an author's editor should not offer it

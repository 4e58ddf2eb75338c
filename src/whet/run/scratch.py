"""The scratch folder of a run, and what is made in it once: folders that programs unpack into, and copies of skills."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from whet.agents.contract import AgentCommand, Unpacking
from whet.errors import AttemptError, WorkspaceError
from whet.model.run import Trial
from whet.sandbox.contract import Boundary, Command, Sandbox
from whet.workspace.copy import remove_tree

_PREFIX = "whet-"
_NOTE = ".scratch"
# As `mkdtemp` names them.
_NAME = re.compile(r"whet-[a-z0-9_]{8}")
_PATIENCE_S = 120.0
_PASSED_ON = ("PATH", "LANG", "LC_ALL")


@contextmanager
def new_scratch(run_dir: Path) -> Iterator[Path]:
    """Make a folder for live workspaces outside of the user's project, so that no tool finds its way up into it."""
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    with noted_scratch(run_dir, scratch):
        yield scratch


@contextmanager
def noted_scratch(run_dir: Path, scratch: Path) -> Iterator[None]:
    """Remove *scratch* in the end; until then the run folder has a link to it, for a later whet to remove it."""
    note = run_dir / _NOTE
    note.symlink_to(scratch)
    try:
        yield
    finally:
        remove_tree(scratch)
        # The link stays if the run folder cannot be written any more; that must not hide what became of the run.
        with suppress(OSError):
            note.unlink(missing_ok=True)


def clear_scratch(run_dir: Path) -> None:
    """Remove the scratch folder of an earlier whet that was killed."""
    note = run_dir / _NOTE
    if note.is_symlink():
        # Run folders are passed around, and a link in one may lead anywhere.
        if _is_ours(note.readlink()):
            remove_tree(note.readlink())
        note.unlink()


def starts_nothing(scratch: Path) -> str | None:
    """Return a warning if no program in a workspace can be started, because its disk is mounted noexec."""
    if not os.statvfs(scratch).f_flag & os.ST_NOEXEC:
        return None
    return (
        f"{scratch.parent} is mounted noexec, so that no script or program in a workspace can be started by its path:"
        " let TMPDIR name a folder on another disk"
    )


def names_scratch(path: Path) -> bool:
    """Return whether *path* could be a scratch folder: absolute, without "..", and named like one."""
    return path.is_absolute() and ".." not in path.parts and _NAME.fullmatch(path.name) is not None


def _is_ours(path: Path) -> bool:
    """Return whether *path* is a scratch folder of this user that is closed to all others."""
    try:
        status = path.lstat()
    except OSError:
        return False
    is_closed = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) & 0o077 == 0
    return names_scratch(path) and is_closed and status.st_uid == os.geteuid()


class UnpackedPrograms(Struct):
    """Folders that programs unpack themselves into, made once for a run."""

    scratch: Path
    sandbox: Sandbox
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    _folders: dict[Unpacking, Path | None] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def given_to(self, agent_command: AgentCommand) -> AgentCommand:
        """Return *agent_command* with the folder, unless its runner names another or it cannot be made."""
        unpacking = agent_command.unpacking
        if unpacking is None or unpacking.variable in agent_command.env:
            return agent_command
        async with self._lock:
            if unpacking not in self._folders:
                self._folders[unpacking] = await self._make(unpacking, agent_command)
        folder = self._folders[unpacking]
        if folder is None:
            return agent_command
        return replace(
            agent_command,
            env={**agent_command.env, unpacking.variable: str(folder)},
            readable=(*agent_command.readable, folder),
        )

    async def _make(self, unpacking: Unpacking, agent_command: AgentCommand) -> Path | None:
        """Start the program only to unpack, without network, secrets and the user's home."""
        number = next(self._numbers)
        folder, home = self.scratch / f"u{number}", self.scratch / f"uh{number}"
        folder.mkdir()
        home.mkdir()
        env = {name: agent_command.env[name] for name in _PASSED_ON if name in agent_command.env}
        env |= {"HOME": str(home), "TMPDIR": str(home), "TERM": "dumb", unpacking.variable: str(folder)}
        command = Command(argv=unpacking.argv, env=env, cwd=home)
        boundary = Boundary(writable=(folder, home), readable=agent_command.readable, network=False)
        try:
            ending = await self.sandbox.run(command, boundary, timeout_s=_PATIENCE_S, stdout=_ignore, stderr=_ignore)
        except AttemptError:
            # The attempt reports a program that cannot be started.
            return None
        return folder if ending.exit_code == 0 else None


class SkillCopies(Struct):
    """The copies of skills that agents are given, each with the watermark of its arm, made once for a run."""

    scratch: Path
    watermarks: Mapping[str, str]
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    _copies: dict[tuple[Path, str], Path] = field(default_factory=dict)

    async def given_to(self, trial: Trial) -> Trial:
        """Return *trial* with such a copy in place of the skill of its arm, wherever that is put."""
        execution, word = trial.execution, self.watermarks.get(trial.key.arm)
        skill, runner, workspace = execution.skill, execution.runner, execution.workspace
        if skill is None or word is None:
            return trial
        async with self._lock:
            if (skill, word) not in self._copies:
                holder = self.scratch / f"s{len(self._copies) + 1}"
                self._copies[skill, word] = await _copy_with_watermark(skill, word, holder)
        copy = self._copies[skill, word]
        placements = tuple(replace(item, source=copy) if item.source == skill else item for item in workspace.placed)
        skills = tuple(copy if path == skill else path for path in runner.skills)
        new_execution = replace(
            execution,
            skill=copy,
            runner=replace(runner, skills=skills),
            workspace=replace(workspace, placed=placements),
        )
        return replace(trial, execution=new_execution)


async def _copy_with_watermark(skill: Path, word: str, holder: Path) -> Path:
    # Only here: most runs have no skill.
    from whet.workspace.watermark import watermarked

    try:
        return await anyio.to_thread.run_sync(watermarked, skill, word, holder)
    except (OSError, WorkspaceError) as error:
        remove_tree(holder)
        raise WorkspaceError(f"the skill {skill} cannot be copied: {error}") from error


def _ignore(chunk: bytes) -> None:
    del chunk

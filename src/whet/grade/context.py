"""What a Python check is handed besides the session: shortcuts to it, the workspace and what changed there."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.grade.shell import Ran
from whet.model.changes import Changes
from whet.model.session import Session, SkillDetection, ToolCall

_COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Conveniences over the evidence; the session stays the source of truth."""

    session: Session
    workspace: Path
    _changes: Changes
    _run: Callable[[Sequence[str], float], Ran]

    # Its text says nothing that an explanation could use.
    __untold__ = True

    def __repr__(self) -> str:
        return f"<context of {self.session.runner}>"

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
        return self._changes

    def read(self, path: str | Path) -> str:
        """The text of a file below the workspace; a link that leads out of it is not followed."""
        try:
            found = (self.workspace / path).resolve()
        except RuntimeError as error:
            raise OSError(errno.ELOOP, f"{path} is a link to itself") from error
        if not found.is_relative_to(self.workspace.resolve()):
            raise PermissionError(f"{path} lies outside of the workspace")
        if found.exists() and not found.is_file():
            raise IsADirectoryError(f"{path} is not a file")
        return found.read_text(encoding="utf-8", errors="replace")

    def run(self, command: str | Sequence[str], *, timeout_s: float = _COMMAND_TIMEOUT_S) -> Ran:
        """Run a shell command line, or a program with its arguments, in the workspace and inside the sandbox."""
        argv = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
        return self._run(argv, timeout_s)

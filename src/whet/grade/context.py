"""What a Python check is handed besides the session: shortcuts to it, the workspace and what changed there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.model.changes import Changes
from whet.model.session import Session, SkillDetection, ToolCall


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Conveniences over the evidence; the session stays the source of truth."""

    session: Session
    workspace: Path
    _changes: Changes

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

"""One agent interaction: its events, and the session that they make up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

from whet.model.seen import (
    EVENT_TYPES,
    PROVIDER_TROUBLE,
    CommandRun,
    Event,
    FileEdit,
    FileRead,
    FinalOutput,
    Message,
    MessagePhase,
    Role,
    SessionEnded,
    SessionStarted,
    SkillSignal,
    ToolCall,
    ToolResult,
    Trouble,
    TroubleKind,
    UsageSeen,
)
from whet.model.skills import Confidence, SkillDetection, SkillEvidence, detect_skills
from whet.model.usage import TOKEN_FIGURES, USAGE_FIGURES, TokenSource, Usage

# Whoever reads or writes sessions finds all of their parts here.
__all__ = [
    "EVENT_TYPES",
    "PROVIDER_TROUBLE",
    "TOKEN_FIGURES",
    "USAGE_FIGURES",
    "CommandRun",
    "Confidence",
    "Event",
    "FileEdit",
    "FileRead",
    "FinalOutput",
    "Message",
    "MessagePhase",
    "Role",
    "Session",
    "SessionEnded",
    "SessionStarted",
    "SessionSummary",
    "SkillDetection",
    "SkillEvidence",
    "SkillSignal",
    "TokenSource",
    "ToolCall",
    "ToolResult",
    "Trouble",
    "TroubleKind",
    "Usage",
    "UsageSeen",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session without its events: small enough to keep and to send."""

    runner: str
    agent: str
    prompt: str
    final_output: str = ""
    model: str | None = None
    session_id: str | None = None
    exit_code: int | None = None
    complete: bool = True
    version: str | None = None
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    placed_skills: tuple[str, ...] = ()
    started_at: str | None = None
    duration_s: float | None = None


# Without slots and compared by identity, so that what is picked out of many events can be kept with it.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Session(SessionSummary):
    """One agent interaction: what a check receives as its report."""

    events: Sequence[Event] = ()

    # The summary's equality would make two sessions of equal figures and different events one.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @classmethod
    def of(cls, summary: SessionSummary, events: Sequence[Event]) -> Session:
        """The session that *summary* is of."""
        return cls(**{item.name: getattr(summary, item.name) for item in fields(SessionSummary)}, events=events)

    # Its text says nothing that an explanation could use.
    __untold__ = True

    def __repr__(self) -> str:
        return f"<session of {self.runner}, {len(self.events)} events>"

    def commands(self) -> tuple[str, ...]:
        """The shell commands, in order."""
        return self._commands

    def tool_calls(self, tool: str | None = None) -> tuple[ToolCall, ...]:
        """The tool calls, all or those of one tool, in order."""
        return self._tool_calls if tool is None else tuple(call for call in self._tool_calls if call.tool == tool)

    def file_reads(self) -> tuple[str, ...]:
        """The paths that were read, in order."""
        return self._file_reads

    def file_edits(self) -> tuple[str, ...]:
        """The paths that were written, in order."""
        return tuple(event.path for event in self.events if isinstance(event, FileEdit))

    @cached_property
    def detected_skills(self) -> tuple[SkillDetection, ...]:
        """The skills whose use there is evidence of, each once, best evidence first."""
        return detect_skills(self.events, self.placed_skills)

    @cached_property
    def _commands(self) -> tuple[str, ...]:
        return tuple(event.command for event in self.events if isinstance(event, CommandRun))

    @cached_property
    def _tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(event for event in self.events if isinstance(event, ToolCall))

    def tool_positions(self, tool: str) -> list[int]:
        """Where the calls of one tool stand among all tool calls, from 0."""
        return self._positions.get(tool, [])

    @cached_property
    def _positions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index, call in enumerate(self._tool_calls):
            found.setdefault(call.tool, []).append(index)
        return found

    @cached_property
    def _file_reads(self) -> tuple[str, ...]:
        return tuple(event.path for event in self.events if isinstance(event, FileRead))

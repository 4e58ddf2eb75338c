"""What was seen: the normalized events of one agent interaction, and the session that they make up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias

Role = Literal["user", "assistant"]
MessagePhase = Literal["thinking", "commentary", "final"]
Confidence = Literal["explicit", "strong", "medium", "weak"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Something said by the user or the agent; `phase` tells thinking from the answer."""

    type: Literal["message"] = "message"
    role: Role
    text: str
    phase: MessagePhase | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The agent asked for a tool."""

    type: Literal["tool_call"] = "tool_call"
    tool: str
    id: str | None = None
    args: Any = None
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool gave back."""

    type: Literal["tool_result"] = "tool_result"
    id: str | None = None
    tool: str | None = None
    output: str = ""
    ok: bool | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRun:
    """A shell command that the agent ran."""

    type: Literal["command"] = "command"
    command: str
    exit_code: int | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """A file that the agent looked into."""

    type: Literal["file_read"] = "file_read"
    path: str
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """A file that the agent wrote."""

    type: Literal["file_edit"] = "file_edit"
    path: str
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSignal:
    """The agent itself says that it loaded a skill; `signal` says how we know."""

    type: Literal["skill_signal"] = "skill_signal"
    skill: str
    signal: str = "tool:skill"
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSeen:
    """Tokens and money since the last such event; cached tokens are part of the input tokens."""

    type: Literal["usage"] = "usage"
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted:
    """The agent says who it is; whatever it does not say stays unknown."""

    type: Literal["session_started"] = "session_started"
    session_id: str | None = None
    model: str | None = None
    version: str | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded:
    """The agent says that it is done, and whether it did what it was asked to."""

    type: Literal["session_ended"] = "session_ended"
    ok: bool
    reason: str | None = None
    at: str | None = None


TroubleKind = Literal[
    "auth", "model-rejected", "rate-limit", "overloaded", "server", "bad-request", "network", "permission", "other"
]
# What says something about whoever serves the model, and nothing about the agent.
PROVIDER_TROUBLE: frozenset[TroubleKind] = frozenset(
    {"auth", "model-rejected", "rate-limit", "overloaded", "server", "bad-request", "network"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something went wrong that may or may not be overcome, such as an overloaded provider.

    Whatever the model says or does afterwards shows that it was overcome.
    """

    type: Literal["trouble"] = "trouble"
    message: str
    kind: TroubleKind = "other"
    status: int | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalOutput:
    """The agent's answer."""

    type: Literal["final_output"] = "final_output"
    text: str
    at: str | None = None


Event: TypeAlias = (
    Message
    | ToolCall
    | ToolResult
    | CommandRun
    | FileRead
    | FileEdit
    | SkillSignal
    | UsageSeen
    | SessionStarted
    | SessionEnded
    | Trouble
    | FinalOutput
)
EVENT_TYPES: tuple[type[Event], ...] = (
    Message,
    ToolCall,
    ToolResult,
    CommandRun,
    FileRead,
    FileEdit,
    SkillSignal,
    UsageSeen,
    SessionStarted,
    SessionEnded,
    Trouble,
    FinalOutput,
)


USAGE_FIGURES = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a session took; a figure that nobody told is `None`, never 0."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    cost_source: Literal["agent", "prices"] | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input and output together; reasoning is part of the output, cached tokens of the input."""
        known = [n for n in (self.input_tokens, self.output_tokens) if n is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDetection:
    """That a skill was used, how sure we are, and why."""

    skill: str
    confidence: Confidence
    evidence: tuple[str, ...]


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
        """The skills that were used, each once, best evidence first."""
        return detect_skills(self.events)

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


_RANK: dict[Confidence, int] = {"explicit": 0, "strong": 1, "medium": 2, "weak": 3}


def detect_skills(events: Sequence[Event]) -> tuple[SkillDetection, ...]:
    """Gather what speaks for each skill; the strongest evidence gives the confidence."""
    seen: dict[str, list[tuple[Confidence, str]]] = {}
    for skill, confidence, why in _skill_evidence(events):
        seen.setdefault(skill, []).append((confidence, why))
    return tuple(_detection(skill, found) for skill, found in seen.items())


def _detection(skill: str, found: list[tuple[Confidence, str]]) -> SkillDetection:
    ordered = sorted(found, key=lambda item: _RANK[item[0]])
    return SkillDetection(skill=skill, confidence=ordered[0][0], evidence=tuple(why for _, why in ordered))


def _skill_evidence(events: Sequence[Event]) -> Iterator[tuple[str, Confidence, str]]:
    for event in events:
        match event:
            case SkillSignal(skill=skill, signal=signal):
                yield skill, "explicit", f"signal {signal}"
            case FileRead(path=path):
                # The folder names the skill: `.../find-skills/SKILL.md`.
                parts = path.rsplit("/", 2)
                if parts[-1] == "SKILL.md" and len(parts) > 1 and parts[-2]:
                    yield parts[-2], "strong", f"read {path}"
            case _:
                pass

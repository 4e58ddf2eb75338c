"""The normalized events of one session with an agent. A transcript may hold a million of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Meta, Struct

# No agent has a figure beyond these. Without a bound, one number of many digits would spoil every sum that it is in.
MOST = 2**63 - 1
Whole = Annotated[int, Meta(ge=-MOST, le=MOST)]
Amount = Annotated[float, Meta(ge=-float(MOST), le=float(MOST))]

Role = Literal["user", "assistant"]
MessagePhase = Literal["thinking", "commentary", "final"]


class Message(Struct, frozen=True, kw_only=True):
    """Something said by the user or the agent; `phase` separates thinking from the answer."""

    type: Literal["message"] = "message"
    role: Role
    text: str
    phase: MessagePhase | None = None
    at: str | None = None


class ToolCall(Struct, frozen=True, kw_only=True):
    """The agent asked for a tool."""

    type: Literal["tool_call"] = "tool_call"
    tool: str
    id: str | None = None
    args: Any = None
    at: str | None = None


class ToolResult(Struct, frozen=True, kw_only=True):
    """What a tool gave back."""

    type: Literal["tool_result"] = "tool_result"
    id: str | None = None
    tool: str | None = None
    output: str = ""
    ok: bool | None = None
    at: str | None = None


class CommandRun(Struct, frozen=True, kw_only=True):
    """A shell command that the agent ran, in `cwd` if that is not the workspace.

    `ok` says whether it worked, if that is known and its exit code is not.
    """

    type: Literal["command"] = "command"
    command: str
    exit_code: Whole | None = None
    cwd: str | None = None
    ok: bool | None = None
    at: str | None = None


class FileRead(Struct, frozen=True, kw_only=True):
    """A file that the agent looked into; `ok` is null if the command that shows it may have failed."""

    type: Literal["file_read"] = "file_read"
    path: str
    ok: bool | None = True
    at: str | None = None


class FileEdit(Struct, frozen=True, kw_only=True):
    """A file that the agent wrote."""

    type: Literal["file_edit"] = "file_edit"
    path: str
    at: str | None = None


class SkillSignal(Struct, frozen=True, kw_only=True):
    """The agent itself says that it loaded a skill, or could not; `signal` says how we know."""

    type: Literal["skill_signal"] = "skill_signal"
    skill: str
    signal: str = "tool:skill"
    loaded: bool = True
    at: str | None = None


class ContextAdded(Struct, frozen=True, kw_only=True):
    """The agent's program itself put a text into the session, such as that of a skill which was loaded."""

    type: Literal["context"] = "context"
    text: str
    at: str | None = None


class Permission(Struct, frozen=True, kw_only=True):
    """The agent asked whether it may use a tool, and the policy of its runner answered; `id` is that of the call."""

    type: Literal["permission"] = "permission"
    tool: str
    id: str | None = None
    allowed: bool
    policy: str | None = None
    at: str | None = None


class UsageSeen(Struct, frozen=True, kw_only=True):
    """Tokens and money since the last such event; tokens read from and written to a cache are part of the input.

    `derived` names the figures that were computed from others and not reported by the agent.
    """

    type: Literal["usage"] = "usage"
    input_tokens: Whole | None = None
    output_tokens: Whole | None = None
    cached_tokens: Whole | None = None
    cache_write_tokens: Whole | None = None
    reasoning_tokens: Whole | None = None
    cost_usd: Amount | None = None
    derived: tuple[str, ...] = ()
    at: str | None = None


class SessionStarted(Struct, frozen=True, kw_only=True):
    """The agent says who it is and which skills it offers to its model; whatever it does not say stays unknown."""

    type: Literal["session_started"] = "session_started"
    session_id: str | None = None
    model: str | None = None
    version: str | None = None
    skills: tuple[str, ...] = ()
    at: str | None = None


class SessionEnded(Struct, frozen=True, kw_only=True):
    """The agent says that it is done, and whether it did what it was asked to."""

    type: Literal["session_ended"] = "session_ended"
    ok: bool
    reason: str | None = None
    at: str | None = None


TroubleKind = Literal[
    "auth",
    "model-rejected",
    "rate-limit",
    "overloaded",
    "server",
    "bad-request",
    "network",
    "context",
    "permission",
    "other",
]
# Trouble of the provider of the model, which says nothing about the agent.
PROVIDER_TROUBLE: frozenset[TroubleKind] = frozenset(
    {"auth", "model-rejected", "rate-limit", "overloaded", "server", "bad-request", "network"}
)


class Trouble(Struct, frozen=True, kw_only=True):
    """Something went wrong that may or may not be overcome, such as an overloaded provider.

    Whatever the model says or does afterwards shows that it was overcome.
    """

    type: Literal["trouble"] = "trouble"
    message: str
    kind: TroubleKind = "other"
    status: Whole | None = None
    at: str | None = None


class FinalOutput(Struct, frozen=True, kw_only=True):
    """The agent's answer."""

    type: Literal["final_output"] = "final_output"
    text: str
    at: str | None = None


class TurnStarted(Struct, frozen=True, kw_only=True):
    """A turn of a conversation begins: every event until the next one of this kind belongs to it."""

    type: Literal["turn_started"] = "turn_started"
    turn: Whole
    prompt: str
    at: str | None = None


Event: TypeAlias = (
    Message
    | ToolCall
    | ToolResult
    | CommandRun
    | FileRead
    | FileEdit
    | SkillSignal
    | ContextAdded
    | Permission
    | UsageSeen
    | SessionStarted
    | SessionEnded
    | Trouble
    | FinalOutput
    | TurnStarted
)
EVENT_TYPES: tuple[type[Event], ...] = get_args(Event)

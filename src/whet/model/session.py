"""Sessions with an agent: their events, and the usage with the source of each figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar, overload

from msgspec import Struct, field
from msgspec.structs import replace

from whet.model.events import MOST, Amount, CommandRun, Event, FileEdit, FileRead, ToolCall, TurnStarted, Whole
from whet.model.skills import EarlyEnd, SkillDetection, detect_skills

# As the gateway read it in the answers of the provider, as the agent reported it of the provider, computed from such
# figures, or guessed from the number of characters.
TokenSource = Literal["gateway", "provider", "derived", "chars"]
_WORST_FIRST: tuple[TokenSource, ...] = ("chars", "derived", "provider", "gateway")
TOKEN_FIGURES = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")
USAGE_FIGURES = (*TOKEN_FIGURES, "cost_usd")
Figure = TypeVar("Figure", int, float)


class Usage(Struct, frozen=True, kw_only=True):
    """The tokens and the money that a session took; an unknown figure is `None`, never 0."""

    input_tokens: Whole | None = None
    output_tokens: Whole | None = None
    cached_tokens: Whole | None = None
    cache_write_tokens: Whole | None = None
    reasoning_tokens: Whole | None = None
    cost_usd: Amount | None = None
    cost_source: Literal["agent", "prices"] | None = None
    sources: Mapping[str, TokenSource] = field(default_factory=dict)

    @property
    def total_tokens(self) -> int | None:
        """Input and output together, if both are known; they include the cache and the reasoning."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return add_figures(self.input_tokens, self.output_tokens)

    @property
    def tokens_guessed(self) -> bool:
        """Whether tokens were guessed from the number of characters; a sum with one guess is a guess."""
        return "chars" in self.sources.values()

    @property
    def uncached_input_tokens(self) -> int | None:
        """The input that was not read from a cache, if that is known."""
        if self.input_tokens is None or self.cached_tokens is None:
            return None
        return max(0, self.input_tokens - self.cached_tokens)

    @property
    def uncached_tokens(self) -> int | None:
        """Input and output together, without what was read from a cache."""
        if self.uncached_input_tokens is None or self.output_tokens is None:
            return None
        return add_figures(self.uncached_input_tokens, self.output_tokens)

    def __add__(self, other: Usage) -> Usage:
        """Add two usages; a figure that only one has is taken over, and a sum is as sure as its less sure part."""
        # Most often it is empty, and there may be a hundred thousand to add.
        if other == _NOTHING:
            return self
        source = "prices" if "prices" in (self.cost_source, other.cost_source) else self.cost_source
        return Usage(
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            cache_write_tokens=_sum(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            cost_usd=_sum(self.cost_usd, other.cost_usd),
            cost_source=source or other.cost_source,
            sources=self.sources if self.sources == other.sources else _worse(self.sources, other.sources),
        )

    def __sub__(self, other: Usage) -> Usage:
        """Take away a part; a figure that the part does not have stays as it is."""
        if other == _NOTHING:
            return self
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in USAGE_FIGURES}
        left = {
            name: _sum(figure, None if part is None else -part)
            for name, (figure, part) in pairs.items()
            if figure is not None
        }
        return replace(self, **left)

    def reported(self, figure: str) -> float | None:
        """Return one of the figures by its name, unless it is a guess."""
        value: float | None = getattr(self, figure)
        parts = _PARTS.get(figure, (figure,))
        return None if any(self.sources.get(part) == "chars" for part in parts) else value


_NOTHING = Usage()
# The parts of figures that no agent reports itself.
_PARTS = {
    "uncached_input_tokens": ("input_tokens", "cached_tokens"),
    "uncached_tokens": ("input_tokens", "cached_tokens", "output_tokens"),
}


def _sum(left: float | None, right: float | None) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return add_figures(left, right)


# The rounding error of a sum of dollars: spending exactly the budget is allowed.
ROUNDING_USD = 1e-9


def add_figures(left: Figure, right: Figure) -> Figure:
    """Return a sum that is no larger than a figure may be: a journal that holds it can be read again."""
    # Beyond nine digits, a sum of dollars shows only rounding errors.
    total = round(left + right, 9)
    most = type(total)(MOST)
    return max(-most, min(most, total))


def _worse(left: Mapping[str, TokenSource], right: Mapping[str, TokenSource]) -> dict[str, TokenSource]:
    pairs = {name: (left.get(name), right.get(name)) for name in (*left, *right)}
    return {name: next(source for source in _WORST_FIRST if source in pair) for name, pair in pairs.items()}


def sourced(derived: frozenset[str], **figures: float | None) -> Usage:
    """Return the usage of figures that an agent reported, of which some were *derived* from others."""
    names = [name for name in TOKEN_FIGURES if figures.get(name) is not None]
    sources: dict[str, TokenSource] = {name: "derived" if name in derived else "provider" for name in names}
    if {"input_tokens", "output_tokens"} <= sources.keys():
        sources["total_tokens"] = "derived"
    tokens: dict[str, Any] = {name: int(figures[name] or 0) for name in names}
    cost = figures.get("cost_usd")
    return replace(Usage(**tokens), cost_usd=cost, cost_source=None if cost is None else "agent", sources=sources)


def from_gateway(tokens: Mapping[str, int]) -> Usage:
    """Return the usage of figures that the gateway read in the answers of a provider."""
    sources: dict[str, TokenSource] = dict.fromkeys((name for name in TOKEN_FIGURES if name in tokens), "gateway")
    if {"input_tokens", "output_tokens"} <= sources.keys():
        sources["total_tokens"] = "gateway"
    figures: dict[str, Any] = {name: min(MOST, tokens[name]) for name in TOKEN_FIGURES if name in tokens}
    return Usage(**figures, sources=sources)


def token_count(value: object) -> int | None:
    """Parse a number of tokens from foreign JSON, or return None if it cannot be one."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdecimal() and len(value) <= len(str(_MOST_TOKENS)) else None
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return value if isinstance(value, int) and fits else None


_MOST_TOKENS = 10**15
_CHARACTERS_OF_A_TOKEN = 4
GUESSED: Mapping[str, TokenSource] = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), "chars")


def guessed(read: int, written: int) -> Usage:
    """Guess the usage from the number of characters that were read and written; nothing if none were written."""
    if written <= 0:
        return Usage()
    return Usage(input_tokens=tokens_of(read), output_tokens=tokens_of(written), sources=GUESSED)


def tokens_of(characters: int) -> int:
    """Guess how many tokens so many characters are."""
    return -(-characters // _CHARACTERS_OF_A_TOKEN)


class TurnSummary(Struct, frozen=True, kw_only=True):
    """One turn of a conversation: a prompt, and what the agent did until it answered.

    `changed_files` counts what had changed by then since the beginning; None if it was not counted.
    """

    number: int
    prompt: str
    final_output: str = ""
    session_id: str | None = None
    exit_code: int | None = None
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    duration_s: float | None = None
    changed_files: int | None = None


# What a turn says of itself and not of the whole session.
_OF_TURNS = ("prompt", "final_output", "session_id", "exit_code", "steps", "usage", "duration_s")
UserOutcome = Literal["satisfied", "gave-up", "max-turns"]


class UserSummary(Struct, frozen=True, kw_only=True):
    """How a conversation with a user that a model plays ended, why, and what that model used; None: it broke off."""

    outcome: UserOutcome | None = None
    reason: str = ""
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    # Signs that the agent tried to speak to the model instead of to the person.
    flags: tuple[str, ...] = ()


class SessionSummary(Struct, frozen=True, kw_only=True):
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
    # The words in the copies of skills that agents of its run were given, by arm.
    watermarks: Mapping[str, str] = field(default_factory=dict)
    started_at: str | None = None
    duration_s: float | None = None
    # How the agent asked its model, through the gateway or directly; None if it is not known to ask one.
    route: str | None = None
    # What the gateway saw: how often the model was asked, the time of waiting for it, and the usual time until it
    # began to answer. None if the agent asked it directly.
    requests: int | None = None
    model_s: float | None = None
    first_token_s: float | None = None
    # The turns of a conversation, and its user; a session of one prompt has neither.
    turns: tuple[TurnSummary, ...] = ()
    user: UserSummary | None = None
    # Why whet ended it before its agent had, and its checks could be decided all the same.
    ended_early: EarlyEnd | None = None


def said_in(session: SessionSummary) -> str:
    """Return what was said in a conversation, turn by turn; of a session of one prompt, its answer."""
    if not session.turns:
        return session.final_output
    messages = (
        f"[Prompt {turn.number}]\n{turn.prompt}\n\n[Answer {turn.number}]\n{turn.final_output}"
        for turn in session.turns
    )
    return "\n\n".join(messages)


def session_until(session: SessionSummary, turn: int) -> SessionSummary:
    """Return *session* as it was after *turn*."""
    turns = session.turns[:turn]
    if not turns or len(turns) == len(session.turns):
        return session
    return replace(
        session,
        turns=turns,
        user=None,
        complete=True,
        final_output=turns[-1].final_output,
        session_id=turns[-1].session_id,
        exit_code=turns[-1].exit_code,
        steps=sum(part.steps for part in turns),
        usage=sum((part.usage for part in turns[1:]), turns[0].usage),
        duration_s=sum(part.duration_s or 0.0 for part in turns),
    )


class _EventsOf(Sequence[Event]):
    """The events of one turn of a conversation; read when they are used."""

    def __init__(self, events: Sequence[Event], turn: int) -> None:
        self._events, self._turn = events, turn

    @cached_property
    def _own(self) -> tuple[Event, ...]:
        events: list[Event] = []
        current = 0
        for event in self._events:
            if isinstance(event, TurnStarted):
                current = event.turn
            elif current == self._turn:
                events.append(event)
        return tuple(events)

    def __len__(self) -> int:
        return len(self._own)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        return self._own[index]

    def __repr__(self) -> str:
        return repr(list(self._own))


# With a `__dict__` and compared by identity, so that what is picked out of many events can be kept with it.
class Session(SessionSummary, frozen=True, kw_only=True, eq=False, dict=True, weakref=True):
    """One agent interaction: what a check receives as its report."""

    events: Sequence[Event] = ()
    # Each is the session of one prompt.
    turns: tuple[Session, ...] = ()  # type: ignore[assignment] # with its events, a turn is more than its summary

    # The summary's equality would make two sessions of equal figures and different events one.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @classmethod
    def of(cls, summary: SessionSummary, events: Sequence[Event]) -> Session:
        """Make the session of *summary*; one of a single prompt is its own only turn."""
        fields = {name: getattr(summary, name) for name in SessionSummary.__struct_fields__} | {"turns": ()}
        turns = [
            cls(**fields | {name: getattr(turn, name) for name in _OF_TURNS}, events=_EventsOf(events, turn.number))
            for turn in summary.turns
        ]
        return cls(**fields | {"turns": tuple(turns) or (cls(**fields, events=events),)}, events=events)

    # The text of a session would not help an explanation.
    __unexplained__ = True

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
        """Return the positions of the calls of one tool among all tool calls, from 0."""
        return self._positions.get(tool, [])

    @cached_property
    def _positions(self) -> dict[str, list[int]]:
        positions: dict[str, list[int]] = {}
        for index, call in enumerate(self._tool_calls):
            positions.setdefault(call.tool, []).append(index)
        return positions

    @cached_property
    def _file_reads(self) -> tuple[str, ...]:
        return tuple(event.path for event in self.events if isinstance(event, FileRead))

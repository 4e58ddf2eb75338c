"""The steps of a session, out of its events: what was said, what was called and came back, what sub-agents did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from whet.model.events import (
    CommandRun,
    Event,
    FinalOutput,
    Message,
    SessionEnded,
    ToolCall,
    ToolResult,
    Trouble,
    UsageSeen,
)
from whet.model.session import USAGE_FIGURES, SessionSummary, Usage, sourced

# An agent that calls one of its sub-agents says which one in an argument of this name.
_SUB_AGENT = ("subagent_type", "agent_name", "agent_type")

# Programs that say that they call sub-agents of sub-agents without end must not exhaust the stack.
_DEEPEST = 20


class ToolStep(Struct, kw_only=True):
    """A tool call with what came back; the steps of a sub-agent stand `inside` the call that started it."""

    id: str
    asked: ToolCall
    result: ToolResult | None = None
    exit_code: int | None = None
    inside: list[ExportStep] = field(default_factory=list)

    @property
    def sub_agent(self) -> str | None:
        """The name of the sub-agent that it starts, if it starts one."""
        args = self.asked.args if isinstance(self.asked.args, dict) else {}
        return next((args[name] for name in _SUB_AGENT if isinstance(args.get(name), str)), None)

    @property
    def prompt(self) -> str | None:
        """What the sub-agent was asked."""
        prompt = self.asked.args.get("prompt") if isinstance(self.asked.args, dict) else None
        return prompt if isinstance(prompt, str) else None


class ExportStep(Struct, kw_only=True):
    """One message of the user, one round of the model, or one thing that neither of them did."""

    source: Literal["user", "agent", "system"]
    at: str | None = None
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolStep] = field(default_factory=list)
    # What came back and answers no call.
    stray: ToolResult | None = None
    usage: Usage | None = None
    trouble: Trouble | None = None

    @property
    def text(self) -> str:
        """What was said."""
        return "\n\n".join(self.texts)


def steps_of(session: SessionSummary, events: Iterable[Event]) -> list[ExportStep]:
    """Return the steps of a session, the prompt first; an agent without events has its answer as the only step."""
    reading = _StepBuilder()
    for event in events:
        reading.take(event)
    reading.end()
    if not any(step.source == "user" for step in reading.steps[:1]):
        reading.steps.insert(0, ExportStep(source="user", at=session.started_at, texts=[session.prompt]))
    if session.final_output.strip() not in reading.said:
        reading.steps.append(ExportStep(source="agent", texts=[session.final_output]))
    return reading.steps


class _StepBuilder:
    """Puts events together; `steps` is what the agent itself did."""

    def __init__(self) -> None:
        self.steps: list[ExportStep] = []
        # An empty answer was said by saying nothing.
        self.said = {""}
        # The steps that events belong to now: those of the agent, or of the sub-agent that works.
        self._current = self.steps
        # The sub-agents that work, the last called at the end, and the steps that called them.
        self._working: list[tuple[ToolStep, ExportStep]] = []
        # The calls without a result.
        self._open: dict[str, ToolStep] = {}
        self._numbers = 0
        # The round that goes on; a result or a message of the user ends it.
        self._round: ExportStep | None = None
        self._ahead: Usage | None = None
        self._reported: list[tuple[ExportStep | None, Usage]] = []
        # The steps that have a usage.
        self._told: set[int] = set()

    def take(self, event: Event) -> None:
        match event:
            case Message(role="user"):
                self._round = None
                self._current.append(ExportStep(source="user", at=event.at, texts=[event.text]))
            case Message():
                self._say(event)
            case ToolCall():
                self._call(event)
            case CommandRun():
                self._note_code(event)
            case ToolResult():
                self._return(event)
            case UsageSeen():
                self._report(event)
            case Trouble():
                self._current.append(ExportStep(source="system", at=event.at, texts=[event.message], trouble=event))
            case FinalOutput():
                self._answer(event)
            case SessionEnded(ok=False):
                self._current.append(
                    ExportStep(source="system", at=event.at, texts=[event.reason or "the session failed"])
                )

    def end(self) -> None:
        """Give each step its usage, unless the agent reports one figure for the whole session."""
        if len(self._reported) > 1:
            for step, usage in self._reported:
                if step is not None:
                    step.usage = usage if step.usage is None else step.usage + usage

    def _begin(self, at: str | None) -> ExportStep:
        """Return the round that goes on, or a new one."""
        if self._round is None:
            self._round = ExportStep(source="agent", at=at, usage=self._ahead)
            self._ahead = None
            self._current.append(self._round)
        return self._round

    def _say(self, event: Message) -> None:
        step = self._begin(event.at)
        if event.phase == "thinking":
            step.thoughts.append(event.text)
        else:
            step.texts.append(event.text)
            self.said.add(event.text.strip())

    def _answer(self, event: FinalOutput) -> None:
        if event.text.strip() not in self.said:
            self._say(Message(role="assistant", text=event.text, at=event.at))

    def _call(self, event: ToolCall) -> None:
        self._numbers += 1
        call = ToolStep(id=event.id or f"call-{self._numbers}", asked=event)
        last, step = self._working[-1] if self._working else (None, None)
        if step is None or last is None or last.inside or not call.sub_agent:
            step = self._begin(event.at)
        # Else nothing came between two sub-agents: they were called together, and the second is not work of the first.
        step.calls.append(call)
        self._open[call.id] = call
        if call.sub_agent and len(self._working) < _DEEPEST:
            self._working.append((call, step))
            self._enter(call.inside)

    def _enter(self, steps: list[ExportStep]) -> None:
        self._current, self._round = steps, None

    def _note_code(self, event: CommandRun) -> None:
        for call in reversed(self._open.values()):
            if isinstance(call.asked.args, dict) and call.asked.args.get("command") == event.command:
                call.exit_code = event.exit_code
                return

    def _return(self, event: ToolResult) -> None:
        call = self._open.pop(event.id or self._first_open(event.tool), None)
        self._round = None
        if call is None:
            self._current.append(ExportStep(source="system", at=event.at, stray=event))
            return
        call.result = event
        if any(call is working for working, _ in self._working):
            self._working = [entry for entry in self._working if entry[0] is not call]
            self._enter(self._working[-1][0].inside if self._working else self.steps)

    def _first_open(self, tool: str | None) -> str:
        """Return the first call that a result without an id can belong to."""
        return next((name for name, call in self._open.items() if tool in (None, call.asked.tool)), "")

    def _report(self, event: UsageSeen) -> None:
        """Note usage: some agents tell what a round reads before it, and others all of it afterwards."""
        figures = {name: getattr(event, name) for name in USAGE_FIGURES}
        usage = sourced(frozenset(event.derived), **figures)
        before = next((step for step in reversed(self._current) if step.source == "agent"), None)
        if usage.output_tokens is None:
            self._ahead = usage if self._ahead is None else self._ahead + usage
        elif id(before) in self._told:
            self._ahead = usage
            self._reported.append((None, usage))
        else:
            self._told.add(id(before))
            self._reported.append((before, usage))

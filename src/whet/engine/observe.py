"""From printed lines to a session: events are counted as they come, and not kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from whet.agents.base import Output
from whet.errors import BudgetSpent, SessionUnreadable, StepLimitReached
from whet.model.session import (
    USAGE_FIGURES,
    Event,
    FinalOutput,
    Message,
    SessionEnded,
    SessionStarted,
    ToolCall,
    ToolResult,
    Trouble,
    Usage,
    UsageSeen,
)
from whet.prices import priced
from whet.wire import EVENT_NAMES, WireError, decode_event, encode

_LINE_SHOWN = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What a running agent is held to, and the model whose prices count where it does not say."""

    max_steps: int | None = None
    budget_usd: float | None = None
    model: str | None = None


class Observer:
    """Reads a session while it happens: usage, steps and the final output; the events themselves stay on disk."""

    def __init__(
        self, output: Output, read: Callable[[bytes], Iterable[Event]], *, events_path: Path, watch: Watch | None = None
    ) -> None:
        self._output = output
        self._read = read
        self._limits = watch or Watch()
        self._pending: list[bytes] = []
        self._lines = 0
        self._in_round = False
        self._said: str | None = None
        self._final: str | None = None
        self._usage: dict[str, float] = {}
        self._events = _EventFile(events_path) if output == "records" else None
        self.steps = 0
        self.unreadable: SessionUnreadable | None = None
        self.started = SessionStarted()
        self.ended: SessionEnded | None = None
        # The last trouble that nothing the model said or did has followed.
        self.trouble: Trouble | None = None

    def feed(self, data: bytes) -> None:
        """Take the next piece of output; raises where the agent goes beyond its steps."""
        if self._output == "text":
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = b"".join((*self._pending, line))
            self._pending.clear()
            self._line(whole)
        if rest:
            self._pending.append(rest)

    def finish(self) -> None:
        """Take the last line, which may have no end."""
        if self._pending:
            whole = b"".join(self._pending)
            self._pending.clear()
            self._line(whole)

    def close(self) -> None:
        """Let go of the file of events."""
        if self._events:
            self._events.close()

    def usage(self) -> Usage:
        """What was reported; a figure that was never mentioned stays unknown."""
        whole = {name: int(value) for name, value in self._usage.items() if name != "cost_usd"}
        cost = self._usage.get("cost_usd")
        told = Usage(cost_usd=cost, cost_source=None if cost is None else "agent", **whole)
        return priced(told, self.started.model or self._limits.model)

    def final_output(self, transcript: Path) -> str:
        """The answer: all of a text, or the final output that was announced, or the last message but thoughts."""
        if self._output == "text":
            text = transcript.read_bytes().decode("utf-8", "replace") if transcript.exists() else ""
            return text.rstrip("\r\n")
        return self._final if self._final is not None else (self._said or "")

    def _line(self, line: bytes) -> None:
        self._lines += 1
        if not line.strip():
            return
        try:
            events = (decode_event(line),) if self._output == "events" else self._read(line)
            for event in events:
                self.take(event)
        except WireError as error:
            self.unreadable = self.unreadable or _unreadable(self._lines, line, error)

    def take(self, event: Event) -> None:
        """Count one event in."""
        if self._events:
            self._events.write(event)
        match event:
            case Message(role="assistant", phase="thinking"):
                self._begin_round()
            case Message(role="assistant", text=text):
                self._begin_round()
                self._said = text
            case ToolCall():
                self._begin_round()
            case ToolResult() | Message():
                self._in_round = False
            case UsageSeen():
                self._add(event)
            case FinalOutput(text=text):
                self._final = text
            case _:
                self._note(event)

    def _note(self, event: Event) -> None:
        """What the agent says of the session itself."""
        match event:
            case SessionStarted():
                self.started = _merged(self.started, event)
            case SessionEnded():
                self.ended = event
            case Trouble():
                self.trouble = event
            case _:
                pass

    def _begin_round(self) -> None:
        """A model round begins with the first thing that the model says after being told something."""
        self.trouble = None
        if self._in_round:
            return
        self._in_round = True
        self.steps += 1
        most = self._limits.max_steps
        if most is not None and self.steps > most:
            raise StepLimitReached(f"began step {self.steps} and may take {most}")

    def _add(self, seen: UsageSeen) -> None:
        for name in USAGE_FIGURES:
            value = getattr(seen, name)
            if value is not None and value < 0 and self._output == "events":
                raise WireError(f"{name} cannot be negative")
            if value is not None and value >= 0:
                self._usage[name] = self._usage.get(name, 0) + value
        budget = self._limits.budget_usd
        if budget is not None and (spent := self.usage().cost_usd) is not None and spent > budget:
            raise BudgetSpent(f"has spent ${spent:.4f} of a budget of ${budget:g}")


class _EventFile:
    """The normalized events of an agent that prints something else, one per line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def write(self, event: Event) -> None:
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        os.write(self._file, encode(event) + b"\n")

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


def _merged(known: SessionStarted, more: SessionStarted) -> SessionStarted:
    """What is known of a session when it is told in several records."""
    return SessionStarted(
        session_id=more.session_id or known.session_id,
        model=more.model or known.model,
        version=more.version or known.version,
    )


def _unreadable(number: int, line: bytes, error: WireError) -> SessionUnreadable:
    shown = line[:_LINE_SHOWN].decode("utf-8", "replace")
    named = str(error).split('"')[1] if str(error).startswith("no event is called") else ""
    near = get_close_matches(named, EVENT_NAMES, n=1)
    hint = f'did you mean "{near[0]}"?' if near else "print one event per line on stdout, and anything else on stderr"
    return SessionUnreadable(f"line {number} of its output is not a session event: {error}: {shown}", hint=hint)

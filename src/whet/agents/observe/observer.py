"""The observer: reads what an agent prints, line by line, and sums up its session without keeping the events."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from whet.agents.contract import Output
from whet.agents.observe.loading import LoadFollower
from whet.agents.observe.model_activity import ModelActivity
from whet.agents.observe.records import moment
from whet.agents.prices import load_prices, priced
from whet.errors import MoneySpent, SessionUnreadable, StepLimitReached
from whet.model.codec import EVENT_NAMES, WireError, decode_event, encode_lines
from whet.model.events import (
    Event,
    FinalOutput,
    Message,
    SessionEnded,
    SessionStarted,
    ToolCall,
    ToolResult,
    Trouble,
    UsageSeen,
)
from whet.model.session import ROUNDING_USD, TOKEN_FIGURES, USAGE_FIGURES, Usage, add_figures, guessed, sourced
from whet.model.skills import SkillDetection, SkillWatch
from whet.reading.text import did_you_mean


class _Characters:
    """Counts characters as a provider counts tokens: every round reads all that events show before it."""

    def __init__(self, prompt: int) -> None:
        self._context = prompt
        self._read = 0
        self._written = 0

    def round(self) -> None:
        self._read += self._context

    def wrote(self, said: Any) -> None:
        size = len(said) if isinstance(said, str) else _size(said)
        self._written += size
        self._context += size

    def heard(self, text: str) -> None:
        self._context += len(text)

    def guess(self) -> Usage:
        """Return the tokens that so many characters usually are."""
        return guessed(self._read, self._written)


def _size(args: Any) -> int:
    return sum(len(value) for value in args.values() if isinstance(value, str)) if isinstance(args, dict) else 0


class _EventFile:
    """Writes many events at a time: a write of its own would take longer than everything else about an event."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def write(self, events: Sequence[Event]) -> None:
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        view = memoryview(encode_lines(events))
        while view:
            view = view[os.write(self._file, view) :]

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class _Arrivals:
    """When each piece of the output arrived, in two numbers, so that a second reading gives events the same times."""

    def __init__(self) -> None:
        self._sizes, self._times = array("q"), array("q")

    def note(self, size: int) -> str | None:
        """Note that *size* bytes arrived now, and return the time."""
        self._sizes.append(size)
        self._times.append(_now_ms())
        return moment(self._times[-1])

    def read(self, file: BinaryIO) -> Iterable[tuple[bytes, str | None]]:
        """Yield *file* in the pieces in which it arrived."""
        for size, at in zip(self._sizes, self._times, strict=True):
            yield file.read(size), moment(at)
        # Of a session without times, that is all of it.
        while data := file.read(_PIECE):
            yield data, None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_LINE_SHOWN = 120
_PIECE = 1024 * 1024
# An agent may print everything at its end.
_MOST_UNWRITTEN = 1000
# For each skill and confidence; a check sees all of the evidence.
_EVIDENCE_KEPT = 5


class SessionLimits(Struct, frozen=True, kw_only=True):
    """The limits of a running agent, and what is known of its session before it starts.

    Prices are those of `model` if the agent does not name one.
    """

    max_steps: int | None = None
    budget_usd: float | None = None
    model: str | None = None
    prompt: str = ""
    placed_skills: tuple[str, ...] = ()


class Observer:
    """Reads a session while it happens: usage, steps and the final output; the events themselves stay on disk."""

    def __init__(
        self,
        output: Output,
        read: Callable[[bytes], Iterable[Event]],
        *,
        events_path: Path,
        watch: SessionLimits | None = None,
        then: Callable[[Event], None] | None = None,
        timed: bool = False,
        turn: ModelActivity | None = None,
        follower: LoadFollower | None = None,
    ) -> None:
        self.turn = turn or ModelActivity()
        # Of a session that ends as soon as it is known which skills load.
        self._follower = follower
        # The time for events that have none, if when they arrive says when they happened.
        self._timed = timed
        self._now: str | None = None
        self._arrivals = _Arrivals()
        self._output = output
        self._read = _read_event if output == "events" else read
        self._limits = watch or SessionLimits()
        self._then = then
        self._pending: list[bytes] = []
        self._lines = 0
        self._in_round = False
        self._said: str | None = None
        self._final: str | None = None
        # All of a text, and where it is, once it was asked for.
        self._text: tuple[Path, str] | None = None
        self._usage: dict[str, float] = {}
        self._derived: frozenset[str] = frozenset()
        self._skills = SkillWatch(self._limits.placed_skills, most=_EVIDENCE_KEPT)
        self._characters = _Characters(len(self._limits.prompt))
        self._events = _EventFile(events_path) if output == "records" else None
        # Until the first event shows whether a program that prints events tells their times.
        self._events_path = events_path if output == "events" else None
        self._taken: list[Event] = []
        self.steps = 0
        self.unreadable: SessionUnreadable | None = None
        self.started = SessionStarted()
        self.ended: SessionEnded | None = None
        # The last trouble, unless the model has said or done something since.
        self.trouble: Trouble | None = None

    def feed(self, data: bytes) -> None:
        """Take the next piece of output, which arrives now; raises if the agent goes beyond its steps."""
        self._feed(data, self._arrivals.note(len(data)) if self._timed else None)

    def _feed(self, data: bytes, at: str | None) -> None:
        if self._output == "text" and self._then is None:
            return
        self._now = at
        *lines, rest = data.split(b"\n")
        if lines and self._pending:
            lines[0] = b"".join((*self._pending, lines[0]))
            self._pending.clear()
        if rest:
            self._pending.append(rest)
        self._take_lines(lines)

    def finish(self) -> None:
        """Take the last line, which may have no end; of an agent that whet ended, it is only a beginning."""
        if self._follower is not None and self._follower.why is not None:
            self._pending.clear()
        if self._pending:
            whole = b"".join(self._pending)
            self._pending.clear()
            self._take_lines([whole])

    def close(self) -> None:
        """Write what is left, and close the file of events."""
        self._write()
        if self._events:
            self._events.close()

    def read_again(self, file: BinaryIO, again: Observer) -> None:
        """Give *again* the output, which is in *file*, with the times at which it arrived."""
        for data, at in self._arrivals.read(file):
            again._feed(data, at)
        again.finish()

    def adopt(self, again: Observer) -> None:
        """Take the figures of a second reading, which knew more; raises if they are beyond the budget."""
        self.steps, self._usage, self._derived = again.steps, again._usage, again._derived
        self._skills, self._characters = again._skills, again._characters
        self._require_budget()

    def usage(self) -> Usage:
        """Return what the agent reported; a figure that it never mentioned stays unknown."""
        return priced(sourced(self._derived, **self._usage), self.started.model or self._limits.model)

    def usage_or_guess(self, transcript: Path) -> Usage:
        """Return what the agent reported, or a guess if it does not report tokens at all."""
        reported = self.usage()
        if any(getattr(reported, name) is not None for name in TOKEN_FIGURES):
            return reported
        guess = self._characters.guess()
        if self._output == "text":
            guess = guessed(len(self._limits.prompt), len(self.final_output(transcript)))
        return replace(guess, cost_usd=reported.cost_usd, cost_source=reported.cost_source)

    @property
    def tells_loads(self) -> bool:
        """Whether a skill that the agent loads would be seen.

        An adapter reads all that its agent does. A program that prints our events chooses what it reports, so it has to
        have reported something that is read, run or offered; one that prints text reports nothing.
        """
        return self._output == "records" or (self._output == "events" and self._skills.informed)

    def detected_skills(self) -> tuple[SkillDetection, ...]:
        """The skills that were used, each with its best evidence."""
        return self._skills.found()

    def final_output(self, transcript: Path) -> str:
        """Return the answer: all of a text, the announced final output, or the last message that is not a thought."""
        if self._output == "text":
            if self._text is None or self._text[0] != transcript:
                text = transcript.read_bytes().decode("utf-8", "replace") if transcript.exists() else ""
                self._text = transcript, text.rstrip("\r\n")
            return self._text[1]
        return self._final if self._final is not None else (self._said or "")

    def take(self, event: Event) -> None:
        """Count one event, which was seen elsewhere than in the output."""
        self._now = moment(_now_ms()) if self._timed else None
        self._take(event)

    def _take(self, event: Event) -> None:
        if event.at is None and self._now is not None:
            # The event is ours alone, and a copy would take longer than all else about it.
            force_setattr(event, "at", self._now)
            if self._events is None and self._events_path is not None:
                # The transcript has no times, so it cannot be the file of events.
                self._events = _EventFile(self._events_path)
        self._events_path = None
        self._taken.append(event)
        if len(self._taken) >= _MOST_UNWRITTEN:
            self._write()
        if self._then:
            self._then(event)
        self._skills.take(event)
        count = self._COUNTS.get(type(event))
        if count:
            count(self, event)
        if self._follower is not None:
            self._follower.take(event)
            self._follower.look(loaded=self._skills.loaded(), rounds=self.steps, tells=self.tells_loads, event=event)

    def _take_lines(self, lines: list[bytes]) -> None:
        """Take *lines*, and write their events together."""
        try:
            for line in lines:
                self._lines += 1
                if line and not line.isspace():
                    self._take_line(line)
        finally:
            self._write()

    def _write(self) -> None:
        if self._events and self._taken:
            self._events.write(self._taken)
        self._taken.clear()

    def _take_line(self, line: bytes) -> None:
        if self._output == "text":
            if self._then:
                self._then(Message(role="assistant", text=line.decode("utf-8", "replace")))
            return
        try:
            for event in self._read(line):
                self._take(event)
        except WireError as error:
            self.unreadable = self.unreadable or _unreadable(self._lines, line, error)

    def _on_message(self, event: Message) -> None:
        if event.role != "assistant":
            self._in_round = False
            return
        self._begin_round()
        self.turn.answered()
        self._characters.wrote(event.text)
        if event.phase != "thinking":
            self._said = event.text

    def _on_call(self, event: ToolCall) -> None:
        self._begin_round()
        self.turn.called(event.id)
        self._characters.wrote(event.args)

    def _on_result(self, event: ToolResult) -> None:
        self._in_round = False
        self.turn.returned(event.id)
        self._characters.heard(event.output)

    def _on_final_output(self, event: FinalOutput) -> None:
        self._final = event.text

    def _on_start(self, event: SessionStarted) -> None:
        self.started = _merged(self.started, event)

    def _on_end(self, event: SessionEnded) -> None:
        self.ended = event
        self.turn.ended()

    def _on_trouble(self, event: Trouble) -> None:
        self.trouble = event
        self.turn.troubled(event)

    def _begin_round(self) -> None:
        """A model round begins with the first thing that the model says after it has read something."""
        self.trouble = None
        if self._in_round:
            return
        self._in_round = True
        self._characters.round()
        self.steps += 1
        if self._follower is not None:
            self._follower.begin_round()
        most = self._limits.max_steps
        if most is not None and self.steps > most:
            raise StepLimitReached(f"began step {self.steps} and may take {most}")

    def _on_usage(self, seen: UsageSeen) -> None:
        figures = {name: value for name in USAGE_FIGURES if (value := getattr(seen, name)) is not None}
        negative = next((name for name, value in figures.items() if value < 0), None)
        if negative and self._output == "events":
            raise WireError(f"{negative} cannot be negative")
        for name, value in figures.items():
            if value >= 0:
                self._usage[name] = add_figures(self._usage.get(name, 0), value)
        self._derived |= frozenset(seen.derived)
        if seen.cost_usd is None and (self.started.model or self._limits.model):
            load_prices()
        self._require_budget()

    def _require_budget(self) -> None:
        budget = self._limits.budget_usd
        if budget is not None and (spent := self._spent()) is not None and spent > budget + ROUNDING_USD:
            raise MoneySpent(f"has spent ${spent:.6g} of a budget of ${budget:g}")

    def _spent(self) -> float | None:
        """Return the least that it costs so far: some agents report what they read long before what they wrote."""
        usage = self.usage()
        if usage.cost_usd is None and usage.input_tokens is not None and usage.output_tokens is None:
            usage = priced(replace(usage, output_tokens=0), self.started.model or self._limits.model)
        return usage.cost_usd

    # By type, which is quicker than a match: there may be a million of them.
    _COUNTS: ClassVar[dict[type[Event], Callable[[Observer, Any], None]]] = {
        Message: _on_message,
        ToolCall: _on_call,
        ToolResult: _on_result,
        UsageSeen: _on_usage,
        FinalOutput: _on_final_output,
        SessionStarted: _on_start,
        SessionEnded: _on_end,
        Trouble: _on_trouble,
    }


def _read_event(line: bytes) -> Iterable[Event]:
    """Return the event of a line that is one of our own events."""
    return (decode_event(line),)


def _merged(known: SessionStarted, more: SessionStarted) -> SessionStarted:
    """Merge what several records say about the start of a session."""
    return SessionStarted(
        session_id=more.session_id or known.session_id,
        model=more.model or known.model,
        version=more.version or known.version,
        skills=(*known.skills, *more.skills),
    )


def _unreadable(number: int, line: bytes, error: WireError) -> SessionUnreadable:
    shown = line[:_LINE_SHOWN].decode("utf-8", "replace")
    named = str(error).split('"')[1] if str(error).startswith("no event is called") else ""
    hint = did_you_mean(named, EVENT_NAMES) or "print one event per line on stdout, and anything else on stderr"
    return SessionUnreadable(f"line {number} of its output is not a session event: {error}: {shown}", hint=hint)

"""Reading a session: words are held back until it is known whether they were the last; totals become differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from whet.agents.records import amount, as_text, look, number, text
from whet.agents.tools import Calls
from whet.model.session import (
    Event,
    FinalOutput,
    Message,
    MessagePhase,
    Trouble,
    TroubleKind,
    UsageSeen,
)


class Reading(Calls):
    """Calls, and words that are held back until it is known whether they were the last."""

    def __init__(self, workspace: str = "") -> None:
        super().__init__(workspace)
        self._held: Message | None = None
        self._last: str | None = None

    def began(self, call_id: Any, tool: Any, args: Any, *, at: Any = None) -> Iterator[Event]:
        """Words before a call were not the last."""
        yield from self.settle()
        yield from super().began(call_id, tool, args, at=at)

    def ended(self, call_id: Any, **told: Any) -> Iterator[Event]:
        """Nor were words before a result."""
        yield from self.settle()
        yield from super().ended(call_id, **told)

    def left(self) -> Iterator[Event]:
        """Words after which nothing came were not an answer, or it would have been announced."""
        yield from self.settle()
        yield from super().left()

    def thought(self, words: Any, *, at: Any = None) -> Iterator[Event]:
        """The model thought."""
        thought = text(words)
        if thought:
            yield from self.settle()
            yield Message(role="assistant", phase="thinking", text=thought, at=text(at))

    def said(self, words: Any, *, at: Any = None) -> Iterator[Event]:
        """The model said something."""
        said = text(words)
        if said:
            yield from self.settle()
            self._held = Message(role="assistant", text=said, at=text(at))

    def blocks(self, content: list[Any], *, at: Any = None) -> Iterator[Event]:
        """A reply in blocks: thoughts, words and calls."""
        for block in content:
            match look(block, "type"):
                case "thinking":
                    yield from self.thought(look(block, "thinking"), at=at)
                case "text":
                    yield from self.said(look(block, "text"), at=at)
                case "tool_use":
                    yield from self.began(look(block, "id"), look(block, "name"), look(block, "input"), at=at)
                case _:
                    pass

    def trouble(self, message: Any, kind: TroubleKind, status: Any = None, *, at: Any = None) -> Iterator[Event]:
        """Something went wrong; it comes after the words that were held back, since those do not show it overcome."""
        yield from self.settle()
        yield Trouble(message=as_text(message) or kind, kind=kind, status=number(status), at=text(at))

    def answered(self, words: Any = None, *, at: Any = None) -> Iterator[Event]:
        """The session ended well: what was said last is the answer, unless the agent names another."""
        yield from self.settle(final=True)
        answer = text(words) or self._last
        if answer is not None:
            yield FinalOutput(text=answer, at=text(at))

    def settle(self, *, final: bool = False) -> Iterator[Event]:
        """Pass on the words that were held back, now that it is known what they were."""
        held, self._held = self._held, None
        if held is not None:
            self._last = held.text
            phase: MessagePhase = "final" if final else "commentary"
            yield Message(role="assistant", phase=phase, text=held.text, at=held.at)


class Spending:
    """Tokens and money told so far, so that totals which come later are not counted twice."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def more(self, **amounts: Any) -> Iterator[Event]:
        """So much more was spent; the names are those of `UsageSeen`."""
        known = {name: value for name, value in amounts.items() if amount(value) is not None}
        for name, value in known.items():
            self._told[name] = self._told.get(name, 0) + value
        if known:
            yield UsageSeen(**known)

    def total(self, **amounts: Any) -> Iterator[Event]:
        """So much was spent in all; what was told before is part of it."""
        known = {name: value for name, value in amounts.items() if amount(value) is not None}
        yield from self.more(**{name: max(0, value - self._told.get(name, 0)) for name, value in known.items()})

    def anew(self) -> None:
        """Later totals begin at nothing."""
        self._told.clear()

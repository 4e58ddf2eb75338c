"""Reading a session: words are held back until it is known whether they were the last; totals become differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from whet.agents.base import Resume
from whet.agents.records import amount, as_text, look, number, text
from whet.agents.tools import Calls
from whet.model.session import (
    USAGE_FIGURES,
    Event,
    FinalOutput,
    Message,
    Trouble,
    TroubleKind,
    UsageSeen,
)


class Reading(Calls):
    """Calls, and words that are held back until it is known whether they were the last."""

    def __init__(self, workspace: str = "") -> None:
        super().__init__(workspace)
        # Words, and when they were said.
        self._held: tuple[str, str | None] | None = None
        self._last: str | None = None

    def began(self, call_id: Any, tool: Any, args: Any, *, at: str | None = None) -> list[Event]:
        """Words before a call were not the last."""
        return self.settle() + super().began(call_id, tool, args, at=at)

    def ended(self, call_id: Any, **told: Any) -> list[Event]:
        """Nor were words before a result."""
        return self.settle() + super().ended(call_id, **told)

    def left(self) -> list[Event]:
        """Words after which nothing came were not an answer, or it would have been announced."""
        return self.settle() + super().left()

    def thought(self, words: Any, *, at: str | None = None) -> list[Event]:
        """The model thought."""
        thought = text(words)
        if not thought:
            return []
        return [*self.settle(), Message(role="assistant", phase="thinking", text=thought, at=at)]

    def said(self, words: Any, *, at: str | None = None) -> list[Event]:
        """The model said something."""
        said = text(words)
        if not said:
            return []
        before, self._held = self.settle(), (said, at)
        return before

    def blocks(self, content: list[Any], *, at: str | None = None) -> Iterator[Event]:
        """A reply in blocks: thoughts, words and calls."""
        for block in content:
            match look(block, "type"):
                case "thinking":
                    yield from self.thought(block.get("thinking"), at=at)
                case "text":
                    yield from self.said(block.get("text"), at=at)
                case "tool_use":
                    yield from self.began(block.get("id"), block.get("name"), block.get("input"), at=at)
                case _:
                    pass

    def trouble(self, message: Any, kind: TroubleKind, status: Any = None, *, at: str | None = None) -> list[Event]:
        """Something went wrong; it comes after the words that were held back, since those do not show it overcome."""
        happened = Trouble(message=as_text(message) or kind, kind=kind, status=number(status), at=at)
        return [*self.settle(), happened]

    def answered(self, words: Any = None, *, at: str | None = None) -> list[Event]:
        """The session ended well: what was said last is the answer, unless the agent names another."""
        before = self.settle(final=True)
        answer = text(words) or self._last
        return before if answer is None else [*before, FinalOutput(text=answer, at=at)]

    def settle(self, *, final: bool = False) -> list[Event]:
        """Pass on the words that were held back, now that it is known what they were."""
        if self._held is None:
            return []
        (self._last, at), self._held = self._held, None
        return [Message(role="assistant", phase="final" if final else "commentary", text=self._last, at=at)]


class Spending:
    """Tokens and money told so far, so that totals which come later are not counted twice."""

    def __init__(self, *, derived: tuple[str, ...] = ()) -> None:
        self._told: dict[str, float] = {}
        # The figures that an agent does not tell as we count them.
        self._derives = derived
        self._unsure: frozenset[str] = frozenset()

    def resumed(self, earlier: Resume | None) -> None:
        """Totals go on from those of *earlier*; where that told no figure, later totals of it say nothing."""
        before = {name: earlier.usage.told(name) for name in USAGE_FIGURES} if earlier else {}
        if earlier and earlier.usage.cost_source != "agent":
            before["cost_usd"] = None
        self._told = {name: value for name, value in before.items() if value is not None}
        self._unsure = frozenset(before) - frozenset(self._told)

    def more(self, **amounts: Any) -> Iterator[Event]:
        """So much more was spent; the names are those of `UsageSeen`."""
        known = {name: value for name, value in amounts.items() if amount(value) is not None}
        for name, value in known.items():
            self._told[name] = self._told.get(name, 0) + value
        if known:
            yield UsageSeen(**known, derived=tuple(name for name in self._derives if name in known))

    def total(self, **amounts: Any) -> Iterator[Event]:
        """So much was spent in all; what was told before is part of it."""
        sure = {name: value for name, value in amounts.items() if name not in self._unsure}
        known = {name: value for name, value in sure.items() if amount(value) is not None}
        yield from self.more(**{name: max(0, value - self._told.get(name, 0)) for name, value in known.items()})

    def anew(self) -> None:
        """Later totals begin at nothing."""
        self._told.clear()

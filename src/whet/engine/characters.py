"""How many characters went to and from a model: all there is to guess from where an agent does not tell tokens."""

from __future__ import annotations

from whet.model.session import Event, Message, ToolCall, ToolResult, Usage
from whet.model.usage import guessed


class Characters:
    """Counts as a provider does: every round reads all that was said before. What no event shows is not counted."""

    def __init__(self, prompt: int) -> None:
        self._context = prompt
        self._read = 0
        self._written = 0
        self._in_round = False

    def take(self, event: Event) -> None:
        """Count one event in."""
        match event:
            case Message(role="assistant", text=text):
                self.round()
                self.wrote(len(text))
            case ToolCall(args=args):
                self.round()
                self.wrote(_size(args))
            case ToolResult(output=output):
                self._in_round = False
                self._context += len(output)
            case _:
                pass

    def round(self) -> None:
        """The model is asked, unless it is still speaking."""
        if not self._in_round:
            self._in_round = True
            self._read += self._context

    def wrote(self, characters: int) -> None:
        """The model wrote so much."""
        self._written += characters
        self._context += characters

    def guess(self) -> Usage:
        """Tokens, by what is usual."""
        return guessed(self._read, self._written)


def _size(args: object) -> int:
    values = args.values() if isinstance(args, dict) else (args,)
    return sum(len(value) for value in values if isinstance(value, str))

"""How many characters went to and from a model: all there is to guess from where an agent does not tell tokens."""

from __future__ import annotations

from typing import Any

from whet.model.session import Usage
from whet.model.usage import guessed


class Characters:
    """Counts as a provider does: every round reads all that was said before. What no event shows is not counted."""

    def __init__(self, prompt: int) -> None:
        self._context = prompt
        self._read = 0
        self._written = 0

    def round(self) -> None:
        """The model is asked."""
        self._read += self._context

    def wrote(self, said: Any) -> None:
        """The model wrote a text, or the arguments of a call."""
        size = len(said) if isinstance(said, str) else _size(said)
        self._written += size
        self._context += size

    def heard(self, text: str) -> None:
        """The model was told something."""
        self._context += len(text)

    def guess(self) -> Usage:
        """Tokens, by what is usual."""
        return guessed(self._read, self._written)


def _size(args: Any) -> int:
    return sum(len(value) for value in args.values() if isinstance(value, str)) if isinstance(args, dict) else 0

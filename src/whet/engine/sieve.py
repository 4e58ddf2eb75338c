"""Signs among the lines of an agent's output: they are looked at as they pass, and kept where they are not mere log."""

from __future__ import annotations

from collections.abc import Callable

from whet.agents.base import Meaning, Signs
from whet.agents.records import status_kind
from whet.mask import Masker
from whet.model.session import Trouble
from whet.sandbox.base import Sink

# So much of a line is enough to know it by; the rest of a long one is not held back.
_HEAD = 1024


class Sieve:
    """A sink that passes lines on to another one, but for signs that are not to be kept."""

    def __init__(
        self,
        signs: Signs,
        then: Sink,
        *,
        masker: Masker,
        sign: Callable[[Meaning], None],
        trouble: Callable[[Trouble], None],
    ) -> None:
        self._signs, self._then = signs, then
        self._masker, self._sign, self._trouble = masker, sign, trouble
        self._head = b""
        self._passing: list[bytes] = []
        # Whether the line that has begun is kept; not known before enough of it has come.
        self._keeps: bool | None = None

    def __call__(self, chunk: bytes) -> None:
        """Take the next piece of output."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._take(line + b"\n", ends=True)
        if rest:
            self._take(rest, ends=False)
        self._pass_on()

    def finish(self) -> None:
        """Take the last line, which may have no end."""
        self._take(b"", ends=True)
        self._pass_on()

    def _take(self, piece: bytes, *, ends: bool) -> None:
        if self._keeps is None:
            self._head += piece
            if not ends and len(self._head) < _HEAD:
                return
            piece, self._head = self._head, b""
            self._keeps = self._look(piece)
        if self._keeps:
            self._passing.append(piece)
        if ends:
            self._keeps = None

    def _pass_on(self) -> None:
        if passed := b"".join(self._passing):
            self._passing.clear()
            self._then(passed)

    def _look(self, head: bytes) -> bool:
        """Take note of a sign; whether its line is kept."""
        found = self._signs.line.match(head)
        if found is None:
            return True
        named = found.groupdict()
        if what := named.get("what"):
            # What was printed before it happened before it.
            self._pass_on()
            meaning = self._signs.means.get(what, "speaking")
            if meaning == "trouble":
                self._trouble(self._troubled(named, head))
            else:
                self._sign(meaning)
        return self._signs.kept

    def _troubled(self, named: dict[str, bytes | None], head: bytes) -> Trouble:
        """Trouble by the program's own word; without a status, nobody answered."""
        status = int(named.get("status") or 0) or None
        said = (named.get("said") or head).decode("utf-8", "replace").strip()
        kind = status_kind(status) if status else "network"
        return Trouble(message=self._masker.text(said), kind=kind, status=status)

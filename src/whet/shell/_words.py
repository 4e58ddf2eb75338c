"""The words of a shell line: quotes, escapes and expansions, each read once and from left to right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from whet.shell._arguments import decode_ansi

# Deeper nesting is read flat, because every level costs stack.
MAX_DEPTH = 32
# Telling `((1 + 2))` from two subshells needs a look ahead; a hostile line may not ask for it at every character.
_LOOKS_AHEAD = 64
_FURTHEST_LOOK = 2_000

_PLAIN = re.compile(r"""[^ \t\r\n'"\\$`|&;()<>]+""")
_IN_DOUBLE = re.compile(r"""[^"\\$`]+""")
_IN_BRACES = re.compile(r"""[^}'"\\$`]+""")
_IN_ARITHMETIC = re.compile(r"""[^()'"\\$`]+""")
_ANSI = re.compile(r"\$'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL)
_BACKQUOTED = re.compile(r"`([^`\\]*(?:\\.[^`\\]*)*)`", re.DOTALL)
_PARENTHESIS = re.compile(r"[()]")
_BLANK = re.compile(r"(?:[ \t\r\n]|\\\n|#[^\n]*)+")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\[[A-Za-z0-9_@*.-]*\])?\+?)=")


# The subshells around something, outermost first, each by its place in the text: a `cd` counts only there.
Scope: TypeAlias = tuple[int, ...]


class Unterminated(Exception):
    """A quote or a brace that nothing closes; the reading starts again and takes it literally."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class NestedText(Struct):
    """Text inside the line that is read on its own: backquotes, or a here-document with expansions."""

    text: str
    depth: int
    is_document: bool = False
    scope: Scope = ()


class WordScanner:
    """Reads one word at a time; the text of substitutions goes to `commands`."""

    def __init__(self, text: str, *, depth: int, literal: frozenset[int], careless: bool, scope: Scope = ()) -> None:
        self.text = text
        self.end = len(text)
        self.pos = 0
        self.depth = depth
        # How much of MAX_DEPTH is used: substitutions count for both, braces and arrays only here.
        self.level = depth
        self.scope = scope
        self.literal = literal
        self.careless = careless
        self.looks = _LOOKS_AHEAD
        self._readers: dict[str, Callable[[], str]] = {
            "'": self._single,
            '"': self._double,
            "\\": self._escape,
            "$": self._dollar,
            "`": self._backquote,
        }

    def commands(self, closer: str) -> None:
        """Reads commands up to *closer*."""
        raise NotImplementedError

    def found(self, nested: NestedText) -> None:
        """Takes note of text to be read on its own."""
        raise NotImplementedError

    def word(self) -> str:
        """Return the word that begins here, without its quotes; empty if none begins."""
        parts: list[str] = []
        start = self.pos
        while self.pos < self.end:
            run = _PLAIN.match(self.text, self.pos)
            part = self._take(run.end() - run.start()) if run else self._part(start)
            if part is None:
                break
            parts.append(part)
        return "".join(parts)

    def quoted(self, closer: str) -> str:
        """Return what is between double quotes, or in a here-document, up to *closer*."""
        parts: list[str] = []
        while self.pos < self.end:
            run = _IN_DOUBLE.match(self.text, self.pos)
            if run:
                parts.append(self._take(run.end() - run.start()))
            elif self.text[self.pos] == closer:
                break
            else:
                parts.append(self._quoted_part())
        return "".join(parts)

    def arithmetic(self) -> None:
        """Reads past the `))` that ends an arithmetic expression."""
        depth = 0
        while self.pos < self.end:
            run = _IN_ARITHMETIC.match(self.text, self.pos)
            if run:
                self.pos = run.end()
            elif depth == 0 and self.text.startswith("))", self.pos):
                self.pos += 2
                return
            elif self.text[self.pos] in "()":
                depth = max(0, depth + (1 if self.text[self.pos] == "(" else -1))
                self.pos += 1
            else:
                self._quoted_part()

    def is_arithmetic(self, position: int) -> bool:
        """Return whether the `((` at *position* is arithmetic, by the rule of bash: the second one closes as `))`."""
        if self.looks <= 0:
            return False
        self.looks -= 1
        depth = 0
        for parenthesis in _PARENTHESIS.finditer(self.text, position, min(self.end, position + _FURTHEST_LOOK)):
            depth += 1 if parenthesis[0] == "(" else -1
            if depth == 1 and parenthesis[0] == ")":
                return self.text.startswith(")", parenthesis.end())
        return False

    def inner_scope(self, position: int) -> Scope:
        """Return the scope of a subshell that begins at *position*; very deep ones share one."""
        return (*self.scope, position) if len(self.scope) < MAX_DEPTH else self.scope

    def _take(self, count: int) -> str:
        start = self.pos
        self.pos = min(self.end, start + count)
        return self.text[start : self.pos]

    def _part(self, start: int) -> str | None:
        char = self.text[self.pos]
        read = self._readers.get(char)
        if read:
            return read()
        following = self.text[self.pos + 1 : self.pos + 2]
        if char in "<>" and following == "(" and self.level < MAX_DEPTH:
            return self._substitution()
        if char == "(" and self._is_array(start):
            return self._array()
        # A carriage return belongs to the end of its line, elsewhere it is a character like any other.
        return self._take(1) if char == "\r" and following not in ("", "\n") else None

    def _quoted_part(self) -> str:
        match self.text[self.pos]:
            case "$":
                return self._dollar(quoted=True)
            case "`":
                return self._backquote()
            case "\\":
                pair = self._take(2)
                if pair == "\\\n":
                    return ""
                if pair[1:] in ("$", "`", '"', "\\"):
                    return pair[1]
                return pair
        return self._take(1)

    def _single(self) -> str:
        closing = self.text.find("'", self.pos + 1)
        if closing < 0:
            return self._take(1)
        return self._take(closing + 1 - self.pos)[1:-1]

    def _double(self) -> str:
        opening = self.pos
        if opening in self.literal:
            return self._take(1)
        if self.careless:
            closing = self.text.find('"', opening + 1)
            return self._take(1) if closing < 0 else self._take(closing + 1 - opening)[1:-1]
        self.pos += 1
        inner = self.quoted('"')
        if self.pos >= self.end:
            raise Unterminated(opening)
        self.pos += 1
        return inner

    def _escape(self) -> str:
        pair = self._take(2)
        return "" if pair == "\\\n" else pair[1:] or pair

    def _dollar(self, *, quoted: bool = False) -> str:
        following = self.text[self.pos + 1 : self.pos + 2]
        if following == "(" and self.level < MAX_DEPTH:
            return self._substitution()
        if following == "{":
            return self._braces(quoted=quoted)
        if following == "'" and not quoted and (ansi := _ANSI.match(self.text, self.pos)):
            self.pos = ansi.end()
            return decode_ansi(ansi[1])
        if following == '"' and not quoted and self.pos + 1 not in self.literal:
            self.pos += 1
            return self._double()
        return self._take(1)

    def _substitution(self) -> str:
        start = self.pos
        if self.text.startswith("$((", start) and self.is_arithmetic(start + 1):
            self.pos += 3
            self.arithmetic()
        else:
            self.pos += 2
            self.depth += 1
            self.level += 1
            outside, self.scope = self.scope, self.inner_scope(start)
            self.commands(")")
            self.scope = outside
            self.depth -= 1
            self.level -= 1
        return self.text[start : self.pos]

    def _braces(self, *, quoted: bool) -> str:
        start = self.pos
        if start in self.literal or self.careless or self.level >= MAX_DEPTH:
            return self._take(1)
        self.pos += 2
        self.level += 1
        while self.pos < self.end:
            run = _IN_BRACES.match(self.text, self.pos)
            if run:
                self.pos = run.end()
                continue
            char = self.text[self.pos]
            if char == "}":
                self.pos += 1
                self.level -= 1
                return self.text[start : self.pos]
            if char == "'" and not quoted:
                self._single()
            elif char == '"':
                self._double()
            else:
                self._quoted_part()
        raise Unterminated(start)

    def _backquote(self) -> str:
        match = _BACKQUOTED.match(self.text, self.pos)
        if not match:
            return self._take(1)
        inner = re.sub(r"\\([\\`$])", r"\1", match[1])
        self.found(NestedText(inner, self.depth + 1, scope=self.inner_scope(self.pos)))
        return self._take(match.end() - match.start())

    def _is_array(self, start: int) -> bool:
        return self.level < MAX_DEPTH and bool(ASSIGNMENT.fullmatch(self.text, start, self.pos))

    def _array(self) -> str:
        start = self.pos
        self.pos += 1
        self.level += 1
        while self.pos < self.end and self.text[self.pos] != ")":
            before = self.pos
            if blank := _BLANK.match(self.text, before):
                self.pos = blank.end()
                continue
            self.word()
            if self.pos == before:
                self.pos += 1
        self.level -= 1
        self._take(1)
        return self.text[start : self.pos]

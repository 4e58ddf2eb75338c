"""The tags of templates: what stands between `{% if %}` or `{% for %}` and their ends, as a tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from whet.reading.text import shorten

_TOKEN = re.compile(r"\{\{(?P<value>[^{}]*)\}\}|\{%(?P<tag>[^{}]*)%\}|\{#[^#]*#\}")
# A dash beside a bracket takes the blanks on that side along.
_DASH_BEFORE, _DASH_AFTER = re.compile(r"(?<!\s)\s+(?=\{[{%]-)"), re.compile(r"(-[}%]\})\s+")
_OPEN = re.compile(r"\{\{|\{%|\{#")
_FOR = re.compile(r"(\w+)(?:\s*,\s*(\w+))?\s+in\s+(.+)")
_DEEPEST = 20
_SHOWN = 60


class UnfilledTemplate(Exception):
    """Why a template cannot be filled in, such as: has {% macro %} in it, which whet does not read."""


class Value(Struct, frozen=True):
    """An expression whose value stands in its place."""

    expression: str


class Choice(Struct, frozen=True):
    """The first of several parts whose condition is true; that of `else` has none."""

    branches: tuple[tuple[str | None, tuple[Part, ...]], ...]


class Loop(Struct, frozen=True):
    """A part that is there once for each item; of an object, there are two names, for the key and the value."""

    names: tuple[str, ...]
    items: str
    body: tuple[Part, ...]


Part: TypeAlias = str | Value | Choice | Loop


class _Token(Struct, frozen=True):
    kind: str
    text: str

    @property
    def word(self) -> str:
        """The first word of a tag."""
        return self.text.partition(" ")[0] if self.kind == "tag" else ""


def parse(text: str) -> tuple[Part, ...]:
    """Return the parts of a template; raises `UnfilledTemplate`."""
    parser = _Parser(list(_tokens(text)))
    parts = parser.parts(())
    if parser.token is not None:
        raise _unread(parser.token)
    return parts


def _tokens(text: str) -> Iterator[_Token]:
    text = _DASH_AFTER.sub(r"\1", _DASH_BEFORE.sub("", text))
    end = 0
    for hit in _TOKEN.finditer(text):
        yield _plain(text[end : hit.start()])
        end = hit.end()
        if hit["value"] is not None:
            yield _Token("value", hit["value"].strip("-").strip())
        elif hit["tag"] is not None:
            yield _Token("tag", " ".join(hit["tag"].strip("-").split()))
    yield _plain(text[end:])


def _plain(text: str) -> _Token:
    if opened := _OPEN.search(text):
        raise UnfilledTemplate(f"has {shorten(text[opened.start() :], _SHOWN)} in it, which does not end")
    return _Token("text", text)


def _unread(token: _Token) -> UnfilledTemplate:
    return UnfilledTemplate(f"has {{% {shorten(token.text, _SHOWN)} %}} in it, which whet does not read")


class _Parser:
    """Reads the tokens of a template from the first to the last."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._place = 0
        self._depth = 0

    @property
    def token(self) -> _Token | None:
        """The token that is read next; None at the end."""
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def parts(self, ends: tuple[str, ...]) -> tuple[Part, ...]:
        """Return what stands before the next tag that begins with one of *ends*."""
        parts: list[Part] = []
        while (token := self.token) is not None and token.word not in ends:
            self._place += 1
            match token.kind, token.word:
                case "text", _:
                    parts.append(token.text)
                case "value", _:
                    parts.append(Value(token.text))
                case _, "if":
                    parts.append(self._choice(token))
                case _, "for":
                    parts.append(self._loop(token))
                case _:
                    raise _unread(token)
        return tuple(parts)

    def _choice(self, token: _Token) -> Choice:
        branches: list[tuple[str | None, tuple[Part, ...]]] = []
        condition: str | None = token.text.removeprefix("if").strip()
        while True:
            branches.append((condition, self._inside(token, ("elif", "elseif", "else", "endif"))))
            following = self._next(token)
            if following.word == "endif":
                return Choice(tuple(branches))
            words = following.text.partition(" ")[2]
            condition = None if following.word == "else" else words

    def _loop(self, token: _Token) -> Loop:
        loop_head = _FOR.fullmatch(token.text.removeprefix("for").strip())
        if loop_head is None:
            raise _unread(token)
        loop = Loop(tuple(filter(None, (loop_head[1], loop_head[2]))), loop_head[3], ())
        loop = replace(loop, body=self._inside(token, ("endfor",)))
        self._next(token)
        return loop

    def _inside(self, token: _Token, ends: tuple[str, ...]) -> tuple[Part, ...]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _unread(token)
        parts = self.parts(ends)
        self._depth -= 1
        return parts

    def _next(self, opening: _Token) -> _Token:
        token = self.token
        if token is None:
            raise UnfilledTemplate(f"has {{% {shorten(opening.text, _SHOWN)} %}} in it, which does not end")
        self._place += 1
        return token

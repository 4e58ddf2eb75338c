"""The commands of a shell line: operators, keywords, redirections and here-documents; every line has a reading."""

from __future__ import annotations

import re

from msgspec import Struct, field

from whet.shell._words import ASSIGNMENT, NestedText, Scope, Unterminated, WordScanner

# Each try takes one more quote literally; a text with more of them is read loosely, a long one sooner.
_TRIES, _TRIES_IF_LONG = 8, 2
_LONG = 4_000

_REDIRECTION = re.compile(
    r"(?:\d+|\{[A-Za-z_]\w*\})?(?P<operator><<<|<<-|<<|<>|<&|<(?!\()|>>|>&|>\||>(?!\()|&>>|&>)", re.ASCII
)
_MAY_REDIRECT = frozenset("<>&{0123456789")
_OPERATOR = re.compile(r";;&|;;|;&|;|&&|&|\|\||\|&|\||\(|\)")
_BLANKS = re.compile(r"(?:[ \t]|\\\n|\r(?=\n|\Z))+")
_COMMENT = re.compile(r"#[^\n]*")
_NO_ARGUMENTS = re.compile(r"\([ \t]*\)")
_FUNCTION = re.compile(r"[ \t]+[^\s(){};|&<>]+(?:[ \t]*\([ \t]*\))?")
_COPROCESS = re.compile(r"(?:[ \t]+\w+(?=[ \t]+[{(]))?")
# Before a compound command `time` is a keyword; before a simple one it is read as the wrapper it is.
_TIMED = re.compile(r"(?:[ \t]+-p)?[ \t]*(?=\(|[ \t](?:[{!]|if|for|while|until|case|select|\[\[)[ \t])")
_PREFIXES = {"function": _FUNCTION, "coproc": _COPROCESS, "time": _TIMED}
_HEADS = {"for": "do", "select": "do", "case": "in"}
_SKIPPED = frozenset(("!", "{", "}", "if", "then", "else", "elif", "fi", "do", "done", "while", "until"))


class Draft(Struct):
    """A command that is being read; with `until`, the head of a loop or a case, which is not a command."""

    start: int
    finish: int = 0
    until: str = ""
    words: list[str] = field(default_factory=list)
    env: list[tuple[str, str]] = field(default_factory=list)
    redirections: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    depth: int = 0
    raw: str = ""
    scope: Scope = ()


class _HereDocument(Struct):
    draft: Draft
    delimiter: str
    strips_tabs: bool
    expands: bool


class _Frame(Struct):
    """The state of one list of commands."""

    closer: str
    draft: Draft | None = None
    # One entry for every open parenthesis: what was around it.
    groups: list[Scope] = field(default_factory=list)
    # One entry for every open `case`: whether patterns come next.
    cases: list[bool] = field(default_factory=list)
    in_test: bool = False

    def end_command(self) -> None:
        self.draft = None
        self.in_test = False

    @property
    def in_pattern(self) -> bool:
        return bool(self.cases) and self.cases[-1]


class CommandScanner(WordScanner):
    """Reads a text into drafts and nested texts, in the order in which they begin."""

    def __init__(self, text: str, *, depth: int, literal: frozenset[int], careless: bool, scope: Scope = ()) -> None:
        super().__init__(text, depth=depth, literal=literal, careless=careless, scope=scope)
        self.items: list[Draft | NestedText] = []
        self.awaited: list[_HereDocument] = []

    def found(self, nested: NestedText) -> None:
        """Keeps *nested* in its place among the commands."""
        self.items.append(nested)

    def commands(self, closer: str) -> None:
        """Reads commands up to *closer* or to the end."""
        frame = _Frame(closer)
        while self.pos < self.end:
            blank = _BLANKS.match(self.text, self.pos) or _COMMENT.match(self.text, self.pos)
            if blank:
                self.pos = blank.end()
            elif self.text[self.pos] == "\n":
                frame.end_command()
                self.pos += 1
                self._read_documents()
            elif redirection := self._redirection(frame):
                self._redirect(frame, redirection)
            elif operator := _OPERATOR.match(self.text, self.pos):
                if self._operate(frame, operator[0]):
                    return
            else:
                self._argue(frame)

    def _redirection(self, frame: _Frame) -> re.Match[str] | None:
        if frame.in_test or self.text[self.pos] not in _MAY_REDIRECT:
            return None
        return _REDIRECTION.match(self.text, self.pos)

    def _begin(self, frame: _Frame, start: int, place: int) -> Draft:
        draft = frame.draft
        if draft is None:
            draft = frame.draft = Draft(start, depth=self.depth, scope=self.scope)
            self.items.insert(place, draft)
        return draft

    def _redirect(self, frame: _Frame, match: re.Match[str]) -> None:
        draft = self._begin(frame, self.pos, len(self.items))
        self.pos = match.end()
        if blanks := _BLANKS.match(self.text, self.pos):
            self.pos = blanks.end()
        start = self.pos
        target = self.word()
        draft.redirections.append(match[0] + target)
        draft.finish = self.pos
        if match["operator"] in ("<<", "<<-") and self.pos > start:
            expands = not any(char in "'\"\\" for char in self.text[start : self.pos])
            self.awaited.append(_HereDocument(draft, target, match["operator"] == "<<-", expands))

    def _operate(self, frame: _Frame, operator: str) -> bool:
        """Return whether *operator* closes the list."""
        self.pos += len(operator)
        if frame.in_test and frame.draft and operator not in (";", "&"):
            frame.draft.words.append(operator)
            frame.draft.finish = self.pos
        elif operator == "(":
            self._open(frame)
        elif operator == ")":
            return self._close(frame)
        else:
            frame.end_command()
            if operator in (";;", ";&", ";;&") and frame.cases:
                frame.cases[-1] = True
        return False

    def _open(self, frame: _Frame) -> None:
        draft = frame.draft
        if frame.in_pattern:
            return
        if draft and not draft.until and len(draft.words) == 1 and not draft.env:
            if no_arguments := _NO_ARGUMENTS.match(self.text, self.pos - 1):
                # `name ()` defines a function: its body is read, its name was not run.
                draft.words.clear()
                self.pos = no_arguments.end()
                frame.end_command()
                return
        elif (
            (draft is None or draft.until) and self.text.startswith("(", self.pos) and self.is_arithmetic(self.pos - 1)
        ):
            self.pos += 1
            self.arithmetic()
            return
        frame.end_command()
        frame.groups.append(self.scope)
        self.scope = self.inner_scope(self.pos - 1)

    def _close(self, frame: _Frame) -> bool:
        frame.end_command()
        if frame.in_pattern:
            frame.cases[-1] = False
            return False
        if frame.groups:
            self.scope = frame.groups.pop()
            return False
        return frame.closer == ")"

    def _argue(self, frame: _Frame) -> None:
        start, place = self.pos, len(self.items)
        value = self.word()
        raw = self.text[start : self.pos]
        if not raw:
            self.pos += 1
        elif frame.in_pattern:
            if raw == "esac":
                frame.cases.pop()
        elif frame.draft is None and self._is_keyword(frame, raw):
            return
        elif frame.draft and raw == frame.draft.until:
            if raw == "in":
                frame.cases.append(True)
            frame.end_command()
        else:
            self._add(self._begin(frame, start, place), raw, value)
            if frame.in_test and raw == "]]":
                frame.end_command()

    def _add(self, draft: Draft, raw: str, value: str) -> None:
        assignment = None if draft.words or draft.until else ASSIGNMENT.match(raw)
        if assignment:
            draft.env.append((assignment[1], value[assignment.end() :]))
        else:
            draft.words.append(value)
        draft.finish = self.pos

    def _is_keyword(self, frame: _Frame, raw: str) -> bool:
        if raw in _PREFIXES:
            return self._skip(_PREFIXES[raw])
        if raw in _HEADS:
            frame.draft = Draft(self.pos, until=_HEADS[raw])
            return True
        if raw == "esac" and frame.cases:
            frame.cases.pop()
            return True
        frame.in_test = raw == "[["
        return raw in _SKIPPED

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self.text, self.pos)
        if match:
            self.pos = match.end()
        return bool(match)

    def _read_documents(self) -> None:
        for document in self.awaited:
            body = self._document(document)
            document.draft.documents.append(body)
            if document.expands:
                self.items.append(NestedText(body, self.depth + 1, is_document=True, scope=document.draft.scope))
        self.awaited = []

    def _document(self, document: _HereDocument) -> str:
        start = self.pos
        while self.pos < self.end:
            line_start, newline = self.pos, self.text.find("\n", self.pos)
            line_end = self.end if newline < 0 else newline
            self.pos = min(self.end, line_end + 1)
            line = self.text[line_start:line_end].rstrip("\r")
            if (line.lstrip("\t") if document.strips_tabs else line) == document.delimiter:
                return self.text[start:line_start]
        return self.text[start:]


def scan(text: str, depth: int, *, is_document: bool = False, scope: Scope = ()) -> list[Draft | NestedText]:
    """Return the commands of *text* and the texts inside it; a quote that nothing closes is an ordinary character."""
    literal: frozenset[int] = frozenset()
    tries = _TRIES if len(text) < _LONG else _TRIES_IF_LONG
    for attempt in range(tries + 1):
        scanner = CommandScanner(text, depth=depth, literal=literal, careless=attempt == tries, scope=scope)
        try:
            if is_document:
                scanner.quoted("")
            else:
                scanner.commands("")
        except Unterminated as unterminated:
            literal |= {unterminated.position}
        else:
            break
    return _finished(text, scanner.items)


def _finished(text: str, items: list[Draft | NestedText]) -> list[Draft | NestedText]:
    for item in items:
        if isinstance(item, Draft):
            item.raw = text[item.start : item.finish]
    return [item for item in items if isinstance(item, NestedText) or item.words]

"""Search the sessions of a run: which trials used a tool, ran a command, loaded a skill, or said something.

Nothing is kept between searches. The files with the events are read as bytes, and only lines that hold the words are
decoded: reading all of a large run takes less than a second then, and an index could be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from json import dumps
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from whet.errors import UsageError
from whet.model.codec import WireError, decode_event
from whet.model.events import (
    CommandRun,
    Event,
    FileEdit,
    FileRead,
    FinalOutput,
    Message,
    SkillSignal,
    ToolCall,
    ToolResult,
    Trouble,
)
from whet.model.grade import PASSED, Status
from whet.reading.text import clean, did_you_mean, one_line
from whet.record.read.rows import RowKey, TrialRow
from whet.record.safe_open import read_inside

Kind = Literal["tool", "cmd", "skill", "file", "text"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_LARGEST = 256 << 20
_MOST_TERMS = 8
# A term, with its kind and perhaps in quotes. The words of one in quotes stand together.
_TERM = re.compile(r'(?:(?P<kind>[A-Za-z]+):)?(?:"(?P<quoted>[^"]*)"|(?P<word>[^\s"]+))')
# What the line of each kind of event has.
_MARKS: dict[Kind, bytes] = {"tool": b"tool_call", "cmd": b"command", "file": b"file_", "skill": b"skill_signal"}
# So many events of a session that fit are counted: more of them say nothing new, and take long.
MOST_EVENTS = 20
_EVENTS = ("events.jsonl", "transcript.jsonl")
_TEXT = "transcript.txt"
# What JSON writes as it is. Any other letter may be an escape, and not every capital is one byte.
_ESCAPE = b"\\u"
_PLAIN = re.compile(r"[a-z0-9 _.,:;=@#%+()-]+")
# How much is shown around what was found.
_BEFORE, _AROUND = 40, 160
HELP = 'such as tool:Bash, cmd:unittest, skill:release-notes, file:CHANGELOG.md, text:"not found", or only words'


class Term(Struct, frozen=True):
    """What to look for, in lower case, and in what; without a kind, in everything."""

    words: str
    kind: Kind | None = None


class Query(Struct, frozen=True):
    """Terms that a session must all have; each may be in another event."""

    terms: tuple[Term, ...]


class Hits(Struct, frozen=True):
    """How many events of a session fit a query, at most `MOST_EVENTS`; the place of the first, and what it says."""

    events: int
    first: int | None
    excerpt: str


class SearchedTrial(Struct, frozen=True, kw_only=True):
    """A trial whose session was searched; `found` is None if it does not fit."""

    key: RowKey
    status: Status
    # Whether it counts as passed in comparisons: by its first attempt that did not error.
    passed: bool
    artifact_dir: str
    found: Hits | None


def read_query(text: str) -> Query:
    """Return the query in *text*; raises UsageError with what to write instead."""
    terms = tuple(_terms(text))
    if not terms:
        raise UsageError("the query is empty", hint=HELP)
    if len(terms) > _MOST_TERMS:
        raise UsageError(f"the query has {len(terms)} terms, and {_MOST_TERMS} are the most", hint=HELP)
    return Query(terms)


def _terms(text: str) -> Iterator[Term]:
    for match in _TERM.finditer(text):
        kind, words = match["kind"], match["quoted"] if match["quoted"] is not None else match["word"]
        if kind is None or not words.strip():
            if words.strip():
                yield Term(words.lower())
            continue
        known = next((name for name in KINDS if name == kind.lower()), None)
        if known is None and match["quoted"] is None:
            # A colon is nothing special in a word such as a path of Windows, an address, or a test id.
            if hint := did_you_mean(kind.lower(), KINDS):
                raise UsageError(f'there is no "{kind}:" to look in', hint=hint)
            yield Term(f"{kind}:{words}".lower())
        elif known is None:
            raise UsageError(f'there is no "{kind}:" to look in', hint=HELP)
        else:
            yield Term(words.lower(), known)


def search(run_dir: Path, rows: Iterable[TrialRow], query: Query) -> Iterator[SearchedTrial]:
    """Yield each trial of *rows* that has a session, and what of *query* was found in it."""
    scan = _Scan(query)
    for row in rows:
        if row.artifact_dir is None:
            continue
        content = _session_bytes(run_dir, row.artifact_dir)
        if content is not None:
            name, data = content
            found = scan.of_text(data) if name == _TEXT else scan.of_events(data)
            yield SearchedTrial(
                key=row.key,
                status=row.status,
                passed=row.counting_status in PASSED,
                artifact_dir=row.artifact_dir,
                found=found,
            )


def _session_bytes(run_dir: Path, artifact_dir: str) -> tuple[str, bytes] | None:
    """Return the file with the session of an attempt; the record may be anybody's, so no link leads out of it."""
    for name in (*_EVENTS, _TEXT):
        content = read_inside(run_dir, f"{artifact_dir}/{name}", _LARGEST)
        if content is not None:
            return name, content[0]
    return None


class _Scan:
    """Looks for the terms of a query in one session after the other."""

    def __init__(self, query: Query) -> None:
        self._terms = query.terms
        self._needles = [_needle(term) for term in query.terms]

    def of_events(self, data: bytes) -> Hits | None:
        """Return what was found in a file of events."""
        lowered = data.lower()
        if not all(map(partial(_may_have, data, lowered), self._terms, self._needles)):
            return None
        fits: list[set[int]] = []
        first: tuple[int, str] | None = None
        for term, needle in zip(self._terms, self._needles, strict=True):
            places: set[int] = set()
            mark = _MARKS.get(term.kind, b"") if term.kind else b""
            for number, line in _lines_with(needle, data, lowered):
                if mark not in line:
                    continue
                text = _text_found(line, term)
                if text is not None:
                    places.add(number)
                    first = (number, text) if first is None else first
                    if len(places) == MOST_EVENTS:
                        break
            if not places:
                return None
            fits.append(places)
        place, text = first or (0, "")
        return Hits(events=min(MOST_EVENTS, len(set().union(*fits))), first=place, excerpt=text)

    def of_text(self, data: bytes) -> Hits | None:
        """Return what was found in the words of an agent that tells no events."""
        if any(term.kind not in (None, "text") for term in self._terms):
            return None
        text = data.decode("utf-8", "replace")
        lowered = text.lower()
        if not all(term.words in lowered for term in self._terms):
            return None
        return Hits(events=1, first=None, excerpt=_excerpt(text, self._terms[0].words))


def _needle(term: Term) -> bytes:
    """Return bytes that a line of JSON has if it has the term: of the part of it that JSON never writes as escapes."""
    return max(_PLAIN.findall(term.words), key=len, default="").encode()


def _may_have(data: bytes, lowered: bytes, term: Term, needle: bytes) -> bool:
    """Return whether a session can have *term*; letters beyond ASCII are compared as text, unless JSON escapes them."""
    if needle or _ESCAPE in data:
        return needle in lowered
    return term.words.strip("*") in data.decode("utf-8", "replace").lower()


def _lines_with(needle: bytes, data: bytes, lowered: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of *data* that hold *needle*, with their numbers; lowering letters of ASCII keeps every place."""
    number, start = 0, 0
    place = lowered.find(needle)
    while place >= 0:
        begin = lowered.rfind(b"\n", 0, place) + 1
        number += data.count(b"\n", start, begin)
        start = begin
        end = lowered.find(b"\n", place)
        yield number, data[begin : end if end >= 0 else len(data)]
        place = lowered.find(needle, end + 1) if end >= 0 else -1


def _text_found(line: bytes, term: Term) -> str | None:
    """Return the part of the event in *line* that fits *term*; None if none does."""
    try:
        event = decode_event(line)
    except WireError:
        return None
    for kind, text in _texts(event):
        if term.kind in (None, kind) and _fits(kind, text, term):
            return _excerpt(text, term.words)
    return None


def _fits(kind: Kind, text: str, term: Term) -> bool:
    lowered = text.lower()
    if term.kind in ("tool", "skill"):
        # Of a plug-in, a skill has a name such as plugin:skill.
        return fnmatchcase(lowered, term.words) or (kind == "skill" and lowered.endswith(f":{term.words}"))
    return term.words in lowered


def _texts(event: Event) -> Iterator[tuple[Kind, str]]:
    """Yield what an event says, by what people look for it in."""
    match event:
        case ToolCall(tool=tool, args=args):
            yield "tool", tool
            if args is not None:
                yield "text", args if isinstance(args, str) else dumps(args, ensure_ascii=False, default=str)
        case CommandRun(command=command):
            yield "cmd", command
        case FileRead(path=path) | FileEdit(path=path):
            yield "file", path
        case SkillSignal(skill=skill, loaded=True):
            yield "skill", skill
        case Message(text=text) | FinalOutput(text=text) | ToolResult(output=text) | Trouble(message=text):
            yield "text", text
        case _:
            pass


def _excerpt(text: str, words: str) -> str:
    """Return what stands around *words* in *text*, in one harmless line."""
    place = max(0, text.lower().find(words.strip("*")) - _BEFORE)
    return one_line(clean(text[place : place + _AROUND]), _AROUND)

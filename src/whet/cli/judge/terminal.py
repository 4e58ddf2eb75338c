"""The queue of labels in the terminal: one statement at a time, and one letter for each answer."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import TextIO

import click
from msgspec import Struct

from whet import exit_codes
from whet.decide.judging.units import LabelWord
from whet.reading.text import count
from whet.report.screen import Screen
from whet.view.addresses import Missing
from whet.view.labels.documents import KeptLabel, LabelItemDocument
from whet.view.labels.queue import LabelQueue, changed_files

_WORDS: dict[str, LabelWord] = {"t": "true", "f": "false", "u": "unsure"}
_KEYS = "t true, f false, u unsure, s skip, n note, d whole diff, r the judge's reason, b take back, q quit"
_SHOWN_LINES, _SHOWN_CHARACTERS = 30, 4000


class _Last(Struct):
    """The last label: of which unit it is, and its line."""

    name: str
    kept: KeptLabel


class _Desk:
    """What a person at a terminal has in front of them."""

    def __init__(self, queue: LabelQueue, by: str, stdin: TextIO, stdout: TextIO) -> None:
        self.queue, self.by, self._stdin = queue, by, stdin
        self.open = deque(queue.document(by).names)
        self.skipped: set[str] = set()
        self.last: _Last | None = None
        self.labelled = 0
        self._screen = Screen(stdout, os.environ)
        self._stdout = stdout

    def say(self, *lines: str) -> None:
        self._stdout.write(self._screen.text(lines))
        self._stdout.flush()

    def ask(self, question: str) -> str | None:
        """Return one letter, or a line where no terminal is; None at the end."""
        self._stdout.write(question)
        self._stdout.flush()
        if self._stdin.isatty():
            try:
                letter = click.getchar()
            except (EOFError, KeyboardInterrupt):
                letter = "q"
            self.say(letter if letter.isprintable() else "")
            return letter
        line = self._stdin.readline()
        return line.strip() if line else None

    def read_line(self, question: str) -> str:
        self._stdout.write(question)
        self._stdout.flush()
        return self._stdin.readline().strip()


def ask(queue: LabelQueue, by: str, stdin: TextIO, stdout: TextIO) -> int:
    """Ask *by* about each statement until nothing is left, or they have enough."""
    desk = _Desk(queue, by, stdin, stdout)
    if policy := queue.document(by).policy:
        desk.say("What counts as true:", *policy.splitlines(), "")
    desk.say(f"You are {by}. {_KEYS[0].upper()}{_KEYS[1:]}.")
    while desk.open and _ask_about(desk, desk.open[0]):
        pass
    left = len(desk.open)
    desk.say(
        "",
        f"{count(desk.labelled, 'label')} in {queue.place}"
        + (f", {left} left: type the same again to go on" if left else ""),
        "whet judge report says how good the judge is.",
    )
    return exit_codes.DONE


def _ask_about(desk: _Desk, name: str) -> bool:
    """Ask about one statement until it is answered or skipped; return whether to go on."""
    item = desk.queue.item(name)
    desk.say(*_lines(item, len(desk.open)))
    note = ""
    while True:
        answer = desk.ask("Is this true? ")
        if answer is None or answer == "q":
            return False
        if answer in _WORDS:
            desk.last = _Last(name, desk.queue.label(name, _WORDS[answer], desk.by, note))
            desk.labelled += 1
            desk.open.popleft()
            return True
        if answer == "s":
            return _skip(desk, name)
        if answer == "b":
            if _take_back(desk):
                return True
        elif answer == "n":
            note = desk.read_line("Note: ")
        elif answer == "r":
            desk.say(*_reason(desk))
        elif answer == "d":
            desk.say(*item.diff.splitlines())
        else:
            desk.say(_KEYS)


def _skip(desk: _Desk, name: str) -> bool:
    """Move a statement to the end; return whether one is left that was not skipped."""
    desk.skipped.add(name)
    desk.open.rotate(-1)
    if desk.skipped >= set(desk.open):
        desk.say("Only statements that you skipped are left. If you cannot tell, they are unsure.")
        desk.skipped.clear()
        return len(desk.open) > 1
    return True


def _take_back(desk: _Desk) -> bool:
    """Take the last label back, and put its statement in front."""
    if desk.last is None:
        desk.say("There is no label of yours to take back.")
        return False
    try:
        desk.queue.take_back(desk.last.kept.id, desk.by)
    except Missing as error:
        desk.say(error.message)
        return False
    desk.open.appendleft(desk.last.name)
    desk.labelled -= 1
    desk.last = None
    return True


def _reason(desk: _Desk) -> Iterator[str]:
    if desk.last is None:
        yield "The judge's reason is shown for what you have labelled last."
        return
    document = desk.queue.reason(desk.last.name, desk.by)
    yield f"Of the last one, the judge said {document.verdict}; {document.threshold:g} of 10 passes. {document.reason}"


def _lines(item: LabelItemDocument, left: int) -> Iterator[str]:
    """Yield what is shown of a statement: what was asked, answered and changed, and the statement last."""
    yield ""
    yield f"─── {left} left ───"
    if item.problem:
        yield f"warning: {item.problem}"
    for title, text in (
        ("asked", item.prompt or ""),
        *(("then", turn) for turn in item.turns[1:]),
        ("answered", item.answer),
    ):
        if text:
            yield f"{title}:"
            yield from _shortened(text)
    yield from (f"{line}" for line in changed_files(item))
    yield from _shortened(item.diff)
    yield ""
    yield f"  {item.statement}"
    yield ""


def _shortened(text: str) -> Iterator[str]:
    lines = text[:_SHOWN_CHARACTERS].splitlines()
    yield from (f"  {line}" for line in lines[:_SHOWN_LINES])
    if len(lines) > _SHOWN_LINES or len(text) > _SHOWN_CHARACTERS:
        yield "  ... there is more"

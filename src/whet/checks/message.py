"""What an expectation says if it does not hold: expected, observed, the nearest miss, and the line of the author."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from pathlib import Path
from sysconfig import get_path
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias, TypedDict, TypeVar

from msgspec import Struct

from whet.model.grade import ExplainQuestion, FailureClass, Location
from whet.model.session import Session
from whet.reading.text import middle, printable

if TYPE_CHECKING:
    from whet.checks.context import CheckContext

T = TypeVar("T")
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_LONGEST_ITEM = 200
_LONGEST_MESSAGE = 2000
_MOST_ITEMS = 20
_COMPARED = 120
_LOOKED_AT = 500
_ALIKE = 0.5
_PART_ALIKE = 0.75


class ExpectationFailed(AssertionError):
    """One expectation that does not hold; may carry a failure class and a question to ask the agent later."""

    def __init__(self, message: str, *, location: Location | None = None, question: str | None = None) -> None:
        super().__init__(message)
        self.location = location
        self.question = question
        self.failure_class: FailureClass | None = None


class ExpectationsFailed(AssertionError):
    """Several expectations that do not hold, in the order in which they failed."""

    def __init__(self, failures: Sequence[BaseException]) -> None:
        self.failures = tuple(failures)
        super().__init__(_merge_texts(self.failures))
        self.location: Location | None = next((value for failure in failures if (value := location_of(failure))), None)
        self.failure_class: FailureClass | None = next(
            (value for failure in failures if (value := getattr(failure, "failure_class", None))), None
        )


def questions_of(error: BaseException) -> tuple[ExplainQuestion, ...]:
    """Return the questions of a failure, and of all that were merged into it."""
    members = getattr(error, "failures", (error,))
    return tuple(
        ExplainQuestion(question=question, location=getattr(member, "location", None), expectation=str(member))
        for member in members
        if (question := getattr(member, "question", None))
    )


class Pointer(Struct, frozen=True):
    """An observed item that a message points at: the nearest miss, or what should not be there."""

    index: int
    word: str = "nearest"
    details: Sequence[str] = ()


def describe(
    expectation: str, noun: str, items: Sequence[T], pointer: Pointer | None = None, line: Callable[[T], str] = str
) -> str:
    """Return the whole message: numbered, shortened in the middle, with the item to look at."""
    lines = [f"expected {expectation}"]
    if not items:
        lines.append(f"observed no {noun}")
        return "\n".join(lines)
    lines.append(f"observed {len(items)} {noun.removesuffix('s') if len(items) == 1 else noun}:")
    lines += _number_lines(items, line)
    if pointer is not None:
        lines.append(f"{pointer.word}: {pointer.index + 1}. {shorten(line(items[pointer.index]))}")
        lines += (f"  {line}" for line in pointer.details)
    return "\n".join(lines)


def with_length(text: str) -> str:
    """Return *text* on one line, shortened, after its length."""
    return f"{len(text)} character{'' if len(text) == 1 else 's'}: {shorten(text, 1000)}"


def _number_lines(items: Sequence[T], line: Callable[[T], str]) -> Iterable[str]:
    """Yield the items with their numbers; of very many, the first and the last."""
    half = _MOST_ITEMS // 2
    many = len(items) > _MOST_ITEMS
    for index in (*range(half), *range(len(items) - half, len(items))) if many else range(len(items)):
        if many and index == len(items) - half:
            yield f"  ... {len(items) - 2 * half} more ..."
        yield f"  {index + 1}. {shorten(line(items[index]))}"


def shorten(text: str, most: int = _LONGEST_ITEM) -> str:
    """Return *text* on one line, without its middle if it is too long."""
    return printable(middle(text, most, " ... "))


def nearest(needle: str | None, candidates: Sequence[str]) -> Pointer | None:
    """Return the item that is most like *needle*, or has a part that is, if any is similar at all."""
    if not needle:
        return None
    needle, items = needle[:_COMPARED], [item[:_LOOKED_AT] for item in candidates[:_COMPARED]]
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(needle)
    best, index_of_best = _ALIKE, None
    for index, item in enumerate(items):
        matcher.set_seq1(item[:_COMPARED])
        if matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, index_of_best = ratio, index
    if index_of_best is None:
        index_of_best = _nearest_part(needle, items)
    return None if index_of_best is None else Pointer(index_of_best)


def _nearest_part(needle: str, items: Sequence[str]) -> int | None:
    """Return the item in which as many words as *needle* has, one after the other, are most like it."""
    size = len(needle.split())
    places: dict[str, int] = {}
    for index, item in enumerate(items):
        # A name is a part of a path, too.
        words = item.replace("/", " ").split() if size == 1 and "/" not in needle else item.split()
        for at in range(len(words) - size + 1):
            places.setdefault(" ".join(words[at : at + size]), index)
    close = get_close_matches(needle, places, n=1, cutoff=_PART_ALIKE)
    return places[close[0]] if close else None


def place() -> Location | None:
    """Return the line of the author that called whet."""
    frame = _entry().f_back
    return None if frame is None else Location(file=frame.f_code.co_filename, line=frame.f_lineno)


def _called_method() -> str:
    """Return the method that the author called, as Python names it."""
    return _entry().f_code.co_qualname


def _entry() -> FrameType:
    """Return the frame of whet that the author's line called."""
    frame = sys._getframe(1)  # noqa: SLF001 - the author's line belongs into every message
    while frame.f_back is not None and frame.f_back.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def location_of(error: BaseException) -> Location | None:
    """Return the line that a failure names, or else the innermost one of its traceback."""
    location = getattr(error, "location", None)
    if isinstance(location, Location):
        return location
    frames = traceback.extract_tb(error.__traceback__)
    # If a library raises, the line that called it counts.
    author_frames = [frame for frame in frames if not frame.filename.startswith(_libraries())] or frames
    return Location(file=author_frames[-1].filename, line=author_frames[-1].lineno or 0) if author_frames else None


@cache
def _libraries() -> tuple[str, ...]:
    """Return what the files of whet, of Python and of packages begin with."""
    return (_PACKAGE, *(get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")), "<frozen ")


def _merge_texts(failures: Sequence[BaseException]) -> str:
    if len(failures) == 1:
        return str(failures[0])
    lines = [f"{len(failures)} expectations do not hold"]
    for number, failure in enumerate(failures, 1):
        where = location_of(failure)
        head = f"{number}. {Path(where.file).name}:{where.line}: " if where else f"{number}. "
        text = str(failure) if isinstance(failure, AssertionError) else f"{type(failure).__name__}: {failure}"
        first, *details = text.split("\n")
        lines += [head + first, *(f"   {line}" for line in details)]
    return "\n".join(lines)


Fail = Callable[[AssertionError], None]


Report: TypeAlias = "Session | CheckContext"


def session_of(report: Report) -> Session:
    """Return the session of *report*, which is the session itself or the context."""
    if isinstance(report, Session):
        return report
    session = getattr(report, "session", None)
    if isinstance(session, Session):
        return session
    raise TypeError(f"the first argument is the session or the context of the check, not a {type(report).__name__}")


class ExpectationOptions(TypedDict, total=False):
    """What an author adds to an expectation: words that come first in its message, and a question for the agent."""

    message: str | None
    explain: str | None


class Expectations:
    """A set of expectations over one kind of evidence."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail

    def _expect(self, problem: str | None, words: ExpectationOptions) -> None:
        """Fail with *problem*, if there is one, after the words of the author."""
        if unknown := words.keys() - ExpectationOptions.__annotations__.keys():
            raise TypeError(f"{_called_method()}() got an unexpected keyword argument '{min(unknown)}'")
        if problem is None:
            return
        for name, value in words.items():
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} is a string, not a {type(value).__name__}")
        message = words.get("message")
        text = f"{middle(message, _LONGEST_MESSAGE, ' ... ')}\n{problem}" if message else problem
        self._fail(ExpectationFailed(text, location=place(), question=words.get("explain")))

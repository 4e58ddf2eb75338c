"""What an expectation that does not hold says: what was expected, what was observed, the nearest miss, and where."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from types import FrameType

from whet.asserting.text import printable
from whet.model.grade import FailureClass, Location

_PACKAGE = str(Path(__file__).parent.parent) + os.sep
_LONGEST_ITEM = 200
_MOST_ITEMS = 20
_COMPARED = 120


class ExpectationFailed(AssertionError):
    """One expectation that does not hold; may carry a failure class and a question to ask the agent later."""

    def __init__(self, message: str, *, location: Location | None = None, question: str | None = None) -> None:
        super().__init__(message)
        self.location = location
        self.question = question
        self.failure_class: FailureClass | None = None


class ExpectationsFailed(AssertionError):
    """Several that do not hold, in the order in which they were seen."""

    def __init__(self, failures: Sequence[BaseException]) -> None:
        self.failures = tuple(failures)
        super().__init__(_merged(self.failures))
        self.location: Location | None = next((found for failure in failures if (found := location_of(failure))), None)
        self.failure_class: FailureClass | None = next(
            (found for failure in failures if (found := getattr(failure, "failure_class", None))), None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question for the agent that a failed expectation leaves behind, and where it was written."""

    question: str
    location: Location | None


def questions_of(error: BaseException) -> tuple[Asked, ...]:
    """The questions of a failure and of all that were merged into it."""
    members = getattr(error, "failures", (error,))
    return tuple(
        Asked(question=question, location=getattr(member, "location", None))
        for member in members
        if (question := getattr(member, "question", None))
    )


def describe(
    expected: str, what: str, observed: Sequence[str], *, near: str | None = None, names: Sequence[str] | None = None
) -> str:
    """The whole message: numbered, shortened in the middle, with the nearest miss where there is one to look for.

    *names* are what the miss is looked for in, where that is not the observed lines themselves.
    """
    lines = [f"expected {expected}"]
    if not observed:
        lines.append(f"observed no {what}")
        return "\n".join(lines)
    lines.append(f"observed {len(observed)} {what.removesuffix('s') if len(observed) == 1 else what}:")
    lines += numbered(observed)
    closest = nearest(near, observed if names is None else names) if near else None
    if closest is not None:
        lines.append(f"nearest: {closest + 1}. {shorten(observed[closest])}")
    return "\n".join(lines)


def numbered(items: Sequence[str]) -> Iterable[str]:
    """The items with their numbers; of very many, the first and the last."""
    half = _MOST_ITEMS // 2
    many = len(items) > _MOST_ITEMS
    for index in (*range(half), *range(len(items) - half, len(items))) if many else range(len(items)):
        if many and index == len(items) - half:
            yield f"  ... {len(items) - 2 * half} more ..."
        yield f"  {index + 1}. {shorten(items[index])}"


def shorten(text: str, most: int = _LONGEST_ITEM) -> str:
    """*text* on one line, its middle left out where it is too long."""
    if len(text) > most:
        half = (most - 5) // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return printable(text.replace("\n", "\\n"))


def cut(text: str, most: int = 2000) -> str:
    """*text* with its end left out where it is too long."""
    return text if len(text) <= most else f"{text[:most]} ..."


def indented(text: str) -> str:
    """*text*, each line set in."""
    return "\n".join(f"  {line}" for line in text.split("\n"))


def nearest(wanted: str, observed: Sequence[str]) -> int | None:
    """The index of the item most like *wanted*, if any is at all like it."""
    wanted = wanted[:_COMPARED]
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    best, index_of_best = 0.5, None
    for index, item in enumerate(observed[:_COMPARED]):
        matcher.set_seq1(item[:_COMPARED])
        if matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, index_of_best = ratio, index
    return index_of_best


def place() -> Location | None:
    """The line of the author's that called, which is the first one outside of this package."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the author's line belongs into every message
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else Location(file=frame.f_code.co_filename, line=frame.f_lineno)


def location_of(error: BaseException) -> Location | None:
    """The line that a failure names, or else the innermost one of its traceback."""
    named = getattr(error, "location", None)
    if isinstance(named, Location):
        return named
    frames = traceback.extract_tb(error.__traceback__)
    return Location(file=frames[-1].filename, line=frames[-1].lineno or 0) if frames else None


def _merged(failures: Sequence[BaseException]) -> str:
    if len(failures) == 1:
        return str(failures[0])
    lines = [f"{len(failures)} expectations do not hold"]
    for number, failure in enumerate(failures, 1):
        where = location_of(failure)
        head = f"{number}. {Path(where.file).name}:{where.line}: " if where else f"{number}. "
        text = str(failure) if isinstance(failure, AssertionError) else f"{type(failure).__name__}: {failure}"
        first, *rest = text.split("\n")
        lines += [head + first, *(f"   {line}" for line in rest)]
    return "\n".join(lines)

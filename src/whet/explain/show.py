"""Explanations for a person to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.expectations.failure import Asked
from whet.explain.questions import EXPLANATIONS_FILE, Explanation, Explanations
from whet.explain.subject import Subject
from whet.report.text import clean, count, duration, money, one_line, path_for_people

_WIDEST = 160


def headline(subject: Subject, kept: Explanations, questions: int) -> str:
    """Who is asked, and how much."""
    return f"{subject.name}: {count(questions, 'question')} for {kept.agent}, session {kept.session_id}"


def question_lines(number: int, asked: Asked) -> Iterator[str]:
    """A question, and the expectation that left it."""
    yield ""
    first, *more = clean(asked.question).strip().split("\n")
    yield f"{number}. {first}"
    yield from (f"   {line}" for line in more)
    place = f"{asked.location.file}:{asked.location.line}" if asked.location else ""
    left = one_line(asked.expectation, _WIDEST) if asked.expectation else ""
    if place or left:
        yield f"   ({': '.join(part for part in (clean(place), left) if part)})"


def answer_lines(given: Explanation) -> Iterator[str]:
    """An answer, or why there is none."""
    said = given.answer if given.status == "answered" else (given.failure.message if given.failure else "")
    if given.status != "answered":
        yield f"   {given.status}:"
    yield from (f"   {line}".rstrip() for line in clean(said).strip().split("\n"))
    if given.workspace:
        yield f"   (its workspace was not quite as it had left it: {one_line(given.workspace, _WIDEST)})"
    yield from (f"   ({one_line(note, _WIDEST)})" for note in given.notes)


def closing_lines(folder: Path, fresh: Sequence[Explanation], *, again: int, left: str) -> Iterator[str]:
    """What was done, and where it is kept."""
    yield ""
    if fresh:
        costs = [each.cost_usd for each in fresh if each.cost_usd is not None]
        cost = f", {money(sum(costs))}" if costs else ""
        yield f"Asked {count(len(fresh), 'question')} in {duration(sum(each.duration_s for each in fresh))}{cost}."
    if again:
        yield f"{count(again, 'question')} answered before; --rerun asks again."
    if left:
        yield f"{left}."
    yield f"Kept in {path_for_people(folder / EXPLANATIONS_FILE, Path.cwd())}"

"""Make labels of what people say: of a drawn unit, of a CSV file, and of the feedback of skill-creator."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

from msgspec import Struct

from whet.decide.judging.draw import Drawn
from whet.decide.judging.units import LABEL_FORMAT, JudgedUnit, Label, LabelWord
from whet.errors import UsageError
from whet.model import codec
from whet.model.suite import NO_SKILL, SKILL
from whet.reading.files import read_file
from whet.reading.text import count
from whet.record.judging.labels_file import now

# What skill-creator calls our usual arms.
_CONFIGURATIONS = {SKILL: "with_skill", NO_SKILL: "without_skill"}
_COLUMNS = ("statement_id", "answer_id", "label")
_MOST_BYTES = 16 * 1024 * 1024
_MOST_PROBLEMS = 10


def new_label(
    unit: JudgedUnit,
    word: LabelWord,
    by: str,
    *,
    drawn: Drawn | None = None,
    seed: str | None = None,
    note: str | None = None,
    after_reveal: bool = False,
    policy: str | None = None,
) -> Label:
    """Return the label of this moment on *unit*; *drawn* says how it was drawn."""
    return Label(
        schema=LABEL_FORMAT,
        at=now(),
        by=by,
        label=word,
        note=note or None,
        after_reveal=after_reveal,
        suite=unit.suite,
        **unit.key._asdict(),
        attempt=unit.attempt,
        run=unit.run,
        statement_id=unit.statement_id,
        answer_id=unit.answer_id,
        judge_id=unit.judge_id,
        judge=unit.judge,
        judge_verdict=unit.verdict,
        judge_rating=unit.rating,
        stratum=drawn.stratum if drawn else "",
        size=drawn.size if drawn else None,
        draw=drawn.place if drawn else None,
        seed=seed,
        policy=policy,
    )


class ImportedLabels(Struct, frozen=True, kw_only=True):
    """The labels that a file holds, and how many of its lines are about no unit of these runs."""

    labels: tuple[Label, ...]
    unknown: int


class _Source(Struct, frozen=True):
    """What imported labels may be about, and whose they are; *cases* are all of the run, in order."""

    units: Sequence[JudgedUnit]
    cases: Sequence[str]
    by: str
    policy: str | None

    def label(self, unit: JudgedUnit, word: LabelWord, *, by: str | None = None, note: str | None = None) -> Label:
        return new_label(unit, word, by or self.by, note=note, policy=self.policy)


def import_labels(
    path: Path, units: Sequence[JudgedUnit], by: str, *, cases: Sequence[str] = (), policy: str | None = None
) -> ImportedLabels:
    """Return the labels in a CSV file, or in a feedback.json; refuses what cannot be read, line by line.

    *cases* are those of the run, in order: a feedback.json counts them.
    """
    source = _Source(units, cases, by, policy)
    try:
        data = read_file(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
    if path.suffix.lower() == ".json":
        return _of_feedback(path, text, source)
    return _of_table(path, text, source)


def _of_table(path: Path, text: str, source: _Source) -> ImportedLabels:
    rows = csv.DictReader(io.StringIO(text))
    missing = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise UsageError(f"{path} has no column {', '.join(missing)}", hint=f"its columns are {', '.join(_COLUMNS)}")
    places: dict[tuple[str, str], list[JudgedUnit]] = {}
    for unit in source.units:
        places.setdefault((unit.statement_id, unit.answer_id), []).append(unit)
    labels: list[Label] = []
    problems: list[str] = []
    unknown = 0
    try:
        for row in rows:
            word = (row.get("label") or "").strip().lower()
            if word not in get_args(LabelWord):
                problems.append(f"{path}:{rows.line_num}: label is {word!r}, not true, false or unsure")
                continue
            members = places.get(((row.get("statement_id") or "").strip(), (row.get("answer_id") or "").strip()), ())
            unknown += not members
            note, by = ((row.get(name) or "").strip() for name in ("note", "by"))
            labels += (source.label(unit, cast("LabelWord", word), by=by, note=note) for unit in members)
    except csv.Error as error:
        raise UsageError(f"{path}:{rows.line_num}: is no CSV: {error}") from error
    _refuse(problems)
    return ImportedLabels(labels=tuple(labels), unknown=unknown)


class _Review(Struct):
    run_id: str
    feedback: str = ""


class _Feedback(Struct):
    reviews: tuple[_Review, ...]


def _of_feedback(path: Path, text: str, source: _Source) -> ImportedLabels:
    """Return the labels of a feedback.json, which is about trials: their cases must have one statement each.

    A review without words says that the person found nothing wrong.
    """
    try:
        reviews = codec.decode(text, _Feedback).reviews
    except codec.WireError as error:
        raise UsageError(f"{path} is no feedback.json of skill-creator: {error.message}") from error
    by_name = _by_review_name(source)
    labels: list[Label] = []
    problems: list[str] = []
    unknown = 0
    for number, review in enumerate(reviews):
        members = by_name.get(review.run_id, [])
        if len(members) > 1:
            statements = count(len(members), "statement")
            problems.append(f"{path}: reviews[{number}] is about a case with {statements}, and does not say which")
            continue
        unknown += not members
        word: LabelWord = "false" if review.feedback.strip() else "true"
        labels += (source.label(unit, word, note=review.feedback.strip()) for unit in members)
    _refuse(problems)
    return ImportedLabels(labels=tuple(labels), unknown=unknown)


def _by_review_name(source: _Source) -> dict[str, list[JudgedUnit]]:
    """Return the units of each trial by the name that skill-creator gives it."""
    numeric = all(case.isdecimal() for case in source.cases)
    numbers = {case: case if numeric else str(index) for index, case in enumerate(source.cases, 1)}
    units_by_name: dict[str, list[JudgedUnit]] = {}
    for unit in source.units:
        key = unit.key
        if key.case in numbers:
            arm = _CONFIGURATIONS.get(key.arm, key.arm)
            units_by_name.setdefault(f"eval-{numbers[key.case]}-{arm}-run-{key.trial}", []).append(unit)
    return units_by_name


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        shown = [*problems[:_MOST_PROBLEMS], *((f"and {count(more, 'more line')} like these",) if more > 0 else ())]
        raise UsageError("\n".join(shown))

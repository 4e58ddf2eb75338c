"""What the formats of other tools share: losses, ids, fixtures, statements for a judge, and the suite around them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import Problem, SuiteError
from whet.model.eval_cases import Assertion, BooleanAssertion, LlmRubric, Match, Op, RubricItem
from whet.model.grade import Location
from whet.model.run import LONGEST_ID, id_problem
from whet.model.suite import NO_SKILL, SKILL, TRIGGERED, Case, Check, PlacedItem, Suite
from whet.reading.documents import Node
from whet.reading.fields import Fields, Findings, is_whole
from whet.reading.text import one_line
from whet.reading.yaml import checked_root
from whet.suites.evals.documents import read_root
from whet.suites.format import note_shared_ids
from whet.suites.split.fields import foreign_part, is_read_metadata

USUAL_TIMEOUT_S = 600.0
MOST_CASES = 100_000
_MOST_ITEMS = 1_000
_SHOWN = 160
# How much of what is lost is said of a suite of which nothing is left.
_SHOWN_LOSSES = 10
MANIFEST = "SKILL.md"


class ForeignDocument(Struct):
    """A document of another tool while it is read: its fields, and what a suite of ours cannot say."""

    path: Path
    top: Fields
    # What was lost, with where and in which case it was first seen, and how often.
    _lost: dict[tuple[str, str], tuple[Problem, int]] = field(default_factory=dict)
    # The checks among these by case, with their places; under None those that every case should have.
    _lost_checks: dict[str | None, list[str]] = field(default_factory=dict)
    _lost_cases: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, params: Mapping[str, str] | None = None) -> ForeignDocument:
        """Read the document with *params* in the place of `${NAME}`; raises `SuiteError` if it is no document at all.

        The items of a list are its `evals`.
        """
        root = checked_root(path)
        if isinstance(root.value, tuple):
            root = Node({"evals": root}, root.line)
        for name, value in (params or {}).items():
            root = replace_text(root, f"${{{name}}}", value)
        return cls(path, read_root(root.plain(), Findings(str(path), root)))

    def lose(self, fields: Fields, name: str, why: str = "nothing here reads it") -> None:
        """Note that the field *name* is not carried over; what is lost several times is reported once."""
        key = (re.sub(r"\[\d+\]", "[]", fields.place(name)), why)
        first = fields.findings.at(fields.place(name), f"not carried over: {why}", None, fields.case)
        problem, times = self._lost.get(key, (first, 0))
        self._lost[key] = (problem, times + 1)

    def lose_check(self, fields: Fields, name: str, why: str) -> None:
        """Note that a check, or a part of what decides, is not carried over: its case would pass with less."""
        self.lose(fields, name, why)
        place = ".".join(part for part in (fields.path, name) if part)
        self._lost_checks.setdefault(fields.case, []).append(f"{place}: {why}" if place else why)

    def assign_lost_checks(self, case: str) -> None:
        """Make the lost checks whose case was not known yet those of *case*."""
        checks = self._lost_checks.pop(None, [])
        self._lost_checks.setdefault(case, []).extend(checks)

    def lose_case(self, fields: Fields, name: str, why: str) -> None:
        """Note that a case, or a file with cases, is not carried over."""
        self.lose(fields, name, why)
        self._lost_cases.append(fields.case or fields.place(name))

    def lose_unknown(self, fields: Fields, names: Iterable[str]) -> None:
        """Note each field that is not in *names*."""
        for name, value in fields.values.items():
            if name not in names and not is_read_metadata(name, value):
                self.lose(fields, name)

    def losses(self) -> tuple[Problem, ...]:
        """Return everything that is not carried over."""
        return tuple(
            problem if times == 1 else problem._replace(message=f"{problem.message} ({times} times)")
            for problem, times in self._lost.values()
        )

    def cases(self, name: str, lost: Callable[[Any], str | None] = lambda _: None) -> Iterator[tuple[Fields, int]]:
        """Yield the fields of each case in the list *name*, and its number.

        *lost* says why something in the place of a case, or of the list, is not carried over, if it is not.
        """
        value = self.top.given(name)
        if value == []:
            self.top.problem(name, "has no cases")
        elif (why := None if isinstance(value, list) else lost(value)) is not None:
            self.top.problem(name, f"has no cases here: {why}")
        elif self.top.has(name, required=True):
            for number, (place, item) in enumerate(self.top.items(name, most=MOST_CASES), 1):
                if (why := lost(item)) is not None:
                    self.lose(self.top, place, why)
                    continue
                fields = self.top.object(place, item)
                if fields.values:
                    yield fields, number

    def suite(
        self, cases: Sequence[tuple[Fields, str, Case]], *, name: str | None, digest: str | None = None, **more: Any
    ) -> Suite:
        """Return the suite of *cases*, each with its fields and the field of its id; raises `SuiteError`.

        The *digest* is that of the file, unless there are several.
        """
        findings = self.top.findings
        note_shared_ids((fields, id_field, case.id) for fields, id_field, case in cases)
        complete_cases = tuple(self._completed(fields, case) for fields, _, case in cases if case.checks)
        for fields, id_field, case in cases:
            if not case.checks:
                why = "the case, because nothing says what is expected"
                self.lose_case(replace(fields, case=case.id), id_field, why)
        if not complete_cases and not findings.problems:
            losses = "\n".join(map(str, self.losses()[:_SHOWN_LOSSES]))
            self.top.problem("", "there is no case that says what is expected and can be carried over", losses or None)
        if findings.problems:
            raise SuiteError(findings.problems, findings.warnings)
        names = (name, self.path.parent.name, self.path.stem, "suite")
        return Suite(
            name=next(candidate for candidate in names if candidate and not id_problem(candidate)),
            cases=complete_cases,
            source=self.path,
            digest=digest or hashlib.sha256(self.path.read_bytes()).hexdigest(),
            warnings=tuple(findings.warnings),
            lost=self.losses(),
            lost_cases=tuple(self._lost_cases),
            **{"arms": (SKILL, NO_SKILL), "usual_timeout_s": USUAL_TIMEOUT_S, "held_out": (self.path,), **more},
        )

    def _completed(self, fields: Fields, case: Case) -> Case:
        """Return *case* with what is lost of it, and with the part and the source that its author says."""
        checks = (*self._lost_checks.get(case.id, ()), *self._lost_checks.get(None, ()))
        split, source = foreign_part(fields)
        for name, word in (("split", split), ("source", source)):
            if word is None and fields.given(name) is not None:
                self.lose(replace(fields, case=case.id), name, f"the word says no {name} that whet knows")
        return replace(case, lost_checks=checks, split=split, source=source)


def replace_text(node: Node, old: str, new: str) -> Node:
    """Return *node* with *new* in the place of *old* in every text."""
    match node.value:
        case str() if old in node.value:
            return replace(node, value=node.value.replace(old, new))
        case tuple():
            return replace(node, value=tuple(map(partial(replace_text, old=old, new=new), node.value)))
        case Mapping():
            items = map(partial(replace_text, old=old, new=new), node.value.values())
            return replace(node, value=dict(zip(node.value, items, strict=True)))
        case _:
            return node


def case_id(fields: Fields, names: Sequence[str], number: int) -> tuple[str, str]:
    """Return the field that names a case, and the name: a text that is not too long, or a number."""
    for name in names:
        value = fields.given(name)
        if value is None:
            continue
        if isinstance(value, str) and value.strip():
            text = one_line(value, LONGEST_ID - 20)
            return name, fields.checked(name, text, id_problem) or str(number)
        if is_whole(value, -(2**53)):
            return name, str(value)
        if isinstance(value, str):
            fields.problem(name, "must not be empty")
            continue
        fields.problem(name, f"must be a string or a whole number, not {fields.shown(name, value)}")
    return names[0], str(number)


def new_case(fields: Fields, name: str, prompt: str, checks: Iterable[Check], **more: Any) -> Case:
    """Return a case of the model with its place in the document."""
    place = Location(file=fields.findings.file, line=fields.findings.line(fields.path))
    return Case(id=name, prompt=prompt, checks=tuple(checks), scored=True, location=place, **more)


def statement(text: str, prompt: str, expected: str | None = None) -> Check:
    """Return the check of one statement in words, which the judge decides by itself."""
    about = None if expected is None else f"The author of the case describes what is expected: {expected}"
    case = LlmRubric(instruction=prompt, rubric=(RubricItem(id="1", description=text),), reference=about)
    return Check(grader="rubric", params={"case": case, "statement": text}, label=one_line(text, _SHOWN))


def assertion_check(
    prompt: str, label: str, *assertions: Assertion, match: Match = "all", compared: bool = True
) -> Check:
    """Return the check of assertions that need no judge."""
    case = BooleanAssertion(instruction=prompt, assertions=assertions, match=match)
    return Check(grader="answer", params={"case": case}, label=one_line(label, _SHOWN), compared=compared)


def holds(op: Op, value: Any, *, negate: bool = False, **more: Any) -> Assertion:
    """Return an assertion about a value."""
    return Assertion(op=op, value=value, has_value=value is not None, negate=negate, **more)


def answered(prompt: str) -> Check:
    """Return the check of a case that only a judge of pairs decides: there is an answer to compare."""
    return assertion_check(prompt, "answers", holds("regex", r"/\S/", description="the answer is not empty"))


def contains_anyhow(text: str, *, negate: bool = False, start: str = "") -> Assertion:
    """Return the assertion that a text is in the answer, whatever the case of its letters."""
    pattern = re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", text)
    title = f"{'not ' if negate else ''}contains {text!r}, ignoring case"
    return holds("regex", f"/{start}{pattern}/i", negate=negate, description=title)


def activation(prompt: str, *, wanted: bool) -> Check:
    """Return the check of whether the skill was loaded; without the skill there is none."""
    return assertion_check(prompt, TRIGGERED, holds("skill_triggered", None, negate=not wanted), compared=False)


def texts_of(fields: Fields, name: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each statement in a list of them, or of one alone."""
    value = fields.given(name)
    if isinstance(value, str):
        if value.strip():
            yield name, value
        return
    for place, item in fields.items(name, most=_MOST_ITEMS):
        text = fields.text_at(place, item)
        if text is not None:
            yield place, text


def find_fixture(path_text: str, roots: Sequence[Path]) -> Path | None:
    """Return the file or folder that *path_text* names from one of *roots*, if it lies in one of them."""
    if "\0" in path_text or len(path_text) > os.pathconf("/", "PC_PATH_MAX"):
        return None
    real = [os.path.realpath(root) for root in roots]
    for root in roots:
        # By its text first: the folder that the path is seen from need not exist.
        place = os.path.realpath(os.path.normpath(root / path_text))
        if os.path.exists(place) and any(place.startswith(f"{folder}/") for folder in real):  # noqa: PTH110 - a text
            return Path(place)
    return None


def fixture(fields: Fields, place: str, path_text: str, path: str, roots: Sequence[Path]) -> PlacedItem:
    """Return *path_text* as it is put at *path* of the workspace; warn if it is not there, or may not be used."""
    file = find_fixture(path_text, roots)
    if file is None:
        fields.warn(place, f'there is no file "{path_text}" in {" or ".join(map(str, dict.fromkeys(roots)))}', _ABOUT)
        return PlacedItem(path=path, wanted=path_text)
    return PlacedItem(path=path, source=file)


_ABOUT = "a case without its fixture is errored; if the file is in the skill, name the skill with --skill"


def resolve_in_skill(case: Case, roots: Sequence[Path]) -> Case:
    """Return *case* with the fixtures that are found in the skill under test."""
    if all(item.wanted is None for item in case.placed):
        return case
    return replace(case, placed=tuple(_resolve_fixture(item, roots) for item in case.placed))


def _resolve_fixture(item: PlacedItem, roots: Sequence[Path]) -> PlacedItem:
    file = find_fixture(item.wanted, roots) if item.wanted is not None else None
    return item if file is None else PlacedItem(path=item.path, source=file)

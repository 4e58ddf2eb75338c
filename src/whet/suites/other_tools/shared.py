"""What the formats of other tools share: losses, ids, fixtures, statements for a judge, and the suite around them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import Problem, SuiteError
from whet.model.eval_cases import Assertion, BooleanAssertion, LlmRubric, Match, Op, RubricItem
from whet.model.grade import Location
from whet.model.run import LONGEST_ID, id_problem
from whet.model.suite import NO_SKILL, SKILL, TRIGGERED, Case, Check, Placed, Suite
from whet.reading.document_files import checked_root
from whet.reading.documents import Node
from whet.reading.fields import Fields, Findings, is_whole
from whet.reading.text import one_line
from whet.suites.eval_documents import checked_top
from whet.suites.format import note_shared_ids

USUAL_TIMEOUT_S = 600.0
MOST_CASES = 100_000
_MOST_ITEMS = 1_000
_SHOWN = 160
# How much of what is lost is said of a suite of which nothing is left.
_SHOWN_LOSSES = 10
MANIFEST = "SKILL.md"


@dataclass(slots=True)
class Foreign:
    """A document of another tool while it is read: its fields, and what a suite of ours cannot say."""

    path: Path
    top: Fields
    # What was lost, with where and in which case it was first seen, and how often.
    _lost: dict[tuple[str, str], tuple[Problem, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Foreign:
        """Read the document; raises `SuiteError` if it is no document at all. The items of a list are its `evals`."""
        root = checked_root(path)
        if isinstance(root.value, tuple):
            root = Node({"evals": root}, root.line)
        return cls(path, checked_top(root.plain(), Findings(str(path), root)))

    def lose(self, given: Fields, name: str, why: str = "nothing here reads it") -> None:
        """Note that the field *name* is not carried over; what is lost several times is reported once."""
        key = (re.sub(r"\[\d+\]", "[]", given.place(name)), why)
        first = given.findings.at(given.place(name), f"not carried over: {why}", None, given.case)
        found, times = self._lost.get(key, (first, 0))
        self._lost[key] = (found, times + 1)

    def lose_unknown(self, given: Fields, known: Iterable[str]) -> None:
        """Note each field that is not in *known*."""
        for name in given.values:
            if name not in known:
                self.lose(given, name)

    def losses(self) -> tuple[Problem, ...]:
        """Return everything that is not carried over."""
        return tuple(
            problem if times == 1 else replace(problem, message=f"{problem.message} ({times} times)")
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
                given = self.top.object(place, item)
                if given.values:
                    yield given, number

    def suite(self, cases: Sequence[tuple[Fields, str, Case]], *, name: str | None, **more: Any) -> Suite:
        """Return the suite of *cases*, each with its fields and the field of its id; raises `SuiteError`."""
        findings = self.top.findings
        note_shared_ids((given, id_field, case.id) for given, id_field, case in cases)
        kept = tuple(case for _, _, case in cases if case.checks)
        for given, id_field, case in cases:
            if not case.checks:
                self.lose(replace(given, case=case.id), id_field, "the case, because nothing says what is expected")
        if not kept and not findings.problems:
            said = "\n".join(map(str, self.losses()[:_SHOWN_LOSSES]))
            self.top.problem("", "there is no case that says what is expected and can be carried over", said or None)
        if findings.problems:
            raise SuiteError(findings.problems, findings.warnings)
        names = (name, self.path.parent.name, self.path.stem, "suite")
        return Suite(
            name=next(each for each in names if each and not id_problem(each)),
            cases=kept,
            source=self.path,
            digest=hashlib.sha256(self.path.read_bytes()).hexdigest(),
            warnings=tuple(findings.warnings),
            lost=self.losses(),
            **{"arms": (SKILL, NO_SKILL), "usual_timeout_s": USUAL_TIMEOUT_S, "held_out": (self.path,), **more},
        )


def case_id(given: Fields, names: Sequence[str], number: int) -> tuple[str, str]:
    """Return the field that names a case, and the name: a text that is not too long, or a number."""
    for name in names:
        value = given.given(name)
        if value is None:
            continue
        if isinstance(value, str) and value.strip():
            text = one_line(value, LONGEST_ID - 20)
            return name, given.checked(name, text, id_problem) or str(number)
        if is_whole(value, -(2**53)):
            return name, str(value)
        given.problem(name, f"must be a string or a whole number, not {given.shown(name, value)}")
    return names[0], str(number)


def new_case(given: Fields, name: str, prompt: str, checks: Iterable[Check], **more: Any) -> Case:
    """Return a case of the model with its place in the document."""
    place = Location(file=given.findings.file, line=given.findings.line(given.path))
    return Case(id=name, prompt=prompt, checks=tuple(checks), scored=True, location=place, **more)


def statement(text: str, prompt: str, expected: str | None = None) -> Check:
    """Return the check of one statement in words, which the judge decides by itself."""
    about = None if expected is None else f"The author of the case describes what is expected: {expected}"
    case = LlmRubric(instruction=prompt, rubric=(RubricItem(id="1", description=text),), reference=about)
    return Check(grader="rubric", params={"case": case, "statement": text}, label=one_line(text, _SHOWN))


def asserted(prompt: str, label: str, *assertions: Assertion, match: Match = "all", compared: bool = True) -> Check:
    """Return the check of assertions that need no judge."""
    case = BooleanAssertion(instruction=prompt, assertions=assertions, match=match)
    return Check(grader="answer", params={"case": case}, label=one_line(label, _SHOWN), compared=compared)


def holds(op: Op, value: Any, *, negate: bool = False, **more: Any) -> Assertion:
    """Return an assertion about a value."""
    return Assertion(op=op, value=value, has_value=value is not None, negate=negate, **more)


def contains_anyhow(text: str, *, negate: bool = False, start: str = "") -> Assertion:
    """Return the assertion that a text is in the answer, whatever the case of its letters."""
    escaped = re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", text)
    title = f"{'not ' if negate else ''}contains {text!r}, in any case"
    return holds("regex", f"/{start}{escaped}/i", negate=negate, description=title)


def activation(prompt: str, *, wanted: bool) -> Check:
    """Return the check of whether the skill was loaded; without the skill there is none."""
    return asserted(prompt, TRIGGERED, holds("skill_triggered", None, negate=not wanted), compared=False)


def texts_of(given: Fields, name: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each statement in a list of them, or of one alone."""
    value = given.given(name)
    if isinstance(value, str):
        if value.strip():
            yield name, value
        return
    for place, item in given.items(name, most=_MOST_ITEMS):
        text = given.text_at(place, item)
        if text is not None:
            yield place, text


def find_fixture(written: str, roots: Sequence[Path]) -> Path | None:
    """Return the file or folder that *written* names from one of *roots*, if it lies in one of them."""
    if "\0" in written or len(written) > os.pathconf("/", "PC_PATH_MAX"):
        return None
    real = [os.path.realpath(root) for root in roots]
    for root in roots:
        # By its text first: the folder that the path is seen from need not exist.
        place = os.path.realpath(os.path.normpath(root / written))
        if os.path.exists(place) and any(place.startswith(f"{each}/") for each in real):  # noqa: PTH110 - a text
            return Path(place)
    return None


def fixture(given: Fields, place: str, written: str, path: str, roots: Sequence[Path]) -> Placed:
    """Return *written* as it is put at *path* of the workspace; warn if it is not there, or may not be used."""
    found = find_fixture(written, roots)
    if found is None:
        given.warn(place, f'there is no file "{written}" in {" or ".join(map(str, dict.fromkeys(roots)))}', _ABOUT)
        return Placed(path=path, wanted=written)
    return Placed(path=path, source=found)


_ABOUT = "a case without its fixture is errored; if the file is in the skill, name the skill with --skill"


def found_in_skill(case: Case, roots: Sequence[Path]) -> Case:
    """Return *case* with the fixtures that are found in the skill under test."""
    if all(item.wanted is None for item in case.placed):
        return case
    return replace(case, placed=tuple(_found(item, roots) for item in case.placed))


def _found(item: Placed, roots: Sequence[Path]) -> Placed:
    found = find_fixture(item.wanted, roots) if item.wanted is not None else None
    return item if found is None else Placed(path=item.path, source=found)

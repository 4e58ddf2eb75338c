"""Leaks: text of a case, of its answer or of its rubric that stands in a file of the skill, and names of cases.

An agent that has read the answer passes without being able to do the task. What counts are 8 words in a row, in lower
case and without punctuation; what a fixture of the case says too is no leak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from whet.errors import Problem
from whet.model.eval_cases import BooleanAssertion, ExactMatch, LlmRubric
from whet.model.suite import Case, Suite
from whet.reading.files import read_start
from whet.reading.text import count, one_line
from whet.suites.skills.files import agent_files
from whet.workspace.make import MANIFEST

GRAM = 8
# The parts of a case that may leak.
LeakedPart = Literal["prompt", "answer", "rubric", "name"]
_WORD = re.compile(r"[^\W_]+")
_TOKEN = re.compile(r"\w[\w.-]*\w")
# A name of fewer parts may be an ordinary word.
_PARTS_OF_NAME = re.compile(r"[^\W_]+")
_FEWEST_PARTS, _SHORTEST_NAME = 3, 10
_LARGEST_FILE, _LARGEST_IN_ALL = 1024 * 1024, 32 * 1024 * 1024
_MOST_CHARACTERS = 200_000
_MOST_LEAKS = 20
_MOST_FIXTURES = 200
_SHOWN = 100


class Leak(Struct, frozen=True, kw_only=True):
    """Where text of a case stands in a skill; `words` are as the skill has them, and `cases` all that share them."""

    file: Path
    line: int
    part: LeakedPart
    words: str
    cases: tuple[str, ...]

    def problem(self) -> Problem:
        """Return it as a warning."""
        others = f" and of {count(len(self.cases) - 1, 'more case')}" if len(self.cases) > 1 else ""
        if self.part == "name":
            message = f"leak: names the case: {self.words}"
        else:
            message = f"leak: text of the {self.part} of this case{others}: {one_line(self.words, _SHOWN)}"
        return Problem(file=str(self.file), case=self.cases[0], field=f"line {self.line}", message=message, rule="leak")


class _Origin(Struct):
    """Where 8 words of a case come from, and the cases that have them."""

    part: LeakedPart
    cases: list[str]


def find_leaks(suite: Suite, skill: Path, own_names: Iterable[str] = ()) -> tuple[Leak, ...]:
    """Return what stands of the cases of *suite* in the files of *skill* that agents are given; not *own_names*."""
    places = _places(suite.cases)
    names = _names(suite.cases, {skill.name, *own_names})
    leaks: list[Leak] = []
    left_bytes = _LARGEST_IN_ALL
    for path in agent_files(skill) if (skill / MANIFEST).is_file() else ():
        if _is_of_suite(path, suite, skill):
            continue
        text = _text_of(path)
        left_bytes -= len(text)
        if left_bytes < 0 or len(leaks) >= _MOST_LEAKS:
            break
        if path.name.lower() not in names:
            leaks += _leaks_in(path, text, places, names)
    return tuple(leaks[:_MOST_LEAKS])


def _is_of_suite(path: Path, suite: Suite, skill: Path) -> bool:
    """Return whether a file belongs to *suite*, wherever that lies in *skill*: no agent is given it."""
    place, folder = path.resolve(), suite.source.parent
    return any(place.is_relative_to(own) for own in (suite.source, *suite.held_out, folder) if own != skill.resolve())


def _text_of(path: Path) -> str:
    """Return the text of a file of a skill; nothing of a link, except of the manifest, and of what is no text."""
    if path.is_symlink() and path.name != MANIFEST:
        return ""
    try:
        data = read_start(path, _LARGEST_FILE)
    except OSError:
        return ""
    return "" if b"\0" in data else data.decode("utf-8", "replace")


def _grams(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield for each 8 words in a row a hash of them, where they begin and where they end."""
    words = [(match[0].lower(), match.start(), match.end()) for match in _WORD.finditer(text)]
    spelled = [word for word, _, _ in words]
    for number in range(len(words) - GRAM + 1):
        yield hash(tuple(spelled[number : number + GRAM])), words[number][1], words[number + GRAM - 1][2]


def _places(cases: Iterable[Case]) -> dict[int, _Origin]:
    """Return each 8 words in a row of *cases* by their hash, with where they are from."""
    places: dict[int, _Origin] = {}
    for case in cases:
        fixtures: set[int] | None = None
        for part, text in _texts(case):
            for gram, _, _ in _grams(text[:_MOST_CHARACTERS]):
                if fixtures is None:
                    fixtures = _fixture_grams(case)
                place = places.setdefault(gram, _Origin(part, []))
                if gram not in fixtures and case.id not in place.cases[-1:]:
                    place.cases.append(case.id)
    return {gram: place for gram, place in places.items() if place.cases}


def _fixture_grams(case: Case) -> set[int]:
    """Return what the fixtures of *case* say: who writes a skill for such files may quote them."""
    grams: set[int] = set()
    for item in case.placed:
        files = () if item.source is None else _files_of(item.source)
        for text in (item.text or "", *map(_text_of, files)):
            grams.update(gram for gram, _, _ in _grams(text[:_MOST_CHARACTERS]))
    return grams


def _files_of(place: Path) -> Iterator[Path]:
    """Return the files of a fixture, which may be a folder; not too many of them."""
    return islice(filter(Path.is_file, place.rglob("*") if place.is_dir() else iter((place,))), _MOST_FIXTURES)


def _texts(case: Case) -> Iterator[tuple[LeakedPart, str]]:
    """Yield the texts of *case* that a skill must not have."""
    for prompt in (case.prompt, *case.then):
        yield "prompt", prompt
    if case.user is not None:
        yield "prompt", "\n".join((case.user.goal, *case.user.facts))
    if case.solution is not None:
        yield "answer", case.solution.answer or case.solution.run or ""
    for check in case.checks:
        yield from _texts_of_check(check.params)
        yield "rubric", check.label


def _texts_of_check(params: Mapping[str, Any]) -> Iterator[tuple[LeakedPart, str]]:
    match params.get("case"):
        case LlmRubric() as rubric:
            yield "rubric", "\n".join(item.description for item in rubric.rubric)
            yield "answer", rubric.reference or ""
        case ExactMatch() as exact:
            yield "answer", str(exact.expected)
        case BooleanAssertion() as asserted:
            for assertion in asserted.assertions:
                yield "answer", str(assertion.value)


def _names(cases: Iterable[Case], own_names: set[str]) -> dict[str, str]:
    """Return the ids of *cases* that are no ordinary words, as they are in lower case."""
    return {
        case.id.lower(): case.id
        for case in cases
        if len(case.id) >= _SHORTEST_NAME
        and len(_PARTS_OF_NAME.findall(case.id)) >= _FEWEST_PARTS
        and case.id not in own_names
        and _TOKEN.fullmatch(case.id)
    }


def _leaks_in(path: Path, text: str, places: Mapping[int, _Origin], names: Mapping[str, str]) -> Iterator[Leak]:
    """Yield the leaks of one file; 8 words after 8 others of the same case are one."""
    start, end, last = 0, -1, _Origin("prompt", [])
    for gram, begin, finish in _grams(text) if places else ():
        place = places.get(gram)
        if place is None:
            continue
        if begin <= end and place.cases[0] == last.cases[0]:
            end = finish
            continue
        if end >= 0:
            yield _leak(path, text, start, end, last)
        start, end, last = begin, finish, place
    if end >= 0:
        yield _leak(path, text, start, end, last)
    small_letters = text.lower() if names else ""
    for match in _TOKEN.finditer(small_letters):
        if match[0] in names:
            line = small_letters.count("\n", 0, match.start()) + 1
            yield Leak(file=path, line=line, part="name", words=match[0], cases=(names[match[0]],))


def _leak(path: Path, text: str, start: int, end: int, place: _Origin) -> Leak:
    return Leak(
        file=path,
        line=text.count("\n", 0, start) + 1,
        part=place.part,
        words=" ".join(text[start:end].split()),
        cases=tuple(place.cases),
    )

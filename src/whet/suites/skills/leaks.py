"""Leaks: text of a case, of its answer or of its rubric that stands in a file of the skill, and names of cases.

An agent that has read the answer passes without being able to do the task. What counts are 8 words in a row, in lower
case and without punctuation, and in a new version of a skill what a check looks for; what a fixture of the case says
too is no leak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from whet.errors import Problem
from whet.model.suite import Case, Suite
from whet.reading.text import count, one_line
from whet.suites.skills.case_texts import (
    LeakedPart,
    fixture_texts,
    literals_of,
    names_of,
    text_of_file,
    texts_of,
    without_disguise,
    words_like_names,
)
from whet.suites.skills.files import agent_files
from whet.workspace.make import MANIFEST

GRAM = 8
_WORD = re.compile(r"[^\W_]+")
_LARGEST_IN_ALL = 32 * 1024 * 1024
_MOST_CHARACTERS = 200_000
_MOST_LEAKS = 20
_SHOWN = 100
_Grams = Iterator[tuple[int, int, int]]


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
        elif self.part == "file":
            message = f"leak: names a file of the case: {self.words}"
        else:
            message = f"leak: text of the {self.part} of this case{others}: {one_line(self.words, _SHOWN)}"
        return Problem(file=str(self.file), case=self.cases[0], field=f"line {self.line}", message=message, rule="leak")


class _Origin(Struct):
    """Where some words of a case come from, and the cases that have them."""

    part: LeakedPart
    cases: list[str]


def find_leaks(
    suite: Suite, skill: Path, own_names: Iterable[str] = (), *, gram: int = GRAM, earlier: Path | None = None
) -> tuple[Leak, ...]:
    """Return what stands of the cases of *suite* in the files of *skill* that agents are given; not *own_names*.

    Of text, *gram* words in a row count. Of a skill that was made of an *earlier* one, what that says too is left out,
    and what checks look for and names of files count as well: a skill teaches such words, and a version that adds them
    when it has seen the cases does not.
    """
    search = _LeakSearch(suite.cases, {skill.name, *own_names}, gram, strictly=earlier is not None)
    for _, text in _texts_of_skill(suite, earlier) if earlier is not None else ():
        search.leave_out(text)
    leaks: list[Leak] = []
    for path, text in _texts_of_skill(suite, skill):
        if len(leaks) >= _MOST_LEAKS:
            break
        leaks += search.leaks_in(path, text)
    return tuple(leaks[:_MOST_LEAKS])


def _texts_of_skill(suite: Suite, skill: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of *skill* with their texts; nothing of a link, except of the manifest, and not too much."""
    room = _LARGEST_IN_ALL
    for path in agent_files(skill) if (skill / MANIFEST).is_file() else ():
        if _is_of_suite(path, suite, skill) or (path.is_symlink() and path.name != MANIFEST):
            continue
        text = text_of_file(path)
        room -= len(text)
        if room < 0:
            return
        yield path, text


def _is_of_suite(path: Path, suite: Suite, skill: Path) -> bool:
    """Return whether a file belongs to *suite*, if that lies in *skill*: no agent is given it."""
    place, home, folder = path.resolve(), skill.resolve(), suite.source.parent.resolve()
    # A suite above the skill, such as one beside all skills of a project, does not make the skill a part of it.
    inside = [own for own in (suite.source.resolve(), *suite.held_out, folder) if home in own.parents]
    return any(place.is_relative_to(own) for own in inside)


class _LeakSearch:
    """What to look for, of all cases."""

    def __init__(self, cases: Iterable[Case], own_names: set[str], gram: int, *, strictly: bool) -> None:
        self._cases = {case.id: case for case in cases}
        self._gram = gram
        self._places = self._places_of_grams()
        self._literals = literals_of(self._cases.values()) if strictly else {}
        names = names_of(self._cases.values(), own_names)
        self._names = {name: origin for name, origin in names.items() if strictly or origin[0] == "name"}

    def _places_of_grams(self) -> dict[int, _Origin]:
        """Return the words in a row of all cases by their hash, with where they are from."""
        places: dict[int, _Origin] = {}
        for case in self._cases.values():
            fixtures: set[int] | None = None
            for part, text in texts_of(case):
                for gram, _, _ in self._grams(without_disguise(text[:_MOST_CHARACTERS])):
                    if fixtures is None:
                        fixtures = self._fixture_grams(case)
                    place = places.setdefault(gram, _Origin(part, []))
                    if gram not in fixtures and case.id not in place.cases[-1:]:
                        place.cases.append(case.id)
        return {gram: place for gram, place in places.items() if place.cases}

    def _fixture_grams(self, case: Case) -> set[int]:
        return {gram for text in fixture_texts(case) for gram, _, _ in self._grams(text[:_MOST_CHARACTERS])}

    def _grams(self, text: str) -> _Grams:
        """Yield for each words in a row a hash of them, where they begin and where they end."""
        words = [(match[0].lower(), match.start(), match.end()) for match in _WORD.finditer(text)]
        spelled = [word for word, _, _ in words]
        for number in range(len(words) - self._gram + 1):
            last = number + self._gram
            yield hash(tuple(spelled[number:last])), words[number][1], words[last - 1][2]

    def leave_out(self, text: str) -> None:
        """Look no longer for what *text* says."""
        for gram, _, _ in self._grams(text):
            self._places.pop(gram, None)
        small_letters = text.lower()
        plain = " ".join(small_letters.split())
        self._literals = {literal: ids for literal, ids in self._literals.items() if literal not in plain}
        for match in words_like_names(small_letters) if self._names else ():
            self._names.pop(match[0], None)

    def leaks_in(self, path: Path, text: str) -> Iterator[Leak]:
        """Yield the leaks of one file; none of a file that is named like a case or one of its files."""
        if path.name.lower() in self._names:
            return
        leaks = list(self._of_grams(path, text))
        yield from leaks
        yield from self._of_literals(path, text, leaks)
        small_letters = text.lower() if self._names else ""
        for match in words_like_names(small_letters):
            if match[0] in self._names:
                part, case = self._names[match[0]]
                line = _line(small_letters, match.start())
                yield Leak(file=path, line=line, part=part, words=match[0], cases=(case,))

    def _of_grams(self, path: Path, text: str) -> Iterator[Leak]:
        """Yield what repeats words of cases; so many words after as many others of the same case are one leak."""
        start, end, last = 0, -1, _Origin("prompt", [])
        for gram, begin, finish in self._grams(text) if self._places else ():
            place = self._places.get(gram)
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

    def _of_literals(self, path: Path, text: str, leaks: Iterable[Leak]) -> Iterator[Leak]:
        """Yield what checks look for; not what is part of a leak that is known already."""
        plain = " ".join(text.lower().split()) if self._literals else ""
        known_words = [leak.words.lower() for leak in leaks]
        for literal, ids in self._literals.items():
            if literal not in plain or any(literal in words for words in known_words) or self._is_quoted(literal, ids):
                continue
            match = re.search(r"\s+".join(map(re.escape, literal.split())), text, re.IGNORECASE)
            if match is not None:
                yield _leak(path, text, match.start(), match.end(), _Origin("answer", list(ids)))

    def _is_quoted(self, literal: str, ids: Iterable[str]) -> bool:
        """Return whether fixtures of the cases say *literal* too."""
        texts = (text for case in ids for text in fixture_texts(self._cases[case]))
        return any(literal in " ".join(text.lower().split()) for text in texts)


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _leak(path: Path, text: str, start: int, end: int, origin: _Origin) -> Leak:
    return Leak(
        file=path,
        line=_line(text, start),
        part=origin.part,
        words=" ".join(text[start:end].split()),
        cases=tuple(origin.cases),
    )

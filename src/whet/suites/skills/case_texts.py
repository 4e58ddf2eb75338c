"""What of a case a skill must not have: its prompts, answers and rubrics, what its checks look for, and its names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePosixPath
from types import CodeType, FunctionType
from typing import Any, Literal

from whet.model.eval_cases import BooleanAssertion, ExactMatch, LlmRubric
from whet.model.suite import Case, Check
from whet.reading.claims.forms import Contains, Matches, Prints
from whet.reading.files import read_start
from whet.reading.patterns import looks_whole

# The parts of a case that may leak.
LeakedPart = Literal["prompt", "answer", "rubric", "name", "file"]
LARGEST_FILE = 1024 * 1024
# What a check looks for is an answer from this length on. What several cases look for is what a skill has to teach.
_SHORTEST_LITERAL = 12
_MOST_SHARING = 2
_LOOKING = frozenset(("contains", "equals", "file_contains"))
_MATCHING = frozenset(("regex", "file_matches"))
# The parts of a pattern: a character that is escaped, a repetition of what is before it, what stands for others or
# groups, and a character that stands for itself.
_PART_OF_PATTERN = re.compile(
    r"\\(?P<escaped>[^A-Za-z0-9])|(?P<repeat>[*+?]|\{[^}]*\})|(?P<other>\[[^\]]*\]|\(\?(?:[:=!]|<[=!]|P?<\w+>)|\\.|[\^$.|()])"
    r"|(?P<itself>.)",
    re.DOTALL,
)
_TOKEN = re.compile(r"\w[\w.-]*\w")
# A name of fewer parts may be an ordinary word.
_PARTS_OF_NAME = re.compile(r"[^\W_]+")
_FEWEST_PARTS, _SHORTEST_NAME = 3, 10
_MOST_FIXTURES = 200


def without_disguise(text: str) -> str:
    """Return *text* as it reads: letters in their usual forms, without characters that take no room."""
    if text.isascii():
        return text
    return "".join(
        character for character in unicodedata.normalize("NFKC", text) if unicodedata.category(character) != "Cf"
    )


def text_of_file(path: Path) -> str:
    """Return the text of a file as it reads; nothing of what is no text."""
    try:
        data = read_start(path, LARGEST_FILE)
    except OSError:
        return ""
    return "" if b"\0" in data else without_disguise(data.decode("utf-8", "replace"))


def texts_of(case: Case) -> Iterator[tuple[LeakedPart, str]]:
    """Yield the texts of *case* that a skill must not repeat."""
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
    if isinstance(function := params.get("function"), FunctionType):
        for text in _constants(function):
            yield "answer", text


def _constants(function: FunctionType) -> Iterator[str]:
    """Yield the texts in a function, also in those inside of it; not what it says of itself."""
    left: list[CodeType] = [function.__code__]
    while left:
        for constant in left.pop().co_consts:
            if isinstance(constant, CodeType):
                left.append(constant)
            elif isinstance(constant, str) and constant != function.__doc__:
                yield constant


def literals_of(cases: Iterable[Case]) -> dict[str, tuple[str, ...]]:
    """Return what checks of *cases* look for, in lower case with single blanks, and the ids of the cases that do.

    What more than two cases look for is left out: they ask for it, and it answers none of them.
    """
    literals: dict[str, dict[str, None]] = {}
    for case in cases:
        for check in case.checks:
            for text in _literals_of_check(check):
                literal = " ".join(without_disguise(text).lower().split())
                if len(literal) >= _SHORTEST_LITERAL:
                    literals.setdefault(literal, {})[case.id] = None
    return {literal: tuple(ids) for literal, ids in literals.items() if len(ids) <= _MOST_SHARING}


def _literals_of_check(check: Check) -> Iterator[str]:
    match check.params.get("claim"):
        case Contains(text=text) | Prints(text=text):
            yield text
        case Matches(pattern=pattern):
            yield from _pieces(pattern.source)
    match check.params.get("case"):
        case ExactMatch() as exact:
            yield str(exact.expected)
        case BooleanAssertion() as asserted:
            for assertion in asserted.assertions:
                if assertion.op in _LOOKING and not assertion.negate:
                    yield str(assertion.value)
                elif assertion.op in _MATCHING and not assertion.negate:
                    yield from _pieces(str(assertion.value))
    if isinstance(function := check.params.get("function"), FunctionType):
        yield from _constants(function)


def _pieces(pattern: str) -> Iterator[str]:
    """Yield the pieces of a pattern that stand for themselves."""
    piece = ""
    for part in _PART_OF_PATTERN.finditer(_source_of(pattern)):
        character = part["escaped"] or part["itself"]
        if character:
            piece += character
        else:
            yield piece[:-1] if part["repeat"] else piece
            piece = ""
    yield piece


def _source_of(pattern: str) -> str:
    """Return a pattern without the slashes and flags around it."""
    return pattern[1:].rpartition("/")[0] if looks_whole(pattern) else pattern


def names_of(cases: Iterable[Case], own_names: set[str]) -> dict[str, tuple[LeakedPart, str]]:
    """Return the ids of *cases* and the names of their files that are no ordinary words, by themselves in lower case.

    The file that two cases have is like those of any project.
    """
    names: dict[str, tuple[LeakedPart, str]] = {}
    owners: dict[str, set[str]] = {}
    for case in cases:
        if case.id not in own_names and _is_telling(case.id):
            names[case.id.lower()] = ("name", case.id)
        for item in case.placed:
            owners.setdefault(PurePosixPath(item.path).name, set()).add(case.id)
    for name, ids in owners.items():
        if len(ids) == 1 and name not in own_names and _is_telling(name):
            names.setdefault(name.lower(), ("file", next(iter(ids))))
    return names


def _is_telling(name: str) -> bool:
    is_long = len(name) >= _SHORTEST_NAME and len(_PARTS_OF_NAME.findall(name)) >= _FEWEST_PARTS
    return is_long and _TOKEN.fullmatch(name) is not None


def words_like_names(text: str) -> Iterator[re.Match[str]]:
    """Yield each piece of *text* that may be a name."""
    return _TOKEN.finditer(text)


def fixture_texts(case: Case) -> Iterator[str]:
    """Yield what the fixtures of *case* say: who writes a skill for such files may quote them."""
    for item in case.placed:
        yield without_disguise(item.text or "")
        yield from map(text_of_file, () if item.source is None else _files_of(item.source))


def _files_of(place: Path) -> Iterator[Path]:
    """Return the files of a fixture, which may be a folder; not too many of them."""
    return islice(filter(Path.is_file, place.rglob("*") if place.is_dir() else iter((place,))), _MOST_FIXTURES)

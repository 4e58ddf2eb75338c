"""Claims read from a line: `<prefix>:<rest>`, where a path may hold spaces and even the words that follow it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import lru_cache

from whet.claims import literals
from whet.claims.base import ClaimError, Reading
from whet.claims.commands import read_test
from whet.claims.forms import FORMS, Absent, Changed, Contains, Created, Exists, Matches
from whet.claims.paths import clean_path, path_warnings
from whet.claims.patterns import looks_whole, read_pattern

_PREFIX = re.compile(r"(?P<word>[^:\s]*)(?P<blank>\s*):")
# Each candidate begins a new search one word later, so that words may follow one another.
_OPERATOR = re.compile(r"(?<=\S)\s+(?=(?P<word>exists|created|contains|matches)(?P<after>\s|$))")
_BARE: dict[str, type[Exists | Created]] = {"exists": Exists, "created": Created}
_OPERATORS = ("exists", "created", "contains", "matches")


# Suites say the same of many cases.
@lru_cache(maxsize=4096)
def read_claim(text: str) -> Reading:
    """The claim that *text* makes; a `ClaimError` with the near miss where it makes none."""
    line = text.strip()
    found = _PREFIX.match(line)
    word = found["word"] if found else ""
    if found is None or word not in _READERS:
        raise _no_prefix(line, word)
    if found["blank"]:
        raise ClaimError(f'there is a space before the colon of "{word}:"', hint=f"write {word}:{line[found.end() :]}")
    return _READERS[word](line[found.end() :].strip())


def _no_prefix(line: str, word: str) -> ClaimError:
    near = get_close_matches(word.lower(), list(_READERS), n=1, cutoff=0.5) if word else []
    forms = "an expectation is one of:\n" + "\n".join(f"  {form}" for form in FORMS)
    if not line:
        return ClaimError("the expectation is empty", hint=forms)
    if near:
        rest = line.partition(":")[2].lstrip()
        return ClaimError(f'"{word}:" begins no expectation', hint=f"did you mean {near[0]}:{rest}?")
    what = f'"{word}:" begins no expectation' if word and ":" in line else f'"{_short(line)}" has no prefix'
    return ClaimError(what, hint=forms)


def _read_diff(rest: str) -> Reading:
    path = clean_path(_unquoted(rest))
    return Reading(Changed(path), path_warnings(path))


def _read_no_file(rest: str) -> Reading:
    path = clean_path(_unquoted(rest))
    return Reading(Absent(path), path_warnings(path))


def _read_file(rest: str) -> Reading:
    """The path ends where what follows is whole; quotes that are closed are looked at before those that are not."""
    splits = list(_splits(rest))
    for is_literal in (literals.strict, literals.lenient):
        for path, operator, after in splits:
            if _is_whole(operator, after, is_literal):
                return _file_claim(clean_path(path), operator, after)
    raise _no_operator(rest, splits)


def _splits(rest: str) -> Iterator[tuple[str, str, str]]:
    """Every way to take *rest* as path, operator and what comes after; a quoted path is the first of them."""
    quoted = literals.leading(rest)
    if quoted is not None:
        found = _OPERATOR.match(f'"{quoted[1]}', 1)
        if found:
            yield quoted[0], found["word"], quoted[1][found.end("word") - 1 :].strip()
    for found in _OPERATOR.finditer(rest):
        yield rest[: found.start()], found["word"], rest[found.end("word") :].strip()


def _is_whole(operator: str, after: str, is_literal: Callable[[str], str | None]) -> bool:
    if operator in _BARE:
        return not after
    return looks_whole(after) if operator == "matches" else is_literal(after) is not None


def _file_claim(path: str, operator: str, after: str) -> Reading:
    warnings = path_warnings(path)
    if operator in _BARE:
        return Reading(_BARE[operator](path), warnings)
    if operator == "matches":
        pattern, more = read_pattern(after)
        return Reading(Matches(path, pattern), (*warnings, *more))
    text, more = read_literal(after)
    return Reading(Contains(path, text), (*warnings, *more))


def read_literal(after: str) -> tuple[str, tuple[str, ...]]:
    """The text in quotes that *after* is, one way or the other."""
    text = literals.strict(after)
    if text is not None:
        if not text:
            raise ClaimError("the text is empty, and would be found in anything")
        return text, ()
    text = literals.lenient(after)
    assert text is not None
    return text, (f"a quote inside of the text is not escaped; it is read as {literals.quoted(text)}",)


def _no_operator(rest: str, splits: list[tuple[str, str, str]]) -> ClaimError:
    """The near miss: the operator whose remainder is not whole, or the word that was meant to be one."""
    if not rest:
        return ClaimError("the path is missing", hint=FORMS[0])
    for path, operator, after in splits:
        if operator == "contains":
            message, hint = literals.near_miss(after, f"file:{path} contains {{}}")
            return ClaimError(message, hint=f"write {hint}")
        if operator == "matches":
            return _no_pattern(path, after)
    path, _, last = rest.rpartition(" ")
    near = get_close_matches(last.lower(), _OPERATORS, n=1, cutoff=0.7) if path else []
    words = rest.split()
    inner = [(word, get_close_matches(word.lower(), _OPERATORS, n=1, cutoff=0.8)) for word in words[1:]]
    found = next(((word, match[0]) for word, match in inner if match and word not in _OPERATORS), None)
    if near or found:
        word, match = (last, near[0]) if near else found or ("", "")
        return ClaimError(f'"{word}" is not something to say of a file', hint=f'did you mean "{match}"?')
    return ClaimError(
        f"it does not say what should be true of {_short(rest)}",
        hint="add exists, created, contains '...' or matches /.../",
    )


def _no_pattern(path: str, after: str) -> ClaimError:
    if not after:
        return ClaimError("the pattern is missing", hint=f"write file:{path} matches /.../")
    if after.startswith("/") and "/" in after[1:]:
        # The flags are what is wrong, and say it themselves.
        try:
            read_pattern(after)
        except ClaimError as error:
            return error
    if after.startswith("/"):
        return ClaimError("the pattern is not closed by a slash", hint=f"write file:{path} matches {after}/")
    return ClaimError("the pattern does not stand between slashes", hint=f"write file:{path} matches /{after}/")


def _unquoted(path: str) -> str:
    inner = literals.strict(path)
    return path if inner is None else inner


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


_READERS: dict[str, Callable[[str], Reading]] = {
    "file": _read_file,
    "no-file": _read_no_file,
    "diff": _read_diff,
    "test": read_test,
}

"""Claims read from an object: `{"file": "src/a.ts", "contains": "..."}` says what the line says, without quotes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from whet.errors import ClaimError
from whet.reading.claim_lines import exit_code, quoted, read_claim
from whet.reading.claims import (
    Absent,
    Changed,
    Claim,
    Contains,
    Created,
    Exists,
    Fails,
    Matches,
    Passes,
    Prints,
    Quits,
    Reading,
    command_of,
    path_of,
)
from whet.reading.paths import clean_path, path_warnings
from whet.reading.patterns import Pattern, read_pattern
from whet.reading.text import check_text

# What an object is about, what it says of it, and the form that this is.
_FORMS: dict[tuple[str, str | None], type[Claim]] = {
    ("file", "exists"): Exists,
    ("file", "created"): Created,
    ("file", "contains"): Contains,
    ("file", "matches"): Matches,
    ("test", "passes"): Passes,
    ("test", "fails"): Fails,
    ("test", "exits"): Quits,
    ("test", "prints"): Prints,
    ("diff", None): Changed,
    ("no-file", None): Absent,
}
_WORDS = {form: words for words, form in _FORMS.items()}
_SUBJECTS = tuple(dict.fromkeys(subject for subject, _ in _FORMS))
_FLAGS = ("exists", "created", "passes", "fails")


def read_object(given: Mapping[str, Any]) -> Reading:
    """Parse the claim in an object; raises `ClaimError` with the near miss."""
    subject = _subject(given)
    value = _text(given[subject], subject)
    operator = _operator(given, subject)
    if subject == "test":
        return _of_command(value.strip(), operator, given)
    path = clean_path(value)
    warnings = path_warnings(path)
    if operator == "contains":
        return Reading(Contains(path, check_text(_text(given[operator], operator), "text")), warnings)
    if operator == "matches":
        pattern, more = read_pattern(_text(given[operator], operator))
        return Reading(Matches(path, pattern), (*warnings, *more))
    form: Any = _FORMS.get((subject, operator))
    if form is None:
        hint = f"add one of {', '.join(_operators(subject))}"
        raise ClaimError(f"it does not say what should be true of {path}", hint=hint)
    return Reading(form(path), warnings)


def _operators(subject: str) -> list[str]:
    """Return what may be said of *subject*."""
    return [operator for about, operator in _FORMS if about == subject and operator is not None]


def _subject(given: Mapping[str, Any]) -> str:
    found = [name for name in _SUBJECTS if name in given]
    if len(found) == 1:
        return found[0]
    if found:
        raise ClaimError(f'"{found[0]}" and "{found[1]}" are two expectations', hint="write an object for each")
    if any(str(name).startswith(tuple(f"{subject}:" for subject in _SUBJECTS)) for name in given):
        # A colon and a blank in a text that YAML has no quotes around.
        raise ClaimError("the line was read as an object, because of a colon in it", hint="put all of it into quotes")
    near = [match for name in given for match in get_close_matches(str(name).lower(), _SUBJECTS, n=1)]
    hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(_SUBJECTS)}"
    raise ClaimError("the object does not say what it is about", hint=hint)


def _operator(given: Mapping[str, Any], subject: str) -> str | None:
    known = _operators(subject)
    others = [str(name) for name in given if name != subject]
    for name in others:
        if name not in known:
            near = get_close_matches(name.lower(), known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known) or 'nothing but the path'}"
            raise ClaimError(f'"{name}" cannot be said of a "{subject}"', hint=hint)
    if len(others) > 1:
        raise ClaimError(f'"{others[0]}" and "{others[1]}" are two expectations', hint="write an object for each")
    if others and others[0] in _FLAGS and given[others[0]] is not True:
        instead = {"exists": 'use {"no-file": ...}', "passes": 'use "fails": true'}.get(others[0])
        raise ClaimError(f'"{others[0]}" can only be true', hint=instead)
    return others[0] if others else None


def _of_command(command: str, operator: str | None, given: Mapping[str, Any]) -> Reading:
    check_text(command, "command")
    if operator == "exits":
        code = given["exits"]
        if isinstance(code, bool) or not isinstance(code, int):
            raise ClaimError(f'"exits" must be a whole number, not {code!r}')
        return Reading(Quits(command, exit_code(code)))
    if operator == "prints":
        return Reading(Prints(command, check_text(_text(given["prints"], "prints"), "text")))
    if operator == "fails":
        return Reading(Fails(command))
    last = command.rsplit(maxsplit=1)[-1]
    warning = f'"{last}" is part of the command; in an object, write "{last}": true next to it'
    return Reading(Passes(command), (warning,) if last in ("passes", "fails") else ())


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ClaimError(f'"{name}" must be a string, not {value!r}')
    if not value.strip() and (name in _SUBJECTS or not value):
        raise ClaimError(f'"{name}" must not be empty')
    return value


def write_claim(claim: Claim) -> str:
    """Return the line of this claim; its path is quoted only if it needs quotes."""
    about = path_of(claim) or command_of(claim) or ""
    plain = _line(claim, about)
    try:
        if read_claim(plain).claim == claim:
            return plain
    except ClaimError:
        pass
    return _line(claim, quoted(about))


def write_object(claim: Claim) -> dict[str, Any]:
    """Return the object of this claim."""
    subject, operator = _WORDS[type(claim)]
    said = {subject: path_of(claim) or command_of(claim)}
    if operator is None:
        return said
    value = _value(claim)
    return {**said, operator: str(value) if isinstance(value, Pattern) else True if value is None else value}


def _line(claim: Claim, about: str) -> str:
    subject, operator = _WORDS[type(claim)]
    value = _value(claim)
    shown = quoted(value) if isinstance(value, str) else "" if value is None else str(value)
    return " ".join(part for part in (f"{subject}:{about}", operator, shown) if part)


def _value(claim: Claim) -> Any:
    """Return what follows the operator, if anything does: the second field of the form."""
    _, *second = fields(claim)
    return getattr(claim, second[0].name) if second else None

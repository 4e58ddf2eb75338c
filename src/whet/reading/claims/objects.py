"""Claims read from an object: `{"file": "src/a.ts", "contains": "..."}` says what the line says, without quotes."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from whet.errors import ClaimError
from whet.reading.claims.forms import (
    Absent,
    Changed,
    Claim,
    Contains,
    Created,
    Exists,
    Fails,
    Matches,
    ParsedClaim,
    Passes,
    Prints,
    Quits,
    command_of,
    path_of,
)
from whet.reading.claims.lines import exit_code, quote_text, read_claim
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


def read_object(document: Mapping[str, Any]) -> ParsedClaim:
    """Parse the claim in an object; raises `ClaimError` with the near miss."""
    subject = _subject(document)
    value = _text(document[subject], subject)
    operator = _operator(document, subject)
    if subject == "test":
        return _of_command(value.strip(), operator, document)
    path = clean_path(value)
    warnings = path_warnings(path)
    if operator == "contains":
        return ParsedClaim(Contains(path, check_text(_text(document[operator], operator), "text")), warnings)
    if operator == "matches":
        pattern, more = read_pattern(_text(document[operator], operator))
        return ParsedClaim(Matches(path, pattern), (*warnings, *more))
    form: Any = _FORMS.get((subject, operator))
    if form is None:
        hint = f"add one of {', '.join(_operators(subject))}"
        raise ClaimError(f"it does not say what should be true of {path}", hint=hint)
    return ParsedClaim(form(path), warnings)


def _operators(subject: str) -> list[str]:
    """Return what may be said of *subject*."""
    return [operator for about, operator in _FORMS if about == subject and operator is not None]


def _subject(document: Mapping[str, Any]) -> str:
    subjects = [name for name in _SUBJECTS if name in document]
    if len(subjects) == 1:
        return subjects[0]
    if subjects:
        raise ClaimError(f'"{subjects[0]}" and "{subjects[1]}" are two expectations', hint="write an object for each")
    if any(str(name).startswith(tuple(f"{subject}:" for subject in _SUBJECTS)) for name in document):
        # A colon and a blank in a text that YAML has no quotes around.
        raise ClaimError("the line was read as an object, because of a colon in it", hint="put all of it into quotes")
    near = [match for name in document for match in get_close_matches(str(name).lower(), _SUBJECTS, n=1)]
    hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(_SUBJECTS)}"
    raise ClaimError("the object does not say what it is about", hint=hint)


def _operator(document: Mapping[str, Any], subject: str) -> str | None:
    allowed = _operators(subject)
    operators = [str(name) for name in document if name != subject]
    for name in operators:
        if name not in allowed:
            near = get_close_matches(name.lower(), allowed, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(allowed) or 'nothing but the path'}"
            raise ClaimError(f'"{name}" cannot be said of a "{subject}"', hint=hint)
    if len(operators) > 1:
        raise ClaimError(f'"{operators[0]}" and "{operators[1]}" are two expectations', hint="write an object for each")
    if operators and operators[0] in _FLAGS and document[operators[0]] is not True:
        instead = {"exists": 'use {"no-file": ...}', "passes": 'use "fails": true'}.get(operators[0])
        raise ClaimError(f'"{operators[0]}" can only be true', hint=instead)
    return operators[0] if operators else None


def _of_command(command: str, operator: str | None, document: Mapping[str, Any]) -> ParsedClaim:
    check_text(command, "command")
    if operator == "exits":
        code = document["exits"]
        if isinstance(code, bool) or not isinstance(code, int):
            raise ClaimError(f'"exits" must be a whole number, not {code!r}')
        return ParsedClaim(Quits(command, exit_code(code)))
    if operator == "prints":
        return ParsedClaim(Prints(command, check_text(_text(document["prints"], "prints"), "text")))
    if operator == "fails":
        return ParsedClaim(Fails(command))
    last = command.rsplit(maxsplit=1)[-1]
    warning = f'"{last}" is part of the command; in an object, write "{last}": true next to it'
    return ParsedClaim(Passes(command), (warning,) if last in ("passes", "fails") else ())


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
    return _line(claim, quote_text(about))


def write_object(claim: Claim) -> dict[str, Any]:
    """Return the object of this claim."""
    subject, operator = _WORDS[type(claim)]
    document = {subject: path_of(claim) or command_of(claim)}
    if operator is None:
        return document
    value = _value(claim)
    if isinstance(value, Pattern):
        value = str(value)
    return {**document, operator: True if value is None else value}


def _line(claim: Claim, about: str) -> str:
    subject, operator = _WORDS[type(claim)]
    value = _value(claim)
    if isinstance(value, str):
        operand = quote_text(value)
    elif value is None:
        operand = ""
    else:
        operand = str(value)
    return " ".join(part for part in (f"{subject}:{about}", operator, operand) if part)


def _value(claim: Claim) -> Any:
    """Return what follows the operator, if anything does: the second field of the form."""
    _, *second = claim.__struct_fields__
    return getattr(claim, second[0]) if second else None

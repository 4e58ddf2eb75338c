"""Claims read from a line: `<prefix>:<rest>`, where a path may hold spaces and even the words that follow it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import lru_cache, partial

from whet.errors import ClaimError
from whet.reading.claims.forms import (
    FORMS,
    Absent,
    Changed,
    Contains,
    Created,
    Exists,
    Fails,
    Matches,
    ParsedClaim,
    Passes,
    Prints,
    Quits,
)
from whet.reading.paths import clean_path, path_warnings
from whet.reading.patterns import looks_whole, read_pattern
from whet.reading.text import check_text, shorten

_STRICT = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_CURLY = "\u2018\u2019\u201c\u201d\u00b4\u0060"
_QUOTES = "'\""
_SHORTEST = 2


def strict(text: str) -> str | None:
    """Return the text in the quotes, if *text* is quoted from its first character to its last."""
    match = _STRICT.fullmatch(text)
    return None if match is None else _unescape(match)


def leading(text: str) -> tuple[str, str] | None:
    """Return the quoted text at the beginning, and what follows it."""
    match = _STRICT.match(text)
    return None if match is None else (_unescape(match), text[match.end() :])


def lenient(text: str) -> str | None:
    """Return what is between the outer quotes, unchanged: `'it's'` says `it's`."""
    if len(text) > _SHORTEST and text[0] in _QUOTES and text[-1] == text[0]:
        return text[1:-1]
    return None


def quote_text(text: str) -> str:
    """*text* in single quotes."""
    body = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{body}'"


def near_miss(text: str, form: str) -> tuple[str, str]:
    """Return why *text* is not a quoted one, and how to write it; *form* is the whole line with `{}` for it."""
    plain = text.strip()
    if not plain:
        return "the text is missing", form.format("'...'")
    if plain[0] in _CURLY or plain[-1] in _CURLY:
        return "the text is in typographic quotes", form.format(quote_text(plain.strip(_CURLY + _QUOTES)))
    if plain[0] in _QUOTES:
        return f"the quote {plain[0]} is not closed", form.format(quote_text(plain[1:]))
    return "the text is not in quotes", form.format(quote_text(plain))


def _unescape(match: re.Match[str]) -> str:
    quote, body = ("'", match[1]) if match[1] is not None else ('"', match[2])
    return re.sub(rf"\\([\\{quote}])", r"\1", body)


_PASSES = re.compile(r"(?:^|\s+)passes$")
_FAILS = re.compile(r"(?:^|\s+)fails$")
_EXITS = re.compile(r"(?:^|\s+)exits\s+(?P<code>\S+)$")
_PRINTS = re.compile(r"(?:^|\s+)prints\s+(?=['\"])")
_LARGEST_CODE = 255
# Words that would go to the command, but probably say how it should end.
_MEANT = {
    **dict.fromkeys(("pass", "passed", "succeeds", "success"), "passes"),
    **dict.fromkeys(("fail", "failed"), "fails"),
}


def read_test(rest: str) -> ParsedClaim:
    """Parse *rest*, which follows `test:`."""
    if match := _PASSES.search(rest):
        return ParsedClaim(Passes(_command(rest[: match.start()])))
    if match := _FAILS.search(rest):
        return ParsedClaim(Fails(_command(rest[: match.start()])))
    if (match := _EXITS.search(rest)) and match["code"].lstrip("-").isdecimal():
        return ParsedClaim(Quits(_command(rest[: match.start()]), exit_code(int(match["code"]))))
    return _prints(rest) or ParsedClaim(Passes(_command(rest)), _plain_warnings(rest))


def exit_code(number: int) -> int:
    """*number*, if a program can end with it."""
    if not 0 <= number <= _LARGEST_CODE:
        raise ClaimError(f"no command exits with {number}", hint=f"exit codes go from 0 to {_LARGEST_CODE}")
    return number


def _prints(rest: str) -> ParsedClaim | None:
    candidates = list(_PRINTS.finditer(rest))
    for is_literal in (strict, lenient):
        for match in candidates:
            after = rest[match.end() :]
            if is_literal(after) is not None:
                text, warnings = read_literal(after)
                return ParsedClaim(Prints(_command(rest[: match.start()]), text), warnings)
    return None


def read_literal(after: str) -> tuple[str, tuple[str, ...]]:
    """Parse the quoted text in *after*, strictly or loosely, with warnings."""
    text = strict(after)
    if text is not None:
        if not text:
            raise ClaimError("the text is empty, and would be found in anything")
        return text, ()
    text = lenient(after)
    assert text is not None
    return text, (f"a quote inside of the text is not escaped; it is read as {quote_text(text)}",)


def _command(text: str) -> str:
    command = text.strip()
    if not command:
        raise ClaimError("the command is missing", hint="write test:npm test")
    return check_text(command, "command")


def _plain_warnings(rest: str) -> tuple[str, ...]:
    words = rest.split()
    if len(words) > 1 and words[-1] in _MEANT:
        correction = _MEANT[words[-1]]
        return (f'"{words[-1]}" is part of the command; to say how it should end, write "{correction}"',)
    if len(words) > 2 and words[-2] in {"exits", "prints"}:  # noqa: PLR2004 - a command, the word, and what follows
        operand = "a number" if words[-2] == "exits" else "a text in quotes"
        return (f'"{words[-2]} {words[-1]}" is part of the command; "{words[-2]}" needs {operand} after it',)
    return ()


_PREFIX = re.compile(r"(?P<word>[^:\s]*)(?P<blank>\s*):")
# Each candidate begins a new search one word later, so that words may follow one another.
_OPERATOR = re.compile(r"(?<=\S)\s+(?=(?P<word>exists|created|contains|matches)(?P<after>\s|$))")
# What authors write after a path of a form that takes nothing there.
_SAID = re.compile(
    r"(?<=\S)\s+(?:(?:was|is|does|has|not|been)\s+)*"
    r"(?:exists?|created|changed|modified|deleted|removed|missing|absent|gone|passes|contains\s.*|matches\s.*)$",
    re.DOTALL,
)
_DENIED = re.compile(r"\s(?:not|is|was|does|has|doesn't|isn't|wasn't)$")
_BARE: dict[str, type[Exists | Created]] = {"exists": Exists, "created": Created}
_OPERATORS = ("exists", "created", "contains", "matches")
# What other tools, and people, call them.
_OTHER_PREFIXES = {
    **dict.fromkeys(("dir", "folder", "directory", "path"), "file"),
    **dict.fromkeys(("cmd", "command", "run", "exec", "shell"), "test"),
    **dict.fromkeys(("changed", "modified"), "diff"),
    **dict.fromkeys(("absent", "deleted", "removed", "not-file"), "no-file"),
}


# Suites say the same of many cases.
@lru_cache(maxsize=4096)
def read_claim(text: str) -> ParsedClaim:
    """Parse the claim in *text*; raises `ClaimError` with the near miss."""
    line = text.strip()
    prefix = _PREFIX.match(line)
    word = prefix["word"] if prefix else ""
    if prefix is None or word not in _READERS:
        raise _no_prefix(line, word)
    if prefix["blank"]:
        raise ClaimError(f'there is a space before the colon of "{word}:"', hint=f"write {word}:{line[prefix.end() :]}")
    return _READERS[word](line[prefix.end() :].strip())


def _no_prefix(line: str, word: str) -> ClaimError:
    forms = "an expectation is one of:\n" + "\n".join(f"  {form}" for form in FORMS)
    if not line:
        return ClaimError("the expectation is empty", hint=forms)
    suggestion = next((candidate for candidate in _guess_claims(line, word) if _is_claim(candidate)), None)
    what = f'"{word}:" does not begin an expectation' if word and ":" in line else f'"{shorten(line)}" has no prefix'
    return ClaimError(what, hint=f"did you mean {suggestion}?" if suggestion else forms)


def _guess_claims(line: str, word: str) -> Iterator[str]:
    """Yield what a line without a known prefix may mean, the likeliest first."""
    remainder = line.partition(":")[2].lstrip()
    if word in _OPERATORS:
        yield f"file:{remainder} {word}"
    if word.lower() in _OTHER_PREFIXES:
        yield f"{_OTHER_PREFIXES[word.lower()]}:{remainder}"
    if word:
        yield from (f"{near}:{remainder}" for near in get_close_matches(word.lower(), list(_READERS), n=1, cutoff=0.5))
        return
    yield f"file:{line}"
    if line.rpartition(" ")[2] in ("passes", "fails"):
        yield f"test:{line}"


def _is_claim(line: str) -> bool:
    try:
        return bool(read_claim(line))
    except ClaimError:
        return False


def _read_path(form: type[Changed | Absent], prefix: str, rest: str) -> ParsedClaim:
    literal = strict(rest)
    path = clean_path(rest if literal is None else literal)
    return ParsedClaim(form(path), (*path_warnings(path), *_said_too_much(prefix, rest)))


def _said_too_much(prefix: str, rest: str) -> Iterator[str]:
    """Warn of a path that ends in words about files: allowed, but probably not meant."""
    match = _SAID.search(rest)
    if match and strict(rest) is None:
        yield f'"{match[0].strip()}" is read as part of the path; write {prefix}:{rest[: match.start()]}'


def _read_file(rest: str) -> ParsedClaim:
    """The path ends where what follows is whole; quotes that are closed are looked at before those that are not."""
    splits = list(_splits(rest))
    for is_literal in (strict, lenient):
        for path, operator, after in splits:
            if _is_whole(operator, after, is_literal):
                return _file_claim(clean_path(path), operator, after)
    raise _no_operator(rest, splits)


def _splits(rest: str) -> Iterator[tuple[str, str, str]]:
    """Every way to take *rest* as path, operator and what comes after; a quoted path is the first of them."""
    literal = leading(rest)
    if literal is not None:
        match = _OPERATOR.match(f'"{literal[1]}', 1)
        if match:
            yield literal[0], match["word"], literal[1][match.end("word") - 1 :].strip()
    for match in _OPERATOR.finditer(rest):
        yield rest[: match.start()], match["word"], rest[match.end("word") :].strip()


def _is_whole(operator: str, after: str, is_literal: Callable[[str], str | None]) -> bool:
    if operator in _BARE:
        return not after
    return looks_whole(after) if operator == "matches" else is_literal(after) is not None


def _file_claim(path: str, operator: str, after: str) -> ParsedClaim:
    warnings = path_warnings(path)
    if match := _DENIED.search(path):
        word = match[0].strip()
        warnings += (f'"{word}" is read as part of the path; leave it out, or use no-file: to deny',)
    if operator in _BARE:
        return ParsedClaim(_BARE[operator](path), warnings)
    if operator == "matches":
        pattern, more = read_pattern(after)
        return ParsedClaim(Matches(path, pattern), (*warnings, *more))
    text, more = read_literal(after)
    return ParsedClaim(Contains(path, text), (*warnings, *more))


def _no_operator(rest: str, splits: list[tuple[str, str, str]]) -> ClaimError:
    """Return the near miss: the operator whose remainder is not whole, or the word that was meant as one."""
    if not rest or rest.split(maxsplit=1)[0] in _OPERATORS:
        return ClaimError("the path is missing", hint=f"write {FORMS[0]}")
    for path, operator, after in splits:
        if operator == "contains":
            message, hint = near_miss(after, f"file:{path} contains {{}}")
            return ClaimError(message, hint=f"write {hint}")
        if operator == "matches":
            return _no_pattern(path, after)
    path, _, last = rest.rpartition(" ")
    near = get_close_matches(last.lower(), _OPERATORS, n=1, cutoff=0.7) if path else []
    words = rest.split()
    inner = [(word, get_close_matches(word.lower(), _OPERATORS, n=1, cutoff=0.8)) for word in words[1:]]
    misspelling = next(((word, match[0]) for word, match in inner if match and word not in _OPERATORS), None)
    if near or misspelling:
        word, match = (last, near[0]) if near else misspelling or ("", "")
        return ClaimError(f'"{word}" is not something to say of a file', hint=f'did you mean "{match}"?')
    return ClaimError(
        f"it does not say what should be true of {shorten(rest)}",
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
    return ClaimError("the pattern is not between slashes", hint=f"write file:{path} matches /{after}/")


_READERS: dict[str, Callable[[str], ParsedClaim]] = {
    "file": _read_file,
    "no-file": partial(_read_path, Absent, "no-file"),
    "diff": partial(_read_path, Changed, "diff"),
    "test": read_test,
}

r"""Texts in quotes: `'...'` or `"..."`; a backslash escapes the quote and itself, and stands for itself elsewhere."""

from __future__ import annotations

import re

_STRICT = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_CURLY = "\u2018\u2019\u201c\u201d\u00b4\u0060"
_QUOTES = "'\""
_SHORTEST = 2


def strict(text: str) -> str | None:
    """What a quoted *text* says, if it is one from its first character to its last."""
    found = _STRICT.fullmatch(text)
    return None if found is None else _unescaped(found)


def leading(text: str) -> tuple[str, str] | None:
    """What the quoted text at the beginning says, and what follows it."""
    found = _STRICT.match(text)
    return None if found is None else (_unescaped(found), text[found.end() :])


def lenient(text: str) -> str | None:
    """What stands between the outer quotes, as it is: `'it's'` says `it's`."""
    if len(text) > _SHORTEST and text[0] in _QUOTES and text[-1] == text[0]:
        return text[1:-1]
    return None


def quoted(text: str) -> str:
    """*text* in single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def near_miss(text: str, form: str) -> tuple[str, str]:
    """What keeps *text* from being a quoted one, and how to write it; *form* shows the whole with `{}` for it."""
    plain = text.strip()
    if not plain:
        return "the text is missing", form.format("'...'")
    if plain[0] in _CURLY or plain[-1] in _CURLY:
        return "the text stands in typographic quotes", form.format(quoted(plain.strip(_CURLY + _QUOTES)))
    if plain[0] in _QUOTES:
        return f"the quote {plain[0]} is not closed", form.format(quoted(plain[1:]))
    return "the text is not in quotes", form.format(quoted(plain))


def _unescaped(found: re.Match[str]) -> str:
    quote, body = ("'", found[1]) if found[1] is not None else ('"', found[2])
    return re.sub(rf"\\([\\{quote}])", r"\1", body)

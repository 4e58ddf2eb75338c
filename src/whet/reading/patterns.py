"""Regular expressions of JavaScript: recognised, checked when a suite is read, and compiled.

The engine is made for JavaScript, so nothing is translated. It backtracks: search only where you can stop it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct
from regress import Regex, RegressError

from whet.errors import ClaimError

_WHOLE = re.compile(r"/(?P<source>.*)/(?P<flags>[a-zA-Z]*)", re.DOTALL)
_COUNT = "imsu"
_WITHOUT_EFFECT = "gyd"
_LONGEST = 10_000
# Spellings of other languages, and how JavaScript has them.
_OF_OTHERS = (
    (re.compile(r"\(\?[a-zA-Z]+\)"), "write flags after the last slash: /.../i"),
    (re.compile(r"\(\?P[<=]"), "name a group by (?<n>...), and refer to it by \\k<n>"),
)
_OTHER_ANCHOR = re.compile(r"(?<!\\)(?:\\\\)*\\([AZz])")
_CODE_POINT = re.compile(r"(?<!\\)(?:\\\\)*\\u\{[0-9a-fA-F]+\}")


class Pattern(Struct, frozen=True):
    """A regular expression of JavaScript, as written between its slashes, and the flags that count."""

    source: str
    flags: str = ""

    def __str__(self) -> str:
        return f"/{self.source}/{self.flags}"


def looks_whole(text: str) -> bool:
    """Return whether all of *text* is `/.../` with flags."""
    match = _WHOLE.fullmatch(text)
    return match is not None and set(match["flags"]) <= set(_COUNT + _WITHOUT_EFFECT + "v")


def read_pattern(text: str) -> tuple[Pattern, tuple[str, ...]]:
    """Parse `/source/flags`, with warnings; raises `ClaimError` if JavaScript would."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise ClaimError("a pattern is between slashes", hint=f"write /{text.strip('/')}/")
    source, flags = match["source"], match["flags"]
    _check_flags(flags)
    if not source:
        raise ClaimError("the pattern is empty, and would match anything")
    pattern = Pattern(source, "".join(flag for flag in _COUNT if flag in flags))
    _check_source(pattern)
    return pattern, tuple(_warnings(pattern, flags))


@lru_cache
def compiled(pattern: Pattern) -> Regex:
    """Return the compiled pattern."""
    return Regex(pattern.source, pattern.flags)


def _check_flags(flags: str) -> None:
    if len(set(flags)) < len(flags):
        raise ClaimError(f'a flag is repeated in "{flags}"')
    if "v" in flags:
        raise ClaimError("the flag v is not supported", hint="write the sets out, and use the flag u")
    unknown = sorted(set(flags) - set(_COUNT + _WITHOUT_EFFECT))
    if unknown:
        raise ClaimError(
            f'there is no flag "{unknown[0]}"',
            hint=f"known: {', '.join(_COUNT)}; a pattern that ends in /{flags} needs one more slash",
        )


def _check_source(pattern: Pattern) -> None:
    if len(pattern.source) > _LONGEST:
        raise ClaimError(f"the pattern has more than {_LONGEST:,} characters")
    try:
        compiled(pattern)
    except RegressError as error:
        reason = str(error).rstrip(".")
        hint = next((hint for spelling, hint in _OF_OTHERS if spelling.search(pattern.source)), None)
        raise ClaimError(
            f"{pattern} is not a regular expression: {reason[:1].lower()}{reason[1:]}", hint=hint
        ) from None
    except UnicodeEncodeError:
        raise ClaimError("the pattern holds half a surrogate pair") from None


def _warnings(pattern: Pattern, flags: str) -> list[str]:
    warnings = [f"the flag {flag} has no effect: a file is searched once" for flag in _WITHOUT_EFFECT if flag in flags]
    if anchor := _OTHER_ANCHOR.search(pattern.source):
        warnings.append(f"\\{anchor[1]} is the letter {anchor[1]} in JavaScript; the ends of a text are ^ and $")
    code_point = _CODE_POINT.search(pattern.source)
    if code_point and "u" not in pattern.flags:
        warnings.append(f"{code_point[0]} is a character only with the flag u in JavaScript; write {pattern}u")
    return warnings


def pattern_of(text: str) -> Pattern:
    """Parse a regular expression with or without slashes around it; raises `ClaimError`."""
    return read_pattern(text if looks_whole(text) else f"/{text}/")[0]


_LEADING = re.compile(r"\(\?([a-zA-Z]+)\)")


def flagged_pattern(text: str) -> Pattern:
    """Return a regular expression of JavaScript that may begin with flags, such as `(?i)`; raises `ClaimError`."""
    flags, source = "", text
    while match := _LEADING.match(source):
        flags += match[1]
        source = source[match.end() :]
    return read_pattern(f"/{source}/{''.join(sorted(set(flags)))}")[0]


_INLINE = re.compile(r"\(\?(?P<on>[imnsx]*)(?:-(?P<off>[imnsx]+))?\)")
# An escape, a class of characters, a group with a special beginning, or the end of a line.
_OF_DOTNET = re.compile(
    r"\\(?P<escaped>.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<comment>\(\?#[^)]*\))|\(\?'(?P<name>\w+)'"
    r"|(?P<special>\(\?(?:>|\(|[imnsx]*(?:-[imnsx]+)?[:)]))|(?P<end>\$)",
    re.DOTALL,
)


def dotnet_pattern(text: str) -> Pattern:
    """Return a regular expression of .NET, which ignores case, as one of JavaScript; raises `ClaimError`."""
    flags, source = {"i"}, text
    while match := _INLINE.match(source):
        flags = (flags | set(match["on"])) - set(match["off"] or "")
        source = source[match.end() :]
    for flag in sorted(flags & {"n", "x"}):
        raise ClaimError(f"the flag {flag} of .NET has no equal in JavaScript")
    if re.search(r"(?<!\\)(?:\\\\)*\\[pP]\{", source):
        flags.add("u")
    javascript = _OF_DOTNET.sub(lambda match: _translated(match, several_lines="m" in flags), source)
    return read_pattern(f"/{javascript}/{''.join(sorted(flags))}")[0]


def _translated(match: re.Match[str], *, several_lines: bool) -> str:
    ends = {"A": "^", "z": "$", "Z": r"(?=\n?$)"}
    match match.lastgroup:
        case "escaped" if match["escaped"] == "G" or (several_lines and match["escaped"] in ends):
            raise ClaimError(f"{match[0]} of .NET has no equal in JavaScript")
        case "escaped":
            return ends.get(match["escaped"], match[0])
        case "set" if "-[" in match[0]:
            raise ClaimError("a set without another one has no equal in JavaScript")
        case "comment":
            return ""
        case "name":
            return f"(?<{match['name']}>"
        case "special" if match[0] != "(?:":
            raise ClaimError(f"{match[0]} of .NET has no equal in JavaScript")
        case "end":
            # The end of a text is also before its last line break.
            return "$" if several_lines else r"(?=\n?$)"
        case _:
            return match[0]

"""Text for people: values and foreign text made short and harmless, numbers with units, paths that open."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TextIO

from whet.errors import ClaimError

# Whole escape sequences go, so that no "[31m" is left behind. Only those that end are taken: one that
# does not must not swallow the rest of a message.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor
    r"|\x9b[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\|\x9c)"  # OSC, DCS and the like: titles, links, clipboard
    r"|\x1b[ -/]{1,8}[0-~]"
    r"|\x1b[0-Z\\^-~]"
)
# What is left of C0 and C1, marks that turn the reading direction around, halves of characters, and tags, in which
# nobody but a language model sees a text.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_MESSAGE_CHARACTERS = 20_000
# Terminals that open links, by what they put into the environment.
_VTE_BEFORE_LINKS = 5000
_LINKING_PROGRAMS = frozenset({"iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "rio", "Tabby", "zed"})
_LINKING_TERMINALS = frozenset(
    {"alacritty", "contour", "foot", "foot-extra", "wezterm", "xterm-ghostty", "xterm-kitty"}
)
_LINKING_VARIABLES = ("KONSOLE_VERSION", "WT_SESSION", "DOMTERM", "KITTY_WINDOW_ID", "WEZTERM_PANE")


def clean(text: str) -> str:
    """Return *text* without escape sequences and control characters; newlines stay, tabs become blanks."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROLS.sub("", text.replace("\t", "    "))


def shown(value: Any, most: int = 60, *, quotes: bool = True) -> str:
    """Return *value* as JSON for a message, shortened; without *quotes*, a string is shown as it is."""
    if isinstance(value, str) and not quotes:
        return printable(shorten(value, most))
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "something that is nested too deeply"
    except ValueError:
        # The value refers to itself, or has a number with too many digits.
        text = written(value)
    return printable(shorten(text, most))


def written(value: Any) -> str:
    """Return the `repr` of *value*, also if it is a number with more digits than Python writes."""
    try:
        return repr(value)
    except ValueError:
        return "a number of thousands of digits"


def shorten(text: str, most: int = 60) -> str:
    """Return *text*, or its beginning if it has more than *most* characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def middle(text: str, most: int, mark: str = "…") -> str:
    """Return *text*, or its two ends around *mark* if it has more than *most* characters."""
    if len(text) <= most:
        return text
    room = most - len(mark)
    head, tail = room - room // 2, room // 2
    return f"{text[:head]}{mark}{text[-tail:] if tail else ''}"


def one_line(text: str, most: int = 200) -> str:
    """Return *text* as one harmless line of at most *most* characters, without its middle if it is longer."""
    return middle(" ".join(clean(bounded(text)).split()), most)


def printable(text: str) -> str:
    """Return *text* with escapes for characters that move a cursor or cannot be written, such as a line break."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def escape_surrogates(text: str) -> str:
    """Return *text* with escapes for what UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def excerpt(text: str, *, lines: int = 15, width: int = 200) -> tuple[str, ...]:
    """Return the lines of *text*, made harmless, without the middle ones if there are too many."""
    pieces = [middle(line.rstrip(), width) for line in clean(bounded(text)).strip("\n").split("\n")]
    if len(pieces) <= lines:
        return tuple(pieces)
    head = lines * 2 // 3
    tail = lines - head - 1
    # Counted in the text itself: what is looked at here may already be shortened.
    left_out = max(len(pieces), text.strip("\r\n").count("\n") + 1) - head - tail
    return (
        *pieces[:head],
        f"… {count(left_out, 'line')} left out …",
        *pieces[len(pieces) - tail :],
    )


def bounded(text: str, most: int = _MESSAGE_CHARACTERS) -> str:
    """Return *text*, or its two ends and how much is left out between them if it has more than *most* characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {number(len(text) - 2 * half)} characters left out …\n{text[-half:]}"


def did_you_mean(word: str, known: Sequence[str]) -> str | None:
    """Return a hint with the known word that is most like *word*; None if no word is like it."""
    near = get_close_matches(word, known, n=1)
    return f'did you mean "{near[0]}"?' if near else None


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first *most* of *names*, and how many more there are."""
    first_names = ", ".join(names[:most])
    return first_names if len(names) <= most else f"{first_names} and {len(names) - most} more"


def quoted(names: Sequence[str], most: int = 12) -> str:
    """Return the first *most* of *names* in quotes, and how many more there are."""
    return listed([f'"{name}"' for name in names], most)


def width(text: str) -> int:
    """Return how many columns of a terminal *text* takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in "\u200b\u200c\u200d\ufe0e\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, columns: int) -> str:
    """Return *text*, or its two ends around a sign if it takes more than so many *columns* of a terminal."""
    if width(text) <= columns:
        return text
    head, tail, room = "", "", columns - 1
    for first, last in zip(text, reversed(text), strict=True):
        if width(f"{head}{first}{tail}") > room:
            break
        head += first
        if width(f"{head}{last}{tail}") > room:
            break
        tail = last + tail
    return f"{head}…{tail}"


def left(text: str, columns: int) -> str:
    """Return *text* with blanks after it."""
    return text + " " * max(0, columns - width(text))


def right(text: str, columns: int) -> str:
    """Return *text* with blanks before it."""
    return " " * max(0, columns - width(text)) + text


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return each row as a line, with the columns of all rows below one another."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(left, row, widths)).rstrip() for row in rows]


def duration(seconds: float) -> str:
    """Format seconds: 38 ms, 0.4 s, 12.3 s, 1 min 42 s, 2 h 05 min."""
    if 0 < seconds < 0.1:  # noqa: PLR2004 - less would all read 0.0 s
        return f"{max(1, round(seconds * 1000))} ms"
    tenths = round(seconds * 10)
    if tenths < 600:  # noqa: PLR2004 - a minute
        return f"{tenths / 10:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes} min {remainder:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def number(value: float) -> str:
    """Format a whole number with commas between thousands."""
    return f"{round(value):,}"


def money(dollars: float) -> str:
    """Format dollars: $12.30, $0.041, $0.0007, with more digits for small amounts."""
    if dollars == 0 or dollars >= 1:
        return f"${dollars:,.2f}"
    return f"${dollars:.3f}" if dollars >= 0.01 else f"${dollars:.4f}"  # noqa: PLR2004 - a cent


def count(amount: int, noun: str, plural: str | None = None) -> str:
    """Format an amount with its noun: 1 trial, 12 trials."""
    return f"{number(amount)} {noun if amount == 1 else plural or f'{noun}s'}"


def percent(share: float) -> str:
    """Format a share: 67 %."""
    return f"{share * 100:.0f} %"


def percent_range(low: float, high: float) -> str:
    """Format a range of shares: 14 to 41 %."""
    return f"{low * 100:.0f} to {high * 100:.0f} %"


def points(value: float, *, sign: bool = True) -> str:
    """Format a share as percentage points: +12.5, -100."""
    percent_points = round(100 * value, 1) + 0.0
    return f"{percent_points:+.3g}" if sign else f"{percent_points:.3g}"


def path_for_people(path: Path, cwd: Path) -> str:
    """Return *path* as you can open it from *cwd*: relative if it is below, else absolute."""
    try:
        short_path = path.relative_to(cwd)
    except ValueError:
        short_path = path
    return clean(str(short_path)).replace("\n", "")


def check_text(text: str, what: str) -> str:
    """Return *text*; raises `ClaimError` if no program can take it."""
    if "\0" in text:
        raise ClaimError(f"the {what} holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ClaimError(f"the {what} holds half a surrogate pair") from None
    return text


def is_smart(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether *stream* is a terminal that understands escape sequences."""
    return stream.isatty() and environ.get("TERM") != "dumb"


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to use colour on *stream*: on terminals, with FORCE_COLOR elsewhere too, never with NO_COLOR."""
    if environ.get("NO_COLOR"):
        return False
    return is_smart(stream, environ) or is_on(environ.get("FORCE_COLOR"))


def wants_links(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to print paths as links on *stream*: on terminals that open them, or as FORCE_HYPERLINK says."""
    if not is_smart(stream, environ):
        return False
    wish = environ.get("FORCE_HYPERLINK")
    return is_on(wish) if wish else _opens_links(environ)


def _opens_links(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal says of itself that it knows links: others may print their addresses."""
    if environ.get("TERM", "").startswith(("screen", "tmux")):
        # What is outside of it is not known, and older ones swallow links.
        return False
    version = environ.get("VTE_VERSION", "")
    return (
        (version.isdecimal() and int(version) > _VTE_BEFORE_LINKS)
        or environ.get("TERM_PROGRAM") in _LINKING_PROGRAMS
        or environ.get("TERM") in _LINKING_TERMINALS
        or any(environ.get(name) for name in _LINKING_VARIABLES)
    )


def is_on(value: str | None) -> bool:
    """Return whether the *value* of a variable turns something on."""
    return value is not None and value.lower() not in ("", "0", "false", "no")

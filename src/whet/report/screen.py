"""Print lines for people, with colour if they want it and only with characters that the stream can show."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import Literal, TextIO

from whet.reading.text import is_on, is_smart, path_for_people, wants_colour, wants_links, width
from whet.report.contract import NotWritten

Style = Literal["good", "bad", "warn", "dim", "bold", "blue", "magenta", "cyan"]
_CODES: dict[Style, str] = {
    "good": "32",
    "bad": "31",
    "warn": "33",
    "dim": "2",
    "bold": "1",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
# One character each, so that columns stay aligned.
_PLAIN = str.maketrans({"✓": "+", "✗": "x", "…": "~", "│": "|", "·": "-", "±": "~", "━": "#", "─": "."})
# CI systems run `::word` at the start of a line, and `##[...]` or `##vso[...]` anywhere, as a command.
_CI_COMMAND = re.compile(r"^(\s*:)(?=:)|##(?=\w*\[)", re.MULTILINE)
_CI_VARIABLES = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")

# Between the words of a command to copy, which no line ends within.
GLUE = "\x1f"
# The styles that a screen paints. Any other escape or control character is not ours, and is dropped.
STYLES = re.compile(r"\x1b\[(?:0|1|2|(?:1;)?3[1-6])m")
# A link to a file, as terminals read it, and its end.
_LINK = r"\x1b\]8;;(?:file://[!-~]+)?\x1b\\"
_UNSEEN = re.compile(f"{STYLES.pattern}|{_LINK}")
_FOREIGN = re.compile(rf"({_UNSEEN.pattern})|[\x00-\x08\x0b-\x1e\x7f-\x9f]")
_END = "\x1b[0m"
# Blanks, and a label, a mark or a bar before the text that is broken.
_LEAD = re.compile(r"^( *)((?:│ ?|[|] )|[^ ](?:[^ ]| (?! )){0,18} {2,}|[✓✗!~·+x-] |(?:[-*]|\d{1,3}[.:]) )?")
_WIDEST_LEAD = 24
_NARROWEST = 16
# A number and its sign of percent stay together.
_PIECE = re.compile(" +|[^ ]+(?: %[^ ]*)?")


class Screen:
    """Writes lines to a stream."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self.stream = stream
        self._encoding = stream.encoding or "utf-8"
        self.in_ci = any(is_on(environ.get(name)) for name in _CI_VARIABLES)
        self.smart = is_smart(stream, environ)
        self.live = self.smart and not self.in_ci
        self.colour = wants_colour(stream, environ)
        self.links = wants_links(stream, environ)
        self.unicode = _can_encode(self._encoding)
        wish = environ.get("COLUMNS", "")
        self._columns = int(wish) if wish.isdecimal() and int(wish) else None

    @property
    def columns(self) -> int | None:
        """The width of the terminal; None for a file, where lines are not wrapped."""
        if not self.smart:
            return None
        if self._columns is not None:
            return self._columns
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or None
        except (OSError, ValueError):
            return None

    def paint(self, text: str, style: Style | None) -> str:
        """Return *text* in *style*, if colour is wanted."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and self.colour and text else text

    def link(self, text: str, path: Path) -> str:
        """Return *text* as a link to *path*, if the terminal opens links."""
        if not self.links or not text:
            return text
        # The name of this machine tells a terminal on another one that the file is not there.
        address = path.absolute().as_uri().replace("file://", f"file://{os.uname().nodename}", 1)
        return f"\x1b]8;;{address}\x1b\\{unbroken(text)}\x1b]8;;\x1b\\"

    def path(self, path: Path, cwd: Path) -> str:
        """Return *path* as people open it from *cwd*, as a link if the terminal opens links."""
        return self.link(path_for_people(path, cwd), path)

    def fit(self, text: str) -> str:
        """Return *text* in characters that the stream can show, and so that no CI system runs it as a command."""
        if not self.unicode:
            text = text.translate(_PLAIN).encode(self._encoding, "replace").decode(self._encoding)
        return _CI_COMMAND.sub(_broken, text) if self.in_ci else text

    def lay_out(self, text: str) -> str:
        """Return *text* as lines that fit on the screen."""
        return "\n".join(line.rstrip() for line in wrap(self.fit(text), self.columns))

    def text(self, lines: Iterable[str]) -> str:
        """Return *lines* as one text that fits on the screen."""
        return "".join(f"{self.lay_out(line)}\n" for line in lines)

    def line(self, text: str = "") -> None:
        """Write one line and flush it, for people who follow a log."""
        with printing(self.stream):
            self.stream.write(f"{self.lay_out(text)}\n")
            self.stream.flush()


@contextmanager
def printing(stream: TextIO) -> Iterator[None]:
    """Raise NotWritten if *stream* is full or closed; a BrokenPipeError passes through."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        _forget(stream)
        raise NotWritten(f"could not print: {error.strerror or error}") from error


def _forget(stream: TextIO) -> None:
    """Drop what *stream* could not write: Python would try again at exit, and change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        with suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
            stream.flush()
    finally:
        os.close(nowhere)


def plain_screen() -> Screen:
    """Return a screen without colour and of any width, for text that no terminal shows."""
    return Screen(StringIO(), {})


def _broken(match: re.Match[str]) -> str:
    return f"{match[1]} " if match[1] else "# #"


def _can_encode(encoding: str) -> bool:
    try:
        "✓✗…│·±━─".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def wrap(text: str, columns: int | None) -> list[str]:
    """Return *text* in lines of at most *columns*, broken between words, with a hanging indent.

    Without *columns*, and if a word is longer than a line, lines stay as long as they are.
    """
    lines: list[str] = []
    for line in _FOREIGN.sub(_ours, text).split("\n"):
        if columns is None or shown_width(line) <= columns:
            lines.append(line)
        else:
            lines += _break(line, columns)
    return [line.replace(GLUE, " ") for line in lines]


def unbroken(command: str) -> str:
    """Return *command* as one word, so that you can copy it from one line."""
    return command.replace(" ", GLUE)


def shown_width(text: str) -> int:
    """Return how many columns *text* takes, with the styles and links in it."""
    return width(_UNSEEN.sub("", text))


def _ours(match: re.Match[str]) -> str:
    return match[1] or ""


def _break(line: str, columns: int) -> Iterator[str]:
    indent = _indent(line, columns)
    current, size, style, gap = "", 0, "", ""
    for piece in _PIECE.findall(line):
        if piece.startswith(" "):
            gap = piece
            continue
        if size + len(gap) + shown_width(piece) > columns and size > width(indent):
            yield current + (_END if style else "")
            current, size, gap = indent + style, width(indent), ""
        current += gap + piece
        size += len(gap) + shown_width(piece)
        gap = ""
        for code in STYLES.findall(piece):
            style = "" if code == _END else code
    yield current


def _indent(line: str, columns: int) -> str:
    """Return what the further lines of *line* begin with: blanks up to its text, or its bar."""
    plain = _UNSEEN.sub("", line)
    match = _LEAD.match(plain)
    assert match
    blanks, label = match[1], match[2] or ""
    if label.startswith(("│", "|")):
        return blanks + label
    lead = width(blanks) + (width(label) or 2)
    if lead > _WIDEST_LEAD or columns - lead < _NARROWEST:
        lead = min(len(blanks) + 2, max(0, columns - _NARROWEST))
    return " " * lead

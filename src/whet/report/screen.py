"""Print lines for people, with colour if they want it and only with characters that the stream can show."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Literal, TextIO

from whet.report.reporter import NotWritten

Style = Literal["good", "bad", "warn", "dim", "bold"]
_CODES: dict[Style, str] = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1"}
# One character each, so that columns stay aligned.
_PLAIN = str.maketrans({"✓": "+", "✗": "x", "…": "~", "│": "|", "·": "-", "±": "~", "━": "#", "─": "."})
# CI systems run `::word` at the start of a line, and `##[...]` or `##vso[...]` anywhere, as a command.
_CI_COMMAND = re.compile(r"^(\s*:)(?=:)|##(?=\w*\[)", re.MULTILINE)
_CI_VARIABLES = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")


class Screen:
    """Writes lines to a stream."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self.stream = stream
        self._encoding = stream.encoding or "utf-8"
        self.in_ci = any(_is_on(environ.get(name)) for name in _CI_VARIABLES)
        self.smart = stream.isatty() and environ.get("TERM") != "dumb"
        self.live = self.smart and not self.in_ci
        self.colour = _wants_colour(self.smart, environ)
        self.unicode = _can_encode(self._encoding)

    @property
    def columns(self) -> int | None:
        """The width of the terminal; None for a file, where lines are not wrapped."""
        if not self.smart:
            return None
        try:
            return os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):
            return None

    def paint(self, text: str, style: Style | None) -> str:
        """Return *text* in *style*, if colour is wanted."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and self.colour and text else text

    def fit(self, text: str) -> str:
        """Return *text* in characters that the stream can show, and so that no CI system runs it as a command."""
        if not self.unicode:
            text = text.translate(_PLAIN).encode(self._encoding, "replace").decode(self._encoding)
        return _CI_COMMAND.sub(_broken, text) if self.in_ci else text

    def line(self, text: str = "") -> None:
        """Write one line and flush it, for people who follow a log."""
        with printing(self.stream):
            self.stream.write(self.fit(text).rstrip() + "\n")
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


def _broken(match: re.Match[str]) -> str:
    return f"{match[1]} " if match[1] else "# #"


def _is_on(value: str | None) -> bool:
    return value is not None and value.lower() not in ("", "0", "false", "no")


def _wants_colour(smart: bool, environ: Mapping[str, str]) -> bool:
    if environ.get("NO_COLOR"):
        return False
    return smart or _is_on(environ.get("FORCE_COLOR"))


def _can_encode(encoding: str) -> bool:
    try:
        "✓✗…│·±━─".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True

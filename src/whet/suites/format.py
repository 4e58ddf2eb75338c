"""The contract of a format, and the one function that loads a suite in any of them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from whet.errors import Problem, SuiteError
from whet.model import plugins
from whet.model.suite import Suite

# The format to ask first, by the ending of a file: the readers of JSON and YAML take long to import.
_BY_ENDING = {".py": "python"}


class Format(Protocol):
    """One way of writing suites."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* is written in this format."""

    def lower(self, path: Path) -> Suite:
        """Return the suite in *path*; raises `SuiteError` with every problem."""


def load_suite(path: Path) -> Suite:
    """Return the suite in *path*, in whatever format it is."""
    if not path.is_file():
        other = "is not a file" if path.exists() else "there is no such file"
        reason = "is a folder; name the suite file" if path.is_dir() else other
        raise SuiteError([Problem(file=str(path), message=reason)])
    for name in sorted(plugins.names("formats"), key=lambda name: name != _BY_ENDING.get(path.suffix)):
        found: Format = plugins.find("formats", name)()
        if found.recognizes(path):
            return found.lower(path.resolve())
    known = ", ".join(plugins.names("formats"))
    raise SuiteError([Problem(file=str(path), message=f"is in no known format (known: {known})")])

"""The contract of a format, the one function that loads a suite, and a check of ids that all formats make."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from whet.errors import Problem, SuiteError
from whet.model import plugins
from whet.model.run import folder_name
from whet.model.suite import Suite
from whet.reading.fields import Fields

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


def note_shared_ids(named: Iterable[tuple[Fields, str, str]]) -> None:
    """Note ids that are the same, or would share a folder, also if the file system ignores case.

    Each id comes with its case and the name of its field.
    """
    first: dict[str, tuple[Fields, str]] = {}
    for fields, field, name in named:
        earlier, taken = first.setdefault(folder_name(name).casefold(), (fields, name))
        other = fields.findings.place(earlier.path) if earlier.path else "another case"
        if earlier is fields:
            continue
        if taken == name:
            fields.problem(field, f"is the id of {other} too", "give each case its own")
        else:
            fields.problem(field, f'would share the folder "{folder_name(name)}" with {other}, "{taken}"')

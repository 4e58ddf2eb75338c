"""The contract of a format, the one function that loads a suite, and what all formats read alike."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from whet.errors import Problem, SuiteError
from whet.model import plugins
from whet.model.run import folder_name
from whet.model.suite import Case, Solution, Suite
from whet.reading.fields import Fields
from whet.reading.settings_files import PROJECT_FILE

# The endings of formats that need not be read to be known: the readers of JSON and YAML take long to import.
_BY_ENDING = {".py": "python"}
_COMMAND = 'write the answer as a text, or a command such as {"run": "echo 4 > result.txt"}'


class Format(Protocol):
    """One way of writing suites."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* is written in this format."""

    def lower(self, path: Path) -> Suite:
        """Return the suite in *path*; raises `SuiteError` with every problem."""


# Such as a pipe of a shell: a suite is read more than once, and has a folder.
NO_FILE = "is a pipe or a device, not a file; name a file"


def load_suite(path: Path) -> Suite:
    """Return the suite in *path*, in whatever format it is."""
    if path.is_dir() and (name := format_of(path)) is not None:
        whole: Format = plugins.find("formats", name)()
        return whole.lower(path.resolve())
    if not path.is_file():
        other = NO_FILE if path.exists() else "there is no such file"
        reason = "is a folder; name the suite file" if path.is_dir() else other
        raise SuiteError([Problem(file=str(path), message=reason)])
    name = format_of(path)
    if name is not None:
        found: Format = plugins.find("formats", name)()
        return found.lower(path.resolve())
    known = ", ".join(plugins.names("formats"))
    raise SuiteError([Problem(file=str(path), message=f"is in no known format (known: {known})")])


def format_of(path: Path) -> str | None:
    """Return the name of the format that *path* is written in."""
    if path.is_dir():
        # Only one format is of folders, and looking into others would take long.
        return "harbor" if plugins.find("formats", "harbor")().recognizes(path) else None
    first = _BY_ENDING.get(path.suffix) or _by_content(path)
    for name in sorted(plugins.names("formats"), key=lambda name: (name != first, name)):
        found: Format = plugins.find("formats", name)()
        if found.recognizes(path):
            return name
    return None


def _by_content(path: Path) -> str | None:
    from whet.reading.document_files import document_format  # noqa: PLC0415 - Python suites do not need it

    return document_format(path)


def read_script(given: Fields, name: str) -> str | None:
    """Read a line of shell, or several in a list."""
    if not isinstance(given.given(name), list):
        return given.text(name)
    lines = given.texts(name)
    return "\n".join(("set -e", *lines)) if lines else None


def read_solution(given: Fields) -> Solution | None:
    """Read what passes a case: a text is the answer, and under `run` is shell for the place of the agent."""
    value = given.given("solution")
    if value is None or isinstance(value, str):
        answer = given.text("solution")
        return None if answer is None else Solution(answer=answer)
    if not isinstance(value, Mapping):
        given.problem("solution", f"must be a text or a command, not {given.shown('solution', value)}", _COMMAND)
        return None
    table = given.table("solution")
    table.refuse_unknown(("run",))
    if table.given("run") in (None, []):
        table.problem("run", "is missing", _COMMAND)
    return Solution(run=read_script(table, "run"))


def read_check_files(given: Fields, suite: Path) -> tuple[Path, ...]:
    """Read the files and folders that commands of checks may read; relative paths start at the folder of *suite*."""
    found = []
    for index, text in enumerate(given.texts("check_files")):
        path = Path(os.path.normpath(suite.parent / Path(text).expanduser()))
        inside = next((place for place in _answers(suite) if place.is_relative_to(path)), None)
        if not os.path.lexists(path):
            given.problem(f"check_files[{index}]", f"{path} does not exist")
        elif inside is not None:
            given.problem(
                f"check_files[{index}]",
                f"{text} holds {inside.name}, which no command of a check may read",
                "put what checks need into a folder of its own",
            )
        else:
            found.append(path)
    return tuple(dict.fromkeys(found))


def _answers(suite: Path) -> Iterator[Path]:
    """Yield what the commands of checks must not see, because they run what the agent left: suite and settings."""
    yield suite
    yield from (folder / PROJECT_FILE for folder in suite.parents if (folder / PROJECT_FILE).is_file())


def held_out(path: Path, cases: Iterable[Case]) -> tuple[Path, ...]:
    """Return the suite itself if it holds a solution: then no agent may see it."""
    return (path,) if any(case.solution for case in cases) else ()


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

"""What leads on from a trial: the source of its checks, and what to type to run or ask it again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from whet.model.grade import Location
from whet.model.run import STATE_FILE
from whet.reading.text import path_for_people
from whet.record.document import WrittenTrial
from whet.record.read.rows import RowKey
from whet.record.run_file import RunFile
from whet.view.documents import ShownCommand, ShownSource

_AROUND = 3
_LONGEST_LINE = 400
_MOST_PLACES = 12
_DEFINES = re.compile(r"^(?P<indent>\s*)(?:async\s+)?def\s+(?P<name>\w+)")


def commands_of(key: RowKey, trial: WrittenTrial, asked: RunFile, run_dir: Path) -> Iterator[ShownCommand]:
    """Yield what to type to run the case of a trial again, and to ask its agent."""
    here = Path.cwd()
    if asked.command in (None, "run") and asked.typed.again:
        # The words to start the same again leave out what was selected. A record may come from anybody: each is quoted.
        runner = ["--runner", key.runner] if asked.selection.runners else []
        words = ["whet", "run", *asked.typed.again, *runner, "--case", key.case]
        there = asked.typed.cwd
        start = f"cd {shlex.quote(there)} && " if there and there != str(here) else ""
        yield ShownCommand(does="Run this case again", command=start + shlex.join(words))
    if (run_dir / trial.artifact_dir / STATE_FILE).is_file():
        folder = shlex.quote(path_for_people(run_dir / trial.artifact_dir, here))
        yield ShownCommand(does="Ask its agent", command=f'whet explain {folder} --ask "Why did you do that?"')


def commands_of_run(run_dir: Path) -> tuple[ShownCommand, ...]:
    """Return what to type to hand on a run."""
    words = ["whet", "report", path_for_people(run_dir, Path.cwd()), "--html", f"{run_dir.name}.html"]
    return (ShownCommand(does="All of it in one file that opens from disk", command=shlex.join(words)),)


def sources_of(trial: WrittenTrial, suite_path: str | None, suite_text: str | None) -> tuple[ShownSource, ...]:
    """Return the lines of the suite around each place that a trial names, as the record of the run holds them.

    Nothing is read from the disk: a record may come from anybody, and name any file.
    """
    if suite_path is None or suite_text is None:
        return ()
    lines = suite_text.splitlines()
    places = dict.fromkeys(place for place in _places(trial) if place.file == suite_path)
    return tuple(_source(place, lines) for place in islice(places, _MOST_PLACES) if 0 < place.line <= len(lines))


def _places(trial: WrittenTrial) -> Iterable[Location]:
    yield from (grade.location for grade in trial.grades if grade.location is not None)
    if trial.failure is not None and trial.failure.location is not None:
        yield trial.failure.location


def _source(place: Location, lines: list[str]) -> ShownSource:
    first = max(place.line - _AROUND, 1)
    return ShownSource(
        file=place.file,
        line=place.line,
        first=first,
        lines=tuple(line[:_LONGEST_LINE] for line in _block(lines, first, place.line)),
        function=_function_of(lines, place.line),
    )


def _block(lines: list[str], first: int, line: int) -> list[str]:
    """Return the lines from *first* on, until a few after *line*, or until its function ends."""
    after = lines[line : line + _AROUND]
    ends = (place for place, text in enumerate(after) if text.strip() and not text[0].isspace())
    return [*lines[first - 1 : line], *"\n".join(after[: next(ends, len(after))]).rstrip().splitlines()]


def _function_of(lines: list[str], line: int) -> str | None:
    """Return the name of the function that a line belongs to: the nearest one above with less indent."""
    indent = _indent(lines[line - 1])
    for number, found in _definitions_above(lines, line):
        if len(found["indent"].expandtabs()) < indent or number == line:
            return found["name"]
    return None


def _definitions_above(lines: list[str], line: int) -> Iterator[tuple[int, re.Match[str]]]:
    for number in range(line, 0, -1):
        found = _DEFINES.match(lines[number - 1])
        if found is not None:
            yield number, found


def _indent(line: str) -> int:
    expanded = line.expandtabs()
    return len(expanded) - len(expanded.lstrip())

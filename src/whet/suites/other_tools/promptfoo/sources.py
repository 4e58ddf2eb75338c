"""The files that a configuration names: tests, what holds for all tests, variables, prompts and expectations."""

from __future__ import annotations

import hashlib
import os
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from whet.errors import SuiteError
from whet.reading.documents import DocumentError, Node, load_json
from whet.reading.fields import Fields, Findings
from whet.reading.files import read_start
from whet.reading.paths import literal_head
from whet.reading.text import shown
from whet.reading.yaml import checked_root
from whet.suites.other_tools.promptfoo.rows import tests_in_csv
from whet.suites.other_tools.shared import ForeignDocument

FILE = "file://"
_TABLES = (".yaml", ".yml", ".json")
# What promptfoo runs, and what it gives to models as something else than text.
_PROGRAMS = (".py", ".rb", ".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")
_MEDIA = (".svg", ".pdf")
# A function may follow the name of its file.
_PROGRAM = re.compile(r"\.(py|rb|[cm]?[jt]s):\w+$")
_LARGEST = 1024 * 1024
_LARGEST_TESTS = 64 * 1024 * 1024
_ROWS = "tests"


class UnreadSource(Exception):
    """A file cannot be carried over, and why."""


class Sources:
    """Finds files from the folder of a configuration, in it or in its repository, and remembers which were read."""

    def __init__(self, document: ForeignDocument) -> None:
        self._document = document
        self._folder = document.path.parent
        repositories = (folder for folder in document.path.parents if (folder / ".git").exists())
        self._root = next(repositories, self._folder).resolve()
        self.read: list[Path] = [document.path]
        self.findings: list[Findings] = []

    @property
    def digest(self) -> str:
        """A hash of all files that were read."""
        digest = hashlib.sha256()
        for path in dict.fromkeys(self.read):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def paths(self, reference: str) -> list[Path]:
        """Return the files that a path or a pattern names; raises `UnreadSource` if there is none."""
        name = reference.removeprefix(FILE)
        if "://" in name or "\0" in name:
            raise UnreadSource(f"{shown(reference)} is no file of this machine")
        if _PROGRAM.search(name):
            raise UnreadSource(f"{shown(reference)} is a program, which whet does not run")
        inside = [place for place in self._places(name) if place.is_file() and place.is_relative_to(self._root)]
        if not inside:
            raise UnreadSource(f"there is no file {shown(reference)} in {self._root}")
        return inside

    def _places(self, name: str) -> Iterator[Path]:
        """Yield where a path or a pattern leads, links followed."""
        place = Path(os.path.normpath(self._folder / name))
        # A name may be too long for any file.
        with suppress(ValueError, NotImplementedError, OSError):
            if place.exists():
                yield place.resolve()
                return
            # What is elsewhere is not even searched: it may be all of the machine.
            if not Path("/", literal_head(str(place))).resolve().is_relative_to(self._root):
                return
            pattern = place.relative_to(place.anchor).as_posix()
            yield from (path.resolve() for path in sorted(Path(place.anchor).glob(pattern)))

    def text(self, path: Path) -> str:
        """Return the text of a file; raises `UnreadSource` if it is a program, an image or too large."""
        kind = path.suffix.lower()
        if kind in _PROGRAMS:
            raise UnreadSource(f"{shown(path.name)} is a program, which whet does not run")
        start = b"\0" if kind in _MEDIA else read_start(path, _LARGEST)
        if b"\0" in start or not _is_utf8(start):
            raise UnreadSource(f"{shown(path.name)} is not a text file")
        return self._text(path, _LARGEST)

    def _text(self, path: Path, most: int) -> str:
        if path.stat().st_size > most:
            raise UnreadSource(f"{shown(path.name)} has more than {most // 1024:,} KiB")
        self.read.append(path)
        return path.read_bytes().decode("utf-8-sig", "replace")

    def table(self, reference: str) -> Fields:
        """Return the object in the one file that *reference* names; raises `UnreadSource` and `SuiteError`."""
        (path, *_) = self.paths(reference)
        if path.suffix.lower() not in _TABLES:
            raise UnreadSource(f"{shown(reference)} is neither YAML nor JSON")
        root = checked_root(path)
        if not isinstance(root.value, Mapping):
            raise UnreadSource(f"{shown(reference)} is not an object")
        return self._fields(path, root)

    def value(self, reference: str) -> Any:
        """Return the value in a YAML or JSON file; raises `UnreadSource` and `SuiteError`."""
        (path, *_) = self.paths(reference)
        if path.suffix.lower() not in _TABLES:
            raise UnreadSource(f"{shown(reference)} is neither YAML nor JSON")
        self.read.append(path)
        return checked_root(path).plain()

    def tests(self, reference: str) -> Iterator[Fields]:
        """Yield the tests in the files that *reference* names; raises `UnreadSource` and `SuiteError`."""
        for path in self.paths(reference):
            root = self._rows(path)
            rows = root if isinstance(root.value, tuple) else Node((root,), root.line)
            top = self._fields(path, Node({_ROWS: rows}, 1))
            for place, item in top.items(_ROWS):
                yield top.object(place, item)

    def _rows(self, path: Path) -> Node:
        match path.suffix.lower():
            case ".csv":
                return Node(tuple(self._csv(path)), 1)
            case ".jsonl":
                return Node(tuple(self._lines(path)), 1)
            case ending if ending in _TABLES:
                return checked_root(path)
            case _:
                raise UnreadSource(
                    f"the tests in {shown(path.name)}: whet reads tests in YAML, JSON, JSON lines and CSV"
                )

    def _csv(self, path: Path) -> Iterator[Node]:
        try:
            for test, line in tests_in_csv(self._text(path, _LARGEST_TESTS)):
                yield _node(test, line)
        except DocumentError as error:
            raise SuiteError([error.problem(path)]) from None

    def _lines(self, path: Path) -> Iterator[Node]:
        for number, line in enumerate(self._text(path, _LARGEST_TESTS).split("\n"), 1):
            if line.strip():
                try:
                    yield _node(load_json(line), number)
                except DocumentError as error:
                    raise SuiteError([error.problem(path)._replace(field=f"line {number}")]) from None

    def _fields(self, path: Path, root: Node) -> Fields:
        self.read.append(path)
        findings = Findings(str(path), root)
        self.findings.append(findings)
        return Fields(root.plain(), findings)


def _is_utf8(data: bytes) -> bool:
    # A character may end beyond what was read.
    try:
        getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _node(value: Any, line: int) -> Node:
    """Return a value all of which is in one line."""
    if isinstance(value, dict):
        return Node({str(key): _node(item, line) for key, item in value.items()}, line)
    if isinstance(value, list):
        return Node(tuple(_node(item, line) for item in value), line)
    return Node(value, line)

"""Which file a benchmark is: named by its id or by its path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from whet.errors import Problem, SuiteError, UnknownName, UsageError
from whet.fields import BadDocument
from whet.formats.document import SUFFIXES
from whet.formats.document.plain import read_plain

# What the file in the folder of a benchmark is called.
FILES = tuple(f"benchmark{suffix}" for suffix in SUFFIXES)
_ANY = tuple(f"*{suffix}" for suffix in SUFFIXES)
# Shipped with whet; the folder holds data only.
BUILT_IN = Path(__file__).parents[2] / "benchmarks"


def find_benchmark(name: str, folders: Sequence[Path]) -> Path:
    """The file of the benchmark *name*: a path, or an id in *folders*, and after those in whet's own."""
    if _looks_like_path(name):
        return _by_path(Path(name))
    unreadable: list[str] = []
    for folder in (*folders, BUILT_IN):
        found = _ids(folder, unreadable)
        files = [file for file, identifier in found if identifier == name]
        if len(files) > 1:
            raise UsageError(f'two benchmarks are called "{name}": {files[0]} and {files[1]}', hint="name one by path")
        if files:
            return files[0]
    known = sorted({identifier for folder in (*folders, BUILT_IN) for _, identifier in _ids(folder, [])})
    near = get_close_matches(name, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
    if unreadable:
        hint += f"; could not be read: {'; '.join(unreadable)}"
    raise UnknownName(f'no benchmark is called "{name}"', hint=hint)


def list_benchmarks(folders: Sequence[Path]) -> list[tuple[str, Path]]:
    """The id and the file of each benchmark that can be named, the nearer one where two have the same id."""
    found: dict[str, Path] = {}
    for folder in (*folders, BUILT_IN):
        for file, identifier in _ids(folder, []):
            found.setdefault(identifier, file)
    return sorted(found.items())


def _looks_like_path(name: str) -> bool:
    return "/" in name or name.endswith(SUFFIXES) or name in {".", ".."}


def _by_path(path: Path) -> Path:
    for name in FILES:
        if (path / name).is_file():
            return path / name
    if path.is_file():
        return path
    reason = f"has no {FILES[0]}" if path.is_dir() else "there is no such file"
    raise SuiteError([Problem(file=str(path), message=reason)])


def _ids(folder: Path, unreadable: list[str]) -> list[tuple[Path, str]]:
    """Each benchmark file with its id; one that cannot be read is no reason not to find the others."""
    found: list[tuple[Path, str]] = []
    for file in _files(folder):
        try:
            document: Any = read_plain(file)
        except BadDocument as error:
            unreadable.append(f"{file} {error}")
            continue
        if isinstance(document, dict) and isinstance(document.get("id"), str) and "tasks" in document:
            found.append((file, document["id"]))
    return found


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        for pattern in (*_ANY, *(f"*/{name}" for name in FILES), *(f"definitions/{any_}" for any_ in _ANY)):
            yield from sorted(folder.glob(pattern))

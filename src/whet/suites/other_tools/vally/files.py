"""The files of Vally beside its specs: experiments and `.vally.yaml`; which one a file is, and which specs it names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Literal

from whet.errors import Problem, SuiteError
from whet.reading.documents import DocumentError
from whet.reading.yaml import read_plain
from whet.suites.document_formats import document_format

SETTINGS = ".vally.yaml"
# Folders that hold no specs, and may hold many files.
_NEVER = frozenset((".git", ".whet", "node_modules", ".venv", "__pycache__"))
_MOST_FILES = 200_000
# The parts of a pattern: `**/`, `**`, groups such as `!(a|b)` and `{a,b}`, and single characters.
_PARTS = re.compile(r"\*\*/|\*\*|[!@?*+]\([^()]*\)|\{[^{}]*\}|\[[^\]/]+\]|.", re.DOTALL)
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_REPEATED = {"@": "", "?": "?", "*": "*", "+": "+"}

VallyFile = Literal["experiment", "suites"]


def vally_file(path: Path) -> VallyFile | None:
    """Return which file of Vally is at *path*, if it is one that is no spec itself."""
    if path.name == SETTINGS:
        return "suites"
    if document_format(path) != "vally":
        return None
    try:
        document = read_plain(path)
    except DocumentError:
        return None
    return None if "stimuli" in document else "experiment"


def refuse_other_files(path: Path) -> None:
    """Raise `SuiteError` for a file of Vally that names specs and has no stimuli itself."""
    messages = {
        "experiment": ("is an experiment of Vally, and no suite by itself", f"whet run {path} runs its specs"),
        "suites": (
            "has the settings of Vally, and no suite by itself",
            f"whet run {path}::NAME runs the specs of a suite that it names, and whet run {path} all of them",
        ),
    }
    kind = vally_file(path)
    if kind is not None:
        message, hint = messages[kind]
        raise SuiteError([Problem(file=str(path), message=message, hint=hint)])


def matching_files(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """Return the files that fit *patterns*, sorted; these begin at *folder* and may lead up in its repository."""
    patterns_by_base: dict[Path, list[str]] = {}
    for pattern in patterns:
        steps = PurePosixPath(os.path.normpath(pattern)).parts
        ups = len(list(takewhile(os.pardir.__eq__, steps)))
        base = Path(os.path.normpath(folder.joinpath(*steps[:ups])))
        if not ups or base.resolve().is_relative_to(_repository(folder)):
            patterns_by_base.setdefault(base, []).append("/".join(steps[ups:]))
    return sorted({file for base, below in patterns_by_base.items() for file in _files_below(base, below)})


def _repository(folder: Path) -> Path:
    """Return the repository that *folder* is in; without one, the folder around it."""
    place = folder.resolve()
    return next((above for above in (place, *place.parents) if (above / ".git").exists()), place.parent)


def _files_below(folder: Path, patterns: list[str]) -> list[Path]:
    expression = re.compile(_choice(patterns))
    files: list[Path] = []
    file_count = 0
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _NEVER)
        file_count += len(names)
        if file_count > _MOST_FILES:
            raise SuiteError([Problem(file=str(folder), message=f"holds more than {_MOST_FILES:,} files")])
        for name in names:
            file = Path(at, name)
            relative_path = file.relative_to(folder).as_posix()
            if expression.fullmatch(relative_path):
                files.append(file)
    return files


def _expression(pattern: str) -> str:
    """Return the regular expression of a pattern of Vally, which has the groups of a shell."""
    return "".join(map(_part, _PARTS.findall(pattern)))


def _part(part: str) -> str:
    if part in _WILDCARDS:
        return _WILDCARDS[part]
    if part.startswith("{"):
        return _choice(part[1:-1].split(","))
    if part.startswith("[") and len(part) > 1:
        return part.replace("[!", "[^")
    if part.endswith(")") and len(part) > 1:
        choice = _choice(part[2:-1].split("|"))
        # What follows within this name may not make it one of those that are left out.
        return rf"(?!{choice}(?=/|$))[^/]*" if part[0] == "!" else choice + _REPEATED[part[0]]
    return re.escape(part)


def _choice(patterns: list[str]) -> str:
    return f"(?:{'|'.join(map(_expression, patterns))})"

"""Find the suites that paths stand for: files, folders, patterns, and the folders of skills."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from glob import glob, has_magic
from pathlib import Path

from whet.dataclass import dataclass
from whet.errors import PathRefused, UsageError
from whet.ground.workspaces import MANIFEST
from whet.reading.document_files import SUFFIXES, read_plain
from whet.reading.documents import DocumentError
from whet.reading.paths import refusals
from whet.suites.format import NO_FILE, format_of
from whet.suites.harbor import tasks_in

# Where a skill keeps its suites, seen from its folder.
_DOCUMENTS_OF_A_SKILL = ("evals/*.json", "evals/*.yaml", "evals/*.yml", "tests/eval.yaml", "tests/eval.yml")
_PYTHON_OF_A_SKILL = ("*.whet.py", "evals/*.whet.py", "tests/*.whet.py")
SUITES_OF_A_SKILL = (*_DOCUMENTS_OF_A_SKILL, *_PYTHON_OF_A_SKILL)
# Where agents look for skills in a project, below a hidden folder such as `.claude`.
_SKILLS = "skills"
# Folders that have no suites. The rest of hidden folders is passed over too.
_NEVER = frozenset(("node_modules", "__pycache__", "venv", "site-packages", "dist", "build", "target"))
_LARGEST = 16 * 1024 * 1024
# A folder with more files is not one that was meant.
_MOST_FILES = 200_000


@dataclass(frozen=True, slots=True)
class FoundSuite:
    """A suite, and the skill whose folder it lies in."""

    path: Path
    skill: Path | None = None


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A file that could have been a suite, and why it is not one; `broken` if it might be one with a mistake in it."""

    path: Path
    reason: str
    broken: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Found:
    """The suites below all paths, each once, and what was passed over."""

    suites: tuple[FoundSuite, ...]
    passed_over: tuple[PassedOver, ...] = ()


def find_suites(paths: Sequence[Path]) -> Found:
    """Find the suites that *paths* stand for, in the order of the paths; raises `UsageError` if one has none."""
    suites: dict[Path, list[FoundSuite]] = {}
    passed: list[PassedOver] = []
    for path in paths:
        pattern = has_magic(str(path)) and not path.exists()
        found, over = _fitting(path) if pattern else _below(path)
        passed += over
        if not found:
            raise UsageError(f"{path}: {_nothing(path)}", hint="\n".join(map(str, over[:5])) or _hint(path))
        for each in found:
            same = suites.setdefault(each.path.resolve(), [])
            # Two skills may share a suite by a link.
            if not any(None in (each.skill, other.skill) or _same(each.skill, other.skill) for other in same):
                same.append(each)
    return Found(tuple(each for same in suites.values() for each in same), tuple(passed))


def _same(one: Path | None, other: Path | None) -> bool:
    return one is not None and other is not None and one.resolve() == other.resolve()


def _fitting(pattern: Path) -> tuple[list[FoundSuite], list[PassedOver]]:
    """Return the suites in what fits *pattern*; as in a folder, what is no suite is passed over."""
    fitting = sorted(glob(str(pattern), recursive=True))  # noqa: PTH207 - absolute patterns too
    if not fitting:
        raise UsageError(f"{pattern}: nothing fits this pattern")
    found: list[FoundSuite] = []
    passed: list[PassedOver] = []
    for path in map(Path, fitting):
        if not path.exists():
            passed.append(PassedOver(path, "is a link that leads nowhere"))
            continue
        over = _why_not(path) if path.is_file() and path.name != MANIFEST else None
        own, besides = _below(path) if over is None else ([], [over] if over.reason else [])
        found += own
        passed += besides if own or besides or over else [PassedOver(path, _nothing(path))]
    return found, passed


def _nearest(path: Path) -> str | None:
    """Return a hint with what has nearly that name and lies beside it."""
    try:
        beside = [each.name for each in path.parent.iterdir()]
    except OSError:
        return None
    near = get_close_matches(path.name, beside, n=1)
    return f'did you mean "{path.parent / near[0]}"?' if near else None


def _below(path: Path) -> tuple[list[FoundSuite], list[PassedOver]]:
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder", hint=_nearest(path))
    if path.is_file():
        if path.name == MANIFEST:
            return _below(path.parent)
        return [FoundSuite(path)], []
    if not path.is_dir():
        return [], []
    if (path / MANIFEST).is_file():
        return _of_skill(path)
    return ([FoundSuite(path)], []) if tasks_in(path) else _in_folder(path)


def _in_folder(path: Path) -> tuple[list[FoundSuite], list[PassedOver]]:
    found: list[FoundSuite] = []
    passed: list[PassedOver] = []
    for place, names in _walk(path, passed):
        if MANIFEST in names:
            own, besides = _of_skill(place)
            found += own
            passed += besides if own or besides else [PassedOver(place, "is a skill without suites")]
            continue
        for name in sorted(names):
            over = _why_not(place / name)
            if over is None:
                found.append(FoundSuite(place / name))
            elif over.reason:
                passed.append(over)
    return found, passed


def _walk(folder: Path, closed: list[PassedOver]) -> Iterator[tuple[Path, list[str]]]:
    """Yield the folders below *folder* that could hold suites, with their files; not what lies below a skill.

    Folders that are not looked into are added to *closed*, in the end.
    """
    aside: list[PassedOver] = []

    def note(error: OSError) -> None:
        aside.append(PassedOver(Path(error.filename), f"cannot be read: {error.strerror}", broken=True))

    seen = 0
    for at, folders, names in os.walk(folder, onerror=note):
        place = Path(at)
        seen += len(names)
        if seen > _MOST_FILES:
            raise UsageError(f"{folder} holds more than {_MOST_FILES:,} files", hint="name the folder of the suites")
        if MANIFEST in names:
            folders.clear()
        elif place != folder and place.name.startswith("."):
            folders[:] = [name for name in folders if name == _SKILLS]
            names.clear()
        passed = [PassedOver(place / name, reason) for name in sorted(folders) if (reason := _shut(place / name))]
        aside += passed
        shut = {over.path.name for over in passed}
        # `os.walk` follows no links, so there are no loops; skills are shared by them.
        linked = sorted(name for name in folders if name not in shut and (place / name).is_symlink())
        folders[:] = sorted(name for name in folders if name not in shut)
        yield place, names
        for name in linked:
            yield place / name, [MANIFEST]
    closed += aside


def _shut(folder: Path) -> str | None:
    """Return why a folder is not looked into, if it is not."""
    if folder.name in _NEVER:
        return "is not looked into: other tools write such folders"
    # Not by `pathlib`, which fails at folders that we may not look into.
    if folder.name.startswith(".") and not os.path.isdir(folder / _SKILLS):  # noqa: PTH112
        return "is not looked into: it is hidden"
    if folder.is_symlink() and not os.path.isfile(folder / MANIFEST):  # noqa: PTH113
        return "is not looked into: it is a link, and leads to no skill"
    return None


def _of_skill(skill: Path) -> tuple[list[FoundSuite], list[PassedOver]]:
    """Return the suites that belong to a skill; a broken file in their places is one, and loading it says why."""
    found: list[FoundSuite] = []
    passed: list[PassedOver] = []
    for pattern in SUITES_OF_A_SKILL:
        for file in sorted(skill.glob(pattern)):
            over = _why_not(file)
            if over is None or over.broken:
                found.append(FoundSuite(file, skill))
            else:
                passed.append(over)
    return found, passed


def is_suite(file: Path) -> bool:
    """Return whether *file* is a suite, by what is in it."""
    return _why_not(file) is None


def _why_not(file: Path) -> PassedOver | None:
    """Return why *file* is not a suite, or None if it is one; without a reason, nothing suggests that it might be."""
    ending = file.suffix.lower()
    if ending != ".py" and ending not in SUFFIXES:
        return PassedOver(file, "")
    try:
        with refusals():
            if not file.is_file():
                return PassedOver(file, "is not a file")
            if file.stat().st_size > _LARGEST:
                return PassedOver(file, f"is larger than {_LARGEST // 1024 // 1024} MB")
            return _python(file) if ending == ".py" else _document(file)
    except PathRefused as error:
        return PassedOver(file, error.reason, broken=True)


def _python(file: Path) -> PassedOver | None:
    """Read, and do not import, a Python file: a suite imports whet and has `suite` or a `@case` at its top."""
    text = file.read_bytes()
    if b"whet" not in text:
        return PassedOver(file, "")
    try:
        top = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return PassedOver(file, "is not Python that can be read", broken=True)
    if not any(_imports_whet(node) for node in top):
        return PassedOver(file, "")
    if any(_declares_cases(node) for node in top):
        return None
    return PassedOver(file, "imports whet, but has neither `suite` nor a `@case` at its top")


def _imports_whet(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and (node.module or "").partition(".")[0] == "whet"
    return isinstance(node, ast.Import) and any(name.name.partition(".")[0] == "whet" for name in node.names)


def _declares_cases(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        called = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
        return any(getattr(each, "id", getattr(each, "attr", None)) == "case" for each in called)
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(each, ast.Name) and each.id == "suite" for each in targets)


def _document(file: Path) -> PassedOver | None:
    try:
        document = read_plain(file)
    except DocumentError as error:
        return PassedOver(file, str(error), broken=True)
    if isinstance(document, dict) and "tasks" in document:
        return PassedOver(file, "is a benchmark of callable skills: use whet eval")
    name = format_of(file)
    if name is None or (name == "bench" and not _is_bench(document)):
        return PassedOver(file, "is in no known format")
    return None


def _is_bench(document: object) -> bool:
    """Return whether it is one for certain: the format takes any document, so that it can say what is wrong with it."""
    cases = document.get("cases") if isinstance(document, dict) else None
    return isinstance(cases, list) and all(
        isinstance(case, dict) and {"prompt", "expect"} & set(case) for case in cases
    )


def _nothing(path: Path) -> str:
    if (path / MANIFEST).is_file():
        return "this skill has no suites"
    if path.is_dir():
        return "there are no suites in this folder"
    return NO_FILE if path.exists() else "no suite fits this pattern"


def _hint(path: Path) -> str:
    if (path / MANIFEST).is_file():
        return f"write a first one: whet init {path}"
    return (
        "a suite is a JSON or YAML file in a known format, or Python that imports whet and has a `suite` or a `@case`"
    )

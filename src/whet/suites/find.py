"""Find the suites that paths stand for: files, folders, patterns, and the folders of skills."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from msgspec import Struct

from whet.errors import PathRefused, SuiteError, UsageError
from whet.reading.documents import DocumentError
from whet.reading.paths import nearest_beside, refusals
from whet.reading.plugin_folder import is_plugin
from whet.reading.yaml import SUFFIXES, read_plain
from whet.suites.format import BENCH, NO_FILE, format_of, installed_format_of
from whet.suites.nearest import UNKNOWN, why_unknown
from whet.suites.other_tools.harbor import tasks_in
from whet.suites.other_tools.plugin_evals.documents import GRADERS
from whet.suites.other_tools.plugin_evals.folders import USUAL_FOLDER, case_folders, is_case, plugin_of, suite_folder
from whet.suites.other_tools.vally.files import vally_file
from whet.suites.split.lock import NAME as SPLIT_LOCK
from whet.workspace.make import MANIFEST

# Where a skill keeps its suites, seen from its folder.
_DOCUMENTS_OF_A_SKILL = ("evals/*.json", "evals/*.yaml", "evals/*.yml", "tests/eval.yaml", "tests/eval.yml")
_PYTHON_OF_A_SKILL = ("*.whet.py", "evals/*.whet.py", "tests/*.whet.py")
SUITES_OF_A_SKILL = (*_DOCUMENTS_OF_A_SKILL, *_PYTHON_OF_A_SKILL)
# Files that whet promises to read in a skill: one that it does not know is never passed over without a word.
_PROMISED = frozenset(("evals.json", "evals.yaml", "evals.yml", "eval.yaml", "eval.yml"))
# What a broken document has in its name, or in its text, if it is meant as a suite and not as settings of a tool.
_NAMED_LIKE_A_SUITE = re.compile(r"eval|suite|bench|promptfoo|scenario|case", re.IGNORECASE)
_KEYS_OF_SUITES = rb"(?:cases|cases_json|evals|scenarios|stimuli|expect|expectations|should_trigger)\b[\"']?\s*:"
_SAYS_LIKE_A_SUITE = re.compile(rb"\b" + _KEYS_OF_SUITES)
# In YAML a key further in may be anything: dumps of other tools have `cases` too.
_SAYS_LIKE_A_SUITE_IN_YAML = re.compile(rb"^(?:- )?[\"']?" + _KEYS_OF_SUITES, re.MULTILINE)
# What one case at least has for certain, in formats that take any document so that they can say what is wrong with it.
_CERTAIN = {BENCH: ("cases", {"prompt", "expect"}), "scenarios": ("scenarios", {"prompt", "assertions", "rubric"})}
# Where a configuration of promptfoo has its tests.
_TESTS_OF_PROMPTFOO = frozenset(("tests", "scenarios", "defaultTest"))
# What a callable skill has in its folder, which is for `whet eval`.
_CALLABLE = "skill.json"
# Where agents look for skills in a project, below a hidden folder such as `.claude`.
_SKILLS = "skills"
# Folders that have no suites. The rest of hidden folders is passed over too.
_NEVER = frozenset(("node_modules", "__pycache__", "venv", "site-packages", "dist", "build", "target"))
# Records of runs, and copies of skills as they were.
_OWN = ".whet"
_LARGEST = 16 * 1024 * 1024
# A folder with more files is not one that was meant.
_MOST_FILES = 200_000


class FoundSuite(Struct, frozen=True):
    """A suite, and the skill whose folder it lies in."""

    path: Path
    skill: Path | None = None


class SkippedFile(Struct, frozen=True):
    """A file that could have been a suite, and why it is not one; `broken` if it might be one with a mistake in it."""

    path: Path
    reason: str
    broken: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class SuiteSearch(Struct, frozen=True):
    """The suites below all paths, each once, and what was passed over."""

    suites: tuple[FoundSuite, ...]
    passed_over: tuple[SkippedFile, ...] = ()


def find_suites(paths: Sequence[Path], *, may_be_none: bool = False) -> SuiteSearch:
    """Find the suites that *paths* stand for, in the order of the paths.

    Raises `UsageError` if one has none, unless it *may_be_none*.
    """
    suites: dict[Path, list[FoundSuite]] = {}
    skipped: list[SkippedFile] = []
    for path in paths:
        pattern = has_magic(str(path)) and not path.exists()
        suites_of_path, skipped_here = _match_pattern(path) if pattern else _below(path)
        skipped += skipped_here
        if not suites_of_path and not may_be_none:
            is_other_kind = (path / _CALLABLE).is_file()
            reasons = "" if is_other_kind else "\n".join(map(str, skipped_here[:5]))
            raise UsageError(f"{path}: {_nothing(path)}", hint=reasons or _hint(path))
        for suite in suites_of_path:
            twins = suites.setdefault(suite.path.resolve(), [])
            # Two skills may share a suite by a link.
            if not any(None in (suite.skill, twin.skill) or _is_same_skill(suite.skill, twin.skill) for twin in twins):
                twins.append(suite)
    return SuiteSearch(tuple(suite for twins in suites.values() for suite in twins), tuple(skipped))


def _is_same_skill(skill: Path | None, other_skill: Path | None) -> bool:
    return skill is not None and other_skill is not None and skill.resolve() == other_skill.resolve()


def _match_pattern(pattern: Path) -> tuple[list[FoundSuite], list[SkippedFile]]:
    """Return the suites in what fits *pattern*; as in a folder, what is no suite is passed over."""
    fitting = sorted(glob(str(pattern), recursive=True))  # noqa: PTH207 - absolute patterns too
    if not fitting:
        raise UsageError(f"{pattern}: nothing fits this pattern")
    suites: list[FoundSuite] = []
    skipped: list[SkippedFile] = []
    for path in map(Path, fitting):
        if not path.exists():
            skipped.append(SkippedFile(path, "is a link that leads nowhere"))
            continue
        problem = _why_not(path) if path.is_file() and path.name != MANIFEST else None
        if problem is None:
            suites_of_path, skipped_here = _below(path)
        else:
            suites_of_path, skipped_here = [], [problem] if problem.reason else []
        suites += suites_of_path
        skipped += skipped_here if suites_of_path or skipped_here or problem else [SkippedFile(path, _nothing(path))]
    return suites, skipped


def _below(path: Path) -> tuple[list[FoundSuite], list[SkippedFile]]:
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder", hint=nearest_beside(path))
    if path.is_file():
        if path.name == MANIFEST:
            return _below(path.parent)
        return [FoundSuite(path)], []
    if not path.is_dir():
        return [], []
    if (path / MANIFEST).is_file():
        return _of_skill(path)
    if tasks_in(path) or is_case(path) or _is_evals(path):
        return [FoundSuite(path, None if tasks_in(path) else plugin_of(path))], []
    return _in_folder(path)


def _is_evals(folder: Path) -> bool:
    """Return whether *folder* is the one with the evals of a plug-in; a plug-in may be called so too."""
    plugin = None if is_plugin(folder) else plugin_of(folder)
    is_named = folder.name == USUAL_FOLDER or (plugin is not None and suite_folder(plugin) == folder)
    return is_named and not is_plugin(folder) and next(case_folders(folder), None) is not None


def _has_graders(folder: Path) -> bool:
    """Return whether *folder* is called `evals` and has a case with graders; of any plug-in, or of none."""
    # A plug-in may be called so too, and has its own inside.
    if folder.name != USUAL_FOLDER or (folder / USUAL_FOLDER).is_dir():
        return False
    try:
        return any((case / GRADERS).is_dir() for case in case_folders(folder))
    except SuiteError:
        return False


def _in_folder(path: Path) -> tuple[list[FoundSuite], list[SkippedFile]]:
    if installed_format_of(path) is not None:
        return [FoundSuite(path)], []
    suites: list[FoundSuite] = []
    skipped: list[SkippedFile] = []
    evals: list[Path] = []
    for place, names in _walk(path, skipped):
        if is_plugin(place) and (folder := suite_folder(place)) is not None:
            evals.append(folder)
            suites.append(FoundSuite(folder, place))
        elif _has_graders(place) and not any(map(place.is_relative_to, evals)):
            evals.append(place)
            suites.append(FoundSuite(place, plugin_of(place)))
        if any(place.is_relative_to(folder) and place != folder for folder in evals):
            # What lies here belongs to the cases of that suite.
            continue
        if MANIFEST in names:
            skill_suites, skipped_here = _of_skill(place)
            suites += skill_suites
            skipped += (
                skipped_here if skill_suites or skipped_here else [SkippedFile(place, "is a skill without suites")]
            )
            continue
        for name in sorted(names):
            problem = _why_not(place / name)
            if problem is None:
                suites.append(FoundSuite(place / name))
            elif problem.reason:
                skipped.append(problem)
    return suites, skipped


def _walk(folder: Path, skipped: list[SkippedFile]) -> Iterator[tuple[Path, list[str]]]:
    """Yield the folders below *folder* that could hold suites, with their files; not what lies below a skill.

    Folders that are not looked into are added to *skipped*, in the end.
    """
    aside: list[SkippedFile] = []

    def note(error: OSError) -> None:
        aside.append(SkippedFile(Path(error.filename), f"cannot be read: {error.strerror}", broken=True))

    file_count = 0
    for at, folders, names in os.walk(folder, onerror=note):
        place = Path(at)
        file_count += len(names)
        if file_count > _MOST_FILES:
            raise UsageError(f"{folder} holds more than {_MOST_FILES:,} files", hint="name the folder of the suites")
        if MANIFEST in names:
            folders.clear()
        elif place != folder and place.name.startswith("."):
            folders[:] = [name for name in folders if name == _SKILLS]
            names.clear()
        skipped_here = [
            SkippedFile(place / name, reason) for name in sorted(folders) if (reason := _shut(place / name))
        ]
        aside += skipped_here
        shut = {over.path.name for over in skipped_here}
        # `os.walk` follows no links, so there are no loops; skills are shared by them.
        links = sorted(name for name in folders if name not in shut and (place / name).is_symlink())
        folders[:] = sorted(name for name in folders if name not in shut)
        yield place, names
        for name in links:
            yield place / name, [MANIFEST]
    skipped += aside


def _shut(folder: Path) -> str | None:
    """Return why a folder is not looked into, if it is not."""
    if folder.name in _NEVER:
        return "is not looked into: other tools write such folders"
    if folder.name == _OWN:
        return "is not looked into: whet keeps runs and copies of skills there"
    # Not by `pathlib`, which fails at folders that we may not look into.
    if folder.name.startswith(".") and not os.path.isdir(folder / _SKILLS):  # noqa: PTH112
        return "is not looked into: it is hidden"
    if folder.is_symlink() and not os.path.isfile(folder / MANIFEST):  # noqa: PTH113
        return "is not looked into: it is a link, and leads to no skill"
    return None


def _of_skill(skill: Path) -> tuple[list[FoundSuite], list[SkippedFile]]:
    """Return the suites that belong to a skill; a broken file in their places is one, and loading it says why."""
    suites: list[FoundSuite] = []
    skipped: list[SkippedFile] = []
    for pattern in SUITES_OF_A_SKILL:
        for file in sorted(skill.glob(pattern)):
            problem = _why_not(file)
            if problem is None or (problem.broken and not problem.reason.startswith(UNKNOWN)):
                suites.append(FoundSuite(file, skill))
            elif problem.reason:
                skipped.append(problem)
    folder = suite_folder(skill)
    if folder is not None:
        suites.append(FoundSuite(folder, skill))
    return suites, skipped


def is_suite(file: Path) -> bool:
    """Return whether *file* is a suite, by what is in it."""
    return _why_not(file) is None


def _why_not(file: Path) -> SkippedFile | None:
    """Return why *file* is not a suite, or None if it is one; without a reason, nothing suggests that it might be."""
    ending = file.suffix.lower()
    if (ending != ".py" and ending not in SUFFIXES) or file.name.endswith(SPLIT_LOCK):
        return SkippedFile(file, "")
    try:
        with refusals():
            if not file.is_file():
                return SkippedFile(file, "is not a file")
            if file.stat().st_size > _LARGEST:
                return SkippedFile(file, f"is larger than {_LARGEST // 1024 // 1024} MB")
            return _python(file) if ending == ".py" else _document(file)
    except PathRefused as error:
        return SkippedFile(file, error.reason, broken=True)


def _python(file: Path) -> SkippedFile | None:
    """Read, and do not import, a Python file: a suite imports whet and has `suite` or a `@case` at its top."""
    text = file.read_bytes()
    if b"whet" not in text:
        return SkippedFile(file, "")
    try:
        top = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return SkippedFile(file, "is not Python that can be read", broken=True)
    if not any(_imports_whet(node) for node in top):
        return SkippedFile(file, "")
    if any(_declares_cases(node) for node in top):
        return None
    return SkippedFile(file, "imports whet, but has neither `suite` nor a `@case` at its top")


def _imports_whet(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and (node.module or "").partition(".")[0] == "whet"
    return isinstance(node, ast.Import) and any(name.name.partition(".")[0] == "whet" for name in node.names)


def _declares_cases(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        functions = (target.func if isinstance(target, ast.Call) else target for target in node.decorator_list)
        return any(getattr(target, "id", getattr(target, "attr", None)) == "case" for target in functions)
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "suite" for target in targets)


def _document(file: Path) -> SkippedFile | None:
    try:
        document = read_plain(file)
    except DocumentError as error:
        return SkippedFile(file, str(error), broken=_looks_like_a_suite(file))
    name = format_of(file)
    if name == "vally" and (kind := vally_file(file)) is not None:
        return SkippedFile(file, f"names specs of Vally, and is none itself: whet run {file} runs its {kind}")
    if name == "promptfoo" and isinstance(document, dict) and not _TESTS_OF_PROMPTFOO & set(document):
        return SkippedFile(file, "has no tests: promptfoo makes those of a red team with models")
    if name not in _CERTAIN or _is_certain(document, *_CERTAIN[name]):
        return None
    if isinstance(document, dict) and "tasks" in document:
        return SkippedFile(file, "is a benchmark of callable skills: use whet eval")
    is_promised = file.name in _PROMISED and (file.parent.parent / MANIFEST).is_file()
    reason = (why_unknown(document) if is_promised else None) or UNKNOWN
    return SkippedFile(file, reason, broken=is_promised)


def _looks_like_a_suite(file: Path) -> bool:
    """Return whether a document that cannot be read is meant as a suite; a folder of a skill has nothing else."""
    if _NAMED_LIKE_A_SUITE.search(file.name) or (file.parent.parent / MANIFEST).is_file():
        return True
    keys = _SAYS_LIKE_A_SUITE if file.suffix.lower() == ".json" else _SAYS_LIKE_A_SUITE_IN_YAML
    return keys.search(file.read_bytes()) is not None


def _is_certain(document: object, list_name: str, keys: set[str]) -> bool:
    """Return whether every case in the list *list_name* has one of *keys*."""
    cases = document.get(list_name) if isinstance(document, dict) else None
    return isinstance(cases, list) and all(isinstance(case, dict) and keys & set(case) for case in cases)


def _nothing(path: Path) -> str:
    if (path / MANIFEST).is_file():
        return "this skill has no suites"
    if path.is_dir():
        return "there are no suites in this folder"
    return NO_FILE if path.exists() else "no suite fits this pattern"


def _hint(path: Path) -> str:
    if (path / _CALLABLE).is_file():
        return f"it is a callable skill: whet eval {path}"
    if (path / MANIFEST).is_file():
        return f"write a first one: whet init {path}"
    return (
        "a suite is a JSON or YAML file in a known format, or Python that imports whet and has a `suite` or a `@case`"
    )

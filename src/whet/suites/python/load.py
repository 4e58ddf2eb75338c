"""The Python format: a module with `suite`, or with functions marked by `@case`, and `workspace`."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import posix
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.checks.asserts.explain import text_of
from whet.checks.asserts.imports import PACKAGE, enter, home_of, top_of
from whet.checks.asserts.rewrite import SuiteLoader, rewriting_helpers
from whet.errors import Problem, SuiteError
from whet.model.suite import Case, Suite
from whet.reading.fields import Fields, Findings
from whet.suites.format import held_out, note_shared_ids
from whet.suites.python import authoring
from whet.suites.python._fields import PYTHON, lower_case, lower_check_files, lower_workspace
from whet.suites.python._mistakes import HINT, ImportHangs, dropped_generators, limit_s, patience

# The prefix of the module of a suite outside of packages.
_OUTSIDE_PACKAGES = "whet_suite_"


class PythonFormat:
    """Any `.py` file."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* ends in .py."""
        return path.suffix == ".py"

    def lower(self, path: Path) -> Suite:
        """Import the module and check all that can be checked without running an agent."""
        place = _SuiteModule.at(path)
        module = _import(place)
        author_modules = place.modules()
        helpers = [file for file in author_modules if file != path]
        findings = Findings(str(path), language=PYTHON)
        for author_module in author_modules.values():
            findings.problems += _dropped_generator_problems(author_module)
        for_all = lower_check_files(getattr(module, "check_files", ()), findings)
        cases = tuple(
            replace(case, check_files=tuple(dict.fromkeys((*for_all, *case.check_files))))
            for case in _cases(module, findings)
        )
        source = getattr(module, "workspace", None)
        workspace = None if source is None else lower_workspace(source, findings)
        if findings.problems:
            raise SuiteError(findings.problems)
        return Suite(
            name=path.stem,
            cases=cases,
            source=path,
            digest=_digest([path, *helpers]),
            helpers=_digest(helpers),
            workspace=workspace,
            held_out=held_out(path, cases),
        )


class _SuiteModule(Struct, frozen=True):
    """The module of a suite: its file, its name, and where its imports start."""

    path: Path
    # The folder that holds its package, or the one that it is in.
    home: Path
    # Its folder, or that of the topmost package around it.
    top: Path
    # Its own name in its package; elsewhere one that no other module has.
    name: str
    # The dotted name of its package, if it is in one.
    package: str = ""

    @classmethod
    def at(cls, path: Path) -> _SuiteModule:
        """Return what the file at *path* is as a module."""
        home, top = home_of(path), top_of(path)
        if home == path.parent:
            return cls(path, home, top, f"{_OUTSIDE_PACKAGES}{path.stem}")
        package = ".".join(path.parent.relative_to(home).parts)
        return cls(path, home, top, f"{package}.{path.stem}", package)

    def owns(self, file: str) -> bool:
        """Return whether *file* is the suite or one of its helpers."""
        # As text: there are hundreds of modules, and making a Path of each takes long.
        return file.startswith(f"{self.top}/") and "site-packages" not in file

    def modules(self) -> dict[Path, ModuleType]:
        """Return the suite's module and what it imported from its folder or package, but no other suite, by file."""
        beginning = f"{self.top}/"
        modules: dict[Path, ModuleType] = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name.startswith(_OUTSIDE_PACKAGES) and name != self.name:
                continue
            if isinstance(file, str) and file.startswith(beginning) and file.endswith(".py"):
                modules[Path(file)] = module
        return modules


def _digest(files: Iterable[Path]) -> str:
    """Return the digest of what an author wrote of *files*, in the order of their names."""
    author_files = sorted(file for file in set(files) if "site-packages" not in file.parts and file.is_file())
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in author_files)).hexdigest()


def _dropped_generator_problems(module: ModuleType) -> Iterator[Problem]:
    """Yield a problem for each generator that the suite or a helper makes and drops."""
    loader = getattr(module, "__loader__", None)
    if not isinstance(loader, SuiteLoader):
        return
    for line, name in sorted(dropped_generators(loader.get_source(module.__name__) or "", vars(module))):
        yield Problem(
            file=loader.path,
            field=f"line {line}",
            message=f"{name}(...) makes a generator, and nothing in it runs",
            hint="loop over it with `for` or `async for`, or remove its `yield`",
        )


def _import(place: _SuiteModule) -> ModuleType:
    """Import the module with its folder on the path, or with the folder that has its package."""
    name, path = place.name, place.path
    spec = importlib.util.spec_from_file_location(name, path, loader=SuiteLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise SuiteError([Problem(file=str(path), message="cannot be imported")])
    most_s = limit_s(os.environ)
    module = importlib.util.module_from_spec(spec)
    authoring.marked_cases.pop(name, None)
    enter(place.home)
    folders = dict.fromkeys((str(path.parent), str(place.home)))
    sys.path += [folder for folder in folders if folder not in sys.path]
    try:
        # What a module prints while it loads must not get between the lines of a reporter.
        with (
            patience(path, most_s, place.owns),
            contextlib.redirect_stdout(sys.stderr),
            _same_process(),
            _no_way_out(),
            rewriting_helpers(place.home),
        ):
            if place.package:
                _check_package(importlib.import_module(place.package), path)
            sys.modules[name] = module
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise SuiteError([_import_problem(path, error)]) from error
    return module


def _check_package(package: ModuleType, path: Path) -> None:
    """Raise if Python finds another package of that name first, whose helpers are not those of the suite."""
    if str(path.parent) not in [str(Path(place).resolve()) for place in getattr(package, "__path__", ())]:
        raise ImportError(
            f'its package "{package.__name__}" has the name of {package.__file__}, which Python finds first: rename it'
        )


@contextlib.contextmanager
def _same_process() -> Iterator[None]:
    """Undo what a module does to the process while it loads."""
    process, cwd, places = os.getpid(), Path.cwd(), list(sys.path)
    try:
        yield
    finally:
        if os.getpid() != process:
            # The suite forked, and this is the copy: one run is enough.
            os._exit(0)
        os.chdir(cwd)
        sys.path[:] = [*(place for place in sys.path if place not in places), *places]


class _ProcessExit(BaseException):
    """A module that loads would have ended the process, or put another program in its place."""


@contextlib.contextmanager
def _no_way_out() -> Iterator[None]:
    """Raise if a module would end our process while it loads; its own children may end."""
    process = os.getpid()
    real = {name: getattr(os, name) for name in ("_exit", "execv", "execve")}

    def guard(name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if os.getpid() == process:
                raise _ProcessExit(f"it calls os.{name}, which would have ended whet")
            return real[name](*args)

        return call

    def put(functions: Mapping[str, Callable[..., Any]]) -> None:
        for name, function in functions.items():
            setattr(os, name, function)
            setattr(posix, name, function)

    put({name: guard(name) for name in real})
    try:
        yield
    finally:
        put(real)


def _import_problem(path: Path, error: BaseException) -> Problem:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = frames[-1].lineno if frames else None
    if isinstance(error, SyntaxError) and error.filename in (None, str(path)):
        line = error.lineno
    text = text_of(error)
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, _ProcessExit | ImportHangs):
        reason = text
    place = f"line {line}" if line else None
    return Problem(file=str(path), field=place, message=f"cannot be imported: {reason}", hint=_import_hint(path, error))


def _import_hint(path: Path, error: BaseException) -> str | None:
    """Return how imports of a suite work, if the author seems to expect something else."""
    if isinstance(error, ImportError) and "no known parent package" in text_of(error):
        return f"relative imports need a package: add {PACKAGE} to {path.parent}, or write `import helpers`"
    if isinstance(error, ImportHangs):
        return HINT
    top = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    holder = next((folder for folder in path.parents if top and top == folder.name), None)
    if holder is not None:
        return f"{holder} is not a package: add {PACKAGE} to it and to the folders between it and the suite"
    return None


def _cases(module: ModuleType, findings: Findings) -> Iterator[Case]:
    marked_cases = _find_marked(module)
    source = getattr(module, "suite", None)
    if source is None and not marked_cases:
        hint = "suite = [Case(id=..., prompt=..., check=...)]"
        findings.note("", "has no `suite` and no function marked with @case", hint)
        return
    before = len(findings.problems)
    entries = _list_cases(marked_cases if source is None else source, findings)
    if source is not None:
        _note_forgotten(marked_cases, entries, findings)
    ids = [item.fields.get("id", name) for name, item in entries if isinstance(item, authoring.Case)]
    texts = [identifier for identifier in ids if isinstance(identifier, str)]
    note_shared_ids((Fields({}, findings, case=identifier), "id", identifier) for identifier in texts)
    if not entries and len(findings.problems) == before:
        findings.note("suite", "has no cases")
    for number, (name, item) in enumerate(entries):
        case = lower_case(item, name=name, index=number, findings=findings)
        if case is not None:
            yield case


def _find_marked(module: ModuleType) -> list[authoring.Case]:
    """Return the functions that are marked in the module, then those that it imported from its folder."""
    module_cases = authoring.marked_cases.get(module.__name__, [])
    imported_cases = [
        item for name, items in authoring.marked_cases.items() if name != module.__name__ for item in items
    ]
    module_ids = {id(value) for value in vars(module).values()}
    return [*module_cases, *(item for item in imported_cases if id(item) in module_ids)]


def _list_cases(source: Any, findings: Findings) -> list[tuple[str | None, Any]]:
    """Return the cases of a list or a map, with their names in the map."""
    match source:
        case Mapping():
            return [(str(key), item) for key, item in source.items()]
        case list() | tuple():
            return [(None, item) for item in source]
        case _:
            findings.note("suite", f"must be a list or a map of Case, not {type(source).__name__}")
            return []


def _note_forgotten(
    marked_cases: list[authoring.Case], entries: list[tuple[str | None, Any]], findings: Findings
) -> None:
    listed_ids = {id(item) for _, item in entries}
    for item in marked_cases:
        if id(item) not in listed_ids:
            findings.note(
                f"line {item.line}",
                "is marked with @case but not listed in `suite`",
                "list it there, or leave `suite` out so that every marked function is a case",
                case=str(item.fields.get("id")),
            )

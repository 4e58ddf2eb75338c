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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from whet.errors import Problem, SuiteError
from whet.grade.expect.asserts import text_of
from whet.grade.expect.homes import PACKAGE, enter, home_of, top_of
from whet.grade.expect.rewriting import SuiteLoader, rewrite_helpers
from whet.model.suite import Case, Suite
from whet.reading.fields import Fields, Findings
from whet.suites import authoring
from whet.suites.format import held_out, note_shared_ids
from whet.suites.python_fields import PYTHON, lower_case, lower_check_files, lower_workspace
from whet.suites.python_mistakes import HINT, ImportHangs, dropped_generators, limit_s, patience

# The prefix of the module of a suite outside of packages.
_OUTSIDE_PACKAGES = "whet_suite_"


class PythonFormat:
    """Any `.py` file."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* ends in .py."""
        return path.suffix == ".py"

    def lower(self, path: Path) -> Suite:
        """Import the module and check all that can be checked without running an agent."""
        module = _import(path)
        findings = Findings(str(path), language=PYTHON)
        findings.problems += (problem for own in _own_modules(path) for problem in _unrun(own))
        for_all = lower_check_files(getattr(module, "check_files", ()), findings)
        cases = tuple(
            replace(case, check_files=tuple(dict.fromkeys((*for_all, *case.check_files))))
            for case in _cases(module, findings)
        )
        declared = getattr(module, "workspace", None)
        workspace = None if declared is None else lower_workspace(declared, findings)
        if findings.problems:
            raise SuiteError(findings.problems)
        return Suite(
            name=path.stem,
            cases=cases,
            source=path,
            digest=_digest(path),
            workspace=workspace,
            held_out=held_out(path, cases),
        )


def _digest(path: Path) -> str:
    """Return the digest of the suite and of what it imported from its folder or package, in the order of names."""
    files = {path, *(Path(module.__file__) for module in _own_modules(path) if module.__file__)}
    own = sorted(file for file in files if "site-packages" not in file.parts and file.is_file())
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in own)).hexdigest()


def _own_modules(path: Path) -> Iterator[ModuleType]:
    """Yield the suite's module and what it imported from its folder or package, but no other suite."""
    # As text: there are hundreds of modules, and making a Path of each takes long.
    top = f"{top_of(path)}/"
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.startswith(_OUTSIDE_PACKAGES) and name != _name(path):
            continue
        if isinstance(file, str) and file.startswith(top) and file.endswith(".py"):
            yield module


def _unrun(module: ModuleType) -> Iterator[Problem]:
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


def _name(path: Path) -> str:
    """Return the module's name: its own in its package, elsewhere one that no other module has."""
    if not (path.parent / PACKAGE).is_file():
        return f"{_OUTSIDE_PACKAGES}{path.stem}"
    return ".".join((*path.parent.relative_to(top_of(path).parent).parts, path.stem))


def _import(path: Path) -> ModuleType:
    """Import the module with its folder on the path, or with the folder that has its package."""
    name, top = _name(path), top_of(path)
    package = name.rpartition(".")[0] if (path.parent / PACKAGE).is_file() else ""
    spec = importlib.util.spec_from_file_location(name, path, loader=SuiteLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise SuiteError([Problem(file=str(path), message="cannot be imported")])
    most_s = limit_s(os.environ)
    module = importlib.util.module_from_spec(spec)
    authoring.marked.pop(name, None)
    enter(home_of(path))
    wanted = (str(path.parent), *([str(top.parent)] if package else []))
    sys.path += [place for place in wanted if place not in sys.path]
    rewrite_helpers(home_of(path))
    try:
        # What a module prints while it loads must not get between the lines of a reporter.
        with (
            patience(path, most_s, _is_own(path)),
            contextlib.redirect_stdout(sys.stderr),
            _same_process(),
            _no_way_out(),
        ):
            if package:
                _check_package(importlib.import_module(package), path)
            sys.modules[name] = module
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise SuiteError([_import_problem(path, error)]) from error
    return module


def _is_own(path: Path) -> Callable[[str], bool]:
    """Return a function that says whether a file is the suite or one of its helpers."""
    folder = f"{top_of(path)}/"
    return lambda file: file.startswith(folder) and "site-packages" not in file


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
            # It forked, and this is the copy: one run is enough.
            os._exit(0)
        os.chdir(cwd)
        sys.path[:] = [*(place for place in sys.path if place not in places), *places]


class _Ended(BaseException):
    """A module that loads would have ended the process, or put another program in its place."""


@contextlib.contextmanager
def _no_way_out() -> Iterator[None]:
    """Raise if a module would end our process while it loads; its own children may end."""
    process = os.getpid()
    real = {name: getattr(os, name) for name in ("_exit", "execv", "execve")}

    def guarded(name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if os.getpid() == process:
                raise _Ended(f"it calls os.{name}, which would have ended whet")
            return real[name](*args)

        return call

    def put(functions: Mapping[str, Callable[..., Any]]) -> None:
        for name, function in functions.items():
            setattr(os, name, function)
            setattr(posix, name, function)

    put({name: guarded(name) for name in real})
    try:
        yield
    finally:
        put(real)


def _import_problem(path: Path, error: BaseException) -> Problem:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    here = isinstance(error, SyntaxError) and error.filename in (None, str(path))
    line = error.lineno if isinstance(error, SyntaxError) and here else (frames[-1].lineno if frames else None)
    said = text_of(error)
    what = (
        said
        if isinstance(error, _Ended | ImportHangs)
        else f"{type(error).__name__}: {said}"
        if said
        else type(error).__name__
    )
    place = f"line {line}" if line else None
    return Problem(file=str(path), field=place, message=f"cannot be imported: {what}", hint=_import_hint(path, error))


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
    marked = _marked(module)
    declared = getattr(module, "suite", None)
    if declared is None and not marked:
        hint = "suite = [Case(id=..., prompt=..., check=...)]"
        findings.note("", "has no `suite` and no function marked with @case", hint)
        return
    before = len(findings.problems)
    written = _written(marked if declared is None else declared, findings)
    if declared is not None:
        _note_forgotten(marked, written, findings)
    ids = [item.fields.get("id", name) for name, item in written if isinstance(item, authoring.Case)]
    texts = [each for each in ids if isinstance(each, str)]
    note_shared_ids((Fields({}, findings, case=each), "id", each) for each in texts)
    if not written and len(findings.problems) == before:
        findings.note("suite", "has no cases")
    for number, (name, item) in enumerate(written):
        lowered = lower_case(item, name=name, index=number, findings=findings)
        if lowered is not None:
            yield lowered


def _marked(module: ModuleType) -> list[authoring.Case]:
    """Return the functions that are marked in the module, then those that it imported from its folder."""
    own = authoring.marked.get(module.__name__, [])
    others = [item for name, items in authoring.marked.items() if name != module.__name__ for item in items]
    here = {id(value) for value in vars(module).values()}
    return [*own, *(item for item in others if id(item) in here)]


def _written(declared: Any, findings: Findings) -> list[tuple[str | None, Any]]:
    """Return the cases of a list or a map, with their names in the map."""
    match declared:
        case Mapping():
            return [(str(key), item) for key, item in declared.items()]
        case list() | tuple():
            return [(None, item) for item in declared]
        case _:
            findings.note("suite", f"must be a list or a map of Case, not {type(declared).__name__}")
            return []


def _note_forgotten(marked: list[authoring.Case], written: list[tuple[str | None, Any]], findings: Findings) -> None:
    listed = {id(item) for _, item in written}
    for item in marked:
        if id(item) not in listed:
            findings.note(
                f"line {item.line}",
                "is marked with @case but not listed in `suite`",
                "list it there, or leave `suite` out so that every marked function is a case",
                case=str(item.fields.get("id")),
            )

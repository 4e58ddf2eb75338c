"""Mistakes of Python suites: generators that nothing runs, and imports that do not end."""

from __future__ import annotations

import ast
import inspect
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn, TypeAlias

from whet import exit_codes
from whet.errors import UsageError

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
# The names that a function binds itself, and whether each is surely a generator function.
_Names: TypeAlias = Mapping[str, bool]


def dropped_generators(source: str, names: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield line and name of every call that makes a generator that nothing runs; *names* are the module's own."""
    try:
        waiting: list[tuple[ast.AST, tuple[_Names, ...]]] = [(ast.parse(source), ())]
    except (RecursionError, SyntaxError, ValueError):
        # What is too deep for a tree is left alone; Python has read it already.
        return
    while waiting:
        node, scopes = waiting.pop()
        call = _idle_call(node)
        if call is not None and _makes_generator(call.func, scopes, names):
            yield call.lineno, ast.unparse(call.func)
        if isinstance(node, _Function):
            scopes = (*scopes, _bound_names(node))
        waiting += ((child, scopes) for child in ast.iter_child_nodes(node))


def _idle_call(node: ast.AST) -> ast.Call | None:
    """Return a call whose value is dropped, or only tested for truth, which a generator always has."""
    match node:
        case ast.Expr(value=ast.Call() as call) | ast.Assert(test=ast.Call() as call):
            return call
        case _:
            return None


def _makes_generator(function: ast.expr, scopes: tuple[_Names, ...], names: Mapping[str, Any]) -> bool:
    owner = function.value if isinstance(function, ast.Attribute) else function
    if not isinstance(owner, ast.Name):
        return False
    local = next((scope[owner.id] for scope in reversed(scopes) if owner.id in scope), None)
    if local is not None:
        return local and owner is function
    value = names.get(owner.id)
    if isinstance(function, ast.Attribute):
        value = vars(value).get(function.attr) if isinstance(value, ModuleType) else None
    return inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value)


def _bound_names(function: _Function) -> _Names:
    """Return what *function* binds; a name that is bound more than once may be anything."""
    generators: dict[str, bool] = {}
    for node in _own_nodes(function):
        for name in _binds(node):
            generators[name] = name not in generators and _is_plain_generator(node)
    return generators


def _binds(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name


def _is_plain_generator(node: ast.AST) -> bool:
    """Return whether *node* is a function that yields and has no decorator."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.decorator_list:
        return False
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in _own_nodes(node))


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those inside of nested functions and classes."""
    body: list[ast.AST] = [function.args, *(function.body if isinstance(function.body, list) else [function.body])]
    while body:
        node = body.pop()
        yield node
        if not isinstance(node, _Function | ast.ClassDef):
            body += ast.iter_child_nodes(node)


VARIABLE = "WHET_IMPORT_TIMEOUT_MS"
HINT = f"an import should only define cases; {VARIABLE} allows it more time"
_USUAL_MS = 60_000
# After this time you wonder what is going on.
ANNOUNCED_AFTER_S = 3.0
# A suite that catches everything and goes on has this long until whet ends with it.
_GRACE_S = 2.0
# At most what a timer takes.
_MILLISECONDS = re.compile("[1-9][0-9]{0,11}")


class ImportHangs(BaseException):
    """The import of a suite that takes too long; no `except Exception` of the suite catches it."""


def limit_s(environ: Mapping[str, str]) -> float:
    """Return how long an import may take."""
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return _USUAL_MS / 1000
    if not _MILLISECONDS.fullmatch(text):
        raise UsageError(f'{VARIABLE}: must be a number of milliseconds of at least 1, not "{text[:40]}"')
    return int(text) / 1000


@contextmanager
def patience(path: Path, most_s: float, is_own: Callable[[str], bool]) -> Iterator[None]:
    """Announce the import of *path* if it takes long, and raise `ImportHangs` in it if it takes too long.

    A timer of the main thread does it, so it also ends what waits for something. It cannot end what never returns to
    Python, such as a loop in C.
    """
    alone = threading.current_thread() is threading.main_thread() and not signal.getitimer(signal.ITIMER_REAL)[0]
    if not alone:
        # Leave the timer of another owner, such as a test, as it is.
        yield
        return
    watch = _Watchdog(path, most_s, is_own, os.getpid(), os._exit)
    before = signal.signal(signal.SIGALRM, watch.ring)
    signal.setitimer(signal.ITIMER_REAL, min(ANNOUNCED_AFTER_S, most_s))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Watchdog:
    """What happens when the timer fires: first a message, then an exception, at last the end of the process."""

    def __init__(
        self, path: Path, most_s: float, is_own: Callable[[str], bool], process: int, leave: Callable[[int], NoReturn]
    ) -> None:
        self._path = path
        self._most_s = most_s
        self._is_own = is_own
        self._process = process
        self._leave = leave
        self._has_announced = most_s <= ANNOUNCED_AFTER_S
        self._has_raised = False

    def ring(self, number: int, frame: FrameType | None) -> None:
        """Say or do what is due; in a copy that the suite forked, nothing is."""
        del number
        if os.getpid() != self._process:
            return
        if not self._has_announced:
            self._has_announced = True
            _say(f"importing {self._path} ... {self._place(frame)}".rstrip())
            signal.setitimer(signal.ITIMER_REAL, self._most_s - ANNOUNCED_AFTER_S)
            return
        message = f"it did not end within {self._most_s:g} s {self._place(frame)}".rstrip()
        if self._has_raised:
            _say(f"error[suite]: {self._path}: cannot be imported: {message}\n  {HINT}")
            self._leave(exit_codes.USAGE)
        self._has_raised = True
        signal.setitimer(signal.ITIMER_REAL, _GRACE_S)
        raise ImportHangs(message)

    def _place(self, frame: FrameType | None) -> str:
        """Return the innermost line of the author's code that is running."""
        while frame is not None:
            if self._is_own(frame.f_code.co_filename):
                return f"(at {Path(frame.f_code.co_filename).name}, line {frame.f_lineno})"
            frame = frame.f_back
        return ""


def _say(line: str) -> None:
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

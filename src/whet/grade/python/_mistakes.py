"""What only the author of a check can have caused, and the values that led to everything else that it raises."""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import linecache
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CoroutineType, FrameType, ModuleType, TracebackType
from typing import Any

from msgspec import Struct

from whet.checks.asserts.explain import MISSING
from whet.checks.asserts.values import is_telling, value_text
from whet.checks.context import CheckContext, Ran
from whet.checks.expect import Expect
from whet.model.grade import Changes, Location
from whet.model.session import Session, Usage

_WHET = Path(__file__).parents[2]
# How many callers of a coroutine are noted: enough to find the author's line behind ours.
_CALLERS = 6


class UnawaitedCoroutine(Struct, frozen=True):
    """A coroutine that was never awaited, and the line that made it."""

    name: str
    location: Location | None
    ours: bool


class NeverAwaited(RuntimeError):
    """A check ended, and something that it began did not."""

    def __init__(self, message: str, location: Location | None = None) -> None:
        super().__init__(message)
        self.location = location


@contextmanager
def notice_unawaited() -> Iterator[list[UnawaitedCoroutine]]:
    """Collect the coroutines that are made inside and never awaited; the list is complete after the block.

    Python calls a function of `warnings` for each of them, so that no filter of the author hides one.
    """
    coroutines: list[UnawaitedCoroutine] = []
    module: Any = warnings
    before, depth = module._warn_unawaited_coroutine, sys.get_coroutine_origin_tracking_depth()  # noqa: SLF001
    module._warn_unawaited_coroutine = lambda coroutine: coroutines.append(_describe_coroutine(coroutine))  # noqa: SLF001
    sys.set_coroutine_origin_tracking_depth(_CALLERS)
    try:
        yield coroutines
        coroutines += _close_leftovers()
    finally:
        sys.set_coroutine_origin_tracking_depth(depth)
        module._warn_unawaited_coroutine = before  # noqa: SLF001


def unawaited_error(coroutines: list[UnawaitedCoroutine]) -> NeverAwaited | None:
    """Return the error about *coroutines*, if there is any."""
    if not coroutines:
        return None
    # `expect.classify` wraps what it is given: the author knows the inner name.
    author_coroutines = [coroutine for coroutine in coroutines if not coroutine.ours] or coroutines
    names = list(dict.fromkeys(coroutine.name for coroutine in author_coroutines))
    verb, pronoun = ("was", "it") if len(names) == 1 else ("were", "them")
    location = next((coroutine.location for coroutine in coroutines if coroutine.location), None)
    return NeverAwaited(
        f"{', '.join(names)} {verb} never awaited, so nothing in {pronoun} ran: "
        f"make the check async and await {pronoun}",
        location,
    )


async def finish(awaitable: Any) -> Any:
    """Await *awaitable*; raises if a task that it began failed unseen, or has not ended."""
    failures: list[BaseException] = []

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            failures.append(error)

    asyncio.get_running_loop().set_exception_handler(note)
    value = await awaitable
    # The handler hears of a failed task when the task is removed, and its traceback may hold it.
    gc.collect()
    if failures:
        raise failures[0]
    running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.cancelling()]
    if running:
        names = ", ".join(getattr(task.get_coro(), "__qualname__", task.get_name()) for task in running)
        raise NeverAwaited(f"the check ended before its task {names} did: await the task, or cancel it")
    return value


def _close_leftovers() -> list[UnawaitedCoroutine]:
    """Return the coroutines that something still holds, or that hold themselves."""
    coroutines = [coroutine for coroutine in gc.get_objects() if isinstance(coroutine, CoroutineType)]
    waiting = [coroutine for coroutine in coroutines if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED]
    leftovers = [_describe_coroutine(coroutine) for coroutine in waiting]
    for coroutine in waiting:
        coroutine.close()
    return leftovers


def _describe_coroutine(coroutine: CoroutineType[Any, Any, Any]) -> UnawaitedCoroutine:
    callers = [(file, line) for file, line, _ in coroutine.cr_origin or () if not _is_whets(file)]
    location = Location(file=callers[0][0], line=callers[0][1]) if callers else None
    return UnawaitedCoroutine(coroutine.__qualname__, location, _is_whets(coroutine.cr_code.co_filename))


def _is_whets(file: str) -> bool:
    return file.startswith(str(_WHET))


# Whether a file is the author's, and not one that the agent wrote.
IsOwn = Callable[[str], bool]

# What refuses arguments on purpose; a refusal of what was observed has a class of its own.
_REFUSING = tuple(str(_WHET / path) for path in ("checks", "shell", "grade/python/_checker.py"))
# As Python says that a function was called with other arguments than it takes.
_WRONG_CALL = r"([\w.]+)\(\) (?:missing|got|takes) "
_HANDED = (Session, CheckContext, Changes, Usage, Ran)
# By these a check may import what the agent wrote.
_OTHER_IMPORTS = ("sys.path", "importlib", "runpy")


def is_mistake(error: BaseException, is_own: IsOwn) -> bool:
    """Return whether *error* is surely a mistake of the author; in doubt it is not."""
    # By its type: asking the exception itself would run the author's code.
    judge = _JUDGES.get(type(error))
    return judge is not None and judge(error, is_own)


def _is_own_name(error: BaseException, is_own: IsOwn) -> bool:
    return is_own(_innermost(error))


def _is_own_syntax(error: BaseException, is_own: IsOwn) -> bool:
    assert isinstance(error, SyntaxError)
    return error.filename is not None and is_own(error.filename)


def _is_own_attribute(error: BaseException, is_own: IsOwn) -> bool:
    assert isinstance(error, AttributeError)
    return is_own(_innermost(error)) and _is_ours(error.obj)


def _is_misuse(error: BaseException, is_own: IsOwn) -> bool:
    last = _innermost(error)
    if last.startswith(_REFUSING):
        return True
    call = re.match(_WRONG_CALL, str(error)) if is_own(last) else None
    return call is not None and call[1].split(".")[0] in _api()


def _is_own_import(error: BaseException, is_own: IsOwn) -> bool:
    frames = [frame for frame in _files(error) if not frame.startswith("<frozen importlib")]
    if not frames or not is_own(frames[-1]):
        return False
    try:
        source = Path(frames[-1]).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return not any(word in source for word in _OTHER_IMPORTS)


def _is_ours(value: object) -> bool:
    """Return whether it is the same thing in every trial, as `expect` is and an event is not."""
    if isinstance(value, ModuleType):
        return value.__name__.split(".")[0] == "whet"
    return isinstance(value, _HANDED) or type(value).__module__.startswith("whet.checks")


def _api() -> frozenset[str]:
    """Return the names of the classes whose methods a check calls."""
    groups = [type(value) for value in vars(Expect()).values()]
    kinds = (*_HANDED, *(kind for group in groups for kind in group.__mro__), *Expect.__mro__)
    return frozenset(kind.__name__ for kind in kinds if kind.__module__.split(".")[0] == "whet")


def _innermost(error: BaseException) -> str:
    files = _files(error)
    return files[-1] if files else ""


def _files(error: BaseException) -> list[str]:
    return [frame.filename for frame in traceback.extract_tb(traceback_of(error))]


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return where it was raised, without asking the author's class."""
    trace: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return trace


_JUDGES: dict[type[BaseException], Callable[[BaseException, IsOwn], bool]] = {
    NeverAwaited: lambda _, __: True,
    NameError: _is_own_name,
    UnboundLocalError: _is_own_name,
    SyntaxError: _is_own_syntax,
    IndentationError: _is_own_syntax,
    TabError: _is_own_syntax,
    ImportError: _is_own_import,
    ModuleNotFoundError: _is_own_import,
    AttributeError: _is_own_attribute,
    TypeError: _is_misuse,
    ValueError: _is_misuse,
}


_MOST_VALUES = 5
_LONGEST_VALUE = 500
# What only looks, and gives the same again.
_LOOKS = frozenset(("final_output", "get_commands", "get_file_reads", "changes", "read"))


def describe_values(error: BaseException, is_own: IsOwn) -> str:
    """Return lines with the values in the innermost statement of the author that has any."""
    try:
        for place in reversed([*_places(traceback_of(error), is_own)]):
            if values := _values(place):
                return "\n  where  " + "\n         ".join(values)
    except Exception:  # noqa: BLE001 - an explanation must not hide the failure
        return ""
    return ""


def _places(at: TracebackType | None, is_own: IsOwn) -> Iterator[TracebackType]:
    while at is not None:
        if is_own(at.tb_frame.f_code.co_filename):
            yield at
        at = at.tb_next


def _values(at: TracebackType) -> list[str]:
    texts: dict[str, str] = {}
    for node in _expressions(at):
        value = _value(node, at.tb_frame)
        if value is not MISSING and is_telling(value):
            texts.setdefault(ast.unparse(node), value_text(value, _LONGEST_VALUE))
    return [f"{name} = {value}" for name, value in [*texts.items()][:_MOST_VALUES]]


def _expressions(at: TracebackType) -> Iterator[ast.expr]:
    """Yield every name, attribute and call of the statement, the whole before its parts."""
    statement = _statement(at)
    waiting: list[ast.AST] = [] if statement is None else [statement]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Name | ast.Attribute | ast.Call):
            yield node
        inside = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt | ast.Lambda)]
        waiting = inside + waiting


def _statement(at: TracebackType) -> ast.AST | None:
    """Return the smallest statement, or body of a lambda, that holds what raised."""
    file = at.tb_frame.f_code.co_filename
    lines = linecache.getlines(file)
    holding = [node for node in ast.walk(ast.parse("".join(lines))) if _holds(node, at)]
    smallest = min(holding, key=_extent, default=None)
    return smallest.body if isinstance(smallest, ast.Lambda) else smallest


def _holds(node: ast.AST, at: TracebackType) -> bool:
    if not isinstance(node, ast.stmt | ast.Lambda):
        return False
    # A line may have several lambdas: the column says which one it is.
    if isinstance(node, ast.Lambda) != (at.tb_frame.f_code.co_name == "<lambda>"):
        return False
    first, last = node.lineno, node.end_lineno or node.lineno
    return first <= at.tb_lineno <= last and (not isinstance(node, ast.Lambda) or _column_fits(node, at))


def _column_fits(node: ast.Lambda, at: TracebackType) -> bool:
    positions = [*at.tb_frame.f_code.co_positions()]
    place = positions[at.tb_lasti // 2] if 0 <= at.tb_lasti // 2 < len(positions) else None
    if place is None or place[2] is None or place[0] != node.lineno:
        return True
    end = node.end_col_offset if node.end_lineno == node.lineno else None
    return node.col_offset <= place[2] and (end is None or place[2] <= end)


def _extent(node: ast.AST) -> tuple[int, int]:
    assert isinstance(node, ast.stmt | ast.Lambda)
    return (node.end_lineno or node.lineno) - node.lineno, (node.end_col_offset or 0) - node.col_offset


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of a name, of a field of what the check was given, or of a call that only looks."""
    match node:
        case ast.Name(id=name):
            return frame.f_locals.get(name, MISSING)
        case ast.Attribute(value=inner, attr=name):
            owner = _value(inner, frame)
            return getattr(owner, name, MISSING) if isinstance(owner, Session | CheckContext) else MISSING
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args, keywords=[]) if name in _LOOKS:
            owner = _value(inner, frame)
            if not isinstance(owner, CheckContext) or not all(isinstance(argument, ast.Constant) for argument in args):
                return MISSING
            try:
                return getattr(owner, name)(*(ast.literal_eval(argument) for argument in args))
            except (OSError, TypeError, ValueError):
                return MISSING
        case _:
            return MISSING

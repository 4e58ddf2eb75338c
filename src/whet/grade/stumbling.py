"""The evidence that a check stumbled over: the values in the statement of the author's that raised."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from whet.asserting.parts import MISSING
from whet.asserting.text import is_telling, value_text
from whet.grade.context import CheckContext
from whet.grade.mistakes import IsOwn, traceback_of
from whet.model.session import Session

_MOST_VALUES = 5
_LONGEST_VALUE = 500
# What only looks, and gives the same again.
_LOOKS = frozenset(("final_output", "get_commands", "get_file_reads", "changes", "read"))


def stumbled_over(error: BaseException, is_own: IsOwn) -> str:
    """Lines that show the values in the innermost statement of the author's that has any."""
    try:
        for place in reversed([*_places(traceback_of(error), is_own)]):
            if told := _told(place):
                return "".join(f"\n  {'where ' if not number else '      '} {line}" for number, line in enumerate(told))
    except Exception:  # noqa: BLE001 - an explanation must not stand in for the failure
        return ""
    return ""


def _places(at: TracebackType | None, is_own: IsOwn) -> Iterator[TracebackType]:
    while at is not None:
        if is_own(at.tb_frame.f_code.co_filename):
            yield at
        at = at.tb_next


def _told(at: TracebackType) -> list[str]:
    found: dict[str, str] = {}
    for node in _expressions(at):
        value = _value(node, at.tb_frame)
        if value is not MISSING and is_telling(value):
            found.setdefault(ast.unparse(node), value_text(value, _LONGEST_VALUE))
    return [f"{name} = {value}" for name, value in [*found.items()][:_MOST_VALUES]]


def _expressions(at: TracebackType) -> Iterator[ast.expr]:
    """Every name, attribute and call of the statement, the whole before its parts."""
    statement = _statement(at)
    waiting: list[ast.AST] = [] if statement is None else [statement]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Name | ast.Attribute | ast.Call):
            yield node
        inside = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt | ast.Lambda)]
        waiting = inside + waiting


def _statement(at: TracebackType) -> ast.AST | None:
    """The smallest statement, or body of a lambda, that holds what raised."""
    file = at.tb_frame.f_code.co_filename
    lines = linecache.getlines(file)
    holding = [node for node in ast.walk(ast.parse("".join(lines))) if _holds(node, at)]
    found = min(holding, key=_extent, default=None)
    return found.body if isinstance(found, ast.Lambda) else found


def _holds(node: ast.AST, at: TracebackType) -> bool:
    if not isinstance(node, ast.stmt | ast.Lambda):
        return False
    # A lambda is told from its neighbours on the line by its own code.
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
    """The value of a name, of a field of what the check was handed, or of a call that only looks."""
    match node:
        case ast.Name(id=name):
            return frame.f_locals.get(name, MISSING)
        case ast.Attribute(value=inner, attr=name):
            held = _value(inner, frame)
            return getattr(held, name, MISSING) if isinstance(held, Session | CheckContext) else MISSING
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args, keywords=[]) if name in _LOOKS:
            held = _value(inner, frame)
            if not isinstance(held, CheckContext) or not all(isinstance(each, ast.Constant) for each in args):
                return MISSING
            try:
                return getattr(held, name)(*(ast.literal_eval(each) for each in args))
            except (OSError, TypeError, ValueError):
                return MISSING
        case _:
            return MISSING

"""Generators that a suite makes and drops: a check that calls such a helper asks nothing of what is in it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, TypeAlias

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
# The names that a function binds itself, and whether each is surely a generator function.
_Bound: TypeAlias = Mapping[str, bool]


def dropped_generators(source: str, names: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The line and the name of every call that makes a generator nobody goes through; *names* are the module's own."""
    try:
        waiting: list[tuple[ast.AST, tuple[_Bound, ...]]] = [(ast.parse(source), ())]
    except (RecursionError, SyntaxError, ValueError):
        # What is too deep for a tree is left alone; Python has read it already.
        return
    while waiting:
        node, scopes = waiting.pop()
        call = _idle_call(node)
        if call is not None and _makes_generator(call.func, scopes, names):
            yield call.lineno, ast.unparse(call.func)
        if isinstance(node, _Function):
            scopes = (*scopes, _bound(node))
        waiting += ((child, scopes) for child in ast.iter_child_nodes(node))


def _idle_call(node: ast.AST) -> ast.Call | None:
    """A call whose value is dropped, or asked only whether it is true, which a generator always is."""
    value = node.value if isinstance(node, ast.Expr) else node.test if isinstance(node, ast.Assert) else None
    return value if isinstance(value, ast.Call) else None


def _makes_generator(called: ast.expr, scopes: tuple[_Bound, ...], names: Mapping[str, Any]) -> bool:
    owner = called.value if isinstance(called, ast.Attribute) else called
    if not isinstance(owner, ast.Name):
        return False
    local = next((scope[owner.id] for scope in reversed(scopes) if owner.id in scope), None)
    if local is not None:
        return local and owner is called
    found = names.get(owner.id)
    if isinstance(called, ast.Attribute):
        found = vars(found).get(called.attr) if isinstance(found, ModuleType) else None
    return inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found)


def _bound(function: _Function) -> _Bound:
    """What *function* binds; a name that is bound more than once may be anything."""
    bound: dict[str, bool] = {}
    for node in _own_nodes(function):
        for name in _binds(node):
            bound[name] = name not in bound and _is_plain_generator(node)
    return bound


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
    """Whether it is a function that yields, and that nothing decorates."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.decorator_list:
        return False
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in _own_nodes(node))


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """The nodes of a function but those in functions and classes within, of which only the outermost is given."""
    body: list[ast.AST] = [function.args, *(function.body if isinstance(function.body, list) else [function.body])]
    while body:
        node = body.pop()
        yield node
        if not isinstance(node, _Function | ast.ClassDef):
            body += ast.iter_child_nodes(node)

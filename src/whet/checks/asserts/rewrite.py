"""The rewriting of `assert` in suites, so that a failing one explains itself.

`assert a.b(c) == d` becomes, with names that no author can write,

    @0 = @1 = @2 = @3 = @whet
    try:
        if not ((@0 := (@1 := a).b((@2 := c))) == (@3 := d)):
            @0 = @whet.failed("a.b(c) == d", (@0, @1, @2, @3))
            if @0 is not None:
                raise @0
    finally:
        del @0, @1, @2, @3

so every part is evaluated once, where and when Python evaluates it, and nothing is explained before something failed.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import decode_source
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from whet.checks.asserts.explain import EXPRESSIONS, is_opaque, list_observed

_WHET = "@whet"
_PLACED = (ast.stmt, ast.expr, ast.alias)


class SuiteLoader(SourceFileLoader):
    """Loads a module with its assertions rewritten."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module, never from or to `__pycache__`: Python would take it for its own."""
        path = self.get_filename(fullname)
        return compile_rewritten(self.get_data(path), path)


class HelperFinder:
    """Finds the modules in the folder of a suite, where Python finds them too, for `SuiteLoader`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec if the module is one of the folder; leave every other one to Python."""
        top = self.folder / fullname.partition(".")[0]
        # Not every module below counts: the folder may have a virtual environment in it.
        if not (top.is_dir() or top.with_name(f"{top.name}.py").is_file()):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or spec.origin is None:
            return None
        if not Path(spec.origin).is_relative_to(self.folder):
            return None
        spec.loader = SuiteLoader(fullname, spec.origin)
        return spec


def rewrite_helpers(folder: Path) -> None:
    """From now on, rewrite modules that are imported from *folder* too: workers do, because a check may import them."""
    sys.meta_path.insert(0, HelperFinder(folder.absolute()))


@contextlib.contextmanager
def rewriting_helpers(folder: Path) -> Iterator[None]:
    """Rewrite modules that are imported from *folder* during the context."""
    rewrite_helpers(folder)
    finder = sys.meta_path[0]
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            # A suite may have changed the list.
            sys.meta_path.remove(finder)


def compile_rewritten(source: bytes, path: str) -> CodeType:
    """Compile a module with its assertions rewritten; refuse an assertion that cannot fail as a syntax error."""
    tree = _parse(source, path)
    if tree is not None:
        _refuse_always_true(tree, path)
    # Python gives its warnings here, about what the author wrote.
    plain = compile(source, path, "exec", dont_inherit=True)
    # What is rewritten is deeper than what was written.
    with warnings.catch_warnings(), contextlib.suppress(RecursionError):
        warnings.simplefilter("ignore")
        if tree is not None and _rewrite_module(tree, decode_source(source)):
            return compile(tree, path, "exec", dont_inherit=True)
    return plain


def _parse(source: bytes, path: str) -> ast.Module | None:
    """Parse a module; return None if it is nested too deeply for a tree, which may be less deep than a text."""
    with warnings.catch_warnings(), contextlib.suppress(RecursionError):
        warnings.simplefilter("ignore")
        return ast.parse(source, path)
    return None


# What is always true, and what its author meant.
_ALWAYS_TRUE: dict[type[ast.expr], str] = {
    ast.Tuple: 'a tuple always is; write `assert x, "message"` without parentheses',
    ast.GeneratorExp: "a generator always is; write `assert all(...)` or `assert any(...)`",
    ast.Lambda: "a function always is; call it",
}


def _refuse_always_true(tree: ast.Module, path: str) -> None:
    for body, _ in _bodies(tree):
        for statement in body:
            test = statement.test if isinstance(statement, ast.Assert) else None
            if test is None or type(test) not in _ALWAYS_TRUE or (isinstance(test, ast.Tuple) and not test.elts):
                continue
            message = f"the assertion is always true: {_ALWAYS_TRUE[type(test)]}"
            raise SyntaxError(message, (path, statement.lineno, statement.col_offset + 1, None))


def _rewrite_module(tree: ast.Module, source: str) -> bool:
    """Rewrite *tree* in place; return whether there was anything to rewrite."""
    lines = source.encode().split(b"\n")
    classes: dict[ast.ClassDef, set[str]] = {}
    has_asserts = False
    for body, owner in list(_bodies(tree)):
        # From the end, so that what is put in does not move what is still to come.
        for at, statement in reversed([*enumerate(body)]):
            if not isinstance(statement, ast.Assert):
                continue
            rewriting = _Rewriting(statement, lines, in_class=owner is not None)
            body[at : at + 1] = rewriting.statements()
            if owner is not None:
                classes.setdefault(owner, set()).update(rewriting.names)
            has_asserts = True
    for owner, names in classes.items():
        _insert(owner.body, ast.Global(names=sorted(names)))
    if has_asserts:
        asserts = ast.alias(name="explain", asname=_WHET)
        _insert(tree.body, ast.ImportFrom(module="whet.checks.asserts", names=[asserts], level=0))
    return has_asserts


def _bodies(tree: ast.Module) -> Iterator[tuple[list[ast.stmt], ast.ClassDef | None]]:
    """Yield every list of statements, and the class whose namespace it runs in."""
    # A list and no recursion: a long chain of `elif` is nested as deeply as it is long.
    waiting: list[tuple[ast.AST, ast.ClassDef | None]] = [(tree, None)]
    while waiting:
        node, owner = waiting.pop()
        match node:
            case ast.ClassDef():
                owner = node
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                owner = None
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, [])
            if inner and isinstance(inner[0], ast.stmt):
                yield inner, owner
            waiting += ((item, owner) for item in inner)


def _insert(body: list[ast.stmt], statement: ast.stmt) -> None:
    """Put *statement* first, after what must come before everything else."""
    at = 0
    match body[0]:
        case ast.Expr(value=ast.Constant(value=str())):
            at = 1
    while at < len(body) and isinstance(item := body[at], ast.ImportFrom) and item.module == "__future__":
        at += 1
    _place(statement, body[min(at, len(body) - 1)])
    body.insert(at, statement)


def _place(node: ast.AST, like: ast.AST) -> None:
    """Give *node* and all that is new in it the place of *like*."""
    place = {name: getattr(like, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    waiting = [node]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, _PLACED) and not hasattr(inner, "lineno"):
            vars(inner).update(place)
            waiting += ast.iter_child_nodes(inner)


class _Rewriting:
    """The rewriting of one statement."""

    def __init__(self, statement: ast.Assert, lines: list[bytes], *, in_class: bool) -> None:
        self._statement = statement
        self._source = _source(statement.test, lines)
        self._in_class = in_class
        self._numbers: dict[int, int] = {}
        self._test = statement.test
        # An expression that is nested too deeply is explained as far as it was read.
        with contextlib.suppress(RecursionError):
            self._numbers = {id(node): number for number, (node, _) in enumerate(list_observed(statement.test))}
            self._test = _Keeper(self._numbers, self._name).visit(statement.test)
        self.names = [self._name(number) for number in range(max(1, len(self._numbers)))]

    def _name(self, number: int) -> str:
        # A class may have any namespace, which would see its names come and go: those of its body are the module's.
        return f"@class{number}" if self._in_class else f"@{number}"

    def statements(self) -> list[ast.stmt]:
        """Return what replaces the `assert`."""
        first = self.names[0]
        values = [ast.Name(name, ast.Load()) for name in self.names[: len(self._numbers)]]
        arguments = [ast.Constant(self._source), ast.Tuple(list[ast.expr](values), ast.Load())]
        message = [self._statement.msg] if self._statement.msg else []
        failure = ast.Attribute(ast.Name(_WHET, ast.Load()), "failed", ast.Load())
        error = ast.Name(first, ast.Load())
        failing: list[ast.stmt] = [
            ast.Assign([ast.Name(first, ast.Store())], ast.Call(failure, [*arguments, *message], [])),
            ast.If(ast.Compare(error, [ast.IsNot()], [ast.Constant(None)]), [ast.Raise(error)], []),
        ]
        check = ast.If(ast.UnaryOp(ast.Not(), self._test), failing, [])
        statements = [self._assign(ast.Name(_WHET, ast.Load())), ast.Try([check], [], [], [self._clear()])]
        for statement in statements:
            _place(statement, self._statement)
        return statements

    def _assign(self, value: ast.expr) -> ast.stmt:
        return ast.Assign([ast.Name(name, ast.Store()) for name in self.names], value)

    def _clear(self) -> ast.stmt:
        # Names of the module can be met by another class in another thread, so they stay, empty.
        if self._in_class:
            return self._assign(ast.Constant(None))
        return ast.Delete([ast.Name(name, ast.Del()) for name in self.names])


class _Keeper(ast.NodeTransformer):
    """Puts a name around each numbered expression."""

    def __init__(self, numbers: dict[int, int], name: Callable[[int], str]) -> None:
        self._numbers = numbers
        self._name = name

    def visit(self, node: ast.AST) -> Any:
        """Return the node with its inside rewritten, under its name if it has a number."""
        if isinstance(node, EXPRESSIONS) and not is_opaque(node):
            self.generic_visit(node)
        if not isinstance(node, ast.expr) or id(node) not in self._numbers:
            return node
        assignment = ast.NamedExpr(ast.Name(self._name(self._numbers[id(node)]), ast.Store()), node)
        _place(assignment, node)
        return assignment


def _source(node: ast.expr, lines: list[bytes]) -> str:
    """Return the text of *node* in the file."""
    last = node.end_lineno or node.lineno
    text = lines[node.lineno - 1 : last]
    # The end first: on one line, it is counted from the same beginning.
    text[-1] = text[-1][: node.end_col_offset]
    text[0] = text[0][node.col_offset :]
    return b"\n".join(text).decode()

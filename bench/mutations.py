"""Small faults that could be in the code: where one can be put, and how the source reads with it."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

_COMPARED = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_COMPUTED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "+"}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_ASKED = {"startswith": "endswith", "endswith": "startswith", "lstrip": "rstrip", "rstrip": "lstrip"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# What only a person or the type checker reads, and what has statements of its own.
_PASSED_OVER = (ast.Assert, ast.AnnAssign, ast.Import, ast.ImportFrom, *_FUNCTIONS)
# Conditions that get a fault as expressions.
_FAULTY_THEMSELVES = (ast.Compare, ast.BoolOp, ast.UnaryOp)
# The node, where its text begins and ends, and the text in its place.
_Fault: TypeAlias = tuple[ast.expr | ast.stmt, int, int, str]


@dataclass(frozen=True)
class Mutant:
    """One fault: a file reads *text* from *start* to *end*; *probe* is the line that leads to it."""

    path: Path
    line: int
    start: int
    end: int
    text: str
    probe: int
    source: str

    @property
    def mutated(self) -> str:
        """The file with the fault in it."""
        data = self.source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()

    def describe(self, root: Path) -> str:
        """Where it is, the line as it was, and as it is."""
        old = self.source.splitlines()[self.line - 1].strip()
        new = self.mutated.splitlines()[self.line - 1].strip()
        return f"{self.path.relative_to(root)}:{self.line}\n    - {old}\n    + {new}"


def choose(root: Path, count: int, seed: int) -> list[Mutant]:
    """*count* mutants of the modules below *root*, spread over them by chance; the same for the same seed."""
    chance = random.Random(seed)
    found = [mutant for path in sorted(root.rglob("*.py")) for mutant in _mutants(path)]
    chosen: list[Mutant] = []
    taken: set[tuple[Path, int]] = set()
    for mutant in chance.sample(found, len(found)):
        # Two in one line would tell the same thing twice.
        if (mutant.path, mutant.line) not in taken:
            taken.add((mutant.path, mutant.line))
            chosen.append(mutant)
        if len(chosen) == count:
            break
    return chosen


class _Source:
    """The text of a module, and where its nodes are in it, in bytes, as `ast` counts columns."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = text.encode()
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where *node* begins and ends."""
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def of(self, node: ast.AST) -> str:
        """Its text."""
        return self.data[slice(*self.span(node))].decode()

    def between(self, left: ast.AST, right: ast.AST) -> tuple[int, int]:
        """The operator between two operands, without the brackets around it."""
        start, end = self.span(left)[1], self.span(right)[0]
        text = self.data[start:end]
        closing = len(text) - len(text.lstrip(b") \n"))
        opening = len(text) - len(text.rstrip(b"( \n"))
        return start + closing, end - opening


def _mutants(path: Path) -> Iterator[Mutant]:
    source = _Source(path.read_text(encoding="utf-8"))
    for function in ast.walk(ast.parse(source.text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in _own_statements(function):
                probe = _probe_line(statement, function, source.text)
                for node, start, end, text in _faults(statement, source):
                    yield Mutant(path, node.lineno, start, end, text, probe, source.text)


def _own_statements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.stmt]:
    """The statements of a function but for its docstring and what belongs to functions inside it."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    waiting = list(body)
    while waiting:
        statement = waiting.pop(0)
        if isinstance(statement, _PASSED_OVER):
            continue
        yield statement
        for name in ("body", "orelse", "finalbody"):
            waiting.extend(part for part in getattr(statement, name, []) if isinstance(part, ast.stmt))
        for handler in getattr(statement, "handlers", []):
            waiting.extend(handler.body)


def _probe_line(statement: ast.stmt, function: ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> int:
    """A line before which a statement can be put that is run where the mutated one is."""
    line = source.splitlines()[statement.lineno - 1]
    if line[: statement.col_offset].strip() == "" and not line.lstrip().startswith("elif"):
        return statement.lineno
    first = function.body[1] if ast.get_docstring(function) is not None and len(function.body) > 1 else function.body[0]
    return first.lineno


def _faults(statement: ast.stmt, source: _Source) -> Iterator[_Fault]:
    if (text := _left_out(statement)) is not None:
        yield (statement, *source.span(statement), text)
    if isinstance(statement, ast.If | ast.While) and not isinstance(statement.test, _FAULTY_THEMSELVES):
        yield (statement, *source.span(statement.test), f"not ({source.of(statement.test)})")
    for node in _own_expressions(statement):
        if isinstance(node, ast.Constant):
            yield from _other_constant(node, source)
        elif isinstance(node, ast.Call):
            yield from _other_call(node, source)
        else:
            yield from _other_operator(node, source)


def _other_operator(node: ast.expr, source: _Source) -> Iterator[_Fault]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield (node, *source.between(left, right), _COMPARED[type(operator)])
        case ast.BoolOp(op=operator, values=[first, second, *_]):
            yield (node, *source.between(first, second), "or" if isinstance(operator, ast.And) else "and")
        case ast.UnaryOp(op=ast.Not()):
            start, _ = source.span(node)
            yield node, start, start + len("not"), "True and"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _COMPUTED and not _is_text(node):
            yield (node, *source.between(left, right), _COMPUTED[type(operator)])
        case ast.IfExp(test=test):
            yield (node, *source.span(test), f"not ({source.of(test)})")


def _other_constant(node: ast.Constant, source: _Source) -> Iterator[_Fault]:
    if isinstance(node.value, bool):
        yield (node, *source.span(node), str(not node.value))
    elif isinstance(node.value, int):
        yield (node, *source.span(node), str(node.value + 1))


def _other_call(node: ast.Call, source: _Source) -> Iterator[_Fault]:
    if isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        yield (node, *source.span(node.func), _CALLED[node.func.id])
    elif isinstance(node.func, ast.Attribute) and node.func.attr in _ASKED:
        _, end = source.span(node.func)
        yield node, end - len(node.func.attr), end, _ASKED[node.func.attr]


def _left_out(statement: ast.stmt) -> str | None:
    """What to write in the place of a statement that is left out; None if leaving it out tells nothing."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.Await):
        return "pass"
    if isinstance(statement, ast.AugAssign | ast.Raise | ast.Delete):
        return "pass"
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute | ast.Subscript):
        return "pass"
    return "break" if isinstance(statement, ast.Continue) else None


def _own_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement but for those of the statements inside it, and of annotations and f-strings."""
    waiting: list[ast.AST] = [
        child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt | ast.ExceptHandler)
    ]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.JoinedStr | ast.stmt):
            continue
        if isinstance(node, ast.expr):
            yield node
        waiting.extend(ast.iter_child_nodes(node))


def _is_text(node: ast.BinOp) -> bool:
    """Whether it joins or fills in texts, where another operator is an error that anything notices."""
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )

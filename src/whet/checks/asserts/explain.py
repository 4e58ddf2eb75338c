"""What a rewritten `assert` calls when it fails: its message, with the values of its parts, and the soft hook."""

from __future__ import annotations

import ast
import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from msgspec import Struct, field

from whet.checks.asserts.values import difference, is_telling, shorten, value_text

Hook = Callable[[AssertionError], bool]
MISSING: Any = object()
EXPRESSIONS = (ast.expr, ast.keyword)
# If only truth counts, storing the value of one of these would ask some object for its truth a second time.
_DECISIONS = (ast.BoolOp, ast.Compare, ast.IfExp)
_SILENT = (ast.Lambda, ast.GeneratorExp)
_OPAQUE = (
    *(*_SILENT, ast.ListComp, ast.SetComp, ast.DictComp),
    *(ast.JoinedStr, getattr(ast, "TemplateStr", ast.JoinedStr)),
)
# Not values of their own, or values that say nothing: only their inside is observed.
_TRANSPARENT = (ast.Starred, ast.Slice, ast.keyword, ast.NamedExpr)
_MOST_BYTES = 8_000
_MOST_SAID = 2_000
_MOST_TEXT = 300
_MOST_PARTS = 12
_MOST_DECIDERS = 4
_hook: ContextVar[Hook | None] = ContextVar("hook", default=None)


@contextlib.contextmanager
def collecting(hook: Hook) -> Iterator[None]:
    """Give *hook* each failing `assert` of the block; what it takes is not raised, and the next statement runs."""
    token = _hook.set(hook)
    try:
        yield
    finally:
        _hook.reset(token)


def failed(source: str, values: tuple[Any, ...], *message: Any) -> AssertionError | None:
    """Return the error to raise for the assertion *source*, or None if a hook took it."""
    explanation = explain(source, values)
    # An expression without values, such as False, adds nothing to the words of its author.
    texts = (
        [*map(_author_text, message), explanation]
        if not message or "\n" in explanation
        else [*map(_author_text, message)]
    )
    error = AssertionError(_join_bounded(texts))
    hook = _hook.get()
    if hook is None:
        return error
    # An error that is never raised has no traceback, and its place is half of what it says.
    frame = sys._getframe(1)  # noqa: SLF001 - the frame of the assertion
    is_collected = hook(error.with_traceback(TracebackType(None, frame, frame.f_lasti, frame.f_lineno)))
    return None if is_collected else error.with_traceback(None)


def explain(source: str, values: tuple[Any, ...]) -> str:
    """Return the expression, the values that decided, their difference, and the values of the parts, deepest last."""
    try:
        # The module object marks parts that were not reached: no value of an author is the same object.
        evaluation = Evaluation.of(source, values, unset=sys.modules[__name__])
        lines = [f"assert {shorten(evaluation.text(evaluation.test), _MOST_TEXT)}"]
        mentions: set[tuple[str, int]] = set()
        for node, must_hold in [*evaluation.deciders(evaluation.test)][:_MOST_DECIDERS]:
            lines += (f"  {line}" for line in _decision(evaluation, node, mentions, must_hold=must_hold))
        return "\n".join([*lines, *_parts(evaluation, mentions)])
    except Exception:  # noqa: BLE001 - an explanation must not hide the failure
        return f"assert {shorten(' '.join(source.split()), _MOST_TEXT)}"


def _decision(
    evaluation: Evaluation, node: ast.expr, mentions: set[tuple[str, int]], *, must_hold: bool
) -> Iterator[str]:
    word = "false:" if must_hold else "true: "
    if not isinstance(node, ast.Compare):
        if not is_literal(node):
            yield f"{word} {_describe_part(evaluation, node, mentions)}"
        return
    if node is not evaluation.test:
        yield f"{word} {shorten(evaluation.text(node), _MOST_TEXT)}"
    pair = evaluation.deciding_pair(node)
    if pair is None:
        return
    left, operator, right = pair
    for side, operand in (("left: ", left), ("right:", right)):
        if not is_literal(operand):
            yield f"{side} {_describe_part(evaluation, operand, mentions)}"
    values = evaluation.value(left), evaluation.value(right)
    if must_hold and not any(value is MISSING for value in values):
        yield from (f"  {line}" for line in _help(values[0], operator, values[1]))


def _describe_part(evaluation: Evaluation, node: ast.expr, mentions: set[tuple[str, int]]) -> str:
    """Return the text of *node* and its value, and note it, so that it is not shown twice."""
    text = shorten(evaluation.text(node), _MOST_TEXT)
    value = evaluation.value(node)
    if value is MISSING:
        return text
    mentions.add((text, id(value)))
    return f"{text} = {value_text(value)}"


def _help(left: Any, operator: ast.cmpop, right: Any) -> list[str]:
    try:
        return difference(left, operator, right)
    except Exception:  # noqa: BLE001 - comparing parts runs an author's `__eq__`
        return []


def _parts(evaluation: Evaluation, mentions: set[tuple[str, int]]) -> Iterator[str]:
    """Yield a line for each part that was reached, has a telling value and is not shown yet."""
    word, room = "where ", _MOST_PARTS
    for node, _ in sorted(evaluation.depths, key=lambda item: item[1]):
        value = evaluation.value(node)
        if value is MISSING or not is_telling(value):
            continue
        text = shorten(evaluation.text(node), _MOST_TEXT)
        if (text, id(value)) in mentions:
            continue
        if not room:
            yield "         ... and more"
            return
        mentions.add((text, id(value)))
        yield f"  {word} {text} = {value_text(value, _MOST_TEXT // 2)}"
        word, room = "      ", room - 1


def _author_text(message: Any) -> str:
    """Return the words of the author, shortened."""
    return shorten(text_of(message), _MOST_SAID)


def text_of(value: Any) -> str:
    """Return the text of an exception or a message; an author's `__str__` may raise, or return a subclass of str."""
    try:
        # Joined, because a subclass of str can do anything.
        return "".join((str(value),))
    except BaseException as error:  # noqa: BLE001 - a `__str__` is an author's, and may also exit
        return f"(its message cannot be shown: {type(error).__name__})"


def _join_bounded(texts: list[str]) -> str:
    text = "\n".join(text for text in texts if text)
    data = text.encode("utf-8", "backslashreplace")
    if len(data) < _MOST_BYTES:
        return text
    half = _MOST_BYTES // 2 - 10
    return f"{data[:half].decode(errors='ignore')} ... {data[-half:].decode(errors='ignore')}"


class Evaluation(Struct, frozen=True, kw_only=True):
    """One evaluation of an expression: its text, its tree and the values that were seen."""

    test: ast.expr
    lines: list[bytes]
    depths: list[tuple[ast.expr, int]]
    values: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, source: str, values: tuple[Any, ...], *, unset: object) -> Evaluation:
        """The evaluation of *source*, with *unset* among the *values* for each part that was not reached."""
        text = f"({source})"
        with warnings.catch_warnings():
            # Python has given its warnings when the module was loaded.
            warnings.simplefilter("ignore")
            test = ast.parse(text, mode="eval").body
        depths = list_observed(test)
        reached_values = {
            id(node): value for (node, _), value in zip(depths, values, strict=True) if value is not unset
        }
        return cls(test=test, lines=text.encode().split(b"\n"), depths=depths, values=reached_values)

    def value(self, node: ast.expr) -> Any:
        """Return the value of *node*, or `MISSING`."""
        if id(node) in self.values:
            return self.values[id(node)]
        if isinstance(node, ast.NamedExpr):
            return self.value(node.value)
        return ast.literal_eval(node) if is_literal(node) else MISSING

    def is_reached(self, node: ast.expr) -> bool:
        """Return whether any part of *node* is known to be evaluated."""
        return any(id(inner) in self.values for inner in ast.walk(node))

    def text(self, node: ast.expr) -> str:
        """Return *node* as the author wrote it, on one line."""
        if isinstance(node, ast.NamedExpr):
            return f"({node.target.id} := {self.text(node.value)})"
        if node.lineno == node.end_lineno:
            return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
        return " ".join(ast.unparse(node).split("\n"))

    def deciders(self, node: ast.expr, *, must_hold: bool = True) -> Iterator[tuple[ast.expr, bool]]:
        """Yield the smallest parts that explain why *node* was not as *must_hold*, and how each of them was wanted."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield from self.deciders(operand, must_hold=not must_hold)
            case ast.BoolOp(op=operator, values=operands) if isinstance(operator, ast.And) is must_hold:
                # One operand was enough, and nothing was evaluated after it.
                reached_operands = [operand for operand in operands if self.is_reached(operand)]
                last = operands.index(reached_operands[-1]) if reached_operands else 0
                following = operands[last + 1 : last + 2]
                unclear = bool(following) and is_literal(following[0])
                yield from ((node, must_hold),) if unclear else self.deciders(operands[last], must_hold=must_hold)
            case ast.BoolOp(values=operands):
                for operand in operands:
                    yield from self.deciders(operand, must_hold=must_hold)
            case ast.IfExp(body=body, orelse=orelse) if self.is_reached(body) or self.is_reached(orelse):
                yield from self.deciders(body if self.is_reached(body) else orelse, must_hold=must_hold)
            case _:
                yield node, must_hold

    def deciding_pair(self, node: ast.Compare) -> tuple[ast.expr, ast.cmpop, ast.expr] | None:
        """Return the pair that decided a comparison, or None if that is unknown."""
        last = max((at for at, item in enumerate(node.comparators) if self.is_reached(item)), default=0)
        if any(map(is_literal, node.comparators[last + 1 : last + 2])):
            return None
        return [node.left, *node.comparators][last], node.ops[last], node.comparators[last]


def list_observed(test: ast.expr) -> list[tuple[ast.expr, int]]:
    """Return every sub-expression whose value is kept, with its depth, in an order that depends on the text alone."""
    nodes: list[tuple[ast.expr, int]] = []
    _observe(test, 0, nodes, deciding=True, keep=True)
    return nodes


def _observe(node: ast.AST, depth: int, nodes: list[tuple[ast.expr, int]], *, deciding: bool, keep: bool) -> None:
    if is_literal(node) or isinstance(node, _SILENT):
        return
    decides = isinstance(node, _DECISIONS) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
    if isinstance(node, ast.expr) and keep and not isinstance(node, _TRANSPARENT) and not (decides and deciding):
        nodes.append((node, depth))
    if not is_opaque(node):
        for child, child_deciding, child_kept in _children(node, deciding=deciding):
            _observe(child, depth + 1, nodes, deciding=child_deciding, keep=child_kept)


def _children(node: ast.AST, *, deciding: bool) -> Iterator[tuple[ast.AST, bool, bool]]:
    """Yield the nodes inside *node*: whether only their truth counts, and whether their own value is kept."""
    match node:
        case ast.BoolOp(values=values):
            yield from ((value, True, True) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand, True, True
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield from ((test, True, True), (body, deciding, True), (orelse, deciding, True))
        case ast.Call(func=function):
            # The name of a function says nothing new, and `a.b(c)` is quicker while `a.b` is never an object.
            yield function, False, not isinstance(function, ast.Name | ast.Attribute)
            yield from ((item, False, True) for item in (*node.args, *node.keywords))
        case ast.Subscript(value=value, slice=index):
            # A tuple with slices inside is not an expression outside of its brackets.
            yield from ((value, False, True), (index, False, not isinstance(index, ast.Tuple)))
        case ast.NamedExpr(value=value):
            yield value, False, True
        case ast.Await(value=value):
            yield value, False, not isinstance(value, ast.Call)
        case _:
            inside = ast.iter_child_nodes(node)
            yield from ((child, False, True) for child in inside if isinstance(child, EXPRESSIONS))


def is_opaque(node: ast.AST) -> bool:
    """Return whether *node* is code of its own, whose inside is not observed."""
    return isinstance(node, _OPAQUE)


def is_literal(node: ast.AST) -> bool:
    """Return whether the text of *node* is its value."""
    match node:
        case ast.Constant():
            return True
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return all(map(is_literal, items))
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and is_literal(key) for key in keys) and all(map(is_literal, values))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert(), operand=ast.Constant()):
            return True
        case _:
            return False

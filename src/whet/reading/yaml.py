"""JSON and YAML files: read them with or without lines.

YAML is 1.2 with its core schema: `no` is a word, `010` is ten, and no tag makes objects. Documents are built from the
events of the parser, because the library's composer calls itself for every level of nesting until the process dies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from whet.errors import Problem, SuiteError
from whet.reading.documents import (
    DEEPEST,
    Document,
    DocumentError,
    Node,
    Repeat,
    TooMuch,
    Value,
    load_json,
    read_json,
    refuse_endless,
    refuse_long_number,
)
from whet.reading.files import read_file
from whet.reading.text import shown

_YAML_SUFFIXES = (".yaml", ".yml")
SUFFIXES = (".json", *_YAML_SUFFIXES)
# More than people write, and few enough bytes to read at once.
_LARGEST = 64 * 1024 * 1024
_TAG = "tag:yaml.org,2002:"
# Plain words that are not strings, by the core schema of YAML 1.2.
_PLAIN = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
}
# YAML 1.1 has keys that merge, and every reader of YAML 1.2 that people use has them too.
_MERGE = "<<"
_BASES = {"0o": 8, "0x": 16}
# A few aliases of aliases unfold to more than a machine holds.
_MOST_NODES = 1_000_000
# Hints for the most common mistakes, by a part of the parser's message.
_HINTS = {
    "mapping values are not allowed": "a text with a colon and a blank in it needs quotes around all of it",
    "cannot start any token": "indent by blanks: YAML allows no tabs there, nor % @ or ` at the start of a text",
}
_ABOUT_CHARACTERS = 'take it out, or write it as an escape in double quotes, such as "\\x1b"'


def read_document(path: Path, *, number_keys: bool = False) -> Document:
    """Read *path* with the line of every value; raises `DocumentError`.

    With *number_keys*, a key of YAML may be a number, and is the text that is written.
    """
    text = _text(read_data(path))
    return read_yaml(text, number_keys=number_keys) if path.suffix.lower() in _YAML_SUFFIXES else read_json(text)


def read_plain(path: Path, *, number_keys: bool = False) -> Any:
    """Return the value in *path*, YAML by its suffix and otherwise JSON; raises `DocumentError`."""
    if path.suffix.lower() not in _YAML_SUFFIXES:
        return load_json(_text(read_data(path)))
    document = read_document(path, number_keys=number_keys)
    if document.repeats:
        double = document.repeats[0]
        lines = f"in lines {double.first} and {double.line}"
        raise DocumentError(f'has the key "{double.key}" twice in one object, {lines}')
    value = document.root.plain()
    refuse_endless(value)
    return value


def read_checked(path: Path, *, number_keys: bool = False) -> Any:
    """Return the value in *path* as `read_plain` does; raises `SuiteError`, with the file as its place."""
    try:
        return read_plain(path, number_keys=number_keys)
    except DocumentError as error:
        raise SuiteError([Problem(file=str(path), message=str(error))]) from error


def read_object(path: Path, *, number_keys: bool = False) -> dict[str, Any]:
    """Return the object in *path*; raises `SuiteError`."""
    document = read_checked(path, number_keys=number_keys)
    if not isinstance(document, dict):
        raise SuiteError([Problem(file=str(path), message=f"must be an object, not {shown(document)}")])
    return document


def checked_root(path: Path) -> Node:
    """Return the root of the document in *path*; raises `SuiteError` if it cannot be read, or repeats a key."""
    try:
        document = read_document(path)
    except DocumentError as error:
        raise SuiteError([error.problem(path)]) from None
    if document.repeats:
        raise SuiteError(document.repeat_problems(path))
    return document.root


def read_data(path: Path) -> bytes:
    """Return the bytes of a document; raises `DocumentError` if there are too many, or none can be read."""
    try:
        return read_file(path, _LARGEST)
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror}") from error


def _text(data: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError("is not UTF-8", line=line, hint="save it in UTF-8") from None


def read_yaml(text: str, *, number_keys: bool = False, most_nodes: int = _MOST_NODES) -> Document:
    """Parse *text*, with the line of every value; raises `DocumentError`, or `TooMuch` beyond *most_nodes* values."""
    import yaml  # only suites in YAML need it

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(number_keys, most_nodes)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(type(event).__name__, event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        hint = next((hint for part, hint in _HINTS.items() if part in message), None)
        raise DocumentError(f"cannot be read: {message}", line=mark.line + 1 if mark else None, hint=hint) from None
    except yaml.reader.ReaderError as error:
        char = error.character if isinstance(error.character, str) else chr(error.character)
        line = text[: max(text.find(char), 0)].count("\n") + 1
        raise DocumentError(f"has the control character U+{ord(char):04X}", line=line, hint=_ABOUT_CHARACTERS) from None
    except yaml.YAMLError as error:
        raise DocumentError(f"cannot be read: {str(error).splitlines()[0]}") from None
    return builder.document()


class _OpenNode(Struct):
    """An array or object that is being read; `weight` is how many nodes it unfolds to."""

    line: int
    anchor: str | None
    is_object: bool
    items: list[Node] = field(default_factory=list)
    members: dict[str, Node] = field(default_factory=dict)
    merged: list[Node] = field(default_factory=list)
    key: Node | None = None
    weight: int = 1


class _Builder:
    """Takes the events of a parser and puts nodes together."""

    def __init__(self, number_keys: bool, most_nodes: int) -> None:
        self._number_keys = number_keys
        self._most_nodes = most_nodes
        self._levels: list[_OpenNode] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._repeats: list[Repeat] = []
        self._root: Node | None = None

    def document(self) -> Document:
        """Return the document."""
        if self._root is None or self._root.value is None:
            raise DocumentError("is empty", line=1)
        return Document(self._root, tuple(self._repeats))

    def take(self, kind: str, event: Any) -> None:
        """Take one event of the parser."""
        line = event.start_mark.line + 1
        match kind:
            case "DocumentStartEvent" if self._root is not None:
                raise DocumentError("has a second document", line=line, hint="one file holds one suite")
            case "ScalarEvent":
                self._add(_scalar(event, line, self._place()), event.anchor, 1)
            case "AliasEvent":
                self._add(*self._alias(event.anchor, line))
            case "SequenceStartEvent" | "MappingStartEvent":
                self._enter(event, line, is_object=kind.startswith("M"))
            case "SequenceEndEvent" | "MappingEndEvent":
                level = self._levels.pop()
                value: Value = _with_merged(level) if level.is_object else tuple(level.items)
                self._add(Node(value, level.line), level.anchor, level.weight)

    def _place(self) -> Iterator[str | int]:
        """Yield the keys and indexes that lead to what comes next."""
        for level in self._levels:
            if not level.is_object:
                yield len(level.items)
            elif level.key is not None:
                yield str(level.key.value)

    def _enter(self, event: Any, line: int, *, is_object: bool) -> None:
        if event.tag not in (None, "!", f"{_TAG}{'map' if is_object else 'seq'}"):
            raise DocumentError(f"the tag {event.tag} is not supported", line=line, hint="leave the tag out")
        if len(self._levels) >= DEEPEST:
            raise TooMuch("is nested too deeply", line=line)
        self._levels.append(_OpenNode(line, event.anchor, is_object))

    def _alias(self, name: str, line: int) -> tuple[Node, None, int]:
        if name not in self._anchors:
            # Also inside of what it names: that is not known before its end.
            raise DocumentError(f"*{name} is not defined before this line", line=line)
        node, weight = self._anchors[name]
        return node, None, weight

    def _add(self, node: Node, anchor: str | None, weight: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, weight)
        if not self._levels:
            self._root = node
            return
        level = self._levels[-1]
        level.weight += weight
        if level.weight > self._most_nodes:
            raise TooMuch("has aliases that expand too far", line=level.line)
        if not level.is_object:
            level.items.append(node)
        elif level.key is None:
            level.key = _key(node, self._number_keys)
        else:
            self._set(level, level.key, node)
            level.key = None

    def _set(self, level: _OpenNode, key: Node, node: Node) -> None:
        name = str(key.value)
        if name == _MERGE:
            level.merged += _objects_to_merge(node, key.line)
        elif name in level.members:
            self._repeats.append(Repeat(name, key.line, level.members[name].line))
        else:
            level.members[name] = node


def _objects_to_merge(node: Node, line: int) -> Iterable[Node]:
    nodes = node.value if isinstance(node.value, tuple) else (node,)
    if not all(isinstance(item.value, Mapping) for item in nodes):
        raise DocumentError(f'"{_MERGE}" merges an object, or a list of objects', line=line)
    return nodes


def _with_merged(level: _OpenNode) -> dict[str, Node]:
    """Return the members of an object, and those of objects that it merges which it does not have itself."""
    members = dict(level.members)
    for node in level.merged:
        assert isinstance(node.value, Mapping)
        members = {**node.value, **members}
    return members


def _key(node: Node, number_keys: bool) -> Node:
    if number_keys and node.written and isinstance(node.value, int | float):
        return Node(node.written, node.line)
    if not isinstance(node.value, str):
        source = node.written or "this"
        raise DocumentError(f"{source} is not a string, and cannot be a key", line=node.line, hint="put it in quotes")
    return node


def _scalar(event: Any, line: int, place: Iterable[str | int]) -> Node:
    source = str(event.value)
    kind = _kind(event, source)
    if kind == "str":
        return Node(source, line)
    # An explicit tag may come before anything.
    if kind not in _PLAIN or not _PLAIN[kind].fullmatch(source):
        raise DocumentError(f'"{source[:40]}" cannot be read as {event.tag}', line=line, hint="leave the tag out")
    refuse_long_number(source, place, line)
    return Node(_VALUES[kind](source), line, source)


def _kind(event: Any, source: str) -> str:
    if event.tag is not None and event.tag != "!":
        return str(event.tag).removeprefix(_TAG)
    plain = event.implicit[0]
    return next((kind for kind, pattern in _PLAIN.items() if plain and pattern.fullmatch(source)), "str")


def _integer(source: str) -> int:
    return int(source[2:], _BASES[source[:2]]) if source[:2] in _BASES else int(source)


def _number(source: str) -> float:
    return float(source.lower().replace(".inf", "inf").replace(".nan", "nan"))


_VALUES: dict[str, Callable[[str], Value]] = {
    "null": lambda _: None,
    "bool": lambda written: written.lower() == "true",
    "int": _integer,
    "float": _number,
}

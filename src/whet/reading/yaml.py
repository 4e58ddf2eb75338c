"""JSON and YAML files: read them with or without lines, and see which kind of suite they hold.

YAML is 1.2 with its core schema: `no` is a word, `010` is ten, and no tag makes objects. Documents are built from the
events of the parser, because the library's composer calls itself for every level of nesting until the process dies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
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
# One of these words is in every object that is no bench suite: a file without them need not be read twice.
_WORDS = (b"cases_json", b"environment_ref", b"evals", b"scenarios", b"prompts", b"providers", b"targets")
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
    text = _text(_data(path))
    return read_yaml(text, number_keys=number_keys) if path.suffix.lower() in _YAML_SUFFIXES else read_json(text)


def read_plain(path: Path, *, number_keys: bool = False) -> Any:
    """Return the value in *path*, YAML by its suffix and otherwise JSON; raises `DocumentError`."""
    if path.suffix.lower() not in _YAML_SUFFIXES:
        return load_json(_text(_data(path)))
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


def _data(path: Path) -> bytes:
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


def document_format(path: Path) -> str | None:
    """Return the format of a JSON or YAML file by what it holds, so that no two formats claim one; None of others.

    What cannot be read is a bench suite, whose reader says what is wrong with it.
    """
    if path.suffix.lower() not in SUFFIXES:
        return None
    try:
        data = _data(path)
        is_list = data.lstrip()[:1] in (b"[", b"-")
        root = read_document(path).root if is_list or any(word in data for word in _WORDS) else None
    except DocumentError:
        root = None
    return "bench" if root is None else _format_in(root)


def _format_in(root: Node) -> str:
    if eval_suite_in(root) is not None:
        return "evals"
    if isinstance(root.value, tuple):
        keys = _keys_of_items(root)
        return (
            "eval-set"
            if keys >= {"query", "should_trigger"}
            else "agent-skills"
            if "prompt" in keys and "inputData" not in keys
            else "bench"
        )
    top = root.value if isinstance(root.value, Mapping) else {}
    if "cases" in top:
        return "bench"
    # Many files have prompts, the results of promptfoo among them.
    others = {"providers", "targets", "tests", "defaultTest"} & set(top)
    if ("prompts" in top and others) or {"tests", "providers"} <= others or {"tests", "targets"} <= others:
        return "promptfoo"
    if "evals" in top:
        keys = _keys_of_items(top["evals"])
        # Rubrics that several suites share are written in the same way, without prompts.
        return "agent-skills" if not keys or keys & {"prompt", "query"} else "bench"
    return "scenarios" if "scenarios" in top else "bench"


def _keys_of_items(root: Node) -> set[str]:
    items = root.value if isinstance(root.value, tuple) else ()
    return {key for item in items if isinstance(item.value, Mapping) for key in item.value}


def eval_suite_in(root: Node) -> Node | None:
    """Return the object that is an eval suite or a manifest: *root*, or its `suite`, as a service wraps it."""
    for node in (root, root.value.get("suite") if isinstance(root.value, Mapping) else None):
        if node is not None and isinstance(node.value, Mapping) and (_has_cases(node) or is_manifest(node)):
            return node
    return None


def is_manifest(node: Node) -> bool:
    """Return whether an object is an import manifest: task packages under `cases`."""
    cases = node.value.get("cases") if isinstance(node.value, Mapping) else None
    items = cases.value if cases is not None and isinstance(cases.value, tuple) else ()
    return any(isinstance(item.value, Mapping) and "environment_ref" in item.value for item in items)


def _has_cases(node: Node) -> bool:
    return isinstance(node.value, Mapping) and "cases_json" in node.value


def read_yaml(text: str, *, number_keys: bool = False, most_nodes: int = _MOST_NODES) -> Document:
    """Parse *text*, with the line of every value; raises `DocumentError`, or `TooMuch` beyond *most_nodes* values."""
    import yaml  # noqa: PLC0415 - only suites in YAML need it

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(number_keys, most_nodes)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(type(event).__name__, event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        hint = next((hint for part, hint in _HINTS.items() if part in said), None)
        raise DocumentError(f"cannot be read: {said}", line=mark.line + 1 if mark else None, hint=hint) from None
    except yaml.reader.ReaderError as error:
        char = error.character if isinstance(error.character, str) else chr(error.character)
        line = text[: max(text.find(char), 0)].count("\n") + 1
        raise DocumentError(f"has the control character U+{ord(char):04X}", line=line, hint=_ABOUT_CHARACTERS) from None
    except yaml.YAMLError as error:
        raise DocumentError(f"cannot be read: {str(error).splitlines()[0]}") from None
    return builder.document()


@dataclass(slots=True)
class _Level:
    """An array or object that is being read; `weight` is how many nodes it unfolds to."""

    line: int
    anchor: str | None
    is_object: bool
    items: list[Node] = field(default_factory=list)
    members: dict[str, Node] = field(default_factory=dict)
    key: Node | None = None
    weight: int = 1


class _Builder:
    """Takes the events of a parser and puts nodes together."""

    def __init__(self, number_keys: bool, most_nodes: int) -> None:
        self._number_keys = number_keys
        self._most_nodes = most_nodes
        self._levels: list[_Level] = []
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
                value: Value = level.members if level.is_object else tuple(level.items)
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
        self._levels.append(_Level(line, event.anchor, is_object))

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

    def _set(self, level: _Level, key: Node, node: Node) -> None:
        name = str(key.value)
        if name in level.members:
            self._repeats.append(Repeat(name, key.line, level.members[name].line))
        else:
            level.members[name] = node


def _key(node: Node, number_keys: bool) -> Node:
    if number_keys and node.written and isinstance(node.value, int | float):
        return Node(node.written, node.line)
    if not isinstance(node.value, str):
        written = node.written or "this"
        raise DocumentError(f"{written} is not a string, and cannot be a key", line=node.line, hint="put it in quotes")
    if node.value == "<<":
        raise DocumentError("YAML 1.2 has no merge keys", line=node.line, hint='put it into "defaults"')
    return node


def _scalar(event: Any, line: int, place: Iterable[str | int]) -> Node:
    written = str(event.value)
    kind = _kind(event, written)
    if kind == "str":
        return Node(written, line)
    # An explicit tag may come before anything.
    if kind not in _PLAIN or not _PLAIN[kind].fullmatch(written):
        raise DocumentError(f'"{written[:40]}" cannot be read as {event.tag}', line=line, hint="leave the tag out")
    refuse_long_number(written, place, line)
    return Node(_VALUES[kind](written), line, written)


def _kind(event: Any, written: str) -> str:
    if event.tag is not None and event.tag != "!":
        return str(event.tag).removeprefix(_TAG)
    plain = event.implicit[0]
    return next((kind for kind, pattern in _PLAIN.items() if plain and pattern.fullmatch(written)), "str")


def _integer(written: str) -> int:
    return int(written[2:], _BASES[written[:2]]) if written[:2] in _BASES else int(written)


def _number(written: str) -> float:
    return float(written.lower().replace(".inf", "inf").replace(".nan", "nan"))


_VALUES: dict[str, Callable[[str], Value]] = {
    "null": lambda _: None,
    "bool": lambda written: written.lower() == "true",
    "int": _integer,
    "float": _number,
}

"""JSON and YAML files: read them with or without lines, and see which kind of suite they hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.reading.documents import Document, DocumentError, Node, load_json, read_json, refuse_endless
from whet.reading.yaml_documents import read_yaml

_READERS = {".json": read_json, ".yaml": read_yaml, ".yml": read_yaml}
SUFFIXES = tuple(_READERS)
_YAML_SUFFIXES = (".yaml", ".yml")


def read_document(path: Path) -> Document:
    """Read *path* with the line of every value; raises `DocumentError`."""
    return _READERS[path.suffix.lower()](_text(_data(path)))


def read_plain(path: Path) -> Any:
    """Return the value in *path*, YAML by its suffix and otherwise JSON; raises `DocumentError`."""
    if path.suffix.lower() not in _YAML_SUFFIXES:
        return load_json(_text(_data(path)))
    document = read_document(path)
    if document.repeats:
        double = document.repeats[0]
        lines = f"in lines {double.first} and {double.line}"
        raise DocumentError(f'has the key "{double.key}" twice in one object, {lines}')
    value = document.root.plain()
    refuse_endless(value)
    return value


def _data(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror}") from error


def _text(data: bytes) -> str:
    """UTF-8, with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError("is not UTF-8", line=line, hint="save it in UTF-8") from None


# A file without these words is not an eval suite, and need not be read twice.
_WORDS = (b"cases_json", b"environment_ref")


def is_eval_suite(path: Path) -> bool:
    """Return whether *path* has cases for a skill: `cases_json`, or a manifest of task packages."""
    if path.suffix.lower() not in SUFFIXES:
        return False
    try:
        data = path.read_bytes()
        return any(word in data for word in _WORDS) and eval_suite_in(read_document(path).root) is not None
    except (OSError, DocumentError):
        return False


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

"""Seeing what a JSON or YAML file is for before it is read for good."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from whet.formats.document.base import DocumentError, Node
from whet.formats.document.reading import SUFFIXES, read_document

# Without one of these words a file is no eval suite, and need not be read twice.
_WORDS = (b"cases_json", b"environment_ref")


def is_eval_suite(path: Path) -> bool:
    """Whether *path* holds cases for a skill: `cases_json`, or a manifest of task packages."""
    if path.suffix.lower() not in SUFFIXES:
        return False
    try:
        data = path.read_bytes()
        return any(word in data for word in _WORDS) and eval_suite_in(read_document(path).root) is not None
    except (OSError, DocumentError):
        return False


def eval_suite_in(root: Node) -> Node | None:
    """The object that is an eval suite or a manifest: the whole, or what a service wraps as `suite`."""
    for node in (root, root.value.get("suite") if isinstance(root.value, Mapping) else None):
        if node is not None and isinstance(node.value, Mapping) and (_has_cases(node) or is_manifest(node)):
            return node
    return None


def is_manifest(node: Node) -> bool:
    """Whether an object is an import manifest: task packages under `cases`."""
    cases = node.value.get("cases") if isinstance(node.value, Mapping) else None
    items = cases.value if cases is not None and isinstance(cases.value, tuple) else ()
    return any(isinstance(item.value, Mapping) and "environment_ref" in item.value for item in items)


def _has_cases(node: Node) -> bool:
    return isinstance(node.value, Mapping) and "cases_json" in node.value

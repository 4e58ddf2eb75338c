"""See which kind of suite a JSON or YAML file holds, by a table of formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from whet.reading.documents import DocumentError, Node
from whet.reading.yaml import SUFFIXES, read_data, read_document

# One of these words is in every object that is no bench suite: a file without them need not be read twice.
_WORDS = (
    b"cases_json",
    b"environment_ref",
    b"evals",
    b"scenarios",
    b"prompts",
    b"providers",
    b"targets",
    b"query",
    b"question",
    b"stimuli",
    b"expected_",
    b"expectations",
    b"assertions",
)
# What evals of other tools have beside `query` or `question`; a list of questions alone may be anything.
_EXPECTATIONS = frozenset(("expected_behavior", "ground_truth", "expected_output", "expectations", "assertions"))
# What cases of bench suites and tasks of benchmarks have.
_OF_OURS = frozenset(("expect", "inputData"))


def document_format(path: Path) -> str | None:
    """Return the format of a JSON or YAML file by what it holds, so that no two formats claim one; None of others.

    What cannot be read is a bench suite, whose reader says what is wrong with it.
    """
    if path.suffix.lower() not in SUFFIXES:
        return None
    try:
        data = read_data(path)
        is_list = data.lstrip()[:1] in (b"[", b"-")
        root = read_document(path).root if is_list or any(word in data for word in _WORDS) else None
    except DocumentError:
        root = None
    return _BENCH if root is None else _format_in(root)


def _format_in(root: Node) -> str:
    if eval_suite_in(root) is not None:
        return "evals"
    if isinstance(root.value, tuple):
        keys = _keys_of_items(root)
        return next((name for name, fits in _OF_LISTS if fits(keys)), _BENCH)
    top = root.value if isinstance(root.value, Mapping) else {}
    return next((name for name, fits in _OF_OBJECTS if fits(top)), _BENCH)


def _asks(keys: set[str]) -> bool:
    """Return whether an object with these *keys* is an eval that has its prompt in `query` or `question`."""
    return bool(keys & {"query", "question"} and keys & _EXPECTATIONS) and not keys & {"prompt", *_OF_OURS}


def _prompts(keys: set[str]) -> bool:
    """Return whether an object with these *keys* has a prompt, and is no task of a benchmark."""
    return "prompt" in keys and "inputData" not in keys


def _has_evals(top: Mapping[str, Node], *list_names: str) -> bool:
    """Return whether an object has evals in a list; with a name of their own, cases with a prompt are of ours."""
    for list_name in list_names:
        keys = _keys_of_items(top[list_name]) if list_name in top else set[str]()
        are_ours = "name" in top or "prompt" not in keys or bool(keys & _OF_OURS)
        if _asks(keys) or (keys & _EXPECTATIONS and not are_ours):
            return True
    return False


def _is_promptfoo(top: Mapping[str, Node]) -> bool:
    """Return whether an object is of promptfoo: many files have prompts, its results among them."""
    promptfoo_keys = {"providers", "targets", "tests", "defaultTest", "redteam"} & set(top)
    has_runners = bool({"providers", "targets"} & promptfoo_keys)
    return bool("prompts" in top and promptfoo_keys) or (has_runners and bool({"tests", "redteam"} & promptfoo_keys))


def _is_experiment(top: Mapping[str, Node]) -> bool:
    """Return whether an object is an experiment of Vally, whose reader says what to do with it."""
    return "evals" in top and bool({"variants", "matrix"} & set(top))


def _has_prompts(top: Mapping[str, Node]) -> bool:
    """Return whether an object has evals with prompts; rubrics that several suites share have none."""
    keys = _keys_of_items(top["evals"]) if "evals" in top else set[str]()
    return "evals" in top and (not keys or bool(keys & {"prompt", "query", "question"}))


_BENCH = "bench"
# Formats of a list, by the keys of its items. The first row that fits decides; without one, it is a bench suite.
_OF_LISTS: tuple[tuple[str, Callable[[set[str]], bool]], ...] = (
    ("eval-set", lambda keys: keys >= {"query", "should_trigger"}),
    ("agent-skills", lambda keys: _prompts(keys) or _asks(keys)),
)
# The same for an object.
_OF_OBJECTS: tuple[tuple[str, Callable[[Mapping[str, Node]], bool]], ...] = (
    ("agent-skills", lambda top: _has_evals(top, "cases")),
    (_BENCH, lambda top: "cases" in top),
    ("promptfoo", _is_promptfoo),
    ("vally", _is_experiment),
    ("agent-skills", _has_prompts),
    (_BENCH, lambda top: "evals" in top),
    ("scenarios", lambda top: "scenarios" in top),
    ("vally", lambda top: "stimuli" in top),
    ("agent-skills", lambda top: _asks(set(top)) or _has_evals(top, "test_cases", "tests")),
)


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

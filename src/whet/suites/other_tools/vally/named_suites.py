"""The suites that `.vally.yaml` names: which specs belong to one, and which of their cases by their tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct

from whet.errors import Problem, SuiteError, UsageError
from whet.model.suite import AS_WRITTEN, Case, Suite, SuiteReading
from whet.reading.fields import Fields
from whet.reading.text import did_you_mean
from whet.suites.format import load_suite
from whet.suites.other_tools.shared import ForeignDocument, texts_of
from whet.suites.other_tools.vally.files import matching_files
from whet.suites.other_tools.vally.format import tag_of

_TOP = ("paths", "environments", "suites", "$schema")
_PATHS = ("skills", "evals", "results", "evalFilenames")
_SUITE = ("description", "filter", "evals")
_USUAL_FOLDERS = ("evals/",)
_USUAL_NAMES = ("eval.yaml", "eval.yml")


class SelectedSpec(Struct, frozen=True):
    """A spec, and the ids of the cases that are selected of it; None selects all."""

    path: Path
    cases: tuple[str, ...] | None = None


class _NamedSuite(Struct, frozen=True):
    files: tuple[Path, ...]
    # By the key of a tag, the values of which a case needs one.
    tags: Mapping[str, tuple[str, ...]]


def select_specs(path: Path, name: str | None, reading: SuiteReading = AS_WRITTEN) -> list[SelectedSpec]:
    """Return the specs of the suite *name* in the settings at *path*, or without a name all specs."""
    document = ForeignDocument.read(path)
    suite = _all_specs(document) if name is None else _named_suite(document, name)
    findings = document.top.findings
    if findings.problems:
        raise SuiteError(findings.problems, findings.warnings)
    specs = list(_selected(suite, reading))
    if not specs:
        what = f'the suite "{name}"' if name else "paths.evals and paths.evalFilenames"
        raise UsageError(f"{path}: no spec belongs to {what}", hint="patterns begin at the folder of this file")
    return specs


def suite_names(path: Path) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """Return the names of the suites in the settings at *path*, and what of these is not carried over."""
    document = ForeignDocument.read(path)
    document.lose_unknown(document.top, _TOP)
    document.lose_unknown(document.top.table("paths"), _PATHS)
    names = tuple(map(str, document.top.table("suites").values))
    if document.top.findings.problems:
        raise SuiteError(document.top.findings.problems)
    return names, document.losses()


def _all_specs(document: ForeignDocument) -> _NamedSuite:
    paths = document.top.table("paths")
    folders = _texts(paths, "evals") or _USUAL_FOLDERS
    patterns = [_specs_below(document, folder) for folder in folders]
    return _NamedSuite(tuple(matching_files(document.path.parent, patterns)), {})


def _specs_below(document: ForeignDocument, folder: str) -> str:
    """Return the pattern of the specs in *folder* by the names that the settings give them."""
    names = _texts(document.top.table("paths"), "evalFilenames") or _USUAL_NAMES
    return f"{folder.rstrip('/')}/**/{{{','.join(names)}}}"


def _named_suite(document: ForeignDocument, name: str) -> _NamedSuite:
    suites = document.top.table("suites")
    if name not in suites.values:
        names = list(map(str, suites.values))
        hint = did_you_mean(name, names) or f"known: {', '.join(names) or 'none'}"
        raise UsageError(f'{document.path} has no suite "{name}"', hint=hint)
    fields = suites.table(name)
    fields.refuse_unknown(_SUITE)
    if not any(fields.given(part) for part in ("evals", "filter")):
        fields.problem("", "selects nothing: it has neither evals nor a filter")
    root = document.path.parent
    patterns = [_specs_below(document, text) if (root / text).is_dir() else text for text in _texts(fields, "evals")]
    files = tuple(matching_files(root, patterns)) if patterns else _all_specs(document).files
    table = fields.table("filter")
    tags: dict[str, tuple[str, ...]] = {}
    for key in map(str, table.values):
        tags[key] = tuple(map(partial(tag_of, key), _values(table, key)))
    return _NamedSuite(files, tags)


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    return tuple(text for _, text in texts_of(fields, name))


def _values(fields: Fields, key: str) -> list[object]:
    value = fields.given(key)
    return value if isinstance(value, list) else [value]


def _selected(suite: _NamedSuite, reading: SuiteReading) -> Iterator[SelectedSpec]:
    for file in suite.files:
        if not suite.tags:
            yield SelectedSpec(file)
            continue
        spec: Suite = load_suite(file, reading)
        cases = tuple(case.id for case in spec.cases if _has_tags(case, suite.tags))
        if cases:
            yield SelectedSpec(file, cases)


def _has_tags(case: Case, tags: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether *case* has one of the tags of every key."""
    return all(set(tags_of_key) & set(case.tags) for tags_of_key in tags.values())

"""`eval.yaml` of dotnet/skills: scenarios with a setup, assertions, a rubric, and the tools that are expected."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from whet.errors import ClaimError
from whet.model.suite import BootstrapSpec, Case, Check, Limits, PlacedItem, Suite
from whet.reading.fields import Fields
from whet.reading.paths import glob_problem, inside_problem
from whet.reading.patterns import dotnet_pattern
from whet.suites.document_formats import document_format
from whet.suites.other_tools.shared import (
    MANIFEST,
    ForeignDocument,
    activation,
    assertion_check,
    case_id,
    contains_anyhow,
    fixture,
    holds,
    new_case,
    statement,
    texts_of,
)
from whet.suites.split.fields import PART_FIELDS

_SCENARIO = (
    *("name", "prompt", "setup", "assertions", "rubric", "timeout", "expect_tools", "reject_tools"),
    *("max_turns", "max_tokens", "expect_activation", *PART_FIELDS),
)
_SETUP = ("copy_test_files", "files", "commands")
_FILE = ("path", "content", "source")
_ASSERTION = ("type", "path", "value", "pattern")
_USUAL_TIMEOUT_S = 120.0
_COMMAND_TIMEOUT_S = 120.0


class ScenariosFormat:
    """A YAML or JSON file with `scenarios`."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* has scenarios."""
        return document_format(path) == "scenarios"

    def lower(self, path: Path) -> Suite:
        """Read the file; what cannot be carried over is a warning."""
        document = ForeignDocument.read(path)
        document.lose_unknown(document.top, ("scenarios", "$schema"))
        cases = [_case(document, fields, number) for fields, number in document.cases("scenarios")]
        skill = next((place for place in _skills(path) if (place / MANIFEST).is_file()), None)
        return document.suite(cases, name=None, usual_timeout_s=_USUAL_TIMEOUT_S, usual_skill=skill)


def _skills(path: Path) -> tuple[Path, ...]:
    """Return where the skill may be: `plugins/P/skills/S` for `tests/P/S/eval.yaml`, or around the file."""
    folder = path.parent
    around = (folder, folder.parent) if folder.name in ("tests", "evals", "eval") else (folder,)
    if len(folder.parents) > 2 and folder.parents[1].name == "tests":  # noqa: PLR2004 - tests/P/S
        return (folder.parents[2] / "plugins" / folder.parent.name / "skills" / folder.name, *around)
    return around


def _case(document: ForeignDocument, fields: Fields, number: int) -> tuple[Fields, str, Case]:
    id_field, name = case_id(fields, ("name",), number)
    fields.case = name
    fields.has("name", required=True)
    document.lose_unknown(fields, _SCENARIO)
    prompt = fields.text("prompt", required=True) or ""
    setup = fields.table("setup")
    document.lose_unknown(setup, _SETUP)
    timeout_s = fields.number("timeout", above=0)
    return (
        fields,
        id_field,
        new_case(
            fields,
            name,
            prompt,
            _checks(document, fields, prompt),
            limits=Limits(timeout_s=None if timeout_s is None else float(timeout_s)),
            placed=(*_beside(document.path, setup), *_files(document, setup)),
            bootstrap=_commands(setup),
        ),
    )


def _beside(path: Path, setup: Fields) -> Iterator[PlacedItem]:
    """Yield all that is beside the file, if the setup asks for it: no suite, and nothing outside that a link names."""
    if not setup.flag("copy_test_files"):
        return
    real = os.path.realpath(path.parent)
    places = [Path(real, name) for name in sorted(os.listdir(real)) if name not in (path.name, MANIFEST)]  # noqa: PTH208 - names
    inside = [place for place in places if os.path.realpath(place).startswith(f"{real}/")]
    entries = [place for place in inside if not place.is_file() or document_format(place) in (None, "bench")]
    if not entries:
        setup.warn("copy_test_files", "there is nothing beside the file to copy")
    yield from (PlacedItem(path=place.name, source=place) for place in entries)


def _files(document: ForeignDocument, setup: Fields) -> Iterator[PlacedItem]:
    roots = (*_skills(document.path), document.path.parent)
    for place, item in setup.items("files"):
        fields = setup.object(place, item)
        document.lose_unknown(fields, _FILE)
        at = fields.checked("path", fields.text("path", required=True), inside_problem)
        if at is None:
            continue
        if fields.given("content") is not None:
            yield PlacedItem(path=at, text=fields.text("content", empty=True))
        elif (source := fields.text("source")) is not None:
            yield fixture(fields, "source", source, at, roots)
        elif fields.given("source") is None:
            fields.problem("", "has neither content nor source")


def _commands(setup: Fields) -> BootstrapSpec | None:
    """Return the commands as one script; each may fail, as where they come from."""
    commands = [text for _, text in texts_of(setup, "commands")]
    if not commands:
        return None
    script = "\n".join(f"/bin/sh -c {shlex.quote(command)} || true" for command in commands)
    return BootstrapSpec(command="/bin/sh", args=("-c", script), timeout_s=_COMMAND_TIMEOUT_S * len(commands))


def _checks(document: ForeignDocument, fields: Fields, prompt: str) -> Iterator[Check]:
    for place, item in fields.items("assertions"):
        yield from _assertion(document, fields.object(place, item), prompt)
    for name, negate in (("expect_tools", False), ("reject_tools", True)):
        for _, tool in texts_of(fields, name):
            yield assertion_check(prompt, f"{name} {tool}", holds("tool_called", tool, negate=negate))
    for name, figure in (("max_turns", "steps"), ("max_tokens", "tokens")):
        if (most := fields.whole(name)) is not None:
            yield assertion_check(prompt, f"{name} {most}", holds("at_most", most, target=figure))
    if fields.has("expect_activation"):
        yield activation(prompt, wanted=fields.flag("expect_activation"))
    for _, text in texts_of(fields, "rubric"):
        yield statement(text, prompt)


def _assertion(document: ForeignDocument, fields: Fields, prompt: str) -> Iterator[Check]:
    document.lose_unknown(fields, _ASSERTION)
    kind = fields.text("type", required=True) or ""
    negate = "_not_" in kind
    label = " ".join(str(fields.values[name]) for name in _ASSERTION if fields.given(name) is not None)
    match kind.replace("_not", ""):
        case "exit_success":
            yield assertion_check(prompt, label, holds("regex", r"/[^]/", description="the answer is not empty"))
        case "output_contains":
            text = fields.text("value", required=True) or ""
            yield assertion_check(prompt, label, contains_anyhow(text, negate=negate))
        case "output_matches":
            text = fields.text("pattern", required=True) or ""
            yield from _matches(document, fields, prompt, label, text, negate=negate)
        case "file_exists":
            existence = holds("file_exists", None, negate=negate, target=_pattern(fields), pattern=True)
            yield assertion_check(prompt, label, existence)
        case "file_contains":
            path, text = _pattern(fields), fields.text("value", required=True) or ""
            existence = holds("file_exists", None, target=path, pattern=True)
            content = holds("file_contains", text, negate=negate, target=path, pattern=True)
            yield assertion_check(prompt, label, existence, content)
        case _:
            document.lose_check(fields, "type", f"whet has no assertion {kind!r}")


def _pattern(fields: Fields) -> str | None:
    return fields.checked("path", fields.text("path", required=True), glob_problem)


def _matches(
    document: ForeignDocument, fields: Fields, prompt: str, label: str, text: str, *, negate: bool
) -> Iterator[Check]:
    try:
        pattern = dotnet_pattern(text)
    except ClaimError as error:
        document.lose_check(fields, "pattern", error.message)
        return
    title = f"{'not ' if negate else ''}matches {text}"
    yield assertion_check(prompt, label, holds("regex", str(pattern), negate=negate, description=title))

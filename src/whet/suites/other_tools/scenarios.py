"""`eval.yaml` of dotnet/skills: scenarios with a setup, assertions, a rubric, and the tools that are expected."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from whet.errors import ClaimError
from whet.model.suite import BootstrapSpec, Case, Check, Limits, Placed, Suite
from whet.reading.document_files import document_format
from whet.reading.fields import Fields
from whet.reading.paths import glob_problem, inside_problem
from whet.reading.patterns import dotnet_pattern
from whet.suites.foreign import (
    MANIFEST,
    Foreign,
    activation,
    asserted,
    case_id,
    contains_anyhow,
    fixture,
    holds,
    new_case,
    statement,
    texts_of,
)

_SCENARIO = (
    *("name", "prompt", "setup", "assertions", "rubric", "timeout", "expect_tools", "reject_tools"),
    *("max_turns", "max_tokens", "expect_activation"),
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
        document = Foreign.read(path)
        document.lose_unknown(document.top, ("scenarios", "$schema"))
        cases = [_case(document, given, number) for given, number in document.cases("scenarios")]
        skill = next((place for place in _skills(path) if (place / MANIFEST).is_file()), None)
        return document.suite(cases, name=None, usual_timeout_s=_USUAL_TIMEOUT_S, usual_skill=skill)


def _skills(path: Path) -> tuple[Path, ...]:
    """Return where the skill may be: `plugins/P/skills/S` for `tests/P/S/eval.yaml`, or around the file."""
    folder = path.parent
    around = (folder, folder.parent) if folder.name in ("tests", "evals", "eval") else (folder,)
    if len(folder.parents) > 2 and folder.parents[1].name == "tests":  # noqa: PLR2004 - tests/P/S
        return (folder.parents[2] / "plugins" / folder.parent.name / "skills" / folder.name, *around)
    return around


def _case(document: Foreign, given: Fields, number: int) -> tuple[Fields, str, Case]:
    id_field, name = case_id(given, ("name",), number)
    given.case = name
    given.has("name", required=True)
    document.lose_unknown(given, _SCENARIO)
    prompt = given.text("prompt", required=True) or ""
    setup = given.table("setup")
    document.lose_unknown(setup, _SETUP)
    timeout_s = given.number("timeout", above=0)
    return (
        given,
        id_field,
        new_case(
            given,
            name,
            prompt,
            _checks(document, given, prompt),
            limits=Limits(timeout_s=None if timeout_s is None else float(timeout_s)),
            placed=(*_beside(document.path, setup), *_files(document, setup)),
            bootstrap=_commands(setup),
        ),
    )


def _beside(path: Path, setup: Fields) -> Iterator[Placed]:
    """Yield all that is beside the file, if the setup asks for it: no suite, and nothing outside that a link names."""
    if not setup.flag("copy_test_files"):
        return
    real = os.path.realpath(path.parent)
    places = [Path(real, name) for name in sorted(os.listdir(real)) if name not in (path.name, MANIFEST)]  # noqa: PTH208 - names
    inside = [place for place in places if os.path.realpath(place).startswith(f"{real}/")]
    found = [place for place in inside if not place.is_file() or document_format(place) in (None, "bench")]
    if not found:
        setup.warn("copy_test_files", "there is nothing beside the file to copy")
    yield from (Placed(path=place.name, source=place) for place in found)


def _files(document: Foreign, setup: Fields) -> Iterator[Placed]:
    roots = (*_skills(document.path), document.path.parent)
    for place, item in setup.items("files"):
        given = setup.object(place, item)
        document.lose_unknown(given, _FILE)
        at = given.checked("path", given.text("path", required=True), inside_problem)
        if at is None:
            continue
        if given.given("content") is not None:
            yield Placed(path=at, text=given.text("content", empty=True))
        elif (source := given.text("source")) is not None:
            yield fixture(given, "source", source, at, roots)
        elif given.given("source") is None:
            given.problem("", "has neither content nor source")


def _commands(setup: Fields) -> BootstrapSpec | None:
    """Return the commands as one script; each may fail, as where they come from."""
    commands = [text for _, text in texts_of(setup, "commands")]
    if not commands:
        return None
    script = "\n".join(f"/bin/sh -c {shlex.quote(command)} || true" for command in commands)
    return BootstrapSpec(command="/bin/sh", args=("-c", script), timeout_s=_COMMAND_TIMEOUT_S * len(commands))


def _checks(document: Foreign, given: Fields, prompt: str) -> Iterator[Check]:
    for place, item in given.items("assertions"):
        yield from _assertion(document, given.object(place, item), prompt)
    for name, negate in (("expect_tools", False), ("reject_tools", True)):
        for _, tool in texts_of(given, name):
            yield asserted(prompt, f"{name} {tool}", holds("tool_called", tool, negate=negate))
    for name, figure in (("max_turns", "steps"), ("max_tokens", "tokens")):
        if (most := given.whole(name)) is not None:
            yield asserted(prompt, f"{name} {most}", holds("at_most", most, target=figure))
    if given.has("expect_activation"):
        yield activation(prompt, wanted=given.flag("expect_activation"))
    for _, text in texts_of(given, "rubric"):
        yield statement(text, prompt)


def _assertion(document: Foreign, given: Fields, prompt: str) -> Iterator[Check]:
    document.lose_unknown(given, _ASSERTION)
    kind = given.text("type", required=True) or ""
    negate = "_not_" in kind
    label = " ".join(str(given.values[name]) for name in _ASSERTION if given.given(name) is not None)
    match kind.replace("_not", ""):
        case "exit_success":
            yield asserted(prompt, label, holds("regex", r"/[^]/", description="the answer is not empty"))
        case "output_contains":
            text = given.text("value", required=True) or ""
            yield asserted(prompt, label, contains_anyhow(text, negate=negate))
        case "output_matches":
            text = given.text("pattern", required=True) or ""
            yield from _matches(document, given, prompt, label, text, negate=negate)
        case "file_exists":
            there = holds("file_exists", None, negate=negate, target=_pattern(given), pattern=True)
            yield asserted(prompt, label, there)
        case "file_contains":
            path, text = _pattern(given), given.text("value", required=True) or ""
            there = holds("file_exists", None, target=path, pattern=True)
            looked = holds("file_contains", text, negate=negate, target=path, pattern=True)
            yield asserted(prompt, label, there, looked)
        case _:
            document.lose(given, "type", f"whet has no assertion {kind!r}")


def _pattern(given: Fields) -> str | None:
    return given.checked("path", given.text("path", required=True), glob_problem)


def _matches(document: Foreign, given: Fields, prompt: str, label: str, text: str, *, negate: bool) -> Iterator[Check]:
    try:
        pattern = dotnet_pattern(text)
    except ClaimError as error:
        document.lose(given, "pattern", error.message)
        return
    title = f"{'not ' if negate else ''}matches {text}"
    yield asserted(prompt, label, holds("regex", str(pattern), negate=negate, description=title))

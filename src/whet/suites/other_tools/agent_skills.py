"""What agentskills.io and skill-creator write: evals of prompts and statements, and sets of trigger queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.errors import ClaimError, SuiteError
from whet.model.eval_cases import Assertion, Expectation, TriggerQuery
from whet.model.suite import SKILL, Case, Check, Placed, Suite, WorkspaceSpec
from whet.reading.document_files import document_format, read_checked
from whet.reading.fields import Fields
from whet.reading.paths import glob_problem, inside_problem
from whet.reading.patterns import pattern_of
from whet.reading.text import shown
from whet.suites.foreign import (
    MANIFEST,
    Foreign,
    activation,
    asserted,
    case_id,
    contains_anyhow,
    find_fixture,
    fixture,
    holds,
    new_case,
    statement,
    texts_of,
)

_QUERY = ("id", "query", "should_trigger", "$schema")
_TOP = ("skill_name", "evals", "description", "repo_criteria", "$schema", "version")
_NAMES = ("name", "eval_name")
_STATEMENTS = ("expectations", "assertions", "scorers", "expected_chat_output", "expected_repo_state")
_EVAL = ("id", *_NAMES, "prompt", "query", "should_trigger", "expected_output", "files", "tags", "repo_criteria")
# Where an object has its statement, in the order of preference.
_SAID = ("text", "statement", "assertion", "expectation", "criterion", "description", "check", "name")
_JUDGED = ("llm", "llm_judge", "llm-judge", "llm-rubric", "judge", "rubric", "semantic", "qualitative", "manual")
_VALUE = ("value", "pattern", "expected", "substring")
_FILE = ("path", "file")
_BESIDE = ("type", "id", "name", "description", "required")


class AgentSkillsFormat:
    """A JSON or YAML file with `evals`, or a list of them; the skill is the folder that holds the folder `evals`."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* has evals."""
        return document_format(path) == "agent-skills"

    def lower(self, path: Path) -> Suite:
        """Read the file; what cannot be carried over is a warning."""
        document = Foreign.read(path)
        top = document.top
        document.lose_unknown(top, _TOP)
        root = path.parent.parent if path.parent.name == "evals" else path.parent
        repository = _repository(path)
        rubrics: list[Path] = []
        shared = tuple(_criteria(document, top, repository, rubrics))
        cases = [
            _case(document, given, number, (root, path.parent), shared, rubrics)
            for given, number in document.cases("evals")
        ]
        in_repository = repository is not None and any("expected_repo_state" in given.values for given, _, _ in cases)
        return document.suite(
            cases,
            name=top.text("skill_name"),
            description=top.text("description") or "",
            workspace=_workspace(repository, path, rubrics) if in_repository else None,
            usual_skill=root if (root / MANIFEST).is_file() else None,
            held_out=(path.parent if root != path.parent else path,),
        )


def _repository(path: Path) -> Path | None:
    """Return the root of the repository that the file is in, if it is in one."""
    return next((folder for folder in path.parents if (folder / ".git").exists()), None)


def _workspace(repository: Path | None, path: Path, rubrics: Sequence[Path]) -> WorkspaceSpec:
    """Return a copy of the repository without evals and rubrics: what is expected there would be known."""
    assert repository is not None
    answers = path.parent if path.parent.name == "evals" else path
    shared = dict.fromkeys(file for file in rubrics if not file.is_relative_to(answers))
    taken_out = (Placed(path=file.relative_to(repository).as_posix()) for file in (answers, *shared))
    return WorkspaceSpec(mode="isolated", template_dir=repository, placed=tuple(taken_out))


def _case(
    document: Foreign,
    given: Fields,
    number: int,
    roots: Sequence[Path],
    shared: Sequence[str],
    rubrics: list[Path],
) -> tuple[Fields, str, Case]:
    id_field, name = case_id(given, ("id", *_NAMES), number)
    given.case = name
    document.lose_unknown(given, (*_EVAL, *_STATEMENTS))
    asked = "query" if "prompt" not in given.values and "query" in given.values else "prompt"
    prompt = given.text(asked, required=True) or ""
    placed, prompt = _files(document, given, prompt, roots)
    checks = list(_checks(document, given, prompt))
    own = _criteria(document, given, _repository(document.path), rubrics)
    checks += [statement(text, prompt) for text in (*own, *shared)]
    wanted = given.flag("should_trigger") if given.has("should_trigger") else None
    if wanted is not None:
        checks.append(activation(prompt, wanted=wanted))
    titles = (given.text(each) for each in _NAMES)
    tags = dict.fromkeys(tag for tag in (*titles, *given.texts("tags")) if tag)
    return given, id_field, new_case(given, name, prompt, checks, tags=tuple(tags), placed=placed)


def _files(document: Foreign, given: Fields, prompt: str, roots: Sequence[Path]) -> tuple[tuple[Placed, ...], str]:
    """Return the files for the workspace, and the prompt, which names them if its author does not."""
    placed: list[Placed] = []
    unnamed: list[str] = []
    for place, item in _listed(given, "files"):
        own = _file(document, given, place, item, prompt, roots)
        if own is None:
            continue
        if any(other.path == own.path for other in placed):
            given.problem(place, f'would be put at "{own.path}" of the workspace, where another file is')
            continue
        placed.append(own)
        if Path(own.path).name not in prompt:
            unnamed.append(own.path)
    return tuple(placed), f"{prompt}\n\nInput files: {', '.join(unnamed)}" if unnamed else prompt


def _listed(given: Fields, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list, or a text alone; an empty one says nothing."""
    value = given.given(name)
    if not isinstance(value, str):
        yield from given.items(name)
    elif value.strip():
        yield name, value


def _file(document: Foreign, given: Fields, place: str, item: Any, prompt: str, roots: Sequence[Path]) -> Placed | None:
    """Return one file for the workspace: an object has its content, and a text is a path.

    The file of a path is put where the prompt says it is: at its name alone, or at its path.
    """
    if isinstance(item, Mapping):
        own = given.object(place, item)
        document.lose_unknown(own, ("path", "content"))
        at = own.checked("path", own.text("path", required=True), inside_problem)
        text = own.text("content", required=True, empty=True)
        return None if at is None or text is None else Placed(path=at, text=text)
    written = given.text_at(place, item)
    if written is None:
        return None
    name = Path(written).name
    if name in ("", ".."):
        given.problem(place, f"{shown(written)} does not name a file")
        return None
    inside = inside_problem(written) is None
    at = written if inside and (written in prompt or name not in prompt) else name
    return fixture(given, place, written, at, roots)


def _checks(document: Foreign, given: Fields, prompt: str) -> Iterator[Check]:
    expected = given.text("expected_output", empty=True) or None
    found: list[Check] = []
    for name in _STATEMENTS:
        for place, item in _listed(given, name):
            if isinstance(item, Mapping):
                found += _object(document, given.object(place, item), prompt, expected)
            elif item != "" and (text := given.text_at(place, item)) is not None:
                found.append(statement(text, prompt, expected))
    if not found and expected is not None:
        found.append(statement(expected, prompt))
    yield from found


def _object(document: Foreign, given: Fields, prompt: str, expected: str | None) -> Iterator[Check]:
    """Yield the check of an assertion that is an object: one that needs no judge by its type, or else its words."""
    kind = given.given("type") or given.given("method")
    kind = kind if isinstance(kind, str) else None
    if kind is not None and kind not in _JUDGED:
        values = [given.values[each] for each in _VALUE if isinstance(given.given(each), str)]
        file = next((given.values[each] for each in _FILE if isinstance(given.given(each), str)), None)
        if file is None and len(values) == 1 and _plain(kind)[1] == "file_exists":
            file = values.pop()
        found = _in_file(kind, file, values) if file is not None else _of_answer(kind, values)
        if found:
            document.lose_unknown(given, (*_BESIDE, *_VALUE, *_FILE, *_SAID))
            label = " ".join((kind, *((file,) if file is not None else ()), *values))
            yield asserted(prompt, _said(given) or label, *found)
            return
    said = _said(given)
    if said is None:
        document.lose(given, "", "it says nothing that a judge could verify")
        return
    document.lose_unknown(given, (*_BESIDE, *_SAID))
    yield statement(said, prompt, expected)


def _said(given: Fields) -> str | None:
    name = next((each for each in _SAID if isinstance(given.given(each), str) and given.values[each].strip()), None)
    return None if name is None else given.text(name)


def _of_answer(kind: str, values: Sequence[str]) -> tuple[Assertion, ...]:
    """Return the assertion about the answer that a type of others most likely means; none if it has no equal here."""
    negate, kind = _plain(kind)
    # With a second value, it is about something else.
    value = values[0] if len(values) == 1 else None
    match kind:
        case "contains" | "output_contains" | "includes" if value is not None:
            return (contains_anyhow(value, negate=negate),)
        case "equals" | "exact" if value is not None:
            return (holds("equals", value, negate=negate),)
        case "regex" | "matches" | "output_matches" | "pattern" if value is not None and _is_pattern(value):
            return (holds("regex", value, negate=negate),)
        case _:
            return ()


def _in_file(kind: str, file: str, values: Sequence[str]) -> tuple[Assertion, ...]:
    """Return the assertions about the files that fit a pattern of paths; there must be one, also for what is denied."""
    negate, kind = _plain(kind)
    if glob_problem(file) is not None or len(values) > 1:
        return ()
    there = holds("file_exists", None, target=file, pattern=True)
    match kind, *values:
        case ["file_exists" | "exists"]:
            return (replace(there, negate=negate),)
        case ["contains" | "includes" | "file_contains", value]:
            return there, holds("file_contains", value, negate=negate, target=file, pattern=True)
        case ["regex" | "matches" | "pattern" | "file_matches", value] if _is_pattern(value):
            return there, holds("file_matches", value, negate=negate, target=file, pattern=True)
        case _:
            return ()


def _plain(kind: str) -> tuple[bool, str]:
    """Return whether a type denies, and what it denies."""
    kind = kind.lower().replace("-", "_")
    return kind.startswith("not_") or "_not_" in kind, kind.replace("not_", "")


def _is_pattern(value: str) -> bool:
    try:
        pattern_of(value)
    except ClaimError:
        return False
    return True


def _criteria(document: Foreign, given: Fields, repository: Path | None, rubrics: list[Path]) -> Iterator[str]:
    """Yield the statements of shared rubrics: files that are seen from a folder around this file, in its repository.

    Those that were read are added to *rubrics*.
    """
    around = document.path.parents
    roots = [folder for folder in around if folder.is_relative_to(repository)] if repository else list(around[:2])
    for place, written in texts_of(given, "repo_criteria"):
        found = find_fixture(written, roots)
        if found is None or not found.is_file():
            document.lose(given, place, f"there is no {shown(written)} in a folder around the file")
            continue
        try:
            texts = tuple(_texts_in(read_checked(found)))
        except SuiteError as error:
            document.lose(given, place, str(error))
            continue
        if not texts:
            document.lose(given, place, f"{written} has no statements")
        rubrics.append(found)
        yield from texts


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the statements of a rubric: texts, or objects with one, in lists that may have any names."""
    items = value if isinstance(value, list) else [value] if isinstance(value, Mapping) else []
    for item in items:
        if isinstance(item, str) and item.strip():
            yield item
        elif isinstance(item, Mapping):
            said = next((item[name] for name in _SAID[:-1] if isinstance(item.get(name), str)), None)
            lists = [inner for inner in item.values() if isinstance(inner, list)]
            if said is not None and not (lists and item is value):
                yield said
            else:
                for inner in lists:
                    yield from _texts_in(inner)


class EvalSetFormat:
    """A list of objects with `query` and `should_trigger`; each is a trigger query."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* is such a list."""
        return document_format(path) == "eval-set"

    def lower(self, path: Path) -> Suite:
        """Read the file; what cannot be carried over is a warning."""
        document = Foreign.read(path)
        cases = [_query(document, given, number) for given, number in document.cases("evals")]
        around = (path.parent, path.parent.parent)
        skill = next((folder for folder in around if (folder / MANIFEST).is_file()), None)
        return document.suite(cases, name=path.stem, arms=(SKILL,), usual_skill=skill)


def _query(document: Foreign, given: Fields, number: int) -> tuple[Fields, str, Case]:
    id_field, name = case_id(given, ("id",), number)
    name = name if given.has("id") else f"query-{number}"
    given.case = name
    document.lose_unknown(given, _QUERY)
    query = given.text("query", required=True) or ""
    given.has("should_trigger", required=True)
    wanted = given.flag("should_trigger")
    expectation: Expectation = "should_trigger" if wanted else "should_not_trigger"
    check = Check(
        grader="trigger", params={"case": TriggerQuery(query=query, expectation=expectation)}, label=expectation
    )
    # Without the skill there is nothing to load.
    return given, id_field, new_case(given, name, query, (check,), arms=(SKILL,), needs_agent=False)

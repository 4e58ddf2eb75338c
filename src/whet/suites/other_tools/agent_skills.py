"""What agentskills.io and skill-creator write: evals of prompts and statements, and sets of trigger queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import ClaimError, SuiteError
from whet.model.eval_cases import Assertion, Expectation, TriggerQuery
from whet.model.suite import SKILL, Case, Check, Limits, PlacedItem, Suite, WorkspaceSpec
from whet.reading.fields import UNWRITTEN, Fields
from whet.reading.paths import glob_problem, inside_problem
from whet.reading.patterns import pattern_of
from whet.reading.text import shown
from whet.reading.yaml import read_checked
from whet.suites.document_formats import document_format
from whet.suites.format import read_pairwise
from whet.suites.other_tools.shared import (
    MANIFEST,
    ForeignDocument,
    activation,
    answered,
    assertion_check,
    case_id,
    contains_anyhow,
    find_fixture,
    fixture,
    holds,
    new_case,
    statement,
    texts_of,
)
from whet.suites.split.fields import PART_FIELDS

_QUERY = ("id", "query", "should_trigger", *PART_FIELDS, "$schema")
_LISTS = ("evals", "cases", "test_cases", "tests")
_TOP = ("skill_name", "skill", *_LISTS, "defaults", "description", "repo_criteria", "$schema", "version")
_NAMES = ("name", "eval_name")
# Statements of what the agent does not do.
_DENIED = ("must_not", "fail", "forbidden_behaviors")
_STATEMENTS = (
    *("expectations", "assertions", "scorers", "expected_behavior", "expect", *_DENIED),
    *("expected_chat_output", "expected_repo_state"),
)
# A field with such a name says what is expected, whatever else it says: without it a case passes with less.
_DECIDES = re.compile(r"expect|must|assert|criteria|rubric|forbid|acceptable|required_")
_PROMPTS = ("prompt", "query", "question")
# What the author expects as a whole; the first that is there counts.
_WHOLE = ("expected_output", "ground_truth")
_EVAL = (
    *("id", *_NAMES, *_PROMPTS, *_WHOLE, "should_trigger", "skills", "expected_skill", "expected_script"),
    *("files", "tags", "repo_criteria", "pairwise", *PART_FIELDS),
)
# Where an object has its statement, in the order of preference.
_STATEMENT_FIELDS = ("text", "statement", "assertion", "expectation", "criterion", "description", "check", "name")
_JUDGE_TYPES = ("llm", "llm_judge", "llm-judge", "llm-rubric", "judge", "rubric", "semantic", "qualitative", "manual")
_VALUE = ("value", "pattern", "expected", "substring", "phrase")
_FILE = ("path", "file")
_CONTAINED_KINDS = ("contains", "output_contains", "contains_phrase", "includes")
_PATTERN_KINDS = ("regex", "matches", "output_matches", "contains_pattern", "pattern", "file_matches")
_KINDS = (
    *_CONTAINED_KINDS,
    *("file_contains", "equals", "exact", "file_exists", "exists"),
    *_PATTERN_KINDS,
)
_BESIDE = ("type", "id", "name", "description", "required")


class AgentSkillsFormat:
    """A JSON or YAML file with `evals` or `cases`, a list of these, or one; the skill is the folder around `evals`."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* has evals."""
        return document_format(path) == "agent-skills"

    def lower(self, path: Path) -> Suite:
        """Read the file; what cannot be carried over is a warning."""
        document = ForeignDocument.read(path)
        top = document.top
        list_name = next((name for name in _LISTS if name in top.values), None)
        if list_name is not None:
            document.lose_unknown(top, _TOP)
        root = _skill_folder(path)
        repository = _repository(path)
        rubrics: list[Path] = []
        criteria = tuple(_criteria(document, top, repository, rubrics))
        written_cases = [(top, 1)] if list_name is None else list(document.cases(list_name))
        skill_name = top.text("skill_name") or top.text("skill")
        about = _FileFacts(skill_name or root.name, (root, path.parent), _time_limit(document), criteria)
        cases = [_case(document, fields, number, about, rubrics) for fields, number in written_cases]
        in_repository = repository is not None and any("expected_repo_state" in fields.values for fields, _, _ in cases)
        return document.suite(
            cases,
            name=skill_name,
            description=top.text("description") or "",
            workspace=_workspace(repository, path, rubrics) if in_repository else None,
            usual_skill=root if (root / MANIFEST).is_file() else None,
            held_out=(path.parent if root != path.parent else path,),
        )


def _skill_folder(path: Path) -> Path:
    """Return the folder of the skill: around `evals`, or around a folder of another name that has no skill itself."""
    folder, around = path.parent, path.parent.parent
    is_around = not (folder / MANIFEST).is_file() and (around / MANIFEST).is_file()
    return around if folder.name == "evals" or is_around else folder


class _FileFacts(Struct, frozen=True):
    """What all evals of a file share: the skill's name, where files are looked for, the time limit, and statements."""

    skill_name: str
    roots: tuple[Path, ...]
    limits: Limits
    criteria: tuple[str, ...]


def _time_limit(document: ForeignDocument) -> Limits:
    """Return the limits that the file gives all its evals; the judge is a matter of the settings."""
    defaults = document.top.table("defaults")
    document.lose_unknown(defaults, ("timeout_sec",))
    timeout_s = defaults.number("timeout_sec", above=0)
    return Limits(timeout_s=None if timeout_s is None else float(timeout_s))


def _repository(path: Path) -> Path | None:
    """Return the root of the repository that the file is in, if it is in one."""
    return next((folder for folder in path.parents if (folder / ".git").exists()), None)


def _workspace(repository: Path | None, path: Path, rubrics: Sequence[Path]) -> WorkspaceSpec:
    """Return a copy of the repository without evals and rubrics: what is expected there would be known."""
    assert repository is not None
    answers = path.parent if path.parent.name == "evals" else path
    outer_rubrics = dict.fromkeys(file for file in rubrics if not file.is_relative_to(answers))
    removals = (PlacedItem(path=file.relative_to(repository).as_posix()) for file in (answers, *outer_rubrics))
    return WorkspaceSpec(mode="isolated", template_dir=repository, placed=tuple(removals))


def _case(
    document: ForeignDocument,
    fields: Fields,
    number: int,
    about: _FileFacts,
    rubrics: list[Path],
) -> tuple[Fields, str, Case]:
    id_field, name = case_id(fields, ("id", *_NAMES), number)
    fields.case = name
    _lose_unknown(document, fields)
    prompt_field = next((field for field in _PROMPTS if field in fields.values), "prompt")
    prompt = fields.text(prompt_field, required=True) or ""
    _refuse_unwritten(fields, prompt_field)
    files, prompt = _files(document, fields, prompt, about.roots)
    checks = list(_checks(document, fields, prompt))
    criteria = _criteria(document, fields, _repository(document.path), rubrics)
    checks += [statement(text, prompt) for text in (*criteria, *about.criteria)]
    must_load = _must_load(document, fields, about.skill_name)
    _lose_other_skills(document, fields, about.skill_name)
    if must_load is not None:
        checks.append(activation(prompt, wanted=must_load))
    titles = (fields.text(title_field) for title_field in _NAMES)
    tags = dict.fromkeys(tag for tag in (*titles, *fields.texts("tags")) if tag)
    pairwise = read_pairwise(fields, document.path.parent)
    if pairwise is not None and not checks:
        checks.append(answered(prompt))
    more = {"tags": tuple(tags), "placed": files, "limits": about.limits, "pairwise": pairwise}
    return fields, id_field, new_case(fields, name, prompt, checks, **more)


def _lose_unknown(document: ForeignDocument, fields: Fields) -> None:
    """Note each field that nothing here reads; one that says what is expected is a lost check."""
    for name, value in fields.values.items():
        if name in (*_EVAL, *_STATEMENTS):
            continue
        if value and _DECIDES.search(name):
            document.lose_check(fields, name, "what it expects is not checked; write a statement")
        else:
            document.lose(fields, name)


def _refuse_unwritten(fields: Fields, prompt_field: str) -> None:
    """Refuse what `whet init` has left to the author."""
    texts = [(prompt_field, fields.given(prompt_field))]
    texts += [entry for name in (*_WHOLE, *_STATEMENTS) for entry in _entries(fields, name)]
    for place, text in texts:
        if isinstance(text, str) and text.startswith(UNWRITTEN):
            fields.problem(place, f"is still to be written: {text.removeprefix(UNWRITTEN).strip()}")


def _must_load(document: ForeignDocument, fields: Fields, skill_name: str) -> bool | None:
    """Return whether the skill must be loaded, if the eval says so; `expected_skill` is null where none must be."""
    if fields.has("should_trigger"):
        return fields.flag("should_trigger")
    if "expected_skill" not in fields.values:
        return None
    expected_skill = fields.text("expected_skill")
    if expected_skill is None:
        return False
    if expected_skill == skill_name:
        return True
    why = f"a skill that is not {skill_name}: whether it was loaded is not checked"
    document.lose_check(fields, "expected_skill", why)
    return None


def _lose_other_skills(document: ForeignDocument, fields: Fields, skill_name: str) -> None:
    """Say which skills a run does not give the agent, and that nothing checks which script it runs."""
    skill_names = [name for _, name in texts_of(fields, "skills")]
    if len(skill_names) > 1:
        other_names = ", ".join(name for name in skill_names if name != skill_name)
        document.lose(fields, "skills", f"runs have one skill under test, and not {other_names} beside it")
    if fields.text("expected_script") is not None:
        why = "which scripts the agent runs is not checked; write a statement"
        document.lose_check(fields, "expected_script", why)


def _files(
    document: ForeignDocument, fields: Fields, prompt: str, roots: Sequence[Path]
) -> tuple[tuple[PlacedItem, ...], str]:
    """Return the files for the workspace, and the prompt, which names them if its author does not."""
    files: list[PlacedItem] = []
    new_paths: list[str] = []
    for place, item in _entries(fields, "files"):
        file = _file(document, fields, place, item, prompt, roots)
        if file is None:
            continue
        if any(earlier.path == file.path for earlier in files):
            fields.problem(place, f'would be put at "{file.path}" of the workspace, where another file is')
            continue
        files.append(file)
        if Path(file.path).name not in prompt:
            new_paths.append(file.path)
    return tuple(files), f"{prompt}\n\nInput files: {', '.join(new_paths)}" if new_paths else prompt


def _entries(fields: Fields, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list, or a text alone; an empty one says nothing."""
    value = fields.given(name)
    if not isinstance(value, str):
        yield from fields.items(name)
    elif value.strip():
        yield name, value


def _file(
    document: ForeignDocument, fields: Fields, place: str, item: Any, prompt: str, roots: Sequence[Path]
) -> PlacedItem | None:
    """Return one file for the workspace: an object has its content, and a text is a path.

    The file of a path is put where the prompt says it is: at its name alone, or at its path.
    """
    if isinstance(item, Mapping):
        file_fields = fields.object(place, item)
        document.lose_unknown(file_fields, ("path", "content"))
        at = file_fields.checked("path", file_fields.text("path", required=True), inside_problem)
        text = file_fields.text("content", required=True, empty=True)
        return None if at is None or text is None else PlacedItem(path=at, text=text)
    path_text = fields.text_at(place, item)
    if path_text is None:
        return None
    name = Path(path_text).name
    if name in ("", ".."):
        fields.problem(place, f"{shown(path_text)} does not name a file")
        return None
    inside = inside_problem(path_text) is None
    at = path_text if inside and (path_text in prompt or name not in prompt) else name
    return fixture(fields, place, path_text, at, roots)


def _checks(document: ForeignDocument, fields: Fields, prompt: str) -> Iterator[Check]:
    whole_texts = [fields.text(name, empty=True) for name in _WHOLE]
    expectation = next((text for text in whole_texts if text), None)
    checks: list[Check] = []
    for name in _STATEMENTS:
        for place, item in _entries(fields, name):
            if isinstance(item, Mapping):
                checks += _object(document, fields.object(place, item), prompt, expectation)
            elif item != "" and (text := fields.text_at(place, item)) is not None:
                words = f"The agent does not do this: {text}" if name in _DENIED else text
                checks.append(statement(words, prompt, expectation))
    if not checks and expectation is not None:
        checks.append(statement(expectation, prompt))
    yield from checks


def _object(document: ForeignDocument, fields: Fields, prompt: str, expectation: str | None) -> Iterator[Check]:
    """Yield the check of an assertion that is an object: one that needs no judge by its type, or else its words."""
    kind = fields.given("type") or fields.given("method")
    kind = kind if isinstance(kind, str) else None
    if kind is not None and kind not in _JUDGE_TYPES:
        values = [fields.values[field_name] for field_name in _VALUE if isinstance(fields.given(field_name), str)]
        file = next(
            (fields.values[field_name] for field_name in _FILE if isinstance(fields.given(field_name), str)), None
        )
        if file is None and len(values) == 1 and _plain(kind)[1] == "file_exists":
            file = values.pop()
        assertions = _in_file(kind, file, values) if file is not None else _of_answer(kind, values)
        if assertions:
            document.lose_unknown(fields, (*_BESIDE, *_VALUE, *_FILE, *_STATEMENT_FIELDS))
            label = " ".join((kind, *((file,) if file is not None else ()), *values))
            yield assertion_check(prompt, _statement_text(fields) or label, *assertions)
            return
    text = _statement_text(fields)
    if text is None:
        document.lose_check(fields, "", _why_lost(kind, fields))
        return
    document.lose_unknown(fields, (*_BESIDE, *_STATEMENT_FIELDS))
    yield statement(text, prompt, expectation)


def _why_lost(kind: str | None, fields: Fields) -> str:
    """Return why an assertion without words is no check."""
    if kind is None or kind in _JUDGE_TYPES:
        return "it says nothing that a judge could verify"
    plain_kind = _plain(kind)[1]
    if plain_kind not in _KINDS:
        near = get_close_matches(plain_kind, _KINDS, n=1)
        guess = f'; did you mean "{near[0]}"?' if near else ""
        return f'there is no check of type "{kind}" here, and it has no words for a judge{guess}'
    values = [name for name in _VALUE if isinstance(fields.given(name), str)]
    if plain_kind in _PATTERN_KINDS and len(values) == 1:
        try:
            pattern_of(fields.values[values[0]])
        except ClaimError as error:
            return f"{error.message}{f': {error.hint}' if error.hint else ''}"
    return f'"{kind}" needs one text to look for, and a path inside of the workspace if it has one'


def _statement_text(fields: Fields) -> str | None:
    name = next(
        (
            field_name
            for field_name in _STATEMENT_FIELDS
            if isinstance(fields.given(field_name), str) and fields.values[field_name].strip()
        ),
        None,
    )
    return None if name is None else fields.text(name)


def _of_answer(kind: str, values: Sequence[str]) -> tuple[Assertion, ...]:
    """Return the assertion about the answer that a type of others most likely means; none if it has no equal here."""
    negate, kind = _plain(kind)
    # With a second value, it is about something else.
    value = values[0] if len(values) == 1 else None
    match kind:
        case kind if kind in _CONTAINED_KINDS and value is not None:
            return (contains_anyhow(value, negate=negate),)
        case "equals" | "exact" if value is not None:
            return (holds("equals", value, negate=negate),)
        case kind if kind in _PATTERN_KINDS[:-1] and value is not None and _is_pattern(value):
            return (holds("regex", value, negate=negate),)
        case _:
            return ()


def _in_file(kind: str, file: str, values: Sequence[str]) -> tuple[Assertion, ...]:
    """Return the assertions about the files that fit a pattern of paths; there must be one, also for what is denied."""
    negate, kind = _plain(kind)
    if glob_problem(file) is not None or len(values) > 1:
        return ()
    existence = holds("file_exists", None, target=file, pattern=True)

    def with_existence(assertion: Assertion) -> tuple[Assertion, ...]:
        # What has to be in a file is in none that is missing; a check in two parts would be half true.
        return (existence, assertion) if negate else (assertion,)

    match kind, *values:
        case ["file_exists" | "exists"]:
            return (replace(existence, negate=negate),)
        case ["contains" | "contains_phrase" | "includes" | "file_contains", value]:
            return with_existence(holds("file_contains", value, negate=negate, target=file, pattern=True))
        case ["regex" | "matches" | "contains_pattern" | "pattern" | "file_matches", value] if _is_pattern(value):
            return with_existence(holds("file_matches", value, negate=negate, target=file, pattern=True))
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


def _criteria(document: ForeignDocument, fields: Fields, repository: Path | None, rubrics: list[Path]) -> Iterator[str]:
    """Yield the statements of shared rubrics: files that are seen from a folder around this file, in its repository.

    Rubrics that were read are added to *rubrics*.
    """
    around = document.path.parents
    roots = [folder for folder in around if folder.is_relative_to(repository)] if repository else list(around[:2])
    for place, path_text in texts_of(fields, "repo_criteria"):
        file = find_fixture(path_text, roots)
        if file is None or not file.is_file():
            document.lose_check(fields, place, f"there is no {shown(path_text)} in a folder around the file")
            continue
        try:
            texts = tuple(_texts_in(read_checked(file)))
        except SuiteError as error:
            document.lose_check(fields, place, str(error))
            continue
        if not texts:
            document.lose_check(fields, place, f"{path_text} has no statements")
        rubrics.append(file)
        yield from texts


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the statements of a rubric: texts, or objects with one, in lists that may have any names."""
    items = [value] if isinstance(value, Mapping) else value
    for item in items if isinstance(items, list) else ():
        if isinstance(item, str) and item.strip():
            yield item
        elif isinstance(item, Mapping):
            text = next((item[name] for name in _STATEMENT_FIELDS[:-1] if isinstance(item.get(name), str)), None)
            lists = [inner for inner in item.values() if isinstance(inner, list)]
            if text is not None and not (lists and item is value):
                yield text
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
        document = ForeignDocument.read(path)
        cases = [_query(document, fields, number) for fields, number in document.cases("evals")]
        around = (path.parent, path.parent.parent)
        skill = next((folder for folder in around if (folder / MANIFEST).is_file()), None)
        return document.suite(cases, name=path.stem, arms=(SKILL,), usual_skill=skill)


def _query(document: ForeignDocument, fields: Fields, number: int) -> tuple[Fields, str, Case]:
    id_field, name = case_id(fields, ("id",), number)
    name = name if fields.has("id") else f"query-{number}"
    fields.case = name
    document.lose_unknown(fields, _QUERY)
    query = fields.text("query", required=True) or ""
    fields.has("should_trigger", required=True)
    must_load = fields.flag("should_trigger")
    expectation: Expectation = "should_trigger" if must_load else "should_not_trigger"
    check = Check(
        grader="trigger", params={"case": TriggerQuery(query=query, expectation=expectation)}, label=expectation
    )
    # Without the skill there is nothing to load.
    return fields, id_field, new_case(fields, name, query, (check,), arms=(SKILL,), needs_agent=False)

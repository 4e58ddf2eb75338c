"""The six graders of `claude plugin eval`, each lowered to a check of ours that decides the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import ClaimError
from whet.model.eval_cases import (
    CREATED_FILES,
    FILE_PREFIX,
    LAST_MESSAGE,
    TRACE,
    Assertion,
    BooleanAssertion,
    CalledTool,
    JudgeHints,
    LlmRubric,
    RubricItem,
)
from whet.model.suite import Check, Pairwise
from whet.reading.fields import Fields, is_whole
from whet.reading.paths import inside_problem
from whet.reading.patterns import read_pattern
from whet.suites.other_tools.plugin_evals.documents import GraderDocument, is_inside
from whet.suites.other_tools.shared import ForeignDocument, holds
from whet.suites.references import read_reference

TYPES = ("regex", "tool_used", "tool_order", "file_exists", "llm", "baseline")
ARMS = ("with-only", "both")
TARGETS = {"last_message": LAST_MESSAGE, "trace": TRACE, "files": CREATED_FILES}
# The name under which a check keeps what its grader was in the other format.
ORIGIN = "plugin_eval"
SKILL_TOOL = "Skill"
_COMMON = ("type", "name", "weight", "arm")
_KEYS = {
    "regex": ("pattern", "flags", "match", "target"),
    "tool_used": ("tool", "input_match", "min", "max"),
    "tool_order": ("before", "after"),
    "file_exists": ("path", "exists"),
    "llm": ("criteria", "focus"),
    "baseline": ("baseline_file", "criteria"),
}
_FLAGS = frozenset("dgimsuvy")
_COUNT = re.compile(r"count:(\d{1,9})")
_MOCKS = "mock_calls"
_VOTES = 3
# From which rating on a vote is a yes.
_YES = 0.7
_NO_MOCKS = "whet has no mocks of MCP servers yet"
BASELINE = "baseline"
_ONE_QUESTION = "a case is compared with one stored answer, and another grader has it"
_NEVER = "matches nothing, so that the grader never holds"


class LoweredGrader(Struct, frozen=True):
    """A check, what its grader was, and whether it is asked of the arm with the plug-in only."""

    check: Check
    with_only: bool


class _Lost(Exception):
    """Why a grader is not carried over, and the field that says so."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


def lower_grader(document: ForeignDocument, grader: GraderDocument, prompt: str) -> LoweredGrader | None:
    """Return the check of *grader*; None if it has a problem, or is not carried over."""
    fields = grader.fields
    kind = fields.choice("type", TYPES, required=True)
    if kind is None:
        return None
    fields.refuse_unknown((*_COMMON, *_KEYS[kind]))
    weight = fields.number("weight", above=0)
    arm = fields.choice("arm", ARMS)
    try:
        case, config = _READERS[kind](grader, prompt)
    except _Lost as loss:
        document.lose_check(fields, loss.field, f"the grader {grader.name}, because {loss}")
        return None
    origin = {"type": kind, "config": config | ({} if arm is None else {"arm": arm})}
    if grader.markdown and kind == "llm":
        origin["graderMarkdown"] = grader.markdown
    params = {"case": case, ORIGIN: origin}
    if isinstance(case, LlmRubric):
        params["statement"] = case.rubric[0].description
    with_only = arm == "with-only" or (arm is None and kind == "tool_used" and config["tool"] == SKILL_TOOL)
    check = Check(
        grader="rubric" if isinstance(case, LlmRubric) else "answer",
        params=params,
        label=grader.name,
        weight=1.0 if weight is None else weight,
    )
    return LoweredGrader(check, with_only)


def is_baseline(grader: GraderDocument) -> bool:
    """Return whether a grader compares with a stored transcript, which is asked after the run and decides no trial."""
    return grader.fields.values.get("type") == BASELINE


def read_baseline(
    document: ForeignDocument, graders: Sequence[GraderDocument], folder: Path, root: Path
) -> Pairwise | None:
    """Return what the first of *graders*, which compare with a transcript, asks of a case; None if there is none.

    Transcripts are seen from the *folder* of the case, and lie in *root*.
    """
    for grader in graders[1:]:
        document.lose_check(grader.fields, "type", f"the grader {grader.name}, because {_ONE_QUESTION}")
    for grader in graders[:1]:
        fields = grader.fields
        fields.refuse_unknown((*_COMMON, *_KEYS[BASELINE]))
        fields.number("weight", above=0)
        fields.choice("arm", ARMS)
        criteria = _text_or_body(grader, "criteria")
        path = fields.checked("baseline_file", fields.text("baseline_file", required=True), inside_problem)
        if path is None:
            return None
        file = folder / path
        if file.exists() and not is_inside(file, root):
            fields.problem("baseline_file", f"leads out of {root}", "copy the transcript to its place")
            return None
        return Pairwise(
            question=f"Which answer satisfies this better?\n{criteria}",
            reference=read_reference(fields, "baseline_file", file),
            reference_file=file,
        )
    return None


def _regex(grader: GraderDocument, prompt: str) -> tuple[BooleanAssertion, dict[str, Any]]:
    fields = grader.fields
    pattern = _text_or_body(grader, "pattern")
    flags = fields.text("flags", empty=True) or ""
    match = fields.text("match") or "contains"
    target, target_config = _target(fields, "target")
    for flag in sorted(set(flags) - _FLAGS):
        fields.problem("flags", f'has "{flag}", which is not one of {"".join(sorted(_FLAGS))}')
    count = _COUNT.fullmatch(match)
    if count is None and match not in ("contains", "not_contains"):
        fields.problem("match", f"must be contains, not_contains or count:N, not {fields.shown('match', match)}")
    times = None if count is None else int(count[1])
    config = {"target": target_config, "pattern": pattern, "flags": flags, "match": match}
    place = "pattern" if fields.given("pattern") is not None else ""
    value = _pattern(fields, place, pattern, flags, counts=times is not None)
    assertion = holds(
        "regex",
        value,
        negate=match == "not_contains" and value != _IMPOSSIBLE,
        target=target,
        least=times if value != _IMPOSSIBLE else None,
        most=times,
        description=f"{match} /{pattern}/{flags} in {_shown_target(target_config)}",
    )
    return _assertion_case(prompt, assertion), config


_LEADING_FLAGS = re.compile(r"\(\?([a-z]+)\)")
# A pattern that matches no text, for one that JavaScript refuses.
_IMPOSSIBLE = r"/[^\s\S]/"


def _pattern(fields: Fields, place: str, source: str, flags: str = "", *, counts: bool = False) -> str:
    """Return the pattern as our engine takes it; warn of one that JavaScript refuses, which holds nowhere."""
    if not source:
        return _IMPOSSIBLE
    if "v" in flags or ("y" in flags and counts):
        raise _Lost("flags", "the flag v, and y with a count, are not supported")
    if "y" in flags:
        # A search begins at the start of the text, and a sticky pattern matches nowhere else.
        source = rf"(?<![\s\S])(?:{source})"
    text = f"/{source}/{''.join(flag for flag in flags if flag not in 'gdy')}"
    try:
        _, warnings = read_pattern(text)
    except ClaimError as error:
        if "is not a regular expression" not in error.message:
            raise _Lost(place or "type", error.message) from None
        fields.warn(place, f"{error.message}: it {_NEVER}", _hint_of_flags(fields, source) or error.hint)
        return _IMPOSSIBLE
    for warning in warnings:
        fields.warn(place, warning)
    return text


def _hint_of_flags(fields: Fields, source: str) -> str | None:
    """Return where flags belong that a pattern begins with; only a grader with a pattern has a field for them."""
    flags = _LEADING_FLAGS.match(source)
    if flags is None:
        return None
    if fields.text("type") != "regex":
        return "JavaScript has no flags in a pattern: write both cases, such as [Hh]ello"
    return f'write "flags: {flags[1]}" beside it, and take {flags[0]} out'


def _text_or_body(grader: GraderDocument, name: str) -> str:
    """Return the field *name*, or the body of the file, which stands for it."""
    if grader.fields.has(name) or not grader.body:
        return grader.fields.text(name, required=True) or ""
    return grader.body


def _target(fields: Fields, name: str) -> tuple[str, Any]:
    """Return the text that a grader looks at, by our name and as it is written."""
    value = fields.given(name)
    if isinstance(value, dict):
        table = fields.table(name)
        table.refuse_unknown(("source", "path"))
        table.choice("source", ("file",), required=True)
        path = table.text("path", required=True) or ""
        return f"{FILE_PREFIX}{path}", {"source": "file", "path": path}
    if value == _MOCKS:
        raise _Lost(name, _NO_MOCKS)
    target = fields.choice(name, tuple(TARGETS)) or "last_message"
    return TARGETS[target], target


def _shown_target(config: Any) -> str:
    return str(config["path"] if isinstance(config, dict) else config)


def _tool_used(grader: GraderDocument, prompt: str) -> tuple[BooleanAssertion, dict[str, Any]]:
    fields = grader.fields
    tool, pattern = fields.text("tool", required=True) or "", fields.text("input_match")
    least, most = _bound(fields, "min"), _bound(fields, "max")
    if most is not None and (1 if least is None else least) > most:
        hint = "write min: 0 too" if least is None else None
        fields.warn("max", f"is less than min, which is {1 if least is None else least}: it never holds", hint)
    assertion = holds(
        "tool_used",
        CalledTool(tool=tool, input=None if pattern is None else _pattern(fields, "input_match", pattern)),
        least=1 if least is None else least,
        most=most,
        description=f"{tool} is called {_times(least, most)}",
    )
    values = {"tool": tool, "input_match": pattern, "min": least, "max": most}
    config = {name: value for name, value in values.items() if value is not None}
    return _assertion_case(prompt, assertion), config


def _bound(fields: Fields, name: str) -> int | None:
    value = fields.given(name)
    if value is None or is_whole(value, 0):
        return value
    fields.problem(name, f"must be an integer from 0 on, not {fields.shown(name, value)}")
    return None


def _times(least: int | None, most: int | None) -> str:
    floor = 1 if least is None else least
    if most is None:
        return f"{floor} times or more"
    return f"{floor} times" if floor == most else f"{floor} to {most} times"


def _tool_order(grader: GraderDocument, prompt: str) -> tuple[BooleanAssertion, dict[str, Any]]:
    fields = grader.fields
    tools = tuple(_ordered_tool(fields, name) for name in ("before", "after"))
    config = {
        name: {"tool": tool.tool, **({} if source is None else {"input_match": source})}
        for name, (tool, source) in zip(("before", "after"), tools, strict=True)
    }
    before, after = (tool for tool, _ in tools)
    description = f"{before.tool} is called before {after.tool}"
    return _assertion_case(prompt, holds("tool_order", (before, after), description=description)), config


def _ordered_tool(fields: Fields, name: str) -> tuple[CalledTool, str | None]:
    """Return a tool of an order, and the pattern of its input as it is written."""
    if not isinstance(fields.given(name), dict):
        return CalledTool(tool=fields.text(name, required=True) or ""), None
    table = fields.table(name)
    table.refuse_unknown(("tool", "input_match"))
    tool, source = table.text("tool", required=True) or "", table.text("input_match")
    pattern = None if source is None else _pattern(table, "input_match", source)
    return CalledTool(tool=tool, input=pattern), source


def _file_exists(grader: GraderDocument, prompt: str) -> tuple[BooleanAssertion, dict[str, Any]]:
    fields = grader.fields
    path, exists = fields.text("path", required=True) or "", fields.flag("exists", default=True)
    description = f"{path} is {'created' if exists else 'not created'}"
    assertion = holds("file_created", glob_pattern(path), negate=not exists, description=description)
    return _assertion_case(prompt, assertion), {"path": path, "exists": exists}


_WILDCARDS = re.compile(r"\*\*/|\*\*|\*|\?|[\\^$.+()\[\]{}|/]")


def glob_pattern(glob: str) -> str:
    """Return the pattern of JavaScript that matches the paths of *glob*, where `?` is any character, also a slash."""
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "."}
    source = _WILDCARDS.sub(lambda match: meanings.get(match[0], rf"\{match[0]}"), glob)
    return f"/^{source}$/"


def _llm(grader: GraderDocument, prompt: str) -> tuple[LlmRubric, dict[str, Any]]:
    criteria = _text_or_body(grader, "criteria")
    focus, focus_config = _target(grader.fields, "focus")
    case = LlmRubric(
        instruction=prompt,
        rubric=(RubricItem(id="1", description=criteria),),
        pass_threshold=_YES,
        judge=JudgeHints(votes=_VOTES, majority=True),
        focus=focus,
    )
    return case, {"criteria": criteria, "focus": focus_config}


def _assertion_case(prompt: str, assertion: Assertion) -> BooleanAssertion:
    return BooleanAssertion(instruction=prompt, assertions=(assertion,))


_READERS = {
    "regex": _regex,
    "tool_used": _tool_used,
    "tool_order": _tool_order,
    "file_exists": _file_exists,
    "llm": _llm,
}


def count_checks(lowered: Sequence[LoweredGrader]) -> tuple[Check, ...]:
    """Return the checks; those for the plug-in alone are not compared, unless a case has no others."""
    if all(grader.with_only for grader in lowered):
        return tuple(grader.check for grader in lowered)
    return tuple(replace(grader.check, compared=not grader.with_only) for grader in lowered)

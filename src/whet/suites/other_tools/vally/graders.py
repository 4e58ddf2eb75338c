"""The graders of Vally, each lowered to a check of ours, and the constraints beside them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import ClaimError
from whet.model.eval_cases import (
    ANY_SKILL,
    Assertion,
    BooleanAssertion,
    JudgeHints,
    LlmRubric,
    Op,
    RubricItem,
    ToolMatch,
)
from whet.model.suite import Check, Pairwise
from whet.reading.claims.forms import Quits
from whet.reading.fields import Fields, is_whole
from whet.reading.paths import glob_problem, inside_problem
from whet.reading.patterns import flagged_pattern
from whet.suites.other_tools.shared import ForeignDocument, contains_anyhow, holds, texts_of

CONSTRAINTS = ("max_turns", "max_tokens", "expect_tools", "reject_tools", "expect_skills", "reject_skills")
_GRADER = ("type", "name", "turn", "config")
_LISTS = ("required", "disallowed", "sequence")
_MATCH = ("name", "command", "path", "args", "result", "min_count", "final", "at_step", "before_step")
_USUAL_THRESHOLD = 0.5
_SCALES = ("scale_1_5", "scale_1_10", "binary")
_USUAL_CRITERIA = (
    "The agent did what the prompt asks for: completely, correctly, and without anything that was not asked."
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NO_FALL = "over the limit the grader has failed, and its score does not fall little by little"
_LOST = {
    "program": "whet does not ask programs for a score",
    "error-count": "whet does not count errors of tools",
    "diff-empty": "whet has no check of the whole diff",
    "diff-contains": "whet has no check of the whole diff",
    "diff-not-contains": "whet has no check of the whole diff",
}
PAIRWISE = "pairwise"
_ONE_QUESTION = "a case has one question about pairs, and another grader of the type pairwise has it"
_DIRECTION = "only who is better counts, and not by how much"
_ONE_JUDGE = "the judge of the settings compares pairs"
_NOT = {True: "not ", False: ""}
_OUTPUT_CONDITIONS = ("stdout_matches", "stdout_not_matches", "stderr_matches", "stderr_not_matches")


class GraderLost(Exception):
    """Why a grader is not carried over, and the field that says so."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


class GraderContext(Struct, frozen=True, kw_only=True):
    """What graders share: the document, the prompt and the rubric of their stimulus, its turns, and the usual judge."""

    document: ForeignDocument
    prompt: str
    rubric: tuple[str, ...] = ()
    turn_count: int = 1
    judge_model: str | None = None


class WeighableCheck(Struct, frozen=True):
    """A check, and the type and the name of its grader, one of which its weight goes by."""

    check: Check
    type: str
    name: str | None

    def weight_key(self, weights: Mapping[str, float]) -> str:
        """Return the word under which *weights* have its weight, if they do."""
        return self.name if self.name is not None and self.name in weights else self.type


def duration(fields: Fields, name: str) -> float | None:
    """Read a time with its unit, in seconds."""
    value = fields.given(name)
    if value is None:
        return None
    match = _DURATION.fullmatch(str(value).strip())
    if match is None or float(match[1]) == 0:
        fields.problem(name, f"must be a time with its unit, not {fields.shown(name, value)}", 'such as "90s" or "2m"')
        return None
    return float(match[1]) * _SECONDS[match[2]]


def lower_grader(context: GraderContext, fields: Fields) -> WeighableCheck | None:
    """Return the check of a grader; None if it has a problem, or is not carried over."""
    document = context.document
    document.lose_unknown(fields, _GRADER)
    kind, name = fields.text("type", required=True), fields.text("name")
    if kind is None:
        return None
    reader = _READERS.get(kind)
    if reader is None:
        document.lose_check(fields, "type", f"the grader {kind}, because {_LOST.get(kind, 'whet does not know it')}")
        return None
    turn = _turn(context, fields)
    try:
        check = reader(context, fields.table("config"), kind)
    except GraderLost as loss:
        name = f"config.{loss.field}" if loss.field else "type"
        document.lose_check(fields, name, f"the grader {kind}, because {loss}")
        return None
    check = _in_turn(check, turn)
    return WeighableCheck(replace(check, label=name or check.label), kind, name)


def is_pairwise(fields: Fields) -> bool:
    """Return whether a grader compares the answers of two arms, which is asked after the run and decides no trial."""
    return fields.values.get("type") == PAIRWISE


def read_pairs_question(context: GraderContext, graders: Sequence[Fields]) -> Pairwise | None:
    """Return what the first of *graders*, which compare answers, asks of a stimulus; None if there is none."""
    document = context.document
    for fields in graders[1:]:
        document.lose_check(fields, "type", f"the grader {PAIRWISE}, because {_ONE_QUESTION}")
    for fields in graders[:1]:
        document.lose_unknown(fields, ("type", "name", "config"))
        config = fields.table("config")
        document.lose_unknown(config, ("prompt", "model", "threshold"))
        config.number("threshold", least=0, most=1)
        for name, why in (("threshold", _DIRECTION), ("model", _ONE_JUDGE)):
            if config.text(name) if name == "model" else config.given(name) is not None:
                document.lose(config, name, why)
        return Pairwise(question=config.text("prompt") or _question_of(context.rubric))
    return None


def _question_of(rubric: Sequence[str]) -> str | None:
    if not rubric:
        return None
    return "\n".join(("Which answer does this better?", *(f"- {text}" for text in rubric)))


def _turn(context: GraderContext, fields: Fields) -> int | None:
    """Return the number of the turn that a grader is about, from 1; None if it is about all."""
    value = fields.given("turn")
    if value is None:
        return None
    if not is_whole(value, 0, context.turn_count - 1):
        last = f"from 0 to {context.turn_count - 1}, the turns of its stimulus"
        fields.problem("turn", f"must be {last}, not {fields.shown('turn', value)}")
        return None
    return int(value) + 1


def _in_turn(check: Check, turn: int | None) -> Check:
    """Return *check* as one of a turn, after which the conversation goes on in any case."""
    if turn is None:
        return check
    case = check.params.get("case")
    params = check.params
    if isinstance(case, BooleanAssertion):
        assertions = tuple(replace(assertion, turn=turn) for assertion in case.assertions)
        params = {**params, "case": replace(case, assertions=assertions)}
    return replace(check, params=params, turn=turn, soft=True)


def constraint_checks(context: GraderContext, fields: Fields) -> Iterator[Check]:
    """Yield a check for each constraint; they have no part in a score."""
    context.document.lose_unknown(fields, CONSTRAINTS)
    for name, figure in (("max_turns", "steps"), ("max_tokens", "tokens")):
        if (most := fields.whole(name)) is not None:
            yield _required(context, f"{name} {most}", holds("at_most", most, target=figure))
    for name, negate in (("expect_tools", False), ("reject_tools", True)):
        for _, tool in texts_of(fields, name):
            pattern = None if tool == ANY_SKILL else f"/^{_literal(tool)}$/"
            match = holds("tool_matched", ToolMatch(name=pattern), negate=negate, description=f"{name} {tool}")
            yield _required(context, f"{name} {tool}", match)
    for name, wanted in (("expect_skills", True), ("reject_skills", False)):
        for _, skill in texts_of(fields, name):
            loading = holds("skill_triggered", skill, negate=not wanted)
            yield replace(_required(context, f"{name} {skill}", loading), compared=False)


def _literal(text: str) -> str:
    return re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", text)


def _required(context: GraderContext, label: str, assertion: Assertion) -> Check:
    return replace(_check(context, label, assertion), weight=0.0)


def _check(context: GraderContext, label: str, *assertions: Assertion) -> Check:
    case = BooleanAssertion(instruction=context.prompt, assertions=assertions)
    return Check(grader="answer", params={"case": case}, label=label)


def _pattern(fields: Fields, name: str, text: str) -> str:
    try:
        return str(flagged_pattern(text))
    except ClaimError as error:
        fields.problem(name, error.message, error.hint)
        return r"/[^\s\S]/"


def _output_matches(context: GraderContext, fields: Fields, kind: str) -> Check:
    context.document.lose_unknown(fields, ("pattern", "negate"))
    text = fields.text("pattern", required=True) or "x"
    negate = fields.flag("negate") or kind == "output-not-matches"
    label = f"{_NOT[negate]}matches {text}"
    return _check(context, label, holds("regex", _pattern(fields, "pattern", text), negate=negate, description=label))


def _output_contains(context: GraderContext, fields: Fields, kind: str) -> Check:
    context.document.lose_unknown(fields, ("substring", "value", "case_sensitive", "negate"))
    name = "value" if fields.given("value") is not None else "substring"
    text = fields.text(name, required=True) or ""
    negate = fields.flag("negate") or kind == "output-not-contains"
    label = f"{_NOT[negate]}contains {text!r}"
    if fields.flag("case_sensitive"):
        return _check(context, label, holds("contains", text, negate=negate, description=label))
    return _check(context, label, contains_anyhow(text, negate=negate))


# The assertions about files, and the field that each compares with.
_FILE_OPS: dict[str, tuple[Op, str | None]] = {
    "file-exists": ("file_exists", None),
    "file-contains": ("file_contains", "value"),
    "file-matches": ("file_matches", "pattern"),
}


def _file(context: GraderContext, fields: Fields, kind: str) -> Check:
    negate = "-not-" in kind
    op, name = _FILE_OPS[kind.replace("-not-", "-")]
    context.document.lose_unknown(fields, ("path", name or "path"))
    path = fields.checked("path", fields.text("path", required=True), glob_problem)
    text, value = "", None
    if name is not None:
        text = value = fields.text(name, required=True) or "x"
    if name == "pattern":
        value = _pattern(fields, name, text)
    label = f"{_NOT[negate]}{op.replace('_', ' ')} {path} {text}".rstrip()
    return _check(context, label, holds(op, value, negate=negate, target=path, pattern=True, description=label))


def _tool_calls(context: GraderContext, fields: Fields, _kind: str) -> Check:
    context.document.lose_unknown(fields, _LISTS)
    assertions: list[Assertion] = []
    for name in ("required", "disallowed"):
        for match, least, label in _matches(context, fields, name):
            title, negate = f"{name} {label}", name == "disallowed"
            assertions.append(holds("tool_matched", match, negate=negate, least=least, description=title))
    sequence = list(_matches(context, fields, "sequence"))
    if sequence:
        title = " before ".join(label for _, _, label in sequence)
        matches = tuple(match for match, _, _ in sequence)
        assertions.append(holds("tools_in_order", matches, description=f"calls in order: {title}"))
    _refuse_nothing(fields, _LISTS, bool(assertions))
    return _check(context, "tool calls", *assertions)


def _refuse_nothing(fields: Fields, names: Sequence[str], says_something: bool) -> None:
    if not says_something and not any(fields.given(name) for name in names):
        fields.problem("", f"asks for nothing: it has none of {', '.join(names)}", "write at least one of these lists")


def _matches(context: GraderContext, fields: Fields, name: str) -> Iterator[tuple[ToolMatch, int, str]]:
    """Yield what calls in a list look like, how many there are at least, and what to call them."""
    for place, item in fields.items(name):
        if isinstance(item, str):
            text = fields.text_at(place, item) or "x"
            yield ToolMatch(name=_pattern(fields, place, text)), 1, text
            continue
        match = fields.object(place, item)
        context.document.lose_unknown(match, _MATCH)
        if not match.values:
            match.problem("", "fits every call", f"write the name of a tool, or another of {', '.join(_MATCH)}")
        arguments = match.table("args")
        patterns = [(key, match, key) for key in ("command", "path")] + [
            (key, arguments, key) for key in arguments.values
        ]
        texts = [(key, owner, owner.text(field)) for key, owner, field in patterns]
        yield (
            ToolMatch(
                name=_pattern_in(match, "name"),
                args=tuple((key, _pattern(owner, key, text)) for key, owner, text in texts if text is not None),
                result=_pattern_in(match, "result"),
                final=match.flag("final"),
                at_step=match.whole("at_step", least=0),
                before_step=match.whole("before_step", least=0),
            ),
            match.whole("min_count") or 1,
            ", ".join(f"{key} {value}" for key, value in match.values.items()),
        )


def _pattern_in(fields: Fields, name: str) -> str | None:
    text = fields.text(name)
    return None if text is None else _pattern(fields, name, text)


def _skill_invocation(context: GraderContext, fields: Fields, _kind: str) -> Check:
    names = ("required", "disallowed")
    context.document.lose_unknown(fields, names)
    required, disallowed = (fields.texts(name) for name in names)
    for skill in dict.fromkeys(required):
        if skill in disallowed:
            fields.problem("disallowed", f'"{skill}" is required too')
    _refuse_nothing(fields, names, bool(required or disallowed))
    labels: list[str] = []
    assertions: list[Assertion] = []
    for negate, skills in ((False, required), (True, disallowed)):
        for skill in skills:
            labels.append(f"{'does not load' if negate else 'loads'} {skill}")
            assertions.append(holds("skill_triggered", skill, negate=negate))
    return replace(_check(context, " and ".join(labels) or "loads", *assertions), compared=False)


def _prompt(context: GraderContext, fields: Fields, _kind: str) -> Check:
    context.document.lose_unknown(fields, ("prompt", "model", "scoring", "threshold"))
    fields.choice("scoring", _SCALES)
    threshold = fields.number("threshold", least=0, most=1)
    prompt = fields.text("prompt")
    statements = (prompt,) if prompt is not None else context.rubric or (_USUAL_CRITERIA,)
    items = tuple(RubricItem(id=str(number), description=text) for number, text in enumerate(statements, 1))
    case = LlmRubric(
        instruction=context.prompt,
        rubric=items,
        pass_threshold=_USUAL_THRESHOLD if threshold is None else float(threshold),
        judge=JudgeHints(model=fields.text("model") or context.judge_model),
    )
    params: dict[str, Any] = {"case": case}
    if len(items) == 1:
        params["statement"] = items[0].description
    label = "rubric" if len(items) > 1 else " ".join(items[0].description.split())[:100]
    return Check(grader="rubric", params=params, label=label)


def _run_command(context: GraderContext, fields: Fields, _kind: str) -> Check:
    known = (
        "command",
        "args",
        "expected_exit_code",
        "stdout_contains",
        "stderr_contains",
        "sub_path",
        "timeout",
        "env",
    )
    context.document.lose_unknown(fields, (*known, *_OUTPUT_CONDITIONS))
    for name in _OUTPUT_CONDITIONS:
        if fields.given(name) is not None:
            raise GraderLost(name, "whet does not search what a command prints by a pattern")
    command = fields.text("command", required=True) or "true"
    args = fields.texts("args")
    line = shlex.join((command, *args)) if args else command
    code = fields.whole("expected_exit_code", least=0, most=255)
    if duration(fields, "timeout") is not None:
        context.document.lose(fields, "timeout", "the settings say how long a command may take")
    folder = fields.checked("sub_path", fields.text("sub_path"), inside_problem)
    script = ""
    for name, value in fields.variables("env").items():
        script += f"export {name}={shlex.quote(value)}\n"
    texts: dict[str, list[str]] = {}
    for name in ("stdout_contains", "stderr_contains"):
        texts[name] = [text for _, text in texts_of(fields, name)]
    if folder:
        script += f"cd {shlex.quote(folder)} || exit 125\n"
    expected_code = 0 if code is None else code
    if any(texts.values()):
        script, expected_code = script + _script_with_texts(line, expected_code, texts), 0
    else:
        script += line
    return Check(
        grader="claim",
        params={"claim": Quits(script, expected_code), "line": fields.findings.line(fields.path)},
        label=line,
    )


# The streams go to files outside of the workspace, which later checks look at.
_SCRIPT = """\
place=$(mktemp -d) || exit 125
( {command}
) >"$place/stdout" 2>"$place/stderr"
code=$?
cat "$place/stdout"; cat "$place/stderr" >&2
[ "$code" -eq {code} ] || {{ echo "it ended with exit code $code, not {code}" >&2; exit 1; }}
"""
_CONDITION = """\
case "$(cat "$place/{stream}")" in *{text}*) ;; *) echo "its {stream} does not contain "{text} >&2; exit 1;; esac
"""


def _script_with_texts(line: str, code: int, texts: dict[str, list[str]]) -> str:
    script = _SCRIPT.format(command=line, code=code)
    for name, stream_texts in texts.items():
        for text in stream_texts:
            script += _CONDITION.format(stream=name.partition("_")[0], text=shlex.quote(text))
    return script


def _wall_time(context: GraderContext, fields: Fields, kind: str) -> Check:
    context.document.lose_unknown(fields, ("max",))
    fields.has("max", required=True)
    most = duration(fields, "max") or 0.0
    context.document.lose(fields, "max", _NO_FALL)
    return _check(context, f"{kind} {most:g} s", holds("at_most", most, target="seconds"))


def _budget(context: GraderContext, fields: Fields, kind: str) -> Check:
    context.document.lose_unknown(fields, ("max",))
    fields.has("max", required=True)
    most = fields.whole("max", least=0) or 0
    context.document.lose(fields, "max", _NO_FALL)
    if kind == "tool-call-count":
        count = holds("tool_matched", ToolMatch(), least=0, most=most, description=f"at most {most} calls of tools")
        return _check(context, f"{kind} {most}", count)
    figure = "tokens" if kind == "token-budget" else "steps"
    return _check(context, f"{kind} {most}", holds("at_most", most, target=figure))


def _completed(context: GraderContext, fields: Fields, kind: str) -> Check:
    context.document.lose_unknown(fields, ())
    return _check(context, kind, holds("regex", r"/\S/", description="the answer is not empty"))


_READERS: dict[str, Callable[[GraderContext, Fields, str], Check]] = {
    "output-matches": _output_matches,
    "output-not-matches": _output_matches,
    "output-contains": _output_contains,
    "output-not-contains": _output_contains,
    "tool-calls": _tool_calls,
    "skill-invocation": _skill_invocation,
    "prompt": _prompt,
    "file-matches": _file,
    "file-not-matches": _file,
    "file-contains": _file,
    "file-not-contains": _file,
    "file-exists": _file,
    "file-not-exists": _file,
    "run-command": _run_command,
    "wall-time": _wall_time,
    "token-budget": _budget,
    "turn-count": _budget,
    "tool-call-count": _budget,
    "completed": _completed,
    "exit-success": _completed,
}

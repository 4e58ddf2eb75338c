"""Evaluators that need nothing but the answer: pure functions from an output to a grade."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

from whet.errors import CheckerDied, CheckTimedOut, GraderError
from whet.grade.custom import CustomGrader, find_grader, run_grader
from whet.grade.judge_questions import Question
from whet.ground.sandbox import Sandbox
from whet.ground.workers import Printed, WorkerDied, WorkerHung, Workers
from whet.model import wire
from whet.model.benchmark import MISSING, BenchmarkTask, Evaluator, EvaluatorKind, Expected
from whet.model.grade import Grade
from whet.reading.fields import is_number
from whet.reading.schemas import SchemaTrouble, schema_problems
from whet.reading.text import shown

# Many skills wrap what they have to say; the first of these is meant.
WRAPPERS = ("result", "output", "answer")


def unwrapped(output: Any) -> Any:
    """What stands under `result`, `output` or `answer`, one level deep; anything else as it is."""
    if isinstance(output, dict):
        for name in WRAPPERS:
            if name in output:
                return output[name]
    return output


def as_text(value: Any) -> str:
    """A string as it is, anything else as JSON; 25.0 is written 25, as most languages do."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def searchable(output: Any) -> str:
    """The text in which words are looked for; the names of a wrapped answer's fields are no part of it.

    A skill that answers `{"result": ""}` has not said the word "result".
    """
    if isinstance(output, dict) and any(name in output for name in WRAPPERS):
        return "\n".join(as_text(value) for value in output.values())
    return as_text(output)


_NUMBER = re.compile(r"[-+]?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
Plain = Callable[[Any, Expected, Evaluator], Grade]


def exact(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """The same JSON value, as a whole or unwrapped; with `compare` "text", the same text."""
    wanted, given = expected.value, unwrapped(output)
    if evaluator.compare == "text":
        texts = as_text(given).strip(), as_text(wanted).strip()
        held = _folded(texts[0], evaluator) == _folded(texts[1], evaluator) or _same_number(texts[0], wanted)
    else:
        held = same(wanted, output, evaluator) or same(wanted, given, evaluator)
    if held:
        return _grade("exact", 1.0, "as expected")
    reason = f"expected {shown(wanted, 200)} ({_type(wanted)}), got {shown(given, 200)} ({_type(given)})"
    if evaluator.compare == "json" and as_text(given).strip() == as_text(wanted).strip():
        reason += '; their texts are the same, which "compare": "text" would accept'
    return _grade("exact", 0.0, reason)


def _same_number(text: str, wanted: Any) -> bool:
    """Whether a text is the number that is wanted: 25 and "25.0" are one."""
    return is_number(wanted) and bool(_NUMBER.fullmatch(text)) and Decimal(text) == Decimal(repr(wanted))


def contains(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """The share of keywords that are in the answer."""
    text = _folded(searchable(output), evaluator)
    return _share("contains", expected.keywords, [_folded(word, evaluator) in text for word in expected.keywords])


def regex(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """The share of patterns that match somewhere in the answer; to be called where it may be ended from outside."""
    text, flags = searchable(output), re.NOFLAG if evaluator.case_sensitive else re.IGNORECASE
    found = [re.search(pattern, text, flags) is not None for pattern in expected.patterns]
    return _share("regex", expected.patterns, found)


def json_schema(output: Any, expected: Expected, evaluator: Evaluator) -> Grade:
    """Whether the schema allows the answer, as a whole; a string is read as JSON where the schema wants none."""
    del evaluator
    try:
        problems = schema_problems(expected.schema, output)
        if problems and isinstance(output, str):
            problems = schema_problems(expected.schema, json.loads(output))
    except SchemaTrouble as error:
        raise GraderError(f"the schema of this task cannot be used: {error}") from error
    except (ValueError, RecursionError):
        # A plain string that is no JSON: the problems with the string itself stand.
        pass
    return _grade("json_schema", 0.0 if problems else 1.0, "; ".join(problems) or "as the schema says")


PLAIN: Mapping[EvaluatorKind, Plain] = {
    "exact": exact,
    "contains": contains,
    "regex": regex,
    "json_schema": json_schema,
}


def same(wanted: Any, given: Any, evaluator: Evaluator) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not, nor is 1 and "1"."""
    if _type(wanted) != _type(given):
        return False
    match wanted:
        case bool() | None:
            equal = wanted is given
        case int() | float():
            equal = wanted == given or abs(wanted - given) <= evaluator.tolerance
        case str():
            equal = _folded(wanted, evaluator) == _folded(given, evaluator)
        case dict():
            equal = wanted.keys() == given.keys() and all(same(wanted[key], given[key], evaluator) for key in wanted)
        case _:
            pairs = zip(wanted, given, strict=False)
            equal = len(wanted) == len(given) and all(same(one, other, evaluator) for one, other in pairs)
    return equal


def _share(kind: EvaluatorKind, wanted: tuple[str, ...], found: list[bool]) -> Grade:
    missing = [word for word, there in zip(wanted, found, strict=True) if not there]
    reason = f"{sum(found)} of {len(found)}"
    if missing:
        reason += f"; missing: {', '.join(shown(word, 200) for word in missing)}"
    return Grade(check=kind, value=sum(found) / len(found), passed=not missing, reason=reason)


def _grade(kind: EvaluatorKind, value: float, reason: str) -> Grade:
    return Grade(check=kind, value=value, passed=value == 1.0, reason=reason)


def _folded(text: str, evaluator: Evaluator) -> str:
    return text if evaluator.case_sensitive else text.casefold()


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
        case _:
            return "object"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    output: Any
    patterns: tuple[str, ...]
    evaluator: Evaluator


class LimitedRegex:
    """Searches in worker processes that are killed when time is up; to be made before the event loop starts."""

    def __init__(self) -> None:
        self._workers = Workers.fork(_serve)

    async def evaluate(self, output: Any, expected: Expected, evaluator: Evaluator, *, timeout_s: float) -> Grade:
        """The grade; a `GraderError` where there is none in time."""
        request = wire.encode(_Request(output=output, patterns=expected.patterns, evaluator=evaluator))
        try:
            answer = await self._workers.call(request, timeout_s=timeout_s)
        except WorkerHung:
            raise CheckTimedOut(
                f"no pattern was found or ruled out within {timeout_s:g} s",
                hint="nested repetitions such as (a+)+ take for ever; write the pattern without them",
            ) from None
        except WorkerDied:
            raise CheckerDied("the process that searched for patterns ended") from None
        try:
            return wire.decode(answer, Grade)
        except wire.WireError as error:
            raise GraderError(f"the search for patterns failed: {answer.decode(errors='replace')}") from error

    def close(self) -> None:
        """End the workers."""
        self._workers.close()


def _serve(request: bytes, printed: Printed) -> bytes:
    del printed
    asked = wire.decode(request, _Request)
    try:
        return wire.encode(PLAIN["regex"](asked.output, Expected(patterns=asked.patterns), asked.evaluator))
    except Exception as error:  # noqa: BLE001 - told to whoever asked
        return wire.encode(f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a skill answered, and who it is; `skill_dir` is where its files lie, if it has any."""

    output: Any
    skill: str
    skill_version: str = ""
    skill_dir: Path | None = None
    latency_ms: float | None = None


class Judge(Protocol):
    """Whoever grades by asking a language model."""

    async def grade(self, question: Question, *, threshold: float = 0.5) -> Grade:
        """Return the grade; raises `JudgeFailed`."""


class Evaluators:
    """To be made before the event loop starts, because it may fork; what can be wrong is found then."""

    def __init__(self, tasks: Iterable[BenchmarkTask], folder: Path, judge: Judge | None = None) -> None:
        known = list(tasks)
        self._graders: dict[str, CustomGrader] = {
            task.id: find_grader(task.expected.custom_scorer or "", folder)
            for task in known
            if task.evaluator.kind == "custom"
        }
        self._judge = judge
        searches = any(task.evaluator.kind == "regex" for task in known)
        self._regex = LimitedRegex() if searches else None

    async def evaluate(self, task: BenchmarkTask, answered: Answered, sandbox: Sandbox, *, timeout_s: float) -> Grade:
        """The grade of an answer; a `GraderError` where the evaluator broke, which says nothing about the skill."""
        began = time.monotonic()
        own = task.evaluator.timeout_ms
        grade = await self._evaluate(task, answered, sandbox, timeout_s if own is None else own / 1000)
        return replace(grade, duration_s=round(time.monotonic() - began, 6), weight=task.weight)

    async def _evaluate(self, task: BenchmarkTask, answered: Answered, sandbox: Sandbox, timeout_s: float) -> Grade:
        match task.evaluator.kind:
            case "regex":
                assert self._regex is not None
                return await self._regex.evaluate(answered.output, task.expected, task.evaluator, timeout_s=timeout_s)
            case "llm_judge":
                if self._judge is None:
                    raise GraderError("this task is graded by a language model, and none is set up")
                question = _question(task, answered.output)
                return await self._judge.grade(question, threshold=task.evaluator.threshold)
            case "custom":
                readable = (answered.skill_dir,) if answered.skill_dir else ()
                return await run_grader(
                    self._graders[task.id],
                    _context(task, answered),
                    sandbox,
                    timeout_s=timeout_s,
                    readable=readable,
                )
            case kind:
                return PLAIN[kind](answered.output, task.expected, task.evaluator)

    def close(self) -> None:
        """Let go of what it holds."""
        if self._regex is not None:
            self._regex.close()


def _question(task: BenchmarkTask, output: Any) -> Question:
    expected = task.expected
    return Question(
        name=task.id,
        criteria=expected.judge_prompt or "",
        answer=as_text(output),
        given=task.input,
        reference=None if expected.value is MISSING else as_text(expected.value),
    )


def _context(task: BenchmarkTask, answered: Answered) -> dict[str, Any]:
    """What a grader of the author's is told."""
    return {
        "output": answered.output,
        "expected": _expectation(task.expected),
        "input": dict(task.input),
        "task": task.id,
        "latencyMs": answered.latency_ms,
        "skill": {
            "id": answered.skill,
            "version": answered.skill_version,
            "path": str(answered.skill_dir) if answered.skill_dir else None,
        },
    }


def _expectation(expected: Expected) -> dict[str, Any]:
    """As it was written, without what was not."""
    written = {
        "value": expected.value,
        "keywords": list(expected.keywords) or MISSING,
        "patterns": list(expected.patterns) or MISSING,
        "schema": MISSING if expected.schema is None else expected.schema,
    }
    return {name: value for name, value in written.items() if value is not MISSING}

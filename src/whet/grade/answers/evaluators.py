"""Grade the tasks of benchmarks, with one grader for each kind of evaluator; that of a judge is in `rubrics`."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import AgentError, CheckTimedOut, GraderError, SandboxError, UsageError
from whet.grade.answers.compare import PLAIN, regex
from whet.grade.contract import Grader, WorkerGrader
from whet.grade.evidence import Evidence, GradedAnswer
from whet.model import codec
from whet.model.callable import MISSING, BenchmarkTask, Evaluator, Expected
from whet.model.grade import Grade
from whet.model.suite import Check, Suite
from whet.reading.fields import is_number
from whet.reading.text import shorten
from whet.sandbox.contract import Boundary, Command, Sandbox
from whet.sandbox.process.output import BoundedOutput, OutputTail, how_it_ended
from whet.sandbox.process.workers import PrintedOutput

_SLOW_PATTERN = "nested repetitions such as (a+)+ take for ever; write the pattern without them"


class EvaluatorGrader(Grader):
    """Decides a task of a benchmark by its evaluator; there is one grader for each kind of evaluator."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Grade an answer; raises `GraderError` if the evaluator breaks, which says nothing about the skill."""
        task: BenchmarkTask = check.params["task"]
        task_limit_ms = task.evaluator.timeout_ms
        started_at = time.monotonic()
        limit_s = evidence.timeout_s if task_limit_ms is None else task_limit_ms / 1000
        grade = await self.evaluate(task, evidence.answer_or_text(), limit_s)
        duration_s = round(time.monotonic() - started_at, 6)
        return replace(grade, check=check.label, duration_s=duration_s, weight=check.weight)

    @abstractmethod
    async def evaluate(self, task: BenchmarkTask, answer: GradedAnswer, timeout_s: float) -> Grade:
        """Grade an answer by the evaluator of *task*."""


class PlainEvaluator(EvaluatorGrader):
    """Compares the answer at once."""

    async def evaluate(self, task: BenchmarkTask, answer: GradedAnswer, timeout_s: float) -> Grade:
        """Compare the answer with what is expected."""
        del timeout_s
        return PLAIN[task.evaluator.kind](answer.output, task.expected, task.evaluator)


class _Decision(Struct, frozen=True, kw_only=True):
    grade: Grade | None = None
    trouble: str = ""


class DecidingGrader(WorkerGrader):
    """Decides in a worker, by a function from a request to a grade: a pattern may search for ever."""

    def __init__(self, suite: Suite, decide: Callable[[bytes], Grade]) -> None:
        super().__init__(suite, partial(_serve, decide))

    async def decide_in_worker(self, request: Any, *, timeout_s: float, what: str) -> Grade:
        """Return the grade for *request*; raises `GraderError` with *what* as the subject."""
        answer = await self.ask(request, _Decision, timeout_s=timeout_s, what=what, hint=_SLOW_PATTERN)
        if answer.grade is None:
            raise GraderError(f"{what} failed: {answer.trouble}")
        return answer.grade


def _serve(decide: Callable[[bytes], Grade], request: bytes, output: PrintedOutput) -> bytes:
    del output
    try:
        decision = _Decision(grade=decide(request))
    except Exception as error:  # noqa: BLE001 - the grader reports it
        decision = _Decision(trouble=f"{type(error).__name__}: {error}")
    return codec.encode_exact(decision)


class _PatternSearch(Struct, frozen=True, kw_only=True):
    output: Any
    patterns: tuple[str, ...]
    evaluator: Evaluator


class RegexEvaluator(EvaluatorGrader, DecidingGrader):
    """Searches the answer for patterns."""

    def __init__(self, suite: Suite) -> None:
        DecidingGrader.__init__(self, suite, _search)

    async def evaluate(self, task: BenchmarkTask, answer: GradedAnswer, timeout_s: float) -> Grade:
        """Search for the patterns of *task*."""
        request = _PatternSearch(output=answer.output, patterns=task.expected.patterns, evaluator=task.evaluator)
        return await self.decide_in_worker(request, timeout_s=timeout_s, what="the search for patterns")


def _search(request: bytes) -> Grade:
    search = codec.decode_exact(request, _PatternSearch)
    return regex(search.output, Expected(patterns=search.patterns), search.evaluator)


class CustomEvaluator(EvaluatorGrader):
    """Runs a scorer of the benchmark's author inside the sandbox."""

    async def evaluate(self, task: BenchmarkTask, answer: GradedAnswer, timeout_s: float) -> Grade:
        """Ask the scorer; it has no network and sees its own folder and the skill."""
        scorer = find_scorer(task.expected.custom_scorer or "", self.suite.source.parent)
        skill = (answer.skill,) if answer.skill else ()
        with tempfile.TemporaryDirectory(prefix="whet-grader-") as home:
            command = scorer.command(_context(task, answer), home)
            boundary = Boundary(writable=(Path(home),), readable=(scorer.folder, _PLAYER.parent, *skill), network=False)
            data = await run_program(scorer.name, answer.sandbox, command, boundary, timeout_s)
        return _read(scorer.name, data)


async def run_program(name: str, sandbox: Sandbox, command: Command, boundary: Boundary, timeout_s: float) -> bytes:
    """Return what a grader that is a program of its own prints; raises `GraderError` if it does not end well."""
    too_much = GraderError(f"the grader {name} printed more than {_MOST_BYTES} bytes")
    out, err = BoundedOutput(_MOST_BYTES, too_much), OutputTail()
    try:
        exit_status = await sandbox.run(command, boundary, timeout_s=timeout_s, stdout=out, stderr=err)
    except (AgentError, SandboxError) as error:
        raise GraderError(f"the grader {name} could not be started: {error.message}") from error
    if exit_status.timed_out:
        raise CheckTimedOut(f"the grader {name} did not end within {timeout_s:g} s")
    if exit_status.exit_code != 0:
        raise GraderError(f"the grader {name} ended with {how_it_ended(exit_status)}: {err.text}")
    return bytes(out.data)


def program_environment(home: str) -> dict[str, str]:
    """Return the variables of such a program: no secrets of this machine are among them."""
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**env, "HOME": home, "TMPDIR": home}


def _context(task: BenchmarkTask, answer: GradedAnswer) -> dict[str, Any]:
    """Return what a scorer of the author gets; what the task does not expect is left out."""
    expectation = task.expected
    fields = {
        "value": expectation.value,
        "keywords": list(expectation.keywords) or MISSING,
        "patterns": list(expectation.patterns) or MISSING,
        "schema": MISSING if expectation.schema is None else expectation.schema,
    }
    return {
        "output": answer.output,
        "expected": {name: value for name, value in fields.items() if value is not MISSING},
        "input": dict(task.input),
        "task": task.id,
        "latencyMs": answer.latency_ms,
        "skill": {
            "id": answer.skill_id,
            "version": answer.skill_version,
            "path": str(answer.skill) if answer.skill else None,
        },
    }


_PLAYER = Path(__file__).with_name("scorer_program.py")
_MODULE = re.compile(r"[A-Za-z_][\w.]*")
_USUAL_FUNCTION = "score"
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ")
_MOST_BYTES = 4 * 1024 * 1024
_SHOWN = 2000


class CustomScorer(Struct, frozen=True, kw_only=True):
    """What `customScorerPath` names: a program, or the `function` of a `module` or a `file`, which the player calls."""

    name: str
    folder: Path
    program: Path | None = None
    call: Mapping[str, str] = field(default_factory=dict)

    def command(self, context: Mapping[str, Any], home: str) -> Command:
        """Return the command that scores the answer in *context*."""
        return Command(
            argv=(str(self.program),) if self.program else (sys.executable, str(_PLAYER)),
            env={**program_environment(home), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=self.folder,
            stdin=json.dumps({**self.call, "context": context} if self.call else context).encode() + b"\n",
        )


def find_scorer(name: str, folder: Path) -> CustomScorer:
    """Find the scorer called *name*, relative to the *folder* of the benchmark; raises `UsageError`."""
    place, _, function = name.rpartition(":") if ":" in name else (name, "", "")
    path = (folder / place).resolve()
    in_file = place.endswith(".py")
    call = {"folder": str(folder), "function": function or _USUAL_FUNCTION}
    if function and not in_file:
        if not _MODULE.fullmatch(place):
            raise UsageError(f"customScorerPath {name}: must be module:function, file.py:function or a program")
        return CustomScorer(name=name, folder=folder, call={**call, "module": place})
    if not path.is_file():
        raise UsageError(f"customScorerPath {name}: there is no file {path}")
    if in_file:
        return CustomScorer(name=f"{path}:{call['function']}", folder=folder, call={**call, "file": str(path)})
    if not os.access(path, os.X_OK):
        raise UsageError(f"customScorerPath {name}: {path} may not be executed", hint=f"chmod +x {path}")
    return CustomScorer(name=str(path), folder=folder, program=path)


def _read(name: str, data: bytes) -> Grade:
    try:
        result = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise GraderError(f"the grader {name} printed no JSON: {_short(data)}") from error
    grade = _grade_of_result(result)
    if grade is None:
        raise GraderError(
            f"the grader {name} returned {_short(json.dumps(result).encode())}",
            hint='it must return true or false, a number from 0 to 1, or {"passed": ..., "score": ..., "reason": ...}',
        )
    return grade


def _grade_of_result(result: Any) -> Grade | None:
    """Return the grade that a scorer's answer means, if it means one."""
    name = "passed" if isinstance(result, bool) else "score"
    answer = result if isinstance(result, dict) else {name: result}
    has_passed, score, reason = answer.get("passed"), answer.get("score"), answer.get("reason", "")
    if score is None and isinstance(has_passed, bool):
        score = float(has_passed)
    if not is_number(score) or not 0 <= score <= 1:
        return None
    if has_passed is None:
        has_passed = score >= 1
    if not isinstance(has_passed, bool) or not isinstance(reason, str):
        return None
    return Grade(check="custom", value=float(score), passed=has_passed, reason=reason)


def _short(data: bytes) -> str:
    return shorten(data.decode(errors="replace").strip(), _SHOWN)

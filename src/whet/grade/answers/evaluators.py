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
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import AgentError, CheckTimedOut, GraderError, SandboxError, UsageError
from whet.grade.evaluators import PLAIN, regex
from whet.grade.evidence import AnswerEvidence, Evidence
from whet.grade.grader import Grader, WorkerGrader
from whet.ground.program_output import BoundedOutput, OutputTail, how_it_ended
from whet.ground.sandbox import Boundary, Command
from whet.ground.workers import Printed
from whet.model import wire
from whet.model.benchmark import MISSING, BenchmarkTask, Evaluator, Expected
from whet.model.grade import Grade
from whet.model.suite import Check, Suite
from whet.reading.fields import is_number
from whet.reading.text import shorten

_SLOW_PATTERN = "nested repetitions such as (a+)+ take for ever; write the pattern without them"


class EvaluatorGrader(Grader):
    """Decides a task of a benchmark by its evaluator; there is one grader for each kind of evaluator."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Grade an answer; raises `GraderError` if the evaluator breaks, which says nothing about the skill."""
        task: BenchmarkTask = check.params["task"]
        own_ms = task.evaluator.timeout_ms
        began = time.monotonic()
        limit_s = evidence.timeout_s if own_ms is None else own_ms / 1000
        grade = await self.evaluate(task, AnswerEvidence.of(evidence), limit_s)
        duration_s = round(time.monotonic() - began, 6)
        return replace(grade, check=check.label, duration_s=duration_s, weight=check.weight)

    @abstractmethod
    async def evaluate(self, task: BenchmarkTask, evidence: AnswerEvidence, timeout_s: float) -> Grade:
        """Grade an answer by the evaluator of *task*."""


class PlainEvaluator(EvaluatorGrader):
    """Compares the answer at once."""

    async def evaluate(self, task: BenchmarkTask, evidence: AnswerEvidence, timeout_s: float) -> Grade:
        """Compare the answer with what is expected."""
        del timeout_s
        return PLAIN[task.evaluator.kind](evidence.output, task.expected, task.evaluator)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    grade: Grade | None = None
    trouble: str = ""


class DecidingGrader(WorkerGrader):
    """Decides in a worker, by a function from a request to a grade: a pattern may search for ever."""

    def __init__(self, suite: Suite, decide: Callable[[bytes], Grade]) -> None:
        super().__init__(suite, partial(_serve, decide))

    async def decided(self, request: Any, *, timeout_s: float, what: str) -> Grade:
        """Return the grade for *request*; raises `GraderError` with *what* as the subject."""
        answer = await self.ask(request, _Decided, timeout_s=timeout_s, what=what, hint=_SLOW_PATTERN)
        if answer.grade is None:
            raise GraderError(f"{what} failed: {answer.trouble}")
        return answer.grade


def _serve(decide: Callable[[bytes], Grade], request: bytes, printed: Printed) -> bytes:
    del printed
    try:
        decided = _Decided(grade=decide(request))
    except Exception as error:  # noqa: BLE001 - the grader reports it
        decided = _Decided(trouble=f"{type(error).__name__}: {error}")
    return wire.encode_exact(decided)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    output: Any
    patterns: tuple[str, ...]
    evaluator: Evaluator


class RegexEvaluator(EvaluatorGrader, DecidingGrader):
    """Searches the answer for patterns."""

    def __init__(self, suite: Suite) -> None:
        DecidingGrader.__init__(self, suite, _search)

    async def evaluate(self, task: BenchmarkTask, evidence: AnswerEvidence, timeout_s: float) -> Grade:
        """Search for the patterns of *task*."""
        request = _Search(output=evidence.output, patterns=task.expected.patterns, evaluator=task.evaluator)
        return await self.decided(request, timeout_s=timeout_s, what="the search for patterns")


def _search(request: bytes) -> Grade:
    asked = wire.decode_exact(request, _Search)
    return regex(asked.output, Expected(patterns=asked.patterns), asked.evaluator)


class CustomEvaluator(EvaluatorGrader):
    """Runs a scorer of the benchmark's author inside the sandbox."""

    async def evaluate(self, task: BenchmarkTask, evidence: AnswerEvidence, timeout_s: float) -> Grade:
        """Ask the scorer; it has no network and sees its own folder and the skill."""
        scorer = find_scorer(task.expected.custom_scorer or "", self.suite.source.parent)
        skill = (evidence.skill,) if evidence.skill else ()
        too_much = GraderError(f"the grader {scorer.name} printed more than {_MOST_BYTES} bytes")
        out, err = BoundedOutput(_MOST_BYTES, too_much), OutputTail()
        with tempfile.TemporaryDirectory(prefix="whet-grader-") as home:
            command = scorer.command(_context(task, evidence), home)
            boundary = Boundary(writable=(Path(home),), readable=(scorer.folder, _PLAYER.parent, *skill), network=False)
            try:
                ended = await evidence.sandbox.run(command, boundary, timeout_s=timeout_s, stdout=out, stderr=err)
            except (AgentError, SandboxError) as error:
                raise GraderError(f"the grader {scorer.name} could not be started: {error.message}") from error
        if ended.timed_out:
            raise CheckTimedOut(f"the grader {scorer.name} did not end within {timeout_s:g} s")
        if ended.exit_code != 0:
            raise GraderError(f"the grader {scorer.name} ended with {how_it_ended(ended)}: {err.text}")
        return _read(scorer.name, bytes(out.data))


def _context(task: BenchmarkTask, evidence: AnswerEvidence) -> dict[str, Any]:
    """Return what a scorer of the author gets; what the task does not expect is left out."""
    expected = task.expected
    written = {
        "value": expected.value,
        "keywords": list(expected.keywords) or MISSING,
        "patterns": list(expected.patterns) or MISSING,
        "schema": MISSING if expected.schema is None else expected.schema,
    }
    return {
        "output": evidence.output,
        "expected": {name: value for name, value in written.items() if value is not MISSING},
        "input": dict(task.input),
        "task": task.id,
        "latencyMs": evidence.latency_ms,
        "skill": {
            "id": evidence.skill_id,
            "version": evidence.skill_version,
            "path": str(evidence.skill) if evidence.skill else None,
        },
    }


_PLAYER = Path(__file__).with_name("custom_player.py")
_MODULE = re.compile(r"[A-Za-z_][\w.]*")
_USUAL_FUNCTION = "score"
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ")
_MOST_BYTES = 4 * 1024 * 1024
_SHOWN = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomScorer:
    """What `customScorerPath` names: a program, or the `function` of a `module` or a `file`, which the player calls."""

    name: str
    folder: Path
    program: Path | None = None
    call: Mapping[str, str] = field(default_factory=dict)

    def command(self, context: Mapping[str, Any], home: str) -> Command:
        """Return the command that scores the answer in *context*."""
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return Command(
            argv=(str(self.program),) if self.program else (sys.executable, str(_PLAYER)),
            env={**env, "HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"},
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
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise GraderError(f"the grader {name} printed no JSON: {_short(data)}") from error
    decided = _decided(given)
    if decided is None:
        raise GraderError(
            f"the grader {name} returned {_short(json.dumps(given).encode())}",
            hint='it must return true or false, a number from 0 to 1, or {"passed": ..., "score": ..., "reason": ...}',
        )
    return decided


def _decided(given: Any) -> Grade | None:
    """Return the grade that a scorer's answer means, if it means one."""
    answer = given if isinstance(given, dict) else {"passed": given} if isinstance(given, bool) else {"score": given}
    passed, score, reason = answer.get("passed"), answer.get("score"), answer.get("reason", "")
    if score is None and isinstance(passed, bool):
        score = float(passed)
    if not is_number(score) or not 0 <= score <= 1:
        return None
    if passed is None:
        passed = score >= 1
    if not isinstance(passed, bool) or not isinstance(reason, str):
        return None
    return Grade(check="custom", value=float(score), passed=passed, reason=reason)


def _short(data: bytes) -> str:
    return shorten(data.decode(errors="replace").strip(), _SHOWN)

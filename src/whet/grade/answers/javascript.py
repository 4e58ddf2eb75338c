"""Decide assertions in JavaScript by Node.js, as a program of its own: no network, no secrets, bounded."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whet.errors import GraderError
from whet.grade.answers.evaluators import program_environment, run_program
from whet.grade.contract import Grader
from whet.grade.evidence import Evidence
from whet.model.eval_cases import JavascriptCall
from whet.model.grade import Grade
from whet.model.suite import Check
from whet.reading.fields import is_number
from whet.reading.text import shorten, shown
from whet.sandbox.contract import Command

_PLAYER = Path(__file__).with_name("javascript_program.mjs")
_MEMORY = "--max-old-space-size=256"
_SHOWN = 2000


class JavascriptGrader(Grader):
    """Calls an assertion as promptfoo does: what it throws or returns of no use fails the answer."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Decide *check*; raises `GraderError` if Node.js cannot run it."""
        call: JavascriptCall = check.params["call"]
        started_at = time.monotonic()
        data = await _run(call, evidence)
        grade = _grade(call, data)
        duration_s = round(time.monotonic() - started_at, 6)
        return replace(grade, check=check.label, duration_s=duration_s, weight=check.weight)


async def _run(call: JavascriptCall, evidence: Evidence) -> Any:
    """Return what Node.js prints about the answer of *evidence*."""
    request = {
        "code": call.code,
        "file": call.file,
        "function": call.function,
        "output": evidence.session.final_output,
        "context": {
            "prompt": call.prompt,
            "vars": dict(call.values),
            "test": {"vars": dict(call.values)},
            "config": call.config,
            "providerResponse": {"output": evidence.session.final_output},
        },
    }
    folders = (_PLAYER.parent,) if call.file is None else (_PLAYER.parent, Path(call.file).parent)
    with tempfile.TemporaryDirectory(prefix="whet-grader-", dir=evidence.shell.scratch) as home:
        command = Command(
            argv=("node", _MEMORY, str(_PLAYER)),
            env=program_environment(home),
            cwd=Path(home),
            stdin=json.dumps(request).encode(),
            of_host=True,
        )
        sandbox, boundary = evidence.shell.prepare(Path(home))
        # An assertion in a file may read what its author put beside it, though no agent may.
        hidden = boundary.hidden if call.file is None else ()
        closed = replace(boundary, readable=folders, hidden=hidden, network=False)
        data = await run_program("in JavaScript", sandbox, command, closed, evidence.timeout_s)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise GraderError("the grader in JavaScript printed no JSON") from error


def _grade(call: JavascriptCall, answer: Any) -> Grade:
    if "mistake" in answer:
        raise GraderError(f"the assertion in JavaScript cannot be read: {shorten(str(answer['mistake']), _SHOWN)}")
    if "thrown" in answer:
        return _failed(f"it threw {shorten(str(answer['thrown']), _SHOWN)}")
    value = answer.get("value")
    if isinstance(value, bool):
        return _decided(call, value, None, f"it returned {str(value).lower()}")
    if is_number(value):
        enough = value > 0 if call.threshold is None else value >= call.threshold
        return _decided(call, enough, float(value), f"it returned {value:g}")
    if isinstance(value, dict) and isinstance(value.get("pass"), bool) and is_number(value.get("score")):
        reason = value.get("reason")
        return _decided(call, value["pass"], float(value["score"]), reason if isinstance(reason, str) else "")
    return _failed(f"it must return true or false, a number, or pass, score and reason, and returned {shown(value)}")


def _decided(call: JavascriptCall, holds: bool, score: float | None, reason: str) -> Grade:
    is_met = holds != call.negate
    value = float(is_met) if score is None else min(1.0, max(0.0, score))
    return Grade(check="javascript", value=value, passed=is_met, reason=shorten(reason, _SHOWN))


def _failed(reason: str) -> Grade:
    return Grade(check="javascript", value=0.0, passed=False, reason=reason)

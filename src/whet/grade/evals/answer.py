"""The grader of answers that code can decide about: in a worker, because files and patterns may have no end."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet import wire
from whet.errors import CheckerDied, CheckTimedOut, GraderError
from whet.evals import BooleanAssertion
from whet.evals.kinds import FILE_OPS
from whet.grade.base import Evidence
from whet.grade.claims.outcome import Outcome
from whet.grade.evals.deciding import decide
from whet.grade.evals.subject import Subject
from whet.grade.events import EventLog
from whet.grade.recorded import NotRecorded, RecordedEvidence
from whet.model.grade import Grade
from whet.model.session import Session, SessionSummary
from whet.model.suite import Case, Check, Suite
from whet.sandbox.workers import Printed, WorkerDied, WorkerHung, Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    case: str
    number: int
    session: SessionSummary
    events_path: str | None
    workspace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    outcome: Outcome | None = None
    value: float = 0.0
    trouble: str = ""


class AnswerGrader:
    """Asks workers that were forked when the suite had just been loaded."""

    # Half an answer is none.
    informs = False

    def __init__(self, suite: Suite) -> None:
        self._workers = Workers.fork(_Decider(suite).serve)

    async def survey(self, case: Case, workspace: Path, store: Path, *, timeout_s: float) -> None:
        """Nothing: only what is there at the end counts."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """The decision; a `GraderError` where it cannot be come to."""
        _refuse_gaps(check, evidence)
        began = time.monotonic()
        request = _Request(
            case=evidence.case.id,
            number=evidence.case.checks.index(check),
            session=evidence.session,
            events_path=str(evidence.events_path) if evidence.events_path else None,
            workspace=str(evidence.workspace),
        )
        answer = await self._ask(request, timeout_s=evidence.timeout_s)
        if answer.outcome is None or answer.outcome.state == "undecided":
            raise GraderError(answer.outcome.reason if answer.outcome else answer.trouble)
        return Grade(
            check=check.label,
            value=answer.value,
            passed=answer.outcome.state == "passed",
            reason=answer.outcome.reason,
            evidence=answer.outcome.evidence,
            duration_s=round(time.monotonic() - began, 6),
            weight=check.weight,
        )

    async def grade_all(self, checks: Sequence[Check], evidence: Evidence) -> AsyncIterator[Grade]:
        """One after the other."""
        for check in checks:
            yield await self.grade(check, evidence)

    async def _ask(self, request: _Request, *, timeout_s: float) -> _Answer:
        try:
            answer = await self._workers.call(wire.encode_exact(request), timeout_s=timeout_s)
        except WorkerHung:
            raise CheckTimedOut(
                f"no decision about the answer within {timeout_s:g} s",
                hint="nested repetitions in a pattern, such as (a+)+, take for ever",
            ) from None
        except WorkerDied:
            raise CheckerDied("deciding about the answer ended the process that did") from None
        return wire.decode_exact(answer, _Answer)

    def close(self) -> None:
        """End the workers."""
        self._workers.close()


class _Decider:
    """Serves requests for one suite, inside a worker."""

    def __init__(self, suite: Suite) -> None:
        self._cases = {case.id: case for case in suite.cases}
        self._names = suite.skill.names if suite.skill else frozenset()

    def serve(self, request: bytes, printed: Printed) -> bytes:
        """Answer one request; what is not foreseen is told as the trouble that it is."""
        del printed
        asked = wire.decode_exact(request, _Request)
        events = EventLog(Path(asked.events_path) if asked.events_path else None)
        subject = Subject(
            session=Session.of(asked.session, events), workspace=Path(asked.workspace), skill_names=self._names
        )
        try:
            outcome, value = decide(self._cases[asked.case].checks[asked.number].params["case"], subject)
        except Exception as error:  # noqa: BLE001 - told to whoever asked, for whom it is no decision
            return wire.encode_exact(_Answer(trouble=f"{type(error).__name__}: {error}"))
        return wire.encode_exact(_Answer(outcome=outcome, value=value))


def _refuse_gaps(check: Check, evidence: Evidence) -> None:
    """Over a record that is not whole, decide only about what it holds."""
    case = check.params["case"]
    if not isinstance(evidence, RecordedEvidence) or not isinstance(case, BooleanAssertion):
        return
    for assertion in case.assertions:
        if assertion.op in FILE_OPS and evidence.gaps.workspace and assertion.target not in evidence.gaps.paths:
            raise NotRecorded(f"{assertion.target} was not recorded: {evidence.gaps.workspace}")

"""From how a trial ended to the sample that scores are made of."""

from __future__ import annotations

from collections.abc import Sequence

from whet.model.benchmark import Sample, SampleStatus
from whet.model.grade import Failure, Grade
from whet.score import score_of

_TIMEOUT = "timeout"
_DECIDED = "assertion"


def sample_of(
    task: str, run: int, grades: Sequence[Grade], failure: Failure | None, *, latency_ms: float | None, weight: float
) -> Sample:
    """One call as data; a failure that is not the skill's doing makes it errored."""
    status = status_of(grades, failure)
    answered = status in {"pass", "fail"}
    return Sample(
        task=task,
        run=run,
        status=status,
        score=(score_of(grades) or 0.0) if answered else 0.0,
        latency_ms=latency_ms if answered else None,
        weight=weight,
    )


def status_of(grades: Sequence[Grade], failure: Failure | None) -> SampleStatus:
    """Passed or failed where there was a decision, and otherwise whose doing it was that there was none."""
    if failure is None or failure.code == _DECIDED:
        return "pass" if grades and all(grade.passed for grade in grades) else "fail"
    if failure.cause != "agent":
        return "errored"
    return "timeout" if failure.code == _TIMEOUT else "error"

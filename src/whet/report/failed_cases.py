"""The cases of a recorded run that failed, each with the reason of its first failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from whet.model.grade import UNEXPECTED
from whet.model.run import ExecutionKey, TrialResult
from whet.reading.text import one_line
from whet.report.reason import parted_reason

_WIDEST = 200
_NO_REASON = "every check held, and a failure was expected"


class FailedCase(Struct, frozen=True, kw_only=True):
    """A case that failed on a runner in an arm: in how many of its trials, and why the first of them did."""

    case: str
    runner: str
    arm: str
    failed: int
    trials: int
    reason: str
    # The first trial that failed: its id, and its folder in the record.
    trial: str
    artifact_dir: str


def failed_cases(results: Iterable[TrialResult]) -> tuple[FailedCase, ...]:
    """Return the cases of *results* that did not go as expected, in their order; errored trials do not count."""
    executions: dict[ExecutionKey, list[TrialResult]] = {}
    for result in sorted(results, key=lambda trial: trial.key.number):
        if result.status != "errored":
            key = result.key
            executions.setdefault((key.case, key.runner, key.arm), []).append(result)
    return tuple(_failed_cases(executions.values()))


def _failed_cases(executions: Iterable[list[TrialResult]]) -> Iterator[FailedCase]:
    for trials in executions:
        failures = [trial for trial in trials if trial.status in UNEXPECTED]
        if failures:
            first = failures[0]
            yield FailedCase(
                case=first.key.case,
                runner=first.key.runner,
                arm=first.key.arm,
                failed=len(failures),
                trials=len(trials),
                reason=reason_of(first),
                trial=str(first.key),
                artifact_dir=first.artifact_dir,
            )


def reason_of(result: TrialResult) -> str:
    """Return the line that says most of why a trial failed."""
    if result.failure is None:
        return _NO_REASON
    return one_line(parted_reason(result.failure.message)[0], _WIDEST)

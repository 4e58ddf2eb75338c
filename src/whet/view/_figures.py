"""Read what a record says of a run besides its trials: the figures of results.json, and the plan in run.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from msgspec import Struct, convert

from whet.model.run import ExecutionKey, SnapshotOutcome
from whet.model.session import Usage
from whet.model.spending import Bill, Spending
from whet.record.document import (
    CaseHead,
    ExecutionHead,
    RecordFacts,
    RunFigures,
    WrittenBill,
    WrittenUsage,
)
from whet.record.run_file import RunFile


class _CaseWithHeads(CaseHead):
    executions: tuple[ExecutionHead, ...]


class ResultsShown(RunFigures):
    """What results.json says, without trials; of its head alone, also without cases."""

    cases: tuple[_CaseWithHeads, ...] = ()
    record: RecordFacts | None = None


class PlannedExecution(Struct):
    """What is known of an execution besides its trials."""

    trials: int | None = None
    agent: str | None = None
    model: str | None = None
    snapshot: SnapshotOutcome | None = None


def spending_in(figures: RunFigures) -> Spending:
    """Return what trials that ended were paid for."""
    spending = figures.spending
    return Spending(agents=_bill(spending.agents), judge=_bill(spending.judge), users=_bill(spending.users))


def _bill(bill: WrittenBill) -> Bill:
    return Bill(usage=_usage(bill.usage), unknown=bill.unknown)


def _usage(usage: WrittenUsage) -> Usage:
    return convert(usage, Usage, from_attributes=True)


def begin_of(name: str) -> str | None:
    """Return when a run began, by the name of its folder."""
    try:
        began = datetime.strptime(name, "%Y%m%dT%H%M%S-%f").replace(tzinfo=UTC)
    except ValueError:
        return None
    return began.isoformat(timespec="milliseconds")


def planned_executions(run_file: RunFile, arms: Iterable[str]) -> Iterator[tuple[ExecutionKey, PlannedExecution]]:
    """Yield the executions that run.json lists for people: `CASE@RUNNER/ARM xTRIALS`."""
    ends = sorted(arms, key=len, reverse=True)
    for line in run_file.plan:
        name, _, trials = line.rpartition(" x")
        arm = next((arm for arm in ends if name.endswith(f"/{arm}")), None)
        case = next((case for case in _before_at(name) if case in run_file.weights), None)
        if arm is not None and case is not None:
            runner = name[len(case) + 1 : -len(arm) - 1]
            yield (case, runner, arm), PlannedExecution(int(trials) if trials.isdecimal() else None)


def _before_at(name: str) -> Iterator[str]:
    """Yield what may be the case in front of an `@`, the longest first: both parts may hold one."""
    at = len(name)
    while (at := name.rfind("@", 0, at)) > 0:
        yield name[:at]

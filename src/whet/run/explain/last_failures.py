"""Say what failed in a recorded run, why, and how to ask the agents of these trials."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from whet.model.run import STATE_FILE
from whet.reading.text import count, one_line
from whet.record.batches import find_runs
from whet.record.read.run import RecordedRun, read_run
from whet.report.failed_cases import FailedCase, failed_cases

_SHOWN = 20


class FailuresOfRun(Struct, frozen=True, kw_only=True):
    """What failed in a run; errored trials are counted apart."""

    run: str
    trials: int
    failed: int
    errored: int
    cases: tuple[FailedCase, ...]


class FailuresDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/failures/1"):
    """What `whet explain --json` prints: the newest run, or each run of the newest batch."""

    runs: tuple[FailuresOfRun, ...]


def last_failures(output_dir: Path) -> FailuresDocument:
    """Return what failed in the newest run, or in each run of the newest batch."""
    return FailuresDocument(runs=tuple(_failures_of(read_run(folder)) for folder in find_runs("latest", output_dir)))


def last_failure_lines(output_dir: Path) -> Iterator[str]:
    """Yield the same in lines, with what to type to ask."""
    for folder in find_runs("latest", output_dir):
        yield from _run_lines(read_run(folder))


def _failures_of(run: RecordedRun) -> FailuresOfRun:
    run.refuse_empty()
    cases = failed_cases(run.results.values())
    return FailuresOfRun(
        run=run.run_dir.name,
        trials=len(run.results),
        failed=sum(case.failed for case in cases),
        errored=sum(result.status == "errored" for result in run.results.values()),
        cases=cases,
    )


def _run_lines(run: RecordedRun) -> Iterator[str]:
    failures = _failures_of(run)
    cases = failures.cases
    errored = f", {failures.errored} errored" if failures.errored else ""
    yield f"{failures.run}: {failures.failed} of {count(failures.trials, 'trial')} failed{errored}"
    for case in cases[:_SHOWN]:
        yield f"  {one_line(case.trial)} ({case.failed} of {count(case.trials, 'trial')})"
        yield f"    {case.reason}"
    if len(cases) > _SHOWN:
        yield f"  and {count(len(cases) - _SHOWN, 'more case')}"
    if cases:
        yield _advice(run, cases)


def _advice(run: RecordedRun, cases: Sequence[FailedCase]) -> str:
    """Return what to type to ask an agent; one that kept no session cannot be asked."""
    for case in cases:
        if (run.run_dir / case.artifact_dir / STATE_FILE).is_file():
            trial = shlex.quote(one_line(case.trial))
            return f'  to ask the agent of one in its own session: whet explain {trial} --ask "Why?"'
    return "  their agents kept no session, so they cannot be asked; whet view shows each trial"

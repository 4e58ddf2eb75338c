"""The contract of a reporter, tried with whole runs that are made up."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from whet.model.comparison import RoundAnalysis, Seen, Until
from whet.model.events import CommandRun, Message
from whet.model.grade import STATUSES, Failure, FailureClass, Location, Status
from whet.model.run import Execution, Plan, RunInfo, Runner, Trial, TrialKey, TrialResult
from whet.model.run_events import (
    Looked,
    Notice,
    RunEnded,
    RunEvent,
    RunStarted,
    SessionSeen,
    TrialEnded,
    TrialStarted,
)
from whet.model.suite import Case, Check, Limits, Suite, WorkspaceSpec
from whet.record.folder import JOURNAL_FILE
from whet.record.journal.journal import Journal
from whet.record.results import JournalResults, write_results
from whet.report.contract import Reporter, ReporterContext, ReporterFactory
from whet.testing.grader_and_format import ContractBroken, want

# Agents and providers say such things.
_MESSAGE = "expected 3, got <b>4</b> & \x1b[31mred\x1b[0m: naïve\nsecond line"


class Shown(NamedTuple):
    """What a reporter wrote during a whole run."""

    stdout: str
    stderr: str
    target: str | None


def check_reporter(factory: ReporterFactory) -> Shown:
    """Show several runs to a reporter, and raise `ContractBroken` unless it copes; return what it wrote of the first.

    The first run has a trial of every status and ends by itself. Others are interrupted, break off or are empty.
    Each has its record on disk.
    """
    with tempfile.TemporaryDirectory(prefix="whet-check-") as folder:
        place = Path(folder)
        output = _ReporterStage(factory, place).play(_run(place))
        _ReporterStage(factory, place).play(_run(place, 1, begun=1, interrupted=True))
        _ReporterStage(factory, place).play(_run(place, 0, begun=1, breaks_off=True))
        _ReporterStage(factory, place).play(_run(place, 0))
        if getattr(factory, "document", False):
            _check_document(factory, place)
    return output


class _ReporterStage:
    """A reporter, the streams that it may use, and what it wrote."""

    def __init__(self, factory: ReporterFactory, cwd: Path, target: Path | None = None) -> None:
        self._out, self._err = io.BytesIO(), io.BytesIO()
        self._target = target
        self._context = ReporterContext(
            target=target,
            stdout=io.TextIOWrapper(self._out, encoding="utf-8", write_through=True),
            stderr=io.TextIOWrapper(self._err, encoding="utf-8", write_through=True),
            environ={},
            cwd=cwd,
        )
        self._reporter: Reporter = _kept("the factory", lambda: factory(self._context))
        want(callable(self._reporter), f"the factory returns {self._reporter!r}, which cannot be called with events")

    def play(self, events: Iterator[RunEvent]) -> Shown:
        """Pass each event to the reporter, and close it twice, as a run that breaks off may."""
        for event in events:
            _kept(f"the reporter, called with {type(event).__name__},", lambda event=event: self._reporter(event))  # type: ignore[misc]
        close: Any = getattr(self._reporter, "close", lambda: None)
        _kept("`close`", close)
        _kept("`close`, called again,", close)
        closed_streams = [name for name in ("stdout", "stderr") if getattr(self._context, name).closed]
        want(not closed_streams, f"the reporter closes {' and '.join(closed_streams)}, which others use too")
        self._context.stdout.flush()
        self._context.stderr.flush()
        target = self._target.read_text(encoding="utf-8") if self._target and self._target.is_file() else None
        return Shown(self._out.getvalue().decode(), self._err.getvalue().decode(), target)


def _kept(what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise ContractBroken(f"{what} raises {error!r}") from error


def _check_document(factory: ReporterFactory, folder: Path) -> None:
    """A factory with a true `document` writes one document: to its target, or else to stdout."""
    target = folder / "document"
    output = _ReporterStage(factory, folder, target).play(_run(folder))
    want(output.target is not None, "a `document` with a target does not write it")
    want(not output.stdout, f"a `document` with a target writes to stdout as well: {output.stdout[:200]!r}")
    text = _ReporterStage(factory, folder).play(_run(folder)).stdout
    want(bool(text), "a `document` without a target writes nothing to stdout")


_LOOK = RoundAnalysis(
    round=2,
    seen=(Seen(candidate="new", runner="r", difference=0.1, low=-0.2, high=0.4, verdict="inconclusive", chance=0.4),),
)


def _run(
    folder: Path, trials: int | None = None, *, begun: int = 0, breaks_off: bool = False, interrupted: bool = False
) -> Iterator[RunEvent]:
    """Yield the events of a run in which the first *trials* end, or all, and *begun* further ones only begin."""
    plan, info = _plan(folder), _info(folder)
    all_trials = list(plan.trials())
    first_trials = all_trials[:trials]
    yield RunStarted(info=info, plan=plan, done=len(first_trials) if interrupted else 0)
    yield Notice(level="warning", message=_MESSAGE)
    for trial in first_trials:
        yield from _trial(trial)
    yield Looked(look=_LOOK, until=Until(), cost_usd=0.5)
    for trial in all_trials[len(first_trials) :][:begun]:
        yield TrialStarted(trial=trial)
    if not breaks_off:
        yield from _end(info, plan, [trial.key for trial in first_trials], interrupted=interrupted)


def _end(info: RunInfo, plan: Plan, ended: Iterable[TrialKey], *, interrupted: bool = False) -> Iterator[RunEvent]:
    """Write the record as a run does, and end."""
    journal = Journal(info.run_dir / JOURNAL_FILE)
    try:
        for key in ended:
            journal.append(_outcome(key))
        results = JournalResults(plan, journal, duration_s=7.5)
        write_results(info, results, interrupted=interrupted, ended_at="2025-01-02T03:05:06Z")
        yield RunEnded(info=info, results=results, interrupted=interrupted)
    finally:
        journal.close()


def _trial(trial: Trial) -> Iterator[RunEvent]:
    yield TrialStarted(trial=trial)
    yield SessionSeen(trial=trial, event=Message(role="assistant", text=_MESSAGE))
    yield SessionSeen(trial=trial, event=CommandRun(command="ls", exit_code=0))
    yield TrialEnded(trial=trial, result=_outcome(trial.key))


def _plan(folder: Path) -> Plan:
    """A case for each status, named after it."""
    cases = tuple(
        Case(
            id=status,
            prompt="Go.",
            checks=(Check(grader="python"),),
            expected_fail=status in {"expected-failed", "unexpected-passed"},
            location=Location(file=str(folder / "suite.py"), line=number),
        )
        for number, status in enumerate(STATUSES, 1)
    )
    suite = Suite(name="contract", cases=cases, source=folder / "suite.py", digest="0")
    executions = tuple(
        Execution(
            case=case,
            runner=Runner(id="demo", agent="command", model="some-model"),
            arm="default",
            limits=Limits(timeout_s=60),
            workspace=WorkspaceSpec(),
            trials=1,
        )
        for case in cases
    )
    return Plan(suite=suite, executions=executions, schedule="serial", max_parallel=1, retries=0, check_timeout_s=30)


def _info(folder: Path) -> RunInfo:
    """A run with a folder of its own."""
    run_dir = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    return RunInfo(
        run_id="20250102-030405-abcd",
        run_dir=run_dir,
        suite="contract",
        suite_path=folder / "suite.py",
        started_at="2025-01-02T03:04:05Z",
        sandbox="local",
        version="0",
        settings_files=(folder / "whet.toml",),
    )


def _outcome(key: TrialKey) -> TrialResult:
    status: Status = next(status for status in STATUSES if status == key.case)
    is_well = status in {"passed", "unexpected-passed"}
    failure: Failure | None = Failure(phase="check", code="check-failed", cause="agent", message=_MESSAGE)
    if is_well:
        failure = None
    elif status == "errored":
        failure = Failure(phase="agent", code="provider", cause="provider", message=_MESSAGE)
    return TrialResult(
        key=key,
        status=status,
        score=None if status == "errored" else float(is_well),
        duration_s=1.5,
        started_at="2025-01-02T03:04:05Z",
        artifact_dir=f"trials/{key.case}/{key.runner}/default/{key.number}",
        failure=failure,
        failure_class=None if is_well else FailureClass(id="wrong", label="Wrong <answer>"),
    )

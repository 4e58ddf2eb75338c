"""Find what of a plan no finished run has measured as it is now, and say of each execution what has changed since."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from whet.errors import StoreError
from whet.model.grade import AS_EXPECTED
from whet.model.request import Settings
from whet.model.run import Execution, ExecutionKey, Plan
from whet.plan.measured import measure
from whet.reading.text import count, listed
from whet.record.journal.chain import is_done
from whet.record.read.run import RecordedRun, read_trials, run_folders
from whet.record.run_file import ExecutionDigests, RunFile, read_run_file
from whet.record.sources import sources_of
from whet.version import __version__

# The four things that a case is measured with, and the digests that each has.
_KINDS = {
    "content": {"case": "prompt or checks", "files": "files", "helpers": "helper modules"},
    "skill": {"skill": ""},
    "settings": {"settings": "", "trials": "trials"},
    "agent": {"agent": "", "program": "its program"},
}
_RUNNING = frozenset({"run", "bench"})
_TIMES = re.compile(r"(?P<execution>.+) x(?P<trials>[0-9]+)")


class MeasuredExecution(Struct, frozen=True, kw_only=True):
    """A case on a runner in an arm that a finished run has measured as it is now."""

    case: str
    runner: str
    arm: str
    run: str
    passed: bool


class OutstandingExecution(Struct, frozen=True, kw_only=True):
    """A case on a runner in an arm that has not been measured as it is now.

    `changed` has of content, skill, settings and agent what differs from the last finished run, and `details` says
    what of it. `run` is that run; without one, `begun` may be a run that was not finished.
    """

    case: str
    runner: str
    arm: str
    changed: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    run: str | None = None
    begun: str | None = None
    whet_version: str | None = None

    @property
    def reason(self) -> str:
        """What has changed, in words."""
        if self.run is None:
            return f"not finished in {self.begun}" if self.begun else "never run"
        details = f" ({', '.join(self.details)})" if self.details else ""
        other = f", by whet {self.whet_version}" if self.whet_version not in (None, __version__) else ""
        return f"{listed(self.changed)} changed{details} since {self.run}{other}"


class SuiteStatus(Struct, frozen=True, kw_only=True):
    """What is outstanding of one suite, and what has been measured; `unread` are runs that cannot be read."""

    suite: str
    path: str
    cases: int
    outstanding: tuple[OutstandingExecution, ...]
    measured: tuple[MeasuredExecution, ...]
    unread: tuple[str, ...] = ()

    @property
    def outstanding_cases(self) -> tuple[str, ...]:
        """The ids of the cases with something outstanding."""
        return tuple(dict.fromkeys(item.case for item in self.outstanding))

    @property
    def failed_cases(self) -> tuple[str, ...]:
        """The ids of the cases that did not go as expected when they were measured."""
        return tuple(dict.fromkeys(item.case for item in self.measured if not item.passed))

    @property
    def headline(self) -> str:
        """How many cases are outstanding."""
        return f"{self.suite}: {len(self.outstanding_cases)} of {count(self.cases, 'case')} outstanding"

    def lines(self) -> Iterator[str]:
        """Yield a line for each case that is outstanding, or for each execution if their reasons differ."""
        reasons: dict[str, list[OutstandingExecution]] = {}
        for item in self.outstanding:
            reasons.setdefault(item.case, []).append(item)
        measured = Counter(item.case for item in self.measured)
        for case, items in reasons.items():
            if len({item.reason for item in items}) == 1 and not measured[case]:
                yield f"{case}: {items[0].reason}"
            else:
                yield from (f"{item.case}@{item.runner}/{item.arm}: {item.reason}" for item in items)


class StatusDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/status/1"):
    """What `whet status --json` prints."""

    ok: bool
    output_dir: str
    suites: tuple[SuiteStatus, ...]


def nothing_outstanding(cases: int, failed: int, suites: int = 1) -> str:
    """Return the sentence that so many cases of some suites are measured, which does not hide how many failed."""
    whose = f" of {count(suites, 'suite')}" if suites > 1 else ""
    words = "has been run as it is" if cases == 1 else "have been run as they are"
    have_run = f"{count(cases, 'case')}{whose} {words} now"
    last = f", and {failed} did not go as expected" if failed else ""
    return f"nothing is outstanding: {have_run}{last}"


def selected_of(plan: Plan, status: SuiteStatus) -> frozenset[ExecutionKey]:
    """Return what to run of *plan*; if it compares arms, a case in all of them: one arm alone compares nothing."""
    keys = frozenset((item.case, item.runner, item.arm) for item in status.outstanding)
    if plan.baseline is None:
        return keys
    cases = {case for case, _, _ in keys}
    return frozenset(execution.key for execution in plan.executions if execution.case.id in cases)


def find_outstanding(plan: Plan, settings: Settings) -> SuiteStatus:
    """Compare each execution of *plan* with its last finished run in the output folder of *settings*."""
    executions = {str(execution): execution for execution in plan.whole or plan.executions}
    search = _Search(measure(plan, settings, sources_of(plan, settings)))
    for folder, asked in _runs_of(plan, settings.output_dir):
        if not search.waiting:
            break
        search.look_into(folder, asked)
    outstanding: list[OutstandingExecution] = []
    measured: list[MeasuredExecution] = []
    for name, execution in executions.items():
        item = search.judge(name, execution)
        if isinstance(item, MeasuredExecution):
            measured.append(item)
        else:
            outstanding.append(item)
    return SuiteStatus(
        suite=plan.suite.name,
        path=str(plan.suite.source),
        cases=len({execution.case.id for execution in executions.values()}),
        outstanding=tuple(outstanding),
        measured=tuple(measured),
        unread=tuple(search.unread),
    )


def _runs_of(plan: Plan, output_dir: Path) -> Iterator[tuple[Path, RunFile]]:
    """Yield the runs of the suite, the newest first; then those of a suite of its name that lay where none is now."""
    path = str(plan.suite.source)
    elsewhere: list[tuple[Path, RunFile]] = []
    for folder in reversed(run_folders(output_dir)):
        try:
            asked = read_run_file(folder)
        except StoreError:
            # As in `newest_run`: not one of our runs.
            continue
        if asked.command not in _RUNNING or asked.regraded_from is not None:
            continue
        if asked.suite_path == path:
            yield folder, asked
        elif asked.suite == plan.suite.name and not Path(asked.suite_path or "/").exists():
            elsewhere.append((folder, asked))
    yield from elsewhere


class _LastRun(Struct, frozen=True, kw_only=True):
    """The last finished run of an execution: what it measured, in how many trials, and how these went."""

    run: str
    whet_version: str | None
    measured: ExecutionDigests
    trials: int
    passed: bool


class _Verdicts(Struct):
    """The trials of an execution in one run: those that ended with a verdict, and whether all were as expected."""

    ended: int = 0
    passed: bool = True


class _Search:
    """Finds the last finished run of each execution, from the newest run on."""

    def __init__(self, now: Mapping[str, ExecutionDigests]) -> None:
        self._now = now
        self._last: dict[str, _LastRun] = {}
        self._begun: dict[str, str] = {}
        self.unread: list[str] = []

    @property
    def waiting(self) -> set[str]:
        """The executions of which no finished run is known yet."""
        return set(self._now) - set(self._last)

    def look_into(self, folder: Path, asked: RunFile) -> None:
        """Note which executions the run in *folder* has finished."""
        names = self.waiting & set(asked.measured)
        planned = {name: trials for name, trials in _planned_trials(asked) if name in names}
        if not planned:
            return
        try:
            run = read_trials(folder)
        except StoreError as error:
            self.unread.append(f"{folder.name}: {error.message}")
            return
        trials = _trials_of(run)
        for name, first_planned in planned.items():
            ended = trials.get(name, _Verdicts())
            if _is_finished(run, name, first_planned, ended.ended):
                self._last[name] = _LastRun(
                    run=folder.name,
                    whet_version=asked.whet_version,
                    measured=asked.measured[name],
                    trials=ended.ended,
                    passed=ended.passed,
                )
            else:
                self._begun.setdefault(name, folder.name)

    def judge(self, name: str, execution: Execution) -> MeasuredExecution | OutstandingExecution:
        """Return whether *execution* is measured as it is now, and if not, what has changed."""
        case, runner, arm = execution.key
        last = self._last.get(name)
        if last is None:
            return OutstandingExecution(case=case, runner=runner, arm=arm, begun=self._begun.get(name))
        differences = tuple(_differences(last, self._now[name]))
        if not differences:
            return MeasuredExecution(case=case, runner=runner, arm=arm, run=last.run, passed=last.passed)
        kinds, details = zip(*differences, strict=True)
        return OutstandingExecution(
            case=case,
            runner=runner,
            arm=arm,
            changed=tuple(dict.fromkeys(kinds)),
            details=tuple(filter(None, details)),
            run=last.run,
            whet_version=last.whet_version,
        )


def _planned_trials(asked: RunFile) -> Iterator[tuple[str, int]]:
    """Yield each execution of a run with the number of its trials; a shard has only its own."""
    for line in asked.plan:
        if match := _TIMES.fullmatch(line):
            yield match["execution"], int(match["trials"])


def _trials_of(run: RecordedRun) -> dict[str, _Verdicts]:
    """Return the trials of each execution that ended with a verdict: an error measures nothing."""
    trials: dict[str, _Verdicts] = {}
    for line in run.lines:
        result = line.result
        if result.status == "errored" or not is_done(result):
            continue
        execution = trials.setdefault(f"{result.key.case}@{result.key.runner}/{result.key.arm}", _Verdicts())
        execution.ended += 1
        # The baseline may fail, and a comparison does not ask how single trials went.
        may_fail = run.asked.compares or result.key.arm == run.asked.baseline
        execution.passed = execution.passed and (may_fail or result.status in AS_EXPECTED)
    return trials


def _is_finished(run: RecordedRun, name: str, first_planned: int, ended: int) -> bool:
    """Return whether a run has done all that it was to do for an execution."""
    if any(name.startswith(f"{case}@") for case in run.asked.voided):
        # Controls pass this case, and will again.
        return True
    if run.rounds.stop:
        return ended >= run.rounds.looks[-1].round
    return ended >= first_planned + run.rounds.added


def _differences(last: _LastRun, now: ExecutionDigests) -> Iterator[tuple[str, str]]:
    """Yield what differs, as one of the four kinds and a detail."""
    for kind, digests in _KINDS.items():
        for name, detail in digests.items():
            if _differs(name, last, now):
                yield kind, detail


def _differs(name: str, last: _LastRun, now: ExecutionDigests) -> bool:
    before = last.measured
    if name == "trials":
        return last.trials < now.trials and before.trials < now.trials
    if name == "program":
        # An agent that is not installed, here or there, says nothing about its version.
        return "" not in (before.program, now.program) and before.program != now.program
    return bool(getattr(before, name) != getattr(now, name))

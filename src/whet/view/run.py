"""The document of a run: what was decided, what it cost, and a row for each trial; also of a run under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from whet.errors import StoreError
from whet.grade.scores import combined_status, mean, rate_of
from whet.model import wire
from whet.model.arm import baseline_of
from whet.model.grade import AS_EXPECTED, PASSED
from whet.model.run import ExecutionKey
from whet.model.spending import Spending
from whet.reading.files import open_file
from whet.reading.text import one_line
from whet.record.folder import JOURNAL_FILE, RESULTS_FILE, RUN_FILE, SPENT_FILE, is_locked
from whet.record.journal import Spent
from whet.record.notes import read_notes
from whet.record.results_document import WrittenCounts
from whet.record.rows import Rows, TrialRow, file_problem, more_rows, read_rows
from whet.record.run_file import RunFile, read_run_file
from whet.report.view_documents import (
    RowsDocument,
    RunDocument,
    RunHead,
    RunStatus,
    ShownArm,
    ShownCase,
    ShownDecision,
    ShownExecution,
    ShownRate,
    ShownRunner,
    shown_bills,
    shown_rate,
    trial_key,
)
from whet.report.view_figures import (
    PlannedExecution,
    ResultsShown,
    begin_of,
    planned_executions,
    read_head,
    spending_in,
)
from whet.report.view_rows import cells_of, errored_groups, shown_row

_LARGEST_RUN_FILE = 64 * 1024 * 1024
_LARGEST_JOURNAL = 4 * 1024 * 1024 * 1024
_PIECE = 1 << 20
_ROWS_AT_ONCE = 2000


class RunView:
    """A run folder, whoever made it, as pages show it: what cannot be read is said in `problem`, and nothing raises.

    *running* says whether the run is under way, if that is known better than by its lock. Of a *private* one, nothing
    is said about where it is on the disk, and how it was started.
    """

    def __init__(
        self, run_dir: Path, *, name: str | None = None, running: bool | None = None, private: bool = False
    ) -> None:
        self.run_dir = run_dir
        self.id = name or run_dir.name
        self._running = running
        self._private = private
        self._problems: list[str] = []

    @cached_property
    def asked(self) -> RunFile:
        """What was asked; nothing of it if it cannot be read."""
        if problem := file_problem(self.run_dir / RUN_FILE, _LARGEST_RUN_FILE):
            self._problems.append(problem)
            return RunFile()
        try:
            return read_run_file(self.run_dir)
        except StoreError as error:
            self._problems.append(error.message)
            return RunFile()

    @cached_property
    def rows(self) -> Rows:
        """Its trials that have ended."""
        found = read_rows(self.run_dir)
        if found.problem:
            self._problems.append(found.problem)
        return found

    @cached_property
    def figures(self) -> ResultsShown | None:
        """What results.json says before its cases; None without one."""
        return self._decoded(read_head)

    @cached_property
    def results(self) -> ResultsShown | None:
        """What results.json says, without trials; None without one."""
        return self._decoded(lambda path: wire.decode_file(path, ResultsShown))

    def _decoded(self, read: Callable[[Path], ResultsShown]) -> ResultsShown | None:
        path = self.run_dir / RESULTS_FILE
        if problem := file_problem(path):
            self._problems.append(problem)
            return None
        try:
            return read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._problems.append(f"{path} cannot be read: {error.strerror}")
        except wire.WireError as error:
            self._problems.append(f"{path} cannot be read: {error.message}")
        return None

    @cached_property
    def status(self) -> RunStatus:
        """Whether it is under way, has ended, or was left."""
        if not (self.run_dir / RUN_FILE).exists() and not (self.run_dir / JOURNAL_FILE).exists():
            self._problems.append(f"{self.run_dir} is not a run folder, or is gone")
            return "unreadable"
        figures = self.figures
        whole = figures is not None and figures.record is not None and figures.record.lines == self._line_count()
        if figures is not None and whole and not figures.interrupted:
            return "completed"
        if is_locked(self.run_dir) if self._running is None else self._running:
            return "running"
        if self.asked.suite is None and self.asked.fingerprint is None:
            return "unreadable"
        return "interrupted" if figures is not None and whole else "unfinished"

    def _line_count(self) -> int:
        """Return how many lines the journal has, quicker than by reading them."""
        try:
            if file_problem(self.run_dir / JOURNAL_FILE, _LARGEST_JOURNAL):
                return 0
            with open_file(self.run_dir / JOURNAL_FILE) as file:
                return sum(piece.count(b"\n") for piece in iter(lambda: file.read(_PIECE), b""))
        except OSError:
            return 0

    @property
    def problem(self) -> str | None:
        """All that is wrong with the record, as far as it was read, each once."""
        found = (problem.replace(f"{self.run_dir}/", "").replace(str(self.run_dir), "it") for problem in self._problems)
        return "; ".join(dict.fromkeys(found)) or None

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of its arms, the baseline first."""
        names = tuple(arm.name for arm in self.figures.arms) if self.figures else tuple(self.asked.arm_facts)
        names = names or tuple(dict.fromkeys(key.arm for key in self.rows.rows))
        baseline = self.asked.baseline or baseline_of(names)
        return tuple(sorted(names, key=lambda name: name != baseline))

    @property
    def baseline(self) -> str | None:
        """The arm that the others are compared with."""
        return self.asked.baseline or (self.arms[0] if len(self.arms) > 1 else None)

    @property
    def planned(self) -> int | None:
        """How many trials it was to have."""
        if self.asked.trials is None:
            return None
        grown = self.rows.grown if self.status != "completed" else 0
        return self.asked.trials + grown * len(self.asked.plan)

    @cached_property
    def head(self) -> RunHead:
        """The run in a list."""
        status, figures, asked = self.status, self.figures, self.asked
        counts = self._counts()
        return RunHead(
            id=self.id,
            suite=asked.suite,
            suite_path=None if self._private else asked.suite_path,
            command=asked.command,
            status=status,
            started_at=figures.started_at if figures else begin_of(self.run_dir.name),
            ended_at=figures.ended_at if figures and status != "running" else None,
            duration_s=figures.duration_s if figures and status != "running" else None,
            passed=figures.passed if figures and status in ("completed", "interrupted") else None,
            counts=counts,
            rate=self._rate(counts),
            cost_usd=self.spending.cost_usd,
            spent=shown_bills(self.spending),
            arms=self.arms,
            decision=_decision(figures),
            problem=self.problem,
        )

    def _counts(self) -> dict[str, int]:
        if self.figures is not None and self.status in ("completed", "interrupted"):
            return {name: getattr(self.figures.counts, name) for name in WrittenCounts.__struct_fields__}
        void = [key for key in self.rows.rows if key.case in self.asked.voided]
        seen = Counter(row.status for key, row in self.rows.rows.items() if key.case not in self.asked.voided)
        total = max(self.planned or 0, len(self.rows.rows))
        return {
            **{name: seen[name.replace("_", "-")] for name in ("passed", "failed", "expected_failed")},  # type: ignore[index]
            "unexpected_passed": seen["unexpected-passed"],
            "errored": seen["errored"],
            "not_run": total - len(void) - seen.total(),
            "void": len(void),
            "total": total,
        }

    def _rate(self, counts: dict[str, int]) -> ShownRate | None:
        """Return the rate of the candidates, or of all trials if nothing is compared; by first attempts, as in a gate.

        The counts are of last attempts, which are first ones unless there were retries.
        """
        baseline = self.baseline
        if baseline is None and self.figures is not None and self.asked.setting("run.retries") in (None, "0"):
            from whet.grade.scores import wilson  # noqa: PLC0415 - beside its only use

            passed = counts["passed"] + counts["expected_failed"]
            total = passed + counts["failed"] + counts["unexpected_passed"]
            return shown_rate(wilson(passed, total) if total else None)
        own = [
            (row.counted, row.first)
            for key, row in self.rows.rows.items()
            if key.arm != baseline and key.case not in self.asked.voided
        ]
        return shown_rate(rate_of(own) if own else None)

    @cached_property
    def spending(self) -> Spending:
        """What was paid for, by who asked for it, also since the run has ended."""
        beside = self._spent_beside()
        if self.figures is None or self.status == "running":
            return sum((row.spending for row in self.rows.rows.values()), beside)
        return replace(spending_in(self.figures), interrupted=beside.interrupted, explain=beside.explain)

    def _spent_beside(self) -> Spending:
        path = self.run_dir / SPENT_FILE
        problem = file_problem(path, _LARGEST_RUN_FILE)
        try:
            if problem is None:
                return Spent(path).spending
        except OSError as error:
            problem = f"{path} cannot be read: {error.strerror}"
        self._problems.append(problem)
        return Spending()

    def document(self, *, previous: str | None = None, label: str | None = None) -> RunDocument:
        """Return the run with all its trials."""
        rows, results = self.rows, self.results
        cases, runners = self._cases()
        head = self.head
        head.problem, head.label = self.problem, label
        return RunDocument(
            run=head,
            facts=tuple(self._facts()),
            arms=tuple(self._shown_arms()),
            comparisons=results.comparisons if results else (),
            lift=results.lift if results else (),
            looks=rows.looks,
            until=self.asked.until,
            stopped=results.stopped if results else None,
            scores=results.scores if results else (),
            voided=self.asked.voided,
            errored=tuple(errored_groups(rows.rows.values())),
            runners=runners,
            cases=cases,
            offset=rows.offset,
            notes=self._note_counts(),
            previous=previous,
        )

    def _note_counts(self) -> dict[str, int]:
        try:
            return {trial_key(key): len(notes) for key, notes in read_notes(self.run_dir).items()}
        except StoreError as error:
            self._problems.append(error.message)
            return {}

    def _facts(self) -> Iterator[tuple[str, str]]:
        asked, results = self.asked, self.figures
        typed = " ".join(("whet", asked.command or "run", *asked.typed.again)) if asked.typed.again else None
        places = (
            ("command", typed),
            ("suite", asked.suite_path),
            ("skill", asked.skill),
            ("folder", str(self.run_dir)),
        )
        facts = (
            *(() if self._private else places),
            ("sandbox", results.sandbox if results else asked.setting("run.sandbox")),
            ("schedule", results.schedule if results else None),
            ("whet", asked.whet_version),
            ("regraded from", asked.regraded_from),
            ("content of the suite", (asked.suite_digest or "")[:12]),
        )
        yield from ((name, one_line(text, 500)) for name, text in facts if text)

    def _shown_arms(self) -> Iterator[ShownArm]:
        facts = self.asked.arm_facts
        for name in self.arms:
            skill = facts.get(name, {}).get("skill")
            yield ShownArm(
                name=name,
                baseline=name == self.baseline,
                differs_by=facts.get(name, {}),
                commit=self.asked.commits.get(name),
                skill=None if skill == "none" else skill,
            )

    def _cases(self) -> tuple[tuple[ShownCase, ...], tuple[ShownRunner, ...]]:
        planned = self.executions
        trials: dict[ExecutionKey, list[TrialRow]] = {}
        for key, row in self.rows.rows.items():
            trials.setdefault((key.case, key.runner, key.arm), []).append(row)
        heads = {case.id: case for case in self.results.cases} if self.results else {}
        cases: dict[str, list[ShownExecution]] = {}
        for execution in dict.fromkeys((*planned, *trials)):
            own = sorted(trials.get(execution, ()), key=lambda row: row.key.number)
            found = self._execution(execution, planned.get(execution, PlannedExecution()), own)
            cases.setdefault(execution[0], []).append(found)
        runners = {
            runner: ShownRunner(id=runner, agent=known.agent, model=known.model)
            for (_, runner, _), known in planned.items()
        }
        runners |= {key.runner: ShownRunner(id=key.runner) for key in self.rows.rows if key.runner not in runners}
        shown = tuple(
            ShownCase(
                id=case,
                tags=heads[case].tags if case in heads else (),
                weight=heads[case].weight if case in heads else self.asked.weights.get(case),
                passed=all(execution.passed for execution in executions),
                executions=tuple(executions),
            )
            for case, executions in cases.items()
        )
        return shown, tuple(runners.values())

    @cached_property
    def executions(self) -> dict[ExecutionKey, PlannedExecution]:
        """The planned executions, in declared order."""
        if self.results is not None:
            return {
                (case.id, each.runner, each.arm): PlannedExecution(
                    each.planned_trials, each.agent, each.model, each.snapshot
                )
                for case in self.results.cases
                for each in case.executions
            }
        return dict(planned_executions(self.asked, self.arms))

    def _execution(self, execution: ExecutionKey, planned: PlannedExecution, rows: list[TrialRow]) -> ShownExecution:
        case, runner, arm = execution
        void = case in self.asked.voided
        counted = [row for row in rows if row.status != "errored"]
        successes = PASSED if arm == self.baseline else AS_EXPECTED
        snapshot = planned.snapshot
        held = snapshot is None or snapshot.verdict is None
        ended = combined_status(row.status for row in rows) or "not-run"
        status: Any = "void" if void else ended if held or snapshot is None else snapshot.verdict
        whole = planned.trials is None or len(rows) >= planned.trials
        return ShownExecution(
            runner=runner,
            arm=arm,
            status=status,
            passed=held and whole and bool(rows) and all(row.status in AS_EXPECTED for row in rows),
            score=None if void else mean(row.score for row in counted if row.score is not None),
            rate=None if void else rate_of([(row.status, row.first) for row in rows], successes) if rows else None,
            snapshot=snapshot,
            planned=planned.trials,
            trials=tuple(shown_row(row) for row in rows),
        )

    def rows_after(self, offset: int) -> RowsDocument:
        """Return the trials that ended since the journal was *offset* bytes long."""
        rows, end = more_rows(self.run_dir, max(0, offset), _ROWS_AT_ONCE)
        return RowsDocument(
            offset=end,
            status=self.status,
            rows=tuple([row.key.case, row.key.runner, row.key.arm, *cells_of(shown_row(row))] for row in rows),
            looks=tuple(row.look for row in rows if row.look is not None),
        )


def _decision(figures: ResultsShown | None) -> ShownDecision | None:
    if figures is None or not figures.comparisons:
        return None
    first = figures.comparisons[0]
    names = ("candidate", "baseline", "runner", "verdict", "difference", "low", "high")
    return ShownDecision(**{name: getattr(first, name) for name in names})

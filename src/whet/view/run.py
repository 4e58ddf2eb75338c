"""The document of a run: what was decided, what it cost, and a row for each trial; also of a run under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whet.decide.scores import combined_status, mean, rate_of, wilson
from whet.errors import StoreError
from whet.model.arm import baseline_of
from whet.model.comparison import Comparison, PairFigures
from whet.model.grade import AS_EXPECTED, PASSED
from whet.model.run import ExecutionKey
from whet.model.spending import Spending
from whet.reading.files import open_file
from whet.reading.text import one_line
from whet.record.contents.differences import difference_line, differences_of_arms
from whet.record.contents.keep import read_contents
from whet.record.document import WrittenCounts
from whet.record.folder import JOURNAL_FILE, RUN_FILE, SPENT_FILE, is_locked
from whet.record.journal.journal import SpendingFile
from whet.record.judging.tries import read_pairs, read_tries, with_leaks_only
from whet.record.notes import read_notes
from whet.record.read.ratings import item_ratings
from whet.record.read.rows import JournalRows, TrialRow, file_problem, more_rows, read_rows
from whet.record.results_file import ResultsFile
from whet.record.run_file import RunFile, read_run_file
from whet.report.decisions.verdicts import decided, word_of
from whet.report.judging.checked import checked_in_folder
from whet.view._figures import (
    PlannedExecution,
    ResultsShown,
    begin_of,
    planned_executions,
    spending_in,
)
from whet.view._leads import commands_of_run
from whet.view._rows import cells_of, errored_groups, shown_row
from whet.view.documents import (
    ArmDifferences,
    ArmRatings,
    RowsDocument,
    RunDocument,
    RunStatus,
    ShownArm,
    ShownCase,
    ShownDecision,
    ShownExecution,
    ShownRate,
    ShownRun,
    ShownRunner,
    shown_bills,
    shown_rate,
    trial_key,
)
from whet.view.live import running_trials

_LARGEST_RUN_FILE = 64 * 1024 * 1024
_LARGEST_JOURNAL = 4 * 1024 * 1024 * 1024
_PIECE = 1 << 20
_ROWS_AT_ONCE = 2000


class RunView:
    """A run folder of any origin, as pages show it: `problem` says what cannot be read, and nothing raises.

    *running* says whether the run is under way, if that is known better than by its lock. Of a *private* one, nothing
    is said about where it is on the disk, and how it was started.
    """

    def __init__(
        self, run_dir: Path, *, name: str | None = None, running: bool | None = None, private: bool = False
    ) -> None:
        self.run_dir = run_dir
        self.id = name or run_dir.name
        self._running = running
        self.private = private
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
    def rows(self) -> JournalRows:
        """The trials of the run that have ended."""
        rows = read_rows(self.run_dir)
        if rows.problem:
            self._problems.append(rows.problem)
        return rows

    @cached_property
    def suite_text(self) -> str | None:
        """The file of the suite as the run found it; None if the record does not hold it, as with solutions."""
        contents = read_contents(self.run_dir)
        digests = iter(contents.shared.get("suite", {}).values())
        return contents.texts.get(next(digests, ""))

    @cached_property
    def rows_by_case(self) -> dict[str, list[TrialRow]]:
        """The trials of each case."""
        cases: dict[str, list[TrialRow]] = {}
        for key, row in self.rows.rows.items():
            cases.setdefault(key.case, []).append(row)
        return cases

    @cached_property
    def figures(self) -> ResultsShown | None:
        """What results.json says before its cases; None without one."""
        return self._readable(ResultsFile.read_head)

    @cached_property
    def results(self) -> ResultsShown | None:
        """What results.json says, without trials; None without one."""
        return self._readable(ResultsFile.read)

    def _readable(self, read: Callable[[ResultsFile, type[ResultsShown]], ResultsShown | None]) -> ResultsShown | None:
        results = ResultsFile(self.run_dir)
        if problem := file_problem(results.path):
            self._problems.append(problem)
            return None
        try:
            return read(results, ResultsShown)
        except StoreError as error:
            self._problems.append(error.message)
            return None

    @cached_property
    def status(self) -> RunStatus:
        """Whether it is under way, has ended, or was left."""
        if not (self.run_dir / RUN_FILE).exists() and not (self.run_dir / JOURNAL_FILE).exists():
            self._problems.append(f"{self.run_dir} is not a run folder, or is gone")
            return "unreadable"
        figures = self.figures
        is_complete = figures is not None and figures.record is not None and figures.record.lines == self._line_count()
        if figures is not None and is_complete and not figures.interrupted:
            return "completed"
        if is_locked(self.run_dir) if self._running is None else self._running:
            return "running"
        if self.asked.suite is None and self.asked.fingerprint is None:
            return "unreadable"
        return "interrupted" if figures is not None and is_complete else "unfinished"

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
        problems = (
            problem.replace(f"{self.run_dir}/", "").replace(str(self.run_dir), "it") for problem in self._problems
        )
        return "; ".join(dict.fromkeys(problems)) or None

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
        more_trials = self.rows.grown if self.status != "completed" else 0
        return self.asked.trials + more_trials * len(self.asked.plan)

    @cached_property
    def head(self) -> ShownRun:
        """The run in a list."""
        status, figures, run_file = self.status, self.figures, self.asked
        counts, decisions = self._counts(), _decisions(figures)
        skill, commit = self._tested(decisions[0].candidate if decisions else next(iter(reversed(self.arms)), ""))
        return ShownRun(
            id=self.id,
            suite=run_file.suite,
            suite_path=None if self.private else run_file.suite_path,
            command=run_file.command,
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
            decision=next(iter(decisions), None),
            decisions=decisions,
            skill=skill,
            commit=commit,
            problem=self.problem,
        )

    def _counts(self) -> dict[str, int]:
        if self.figures is not None and self.status in ("completed", "interrupted"):
            return {name: getattr(self.figures.counts, name) for name in WrittenCounts.__struct_fields__}
        void = [key for key in self.rows.rows if key.case in self.asked.voided]
        statuses = Counter(row.status for key, row in self.rows.rows.items() if key.case not in self.asked.voided)
        total = max(self.planned or 0, len(self.rows.rows))
        return {
            **{name: statuses[name.replace("_", "-")] for name in ("passed", "failed", "expected_failed")},  # type: ignore[index]
            "unexpected_passed": statuses["unexpected-passed"],
            "errored": statuses["errored"],
            "not_run": total - len(void) - statuses.total(),
            "void": len(void),
            "total": total,
        }

    def _rate(self, counts: dict[str, int]) -> ShownRate | None:
        """Return the rate of the candidates, or of all trials if nothing is compared; by first attempts, as in a gate.

        The counts are of last attempts, which are first ones unless there were retries.
        """
        baseline = self.baseline
        if baseline is None and self.figures is not None and self.asked.setting("run.retries") in (None, "0"):
            passes = counts["passed"] + counts["expected_failed"]
            total = passes + counts["failed"] + counts["unexpected_passed"]
            return shown_rate(wilson(passes, total) if total else None)
        outcomes = [
            (row.counting_status, row.first)
            for key, row in self.rows.rows.items()
            if key.arm != baseline and key.case not in self.asked.voided
        ]
        return shown_rate(rate_of(outcomes) if outcomes else None)

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
                return SpendingFile(path).spending
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
            differences=tuple(self._differences()),
            comparisons=self._comparisons(results),
            lift=results.lift if results else (),
            looks=rows.looks,
            until=self.asked.until,
            stopped=results.stopped if results else None,
            scores=results.scores if results else (),
            skill_loads=results.skill_loads if results else (),
            triggers=results.triggers if results else (),
            voided=self.asked.voided,
            warnings=self.asked.warnings,
            judge_tries=tuple(map(with_leaks_only, read_tries(self.run_dir))),
            references=self._references(results),
            errored=tuple(errored_groups(rows.rows.values())),
            ratings=tuple(self._ratings()) if results and results.comparisons else (),
            runners=runners,
            cases=cases,
            offset=rows.offset,
            notes=self._note_counts(),
            previous=previous,
            commands=() if self.private else commands_of_run(self.run_dir),
        )

    def _comparisons(self, results: ResultsShown | None) -> tuple[Comparison, ...]:
        """Return what was decided, with what people say of the judge by now."""
        comparisons, suite = results.comparisons if results else (), self.asked.suite_path
        return checked_in_folder(comparisons, self.run_dir, Path(suite) if suite else None)

    def _references(self, results: ResultsShown | None) -> tuple[PairFigures, ...]:
        """Return what a judge said last of answers beside stored ones, unless the run was looked at since then."""
        newest = next(read_pairs(self.run_dir), None)
        looks = {comparison.looks for comparison in (results.comparisons if results else ())}
        figures = newest.figures if newest else ()
        return tuple(entry for entry in figures if entry.reference and looks <= {entry.looks})

    def _ratings(self) -> Iterator[ArmRatings]:
        groups: dict[tuple[str, str], list[TrialRow]] = {}
        for key, row in self.rows.rows.items():
            groups.setdefault((key.arm, key.runner), []).append(row)
        for (arm, runner), rows in groups.items():
            if items := item_ratings(self.run_dir, rows):
                yield ArmRatings(arm=arm, runner=runner, items=items)

    def _note_counts(self) -> dict[str, int]:
        try:
            return {trial_key(key): len(notes) for key, notes in read_notes(self.run_dir).items()}
        except StoreError as error:
            self._problems.append(error.message)
            return {}

    def _facts(self) -> Iterator[tuple[str, str]]:
        run_file, results = self.asked, self.figures
        command_line = (
            " ".join(("whet", run_file.command or "run", *run_file.typed.again)) if run_file.typed.again else None
        )
        places = (
            ("command", command_line),
            ("suite", run_file.suite_path),
            ("skill", run_file.skill),
            ("folder", str(self.run_dir)),
        )
        facts = (
            *(() if self.private else places),
            ("sandbox", results.sandbox if results else run_file.setting("run.sandbox")),
            ("schedule", results.schedule if results else None),
            ("whet", run_file.whet_version),
            ("regraded from", run_file.regraded_from),
            ("content of the suite", (run_file.suite_digest or "")[:12]),
        )
        yield from ((name, one_line(text, 500)) for name, text in facts if text)

    def _tested(self, arm: str) -> tuple[str | None, str | None]:
        """Return the skill of an arm and its commit, by which the runs of a suite differ."""
        skill = self.asked.arm_facts.get(arm, {}).get("skill")
        return None if skill == "none" else skill, self.asked.commits.get(arm)

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

    def _differences(self) -> Iterator[ArmDifferences]:
        """Yield what differs between the baseline and each other arm."""
        baseline = self.baseline
        for arm in self.arms if baseline is not None else ():
            if arm != baseline:
                found = differences_of_arms(self.run_dir, self.asked, str(baseline), arm)
                yield ArmDifferences(
                    candidate=arm, baseline=str(baseline), differs=difference_line(found), differences=found
                )

    def _cases(self) -> tuple[tuple[ShownCase, ...], tuple[ShownRunner, ...]]:
        executions_by_key = self.executions
        trials: dict[ExecutionKey, list[TrialRow]] = {}
        for key, row in self.rows.rows.items():
            trials.setdefault((key.case, key.runner, key.arm), []).append(row)
        heads = {case.id: case for case in self.results.cases} if self.results else {}
        cases: dict[str, list[ShownExecution]] = {}
        for execution in dict.fromkeys((*executions_by_key, *trials)):
            rows = sorted(trials.get(execution, ()), key=lambda row: row.key.number)
            shown_execution = self._execution(execution, executions_by_key.get(execution, PlannedExecution()), rows)
            cases.setdefault(execution[0], []).append(shown_execution)
        runners = {
            runner: ShownRunner(id=runner, agent=execution_plan.agent, model=execution_plan.model)
            for (_, runner, _), execution_plan in executions_by_key.items()
        }
        runners |= {key.runner: ShownRunner(id=key.runner) for key in self.rows.rows if key.runner not in runners}
        shown_cases = tuple(
            ShownCase(
                id=case,
                tags=heads[case].tags if case in heads else self.asked.tags.get(case, ()),
                weight=heads[case].weight if case in heads else self.asked.weights.get(case),
                lost_checks=heads[case].lost_checks if case in heads else (),
                split=self.asked.splits.get(case),
                passed=all(execution.passed for execution in executions),
                executions=tuple(executions),
            )
            for case, executions in cases.items()
        )
        return shown_cases, tuple(runners.values())

    @cached_property
    def executions(self) -> dict[ExecutionKey, PlannedExecution]:
        """The planned executions, in declared order."""
        if self.results is not None:
            return {
                (case.id, execution.runner, execution.arm): PlannedExecution(
                    execution.planned_trials, execution.agent, execution.model, execution.snapshot
                )
                for case in self.results.cases
                for execution in case.executions
            }
        return dict(planned_executions(self.asked, self.arms))

    def _execution(self, execution: ExecutionKey, plan: PlannedExecution, rows: list[TrialRow]) -> ShownExecution:
        case, runner, arm = execution
        void = case in self.asked.voided
        graded_rows = [row for row in rows if row.status != "errored"]
        successes = PASSED if arm == self.baseline else AS_EXPECTED
        snapshot = plan.snapshot
        snapshot_holds = snapshot is None or snapshot.verdict is None
        trial_status = combined_status(row.status for row in rows) or "not-run"
        status: Any
        if void:
            status = "void"
        elif snapshot_holds or snapshot is None:
            status = trial_status
        else:
            status = snapshot.verdict
        is_complete = plan.trials is None or len(rows) >= plan.trials
        return ShownExecution(
            runner=runner,
            arm=arm,
            status=status,
            passed=snapshot_holds and is_complete and bool(rows) and all(row.status in AS_EXPECTED for row in rows),
            score=None if void else mean(row.score for row in graded_rows if row.score is not None),
            rate=rate_of([(row.counting_status, row.first) for row in rows], successes) if rows and not void else None,
            snapshot=snapshot,
            planned=plan.trials,
            trials=tuple(shown_row(row) for row in rows),
        )

    def rows_after(self, offset: int) -> RowsDocument:
        """Return the trials that ended since the journal was *offset* bytes long."""
        rows, end = more_rows(self.run_dir, max(0, offset), _ROWS_AT_ONCE)
        return RowsDocument(
            offset=end,
            status=self.status,
            run=self.head if rows or self.status in ("completed", "interrupted") else None,
            rows=tuple([row.key.case, row.key.runner, row.key.arm, *cells_of(shown_row(row))] for row in rows),
            running=tuple(running_trials(self.run_dir, self.executions, self.rows.rows, self.rows.grown))
            if self.status == "running"
            else (),
            looks=tuple(row.look for row in rows if row.look is not None),
        )


def _decisions(figures: ResultsShown | None) -> tuple[ShownDecision, ...]:
    comparisons = decided(figures.comparisons) if figures else ()
    return tuple(
        ShownDecision(
            candidate=comparison.candidate,
            baseline=comparison.baseline,
            runner=comparison.runner,
            verdict=comparison.verdict,
            word=word_of(comparison),
            difference=comparison.difference,
            low=comparison.low,
            high=comparison.high,
            rate=comparison.candidate_rate,
            scored=comparison.scored,
        )
        for comparison in comparisons
    )

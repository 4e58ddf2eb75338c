"""Results as they follow from a journal alone, by the plan that the results themselves tell."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from whet.model.run import Execution, Plan, RunInfo, Runner, TrialKey, TrialResult
from whet.model.session import Usage
from whet.model.snapshot import SnapshotOutcome
from whet.model.suite import NO_SKILL, SKILL, TRIGGERED, Case, Check, Limits, Suite, WorkspaceSpec
from whet.store.chain import Line, counted, is_done, run_hash
from whet.store.folder import RUN_FILE, SPENT_FILE
from whet.store.journal import Entry
from whet.store.results import JournalResults, write_document
from whet.store.snapshots import SnapshotKey, snapshot_key


def recomputed(run_dir: Path, results: dict[str, Any], lines: list[Line]) -> Any:
    """The document that the first *lines* of the journal come to."""
    plan, snapshots = _plan_of(results)
    held = JournalResults(
        plan,
        _Looked(lines, run_hash(run_dir / RUN_FILE)),
        results["duration_s"],
        snapshots,
        # It is not of the journal, and compared with the disk.
        workspaces=results["record"].get("workspaces"),
    )
    info = RunInfo(
        run_id=results["run_id"],
        run_dir=run_dir,
        suite=results["suite"],
        suite_path=Path(results["suite_path"]),
        started_at=results["started_at"],
        sandbox=results["sandbox"],
        version=results["whet_version"],
    )
    file = io.BytesIO()
    write_document(file, info, held, interrupted=results["interrupted"], ended_at=results["ended_at"])
    document = msgspec.json.decode(file.getvalue())
    if (run_dir / SPENT_FILE).exists():
        # What attempts took that a signal cut short is not in the journal.
        del document["total_usage"], document["interrupted_usage"]
    return document


# The one check that a lift leaves out; what else a case asks does not matter to results.
_ABOUT_SKILL = (Check(grader="answer", label=TRIGGERED, compared=False),)


def _plan_of(results: dict[str, Any]) -> tuple[Plan, dict[SnapshotKey, SnapshotOutcome]]:
    """What was planned, as far as results depend on it, and what snapshots said."""
    found = [(case, execution) for case in results["cases"] for execution in case["executions"]]
    together = {(case["id"], execution["runner"], execution["variant"]) for case, execution in found}
    executions = tuple(
        Execution(
            case=Case(id=case["id"], prompt="", checks=_ABOUT_SKILL, tags=tuple(case["tags"]), weight=case["weight"]),
            runner=Runner(id=execution["runner"], agent=execution["agent"], model=execution["model"]),
            variant=execution["variant"],
            limits=Limits(),
            workspace=WorkspaceSpec(),
            trials=execution["planned_trials"],
            control=execution["variant"] == NO_SKILL and (case["id"], execution["runner"], SKILL) in together,
        )
        for case, execution in found
    )
    plan = Plan(
        suite=Suite(
            name=results["suite"],
            source=Path(results["suite_path"]),
            cases=tuple({execution.case.id: execution.case for execution in executions}.values()),
            digest="",
        ),
        executions=executions,
        schedule=results["schedule"],
        max_parallel=results["max_parallel"],
        retries=0,
        check_timeout_s=0,
    )
    snapshots = {
        snapshot_key(execution): msgspec.convert(told["snapshot"], SnapshotOutcome)
        for execution, (_, told) in zip(executions, found, strict=True)
        if told["snapshot"] is not None
    }
    return plan, snapshots


class _Looked:
    """A journal as results want it, of lines that somebody looks at and does not own."""

    def __init__(self, lines: list[Line], run: str | None) -> None:
        self.usage = sum((line.result.total_usage for line in _paid(lines)), Usage())
        self.lines = len(lines)
        self.last_link = lines[-1].link if lines else None
        self.run_hash = run
        self._lines = {line.result.key: line for line in counted(lines)}
        self._results = {line.offset: line.result for line in lines}

    def entry(self, key: TrialKey) -> Entry | None:
        """What is known of a trial, if it has ended."""
        line = self._lines.get(key)
        if line is None:
            return None
        found = line.result
        return Entry(
            line.offset,
            len(line.raw),
            b"",
            found.status,
            found.score,
            found.duration_s,
            is_done(found),
            found.first_status,
        )

    def read(self, entry: Entry) -> TrialResult:
        """The whole result."""
        return self._results[entry.offset]


def _paid(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines whose usage counts: a trial that is done twice was paid for once."""
    done: set[TrialKey] = set()
    for line in lines:
        if line.result.key not in done:
            yield line
        if is_done(line.result):
            done.add(line.result.key)

"""Make the record of a large run without running anything: the same files, journal and results as a real run leaves.

`python bench/large_run.py FOLDER --trials 10000 --events 200` makes one for you to look at.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from whet.model.arm import Arm
from whet.model.codec import encode, encode_pretty
from whet.model.grade import Failure, Grade, Status
from whet.model.run import AttemptResult, Execution, Plan, RunInfo, Runner, Trial, TrialResult
from whet.model.session import SessionSummary, sourced
from whet.model.suite import Case, Check, Limits, Suite, WorkspaceSpec
from whet.record.file_hashes import FileHashes
from whet.record.folder import JOURNAL_FILE, RUN_FILE
from whet.record.journal.journal import Journal
from whet.record.results import JournalResults, write_results
from whet.record.run_file import RunFile, fingerprint, write_run_file
from whet.version import __version__

PER_CASE = 10
_BEGAN = datetime(2026, 1, 5, 10, 15, 30, tzinfo=UTC)
_ARMS = ("old", "new")


def make_run(folder: Path, *, trials: int, events: int, seed: int = 1) -> Path:
    """Make the record of a run of two arms in *folder*, with so many trials of so many events each, and return it."""
    plan, random = _plan(folder, trials), Random(seed)
    session = _events(random, events)
    return write_record(
        folder, plan, lambda trial, began: _result(plan, trial.execution, trial.key.number, began, random), session
    )


def write_record(
    folder: Path, plan: Plan, outcome: Callable[[Trial, datetime], TrialResult], session: bytes, **asked: Any
) -> Path:
    """Write the record of a run in which each trial of *plan* ended as *outcome* says, and return its folder."""
    folder.mkdir(parents=True)
    write_run_file(
        folder,
        RunFile(
            whet_version=__version__,
            suite=plan.suite.name,
            suite_path=str(plan.suite.source),
            suite_digest="0" * 64,
            fingerprint=fingerprint(plan),
            trials=plan.trial_count,
            command="run",
            arm_facts={arm.name: arm.facts() for arm in plan.arms},
            baseline=plan.baseline,
            seed=plan.seed,
            weights={case.id: case.weight for case in plan.suite.cases},
            plan=tuple(f"{execution} x{execution.trials}" for execution in plan.executions),
            **asked,
        ),
    )
    journal = Journal(folder / JOURNAL_FILE)
    for number, trial in enumerate(plan.trials()):
        result = outcome(trial, _BEGAN + timedelta(seconds=number))
        _write_attempt(folder / result.artifact_dir, result, trial.execution, session)
        journal.append(result, FileHashes(folder, result).hashes())
    info = RunInfo(
        run_id=folder.name,
        run_dir=folder,
        suite=plan.suite.name,
        suite_path=plan.suite.source,
        started_at=_BEGAN.isoformat(timespec="milliseconds"),
        sandbox="bubblewrap",
        version=__version__,
    )
    ended = _BEGAN + timedelta(seconds=plan.trial_count)
    results = JournalResults(plan, journal, float(plan.trial_count))
    write_results(info, results, interrupted=False, ended_at=ended.isoformat(timespec="milliseconds"))
    return folder


def _plan(folder: Path, trials: int) -> Plan:
    cases = tuple(
        Case(id=f"case-{number:04}", prompt=f"Do task {number}.", checks=(Check(grader="python"),), tags=("bench",))
        for number in range(max(1, trials // (PER_CASE * len(_ARMS))))
    )
    runner = Runner(id="agent", agent="claude-code", model="a-model")
    executions = tuple(
        Execution(
            case=case,
            runner=runner,
            arm=arm,
            limits=Limits(),
            workspace=WorkspaceSpec(),
            trials=PER_CASE,
            baseline=arm == _ARMS[0],
        )
        for case in cases
        for arm in _ARMS
    )
    return Plan(
        suite=Suite(name="large", cases=cases, source=folder.parent / "large.py", digest="0" * 64),
        executions=executions,
        schedule="parallel",
        max_parallel=8,
        retries=0,
        check_timeout_s=30.0,
        arms=tuple(Arm(name=name, recorded={"skill": f"{number}" * 64}) for number, name in enumerate(_ARMS)),
        baseline=_ARMS[0],
        seed=7,
    )


def _result(plan: Plan, execution: Execution, number: int, began: datetime, random: Random) -> TrialResult:
    passes = random.random() < (0.7 if execution.baseline else 0.8)
    status: Status = "passed" if passes else ("expected-failed" if execution.baseline else "failed")
    reason = "" if passes else 'expected command "pytest"\nobserved ls part-1, ls part-2'
    key = plan.key(execution, number)
    place = f"trials/{key.case}/{key.runner}/{key.arm}/{number}/1"
    usage = sourced(frozenset(), input_tokens=random.randrange(5_000, 50_000), output_tokens=900, cost_usd=0.02)
    failure = None if passes else Failure(phase="check", code="check-failed", cause="agent", message=reason)
    attempt = AttemptResult(
        number=1,
        status=status,
        duration_s=12.5,
        artifact_dir=place,
        failure=failure,
        usage=usage,
        value=float(status == "passed"),
    )
    return TrialResult(
        key=key,
        status=status,
        score=float(passes),
        duration_s=12.5 + random.random(),
        started_at=began.isoformat(timespec="milliseconds"),
        artifact_dir=place,
        grades=(Grade(check="check", value=float(passes), passed=passes, reason=reason),),
        failure=failure,
        usage=usage,
        steps=99,
        final_output="Done. All tests pass.",
        session_s=12.0,
        attempts=(attempt,),
    )


def _events(random: Random, count: int) -> bytes:
    """Return a session as JSON lines: messages, commands with their output, reads and edits."""
    lines = []
    for number in range(count - 1):
        at = (_BEGAN + timedelta(milliseconds=100 * number)).isoformat(timespec="milliseconds")
        words = " ".join(random.choice(("the", "test", "of", "<b>", "file", "\\n", "fails")) for _ in range(12))
        kinds = (
            {"type": "message", "role": "assistant", "text": words, "at": at},
            {"type": "tool_call", "tool": "Bash", "id": f"t{number}", "args": {"command": f"ls part-{number}"}},
            {"type": "command", "command": f"ls part-{number}", "exit_code": 0, "at": at},
            {"type": "tool_result", "id": f"t{number - 2}", "tool": "Bash", "output": words, "ok": True, "at": at},
            {"type": "file_read", "path": f"part-{number}/notes.md", "at": at},
        )
        lines.append(json.dumps(kinds[number % len(kinds)]))
    return "".join(f"{line}\n" for line in [*lines, json.dumps({"type": "final_output", "text": "Done."})]).encode()


def _write_attempt(folder: Path, result: TrialResult, execution: Execution, events: bytes) -> None:
    folder.mkdir(parents=True)
    session = SessionSummary(
        runner=execution.runner.id,
        agent=execution.runner.agent,
        prompt=execution.case.prompt,
        final_output=result.final_output,
        model=execution.runner.model,
        exit_code=0,
        steps=result.steps,
        usage=result.usage,
        started_at=result.started_at,
        duration_s=result.session_s,
    )
    (folder / "session.json").write_bytes(encode_pretty(session))
    (folder / "events.jsonl").write_bytes(events)
    (folder / "grades.json").write_bytes(encode(result.grades))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=200)
    asked = parser.parse_args()
    print(make_run(asked.folder, trials=asked.trials, events=asked.events) / RUN_FILE)


if __name__ == "__main__":
    main()

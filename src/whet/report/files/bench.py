"""The bench reporter: results as `cases` with `pass`, `cost`, `duration` and `tokens`, in a file or on stdout."""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import replace

from whet.decide.resampling import pass_at_k
from whet.errors import AgentTimedOut, BudgetSpent
from whet.model import codec
from whet.model.grade import CHECKS_FAILED, Grade, Rate
from whet.model.run import TrialResult
from whet.model.run_events import ExecutionSummary, RunEnded
from whet.model.session import Usage
from whet.report.files.json import DocumentReporter

Outcome = Literal["passed", "failed", "timeout", "budget", "agent_error", "infra_error", "skipped"]
_MOST_K = 10
_BY_CODE: dict[str, Outcome] = {
    CHECKS_FAILED: "failed",
    AgentTimedOut.code: "timeout",
    BudgetSpent.code: "budget",
}


class BenchReporter(DocumentReporter):
    """Writes one entry for each case on each runner, even if it never ran."""

    def chunks(self, event: RunEnded) -> list[bytes]:
        """Return the document."""
        return [codec.encode_pretty(_document(event)) + b"\n"]


def _document(event: RunEnded) -> dict[str, Any]:
    results = event.results
    entries = [_entry(summary, list(results.trials(summary.execution))) for summary in results.summaries()]
    costs = [entry["cost"] for entry in entries if entry["cost"] is not None]
    passes = sum(entry["pass"] for entry in entries)
    return {
        "suite": results.plan.suite.name,
        "passed": passes,
        "failed": len(entries) - passes - len([entry for entry in entries if entry["void"]]),
        "total": len(entries),
        # The cost is unknown if no agent reported one, and 0 if nothing ran.
        "totalCost": round(sum(costs), 9) if costs or all(entry["status"] == "skipped" for entry in entries) else None,
        "cases": entries,
        "schemaVersion": 1,
        "runId": event.info.run_id,
        "startedAt": event.info.started_at,
        "duration": round(results.duration_s, 3),
        "errored": sum(entry["status"] == "infra_error" for entry in entries),
        "skipped": sum(entry["status"] == "skipped" for entry in entries),
        "unknownCosts": sum(entry["cost"] is None and entry["status"] != "skipped" for entry in entries),
        "interrupted": event.interrupted,
    }


def _entry(summary: ExecutionSummary, trials: list[TrialResult]) -> dict[str, Any]:
    execution = summary.execution
    # The first trial that did not pass explains the case.
    decisive = next((trial for trial in trials if not trial.passed), trials[0] if trials else None)
    usage = _total_usage(trials)
    failure = decisive.failure if decisive else None
    return {
        "id": execution.case.id,
        "pass": summary.passed and summary.status != "void",
        "cost": usage.cost_usd,
        "duration": round(sum(trial.duration_s for trial in trials), 3),
        "tokens": {
            "input": usage.reported("input_tokens"),
            "output": usage.reported("output_tokens"),
            "cacheRead": usage.reported("cached_tokens"),
            "cacheWrite": usage.reported("cache_write_tokens"),
        },
        "status": _outcome(summary, decisive),
        "runner": execution.runner.id,
        "model": execution.runner.model,
        "budget": execution.limits.budget_usd,
        "vacuous": any(trial.vacuous for trial in trials),
        "void": summary.status == "void",
        "expectations": [_expectation(grade) for grade in decisive.grades] if decisive else [],
        "error": failure.message if failure and not failure.is_of_checks else _not_held(summary),
        "notes": list(dict.fromkeys(note for trial in trials for note in trial.notes)),
        "turns": decisive.steps if decisive else None,
        **_rates(summary.rate),
        "runs": [_run(trial) for trial in trials],
    }


def _not_held(summary: ExecutionSummary) -> str | None:
    """Return why a case does not pass although all of its runs did."""
    outcome = summary.snapshot
    return None if outcome is None or outcome.verdict is None else f"snapshot {outcome.status}: {outcome.message}"


def _rates(rate: Rate | None) -> dict[str, Any]:
    """Return the share of runs that passed: of all, if errored runs had failed or passed, and at first attempts."""
    if rate is None:
        return {"passRate": None, "passRateBounds": None, "firstPassRate": None, "flaky": 0, "passAtK": {}}
    ks = range(1, min(rate.total, _MOST_K) + 1)
    return {
        "passRate": rate.value,
        "passRateBounds": [round(rate.if_errored_failed, 6), round(rate.if_errored_passed, 6)],
        "firstPassRate": round(rate.first_passed / rate.first_total, 6) if rate.first_total else None,
        "flaky": rate.flaky,
        # For each k, the chance that at least one of k runs passes.
        "passAtK": {str(k): round(pass_at_k(rate.total, rate.passed, k), 6) for k in ks},
    }


def _total_usage(trials: list[TrialResult]) -> Usage:
    """Return the usage of all runs of a case; the cost is unknown if a part of it is."""
    total = sum((trial.total_usage for trial in trials), Usage())
    is_known = trials and all(_cost_is_known(trial) for trial in trials)
    return total if is_known else replace(total, cost_usd=None, cost_source=None)


def _cost_is_known(trial: TrialResult) -> bool:
    """Return whether every attempt reported its cost, but those whose agent never started."""
    attempts = [attempt for attempt in trial.attempts if attempt.failure is None or attempt.failure.phase != "start"]
    return trial.total_usage.cost_usd is not None and all(attempt.usage.cost_usd is not None for attempt in attempts)


def _outcome(summary: ExecutionSummary, decisive: TrialResult | None) -> Outcome:
    if decisive is None or summary.status == "void":
        return "skipped"
    if summary.passed:
        return "passed"
    if summary.snapshot is not None and summary.snapshot.verdict is not None:
        # Snapshots are compared only if all runs passed.
        return "failed" if summary.snapshot.verdict == "failed" else "infra_error"
    if decisive.failure is None:
        # All runs that there are passed, but some are missing.
        return "skipped" if decisive.passed else "failed"
    if decisive.status == "errored":
        return "infra_error"
    return _BY_CODE.get(decisive.failure.code, "agent_error")


def _expectation(grade: Grade) -> dict[str, Any]:
    return {
        "raw": grade.check,
        "type": grade.check.partition(":")[0],
        "pass": grade.passed,
        "error": grade.undecided,
        "reason": grade.reason,
        "durationMs": None if grade.duration_s is None else round(grade.duration_s * 1000, 3),
        "evidence": grade.evidence,
        **({} if grade.turn is None else {"turn": grade.turn}),
    }


def _run(trial: TrialResult) -> dict[str, Any]:
    return {
        "number": trial.number,
        "status": trial.status,
        "pass": trial.passed,
        "cost": trial.total_usage.cost_usd,
        "duration": round(trial.duration_s, 3),
        "attempts": len(trial.attempts),
        "artifacts": trial.artifact_dir,
    }

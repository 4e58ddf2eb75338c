"""The plugin-eval reporter: `aggregate-result.json` as `claude plugin eval` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from whet.errors import StoreError
from whet.grade.evidence import load_report
from whet.model.arm import baseline_of
from whet.model.run import Execution, RunInfo, Runner, TrialResult
from whet.model.run_events import Results, RunEnded
from whet.model.suite import Case, Check, Suite
from whet.reading.plugin_folder import plugin_manifest
from whet.report.files._folder import FolderReporter

FILE = "aggregate-result.json"
# The name under which a check keeps what its grader was in a suite of that format.
_ORIGIN = "plugin_eval"
_CLAUDE_CODE = "claude-code"
_CASE_FILES = {(True, False): "prose", (False, True): "case_yaml", (True, True): "mixed"}


class PluginEvalReporter(FolderReporter):
    """Writes one file into its folder."""

    default_folder = "plugin-eval"

    def write(self, event: RunEnded, runner: Runner, folder: Path) -> Path:
        """Write the file, and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        document = json.dumps(_document(event.results, event.info, runner), indent=2, ensure_ascii=False)
        (folder / FILE).write_text(f"{document}\n", encoding="utf-8", errors="backslashreplace")
        return folder / FILE


def _document(results: Results, info: RunInfo, runner: Runner) -> dict[str, Any]:
    plan = results.plan
    arms = [arm.name for arm in plan.arms]
    baseline = baseline_of(arms)
    # With more than two arms, the first that is not the baseline is the one with the plug-in.
    tested = next((arm for arm in arms if arm != baseline), baseline)
    by_case: dict[str, list[Execution]] = {}
    for execution in plan.executions:
        if execution.runner.id == runner.id:
            by_case.setdefault(execution.case.id, []).append(execution)
    cases: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for executions in by_case.values():
        case = _case(results, info, executions, tested, baseline)
        cases.append(case)
        for case_runs in case["arms"].values():
            runs += case_runs
    return {
        "schemaVersion": 1,
        "claudeVersion": _version(runs) if runner.agent == _CLAUDE_CODE else "",
        "startedAt": info.started_at,
        "durationSeconds": round(_elapsed_s(runs), 3),
        "costUsd": round(sum(map(itemgetter("costUsd"), runs)), 9),
        "partial": results.counts.get("not-run", 0) > 0,
        "suite": _suite(plan.suite, runner, is_compared=baseline is not None),
        "cases": cases,
        "aggregates": _aggregates(cases),
    }


def _version(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the version that the first session says; an empty text if none does."""
    for run in runs:
        with suppress(StoreError):
            version = load_report(Path(run["tracePath"]).parent).version
            if version is not None:
                return version
    return ""


def _elapsed_s(runs: Sequence[Mapping[str, Any]]) -> float:
    """Return the time from the start of the first run to the end of the last one."""
    starts: list[float] = []
    ends: list[float] = []
    for run in runs:
        if run["startedAt"]:
            start = datetime.fromisoformat(run["startedAt"]).timestamp()
            starts.append(start)
            ends.append(start + run["durationSeconds"])
    return max(ends) - min(starts) if starts else 0.0


def _suite(suite: Suite, runner: Runner, *, is_compared: bool) -> dict[str, Any]:
    root = suite.skill.source if suite.skill else suite.source
    manifest = plugin_manifest(root)
    plugins: list[dict[str, Any]] = []
    if suite.skill is not None:
        version = {"version": manifest.version} if manifest is not None and manifest.version else {}
        plugins = [{"name": suite.skill.name, **version, "path": str(root)}]
    judge = suite.judge.get("runner") or suite.judge.get("model")
    return {
        "root": str(root),
        "ablation": "with-without" if is_compared else "none",
        **({"modelOverride": runner.model} if runner.model else {}),
        **({"judgeModel": str(judge)} if judge else {}),
        "threshold": 1,
        "plugins": plugins,
    }


def _case(
    results: Results, info: RunInfo, executions: Sequence[Execution], tested: str | None, baseline: str | None
) -> dict[str, Any]:
    case = executions[0].case
    arms: dict[str, list[dict[str, Any]]] = {"with": []}
    if baseline is not None:
        arms["without"] = []
    for execution in executions:
        if execution.arm not in (tested, baseline):
            continue
        runs = arms["without" if execution.arm == baseline else "with"]
        for result in results.trials(execution):
            runs.append(_run(execution, result, info, is_compared=baseline is not None))
    return {
        "name": case.id,
        "dir": _folder_of(case, results.plan.suite),
        "source": _source_of(case),
        "promptMarkdown": case.prompt,
        **({"model": case.model} if case.model else {}),
        "runsPerCase": case.trials or executions[0].trials,
        "timeoutSeconds": executions[0].limits.timeout_s,
        "maxTurns": executions[0].limits.max_steps,
        "graders": list(map(_grader, case.checks)),
        "arms": arms,
        "aggregates": _case_aggregates(arms),
    }


def _folder_of(case: Case, suite: Suite) -> str:
    folder = Path(case.location.file).parent if case.location else suite.source
    root = suite.skill.source if suite.skill else suite.source
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else str(folder)


def _source_of(case: Case) -> str:
    folder = Path(case.location.file).parent if case.location else Path()
    files = ((folder / "prompt.md").is_file(), (folder / "case.yaml").is_file())
    return _CASE_FILES.get(files, "case_yaml")


def _grader(check: Check) -> dict[str, Any]:
    """Return a grader as it is written; a check of another format has our name for its kind."""
    origin = check.params.get(_ORIGIN)
    facts = dict(origin) if isinstance(origin, Mapping) else {"type": check.grader, "config": {}}
    return {"name": check.label, "type": facts.pop("type"), "weight": check.weight, **facts}


def _run(execution: Execution, result: TrialResult, info: RunInfo, *, is_compared: bool) -> dict[str, Any]:
    grades = _graders_of(execution, result, is_compared=is_compared)
    counting = [grade for grade in grades if grade["scored"]]
    holding = filter(itemgetter("passed"), counting)
    total = sum(map(itemgetter("weight"), counting))
    score = sum(map(itemgetter("weight"), holding)) / total if total else 0.0
    judge_cost = result.judge_usage.cost_usd or 0
    failure = result.failure
    is_graded = failure is None or bool(grades)
    return {
        "score": score,
        "passed": score >= 1,
        "turns": result.steps,
        "costUsd": (result.usage.cost_usd or 0) + judge_cost,
        "judgeCostUsd": judge_cost,
        "durationSeconds": round(result.duration_s, 3),
        "startedAt": result.started_at,
        "error": None if failure is None or is_graded else failure.message,
        "tracePath": str(info.run_dir / result.artifact_dir / "transcript.jsonl"),
        "skippedPaidGraders": False,
        "graders": grades,
    }


def _graders_of(execution: Execution, result: TrialResult, *, is_compared: bool) -> list[dict[str, Any]]:
    """Return what each grader decided; those that ask about the plug-in alone are not asked without it."""
    apart = {check.label for check in execution.case.checks if not check.compared} if is_compared else frozenset()
    graders: list[dict[str, Any]] = []
    for grade in result.grades:
        with_only = grade.check in apart
        if not (with_only and execution.baseline):
            graders.append(
                {
                    "name": grade.check,
                    "passed": grade.passed,
                    "weight": grade.weight,
                    "explanation": grade.reason,
                    "withOnly": with_only,
                    "scored": not with_only,
                }
            )
    return graders


def _case_aggregates(arms: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for arm, runs in arms.items():
        ending = "" if arm == "with" else "Without"
        if runs:
            figures[f"score{ending}"] = fmean(map(itemgetter("score"), runs))
            figures[f"passRate{ending}"] = fmean(map(float, map(itemgetter("passed"), runs)))
    if {"score", "scoreWithout"} <= figures.keys():
        figures["delta"] = figures["score"] - figures["scoreWithout"]
    return figures


def _aggregates(cases: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    scores: list[float] = []
    rates: list[float] = []
    deltas: list[float] = []
    for case in cases:
        figures = case["aggregates"]
        for name, values in (("score", scores), ("passRate", rates), ("delta", deltas)):
            if name in figures:
                values.append(figures[name])
    return {
        "casesTotal": len(cases),
        "casesPassed": len(list(filter(_is_full, scores))),
        "overallScore": fmean(scores) if scores else 0.0,
        "overallPassRate": fmean(rates) if rates else 0.0,
        **({"meanDelta": fmean(deltas)} if deltas else {}),
    }


def _is_full(score: float) -> bool:
    return score >= 1

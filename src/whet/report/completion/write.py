"""Completion reports as JSON: an array with one object for each skill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet import wire
from whet.model.benchmark import Interval, Summary
from whet.model.completion import CallRecord, CompletionReport
from whet.model.session import Usage

_PLACES = 4


def reports_json(reports: Sequence[CompletionReport]) -> bytes:
    """The file."""
    return wire.encode_pretty([_report(report) for report in reports])


def _report(report: CompletionReport) -> dict[str, Any]:
    latency = report.summary.latency
    return _known(
        {
            "skillId": report.skill,
            "skillVersion": report.skill_version,
            "benchmarkId": report.benchmark,
            "timestamp": report.timestamp,
            "summary": _summary(report.summary),
            "latency": {
                # Others expect numbers here, also where nothing was answered.
                "p50Ms": round(latency.p50_ms) if latency else 0,
                "p95Ms": round(latency.p95_ms) if latency else 0,
                "p99Ms": round(latency.p99_ms) if latency else 0,
            },
            "tokenCost": _tokens(report.usage),
            "judgeCost": _tokens(report.judging) if report.judging else None,
            "taskResults": [_call(call, report.skill) for call in report.calls],
            # Empty at others; here it lets every figure be worked out again.
            "evaluatorMetadata": {
                "scoringMethod": report.scoring,
                "k": list(report.ks),
                "maxLatencyMs": report.max_latency_ms,
                "compositeWeights": dict(report.weights),
            },
        }
    )


def _summary(summary: Summary) -> dict[str, Any]:
    interval = summary.score_interval
    return _known(
        {
            "completionRate": _rounded(summary.completion.value if summary.completion else 0.0),
            "partialScore": _rounded(summary.score or 0.0),
            "errorRate": _rounded(summary.error_rate.value if summary.error_rate else 0.0),
            # Of one run nothing is known; others write 1 for it.
            "consistencyScore": _rounded(1.0 if summary.consistency is None else summary.consistency),
            "compositeScore": _rounded(summary.composite or 0.0),
            "confidenceInterval": _interval(interval) | {"mean": _rounded(interval.value)} if interval else None,
            "completionInterval": _interval(summary.completion) if summary.completion else None,
            "errorInterval": _interval(summary.error_rate) if summary.error_rate else None,
            "erroredCount": summary.errored,
            "passAtK": {str(found.k): _rounded(found.at) for found in summary.passes},
            "passHatK": {str(found.k): _rounded(found.all) for found in summary.passes},
        }
    )


def _interval(found: Interval) -> dict[str, float]:
    return {"lower": _rounded(found.low), "upper": _rounded(found.high), "level": 0.95}


def _call(call: CallRecord, skill: str) -> dict[str, Any]:
    sample = call.sample
    errored = sample.status == "errored"
    return _known(
        {
            "taskId": sample.task,
            "skillId": skill,
            # Others know no word for what says nothing about the skill; `errored` keeps the difference.
            "status": "error" if errored else sample.status,
            "errored": True if errored else None,
            "score": _rounded(sample.score),
            "latencyMs": 0 if sample.latency_ms is None else round(sample.latency_ms, 3),
            "output": call.output,
            "error": call.error,
            "scorerType": _SCORERS.get(call.evaluator, call.evaluator),
            "reason": call.reason or None,
            "flags": list(call.flags) or None,
            "runId": sample.run,
            "usage": _tokens(call.usage) if call.usage else None,
            "weight": sample.weight,
        }
    )


# The names that others write for the same evaluators.
_SCORERS = {"exact": "exact_match"}


def _tokens(usage: Usage) -> dict[str, Any] | None:
    if usage.total_tokens is None:
        return None
    return _known(
        {
            "promptTokens": usage.input_tokens or 0,
            "completionTokens": usage.output_tokens or 0,
            "totalTokens": usage.total_tokens,
            "estimatedUSD": usage.cost_usd,
        }
    )


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _rounded(value: float) -> float:
    return round(value, _PLACES)

"""Read and write completion reports as JSON, in the format that other tools share.

Reading computes all figures again from the single calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import convert

from whet.callable._summary import summarize
from whet.decide.scores import Weights
from whet.errors import SuiteError, UsageError
from whet.model import codec
from whet.model.callable import (
    DEFAULT_MAX_LATENCY_MS,
    SCORING_METHODS,
    CompletionReport,
    Interval,
    Sample,
    SampleStatus,
    Summary,
)
from whet.model.session import GUESSED, Usage
from whet.reading.fields import Fields, Findings
from whet.reading.yaml import read_checked

_STATUSES: tuple[SampleStatus, ...] = ("pass", "fail", "error", "timeout")
# What other tools call our evaluator `exact`.
_EXACT = "exact_match"
_PLACES = 4


def read_reports(path: Path) -> list[CompletionReport]:
    """Return the reports in *path*, which holds a list or a single one."""
    document = read_checked(path)
    if isinstance(document, dict) and str(document.get("schema")).startswith("whet/results/"):
        raise UsageError(
            f"{path} is the result of a run, and not the reports of an evaluation",
            hint="compare two runs with: whet compare RUN RUN",
        )
    entries = document if isinstance(document, list) else [document]
    root = Fields({}, Findings(str(path)))
    reports = [_read_report(root.object(f"[{index}]", item)) for index, item in enumerate(entries)]
    if root.findings.problems:
        raise SuiteError(root.findings.problems)
    return reports


def _read_report(fields: Fields) -> CompletionReport:
    how = fields.table("evaluatorMetadata")
    fields.has("taskResults", required=True)
    calls = tuple(_read_call(fields.object(place, item)) for place, item in fields.items("taskResults"))
    scoring = how.choice("scoringMethod", SCORING_METHODS) or "mean"
    ks = tuple(k for k in how.values.get("k") or () if isinstance(k, int) and k > 0) or (1,)
    max_latency_ms = float(how.number("maxLatencyMs", above=0, default=DEFAULT_MAX_LATENCY_MS))
    weights = _weights(how.table("compositeWeights"))
    return CompletionReport(
        summary=summarize(
            calls, scoring=scoring, ks=ks, max_latency_ms=max_latency_ms, weights=convert(weights, Weights)
        ),
        calls=calls,
        scoring=scoring,
        ks=ks,
        max_latency_ms=max_latency_ms,
        weights=weights,
        skill=fields.text("skillId", required=True) or "",
        skill_version=fields.text("skillVersion", empty=True) or "",
        arm=fields.text("arm"),
        benchmark=fields.text("benchmarkId", required=True) or "",
        timestamp=fields.text("timestamp", empty=True) or "",
        usage=_usage(fields.table("tokenCost")) or Usage(),
        judging=_usage(fields.table("judgeCost")),
    )


def _weights(fields: Fields) -> dict[str, float]:
    read = {name: fields.number(name, least=0) for name in Weights.__struct_fields__}
    return {name: float(value) for name, value in read.items() if value is not None}


def _read_call(fields: Fields) -> Sample:
    status: SampleStatus = fields.choice("status", _STATUSES, required=True) or "error"
    if fields.flag("errored", False):
        status = "errored"
    latency_ms = float(fields.number("latencyMs", default=0.0, least=0))
    evaluator = fields.text("scorerType") or "unknown"
    return Sample(
        task=fields.text("taskId", required=True) or "",
        run=int(fields.number("runId", above=0, default=1)),
        status=status,
        score=float(fields.number("score", default=0.0, least=0, most=1.0)),
        # Other tools write 0 if there was no answer.
        latency_ms=latency_ms if status in {"pass", "fail"} else None,
        weight=float(fields.number("weight", default=1.0, least=0)),
        evaluator="exact" if evaluator == _EXACT else evaluator,
        output=fields.values.get("output"),
        error=fields.text("error", empty=True) or None,
        reason=fields.text("reason", empty=True) or "",
        usage=_usage(fields.table("usage")),
        flags=fields.texts("flags"),
    )


def _usage(fields: Fields) -> Usage | None:
    if not fields.values:
        return None
    input_tokens = fields.number("promptTokens", least=0)
    output_tokens = fields.number("completionTokens", least=0)
    cost = fields.number("estimatedUSD", least=0)
    return Usage(
        input_tokens=None if input_tokens is None else int(input_tokens),
        output_tokens=None if output_tokens is None else int(output_tokens),
        cost_usd=cost,
        cost_source="prices" if cost else None,
        sources=GUESSED if fields.flag("tokensGuessed", False) else {},
    )


def reports_json(reports: Sequence[CompletionReport]) -> bytes:
    """Return *reports* as a JSON document."""
    return codec.encode_pretty([_report(report) for report in reports])


def _report(report: CompletionReport) -> dict[str, Any]:
    latency = report.summary.latency
    return _drop_unknown(
        {
            "skillId": report.skill,
            "skillVersion": report.skill_version,
            "arm": report.arm,
            "decision": report.decision,
            "benchmarkId": report.benchmark,
            "timestamp": report.timestamp,
            "summary": _summary(report.summary),
            "latency": {
                # Other tools expect numbers here, even if there was no answer.
                "p50Ms": round(latency.p50_ms) if latency else 0,
                "p95Ms": round(latency.p95_ms) if latency else 0,
                "p99Ms": round(latency.p99_ms) if latency else 0,
            },
            "tokenCost": _tokens(report.usage),
            "judgeCost": _tokens(report.judging) if report.judging else None,
            "taskResults": [_call(call, report.skill) for call in report.calls],
            # Other tools leave it empty. We need it to compute the figures again.
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
    return _drop_unknown(
        {
            "completionRate": _round(summary.completion.value if summary.completion else 0.0),
            "partialScore": _round(summary.score or 0.0),
            "errorRate": _round(summary.error_rate.value if summary.error_rate else 0.0),
            # Consistency is unknown for a single run; other tools write 1.
            "consistencyScore": _round(1.0 if summary.consistency is None else summary.consistency),
            "compositeScore": _round(summary.composite or 0.0),
            "confidenceInterval": _interval(interval) | {"mean": _round(interval.value)} if interval else None,
            "completionInterval": _interval(summary.completion) if summary.completion else None,
            "errorInterval": _interval(summary.error_rate) if summary.error_rate else None,
            "erroredCount": summary.errored,
            "passAtK": {str(passes.k): _round(passes.at) for passes in summary.passes},
            "passHatK": {str(passes.k): _round(passes.all) for passes in summary.passes},
        }
    )


def _interval(interval: Interval) -> dict[str, float]:
    return {"lower": _round(interval.low), "upper": _round(interval.high), "level": 0.95}


def _call(call: Sample, skill: str) -> dict[str, Any]:
    is_error = call.status == "errored"
    return _drop_unknown(
        {
            "taskId": call.task,
            "skillId": skill,
            # Other tools have no status for a call that says nothing about the skill; `errored` marks it.
            "status": "error" if is_error else call.status,
            "errored": True if is_error else None,
            "score": _round(call.score),
            "latencyMs": 0 if call.latency_ms is None else round(call.latency_ms, 3),
            "output": call.output,
            "error": call.error,
            "scorerType": _EXACT if call.evaluator == "exact" else call.evaluator,
            "reason": call.reason or None,
            "flags": list(call.flags) or None,
            "runId": call.run,
            "usage": _tokens(call.usage) if call.usage else None,
            "weight": call.weight,
        }
    )


def _tokens(usage: Usage) -> dict[str, Any] | None:
    if usage.total_tokens is None:
        return None
    return _drop_unknown(
        {
            "promptTokens": usage.input_tokens or 0,
            "completionTokens": usage.output_tokens or 0,
            "totalTokens": usage.total_tokens,
            # Other tools do not know it, and may take a guess for a figure of the skill.
            "tokensGuessed": True if usage.tokens_guessed else None,
            "estimatedUSD": usage.cost_usd,
        }
    )


def _drop_unknown(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _round(value: float) -> float:
    return round(value, _PLACES)

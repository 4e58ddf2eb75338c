"""Reading completion reports, ours and those of others; figures are worked out anew from the single calls."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from whet.errors import Problem, SuiteError
from whet.fields import BadDocument, Fields, Findings, read_document, shown
from whet.model.benchmark import DEFAULT_MAX_LATENCY_MS, SCORING_METHODS, Sample, SampleStatus, ScoringMethod
from whet.model.completion import CallRecord, CompletionReport
from whet.model.session import Usage
from whet.score.composite import Weights
from whet.score.summary import summarize

_STATUSES: tuple[SampleStatus, ...] = ("pass", "fail", "error", "timeout")
_EVALUATORS = {"exact_match": "exact"}


def read_reports(path: Path) -> list[CompletionReport]:
    """The reports in *path*: an array, or a single one."""
    try:
        document = read_document(path)
    except BadDocument as error:
        raise SuiteError([Problem(file=str(path), message=str(error))]) from error
    written = document if isinstance(document, list) else [document]
    findings = Findings(str(path))
    reports = [_report(item, f"[{index}]", findings) for index, item in enumerate(written)]
    if findings.problems:
        raise SuiteError(findings.problems)
    return reports


def _report(item: Any, place: str, findings: Findings) -> CompletionReport:
    fields = _object(item, place, findings)
    calls = tuple(_calls(fields, findings))
    how = fields.table("evaluatorMetadata")
    named = how.choice("scoringMethod", SCORING_METHODS)
    scoring: ScoringMethod = next((method for method in SCORING_METHODS if method == named), "mean")
    ks = tuple(k for k in how.values.get("k") or () if isinstance(k, int) and k > 0) or (1,)
    max_latency_ms = float(how.number("maxLatencyMs", default=DEFAULT_MAX_LATENCY_MS))
    weights = _weights(how.table("compositeWeights"))
    return CompletionReport(
        skill=fields.text("skillId", required=True),
        skill_version=fields.text("skillVersion", empty=True),
        benchmark=fields.text("benchmarkId", required=True),
        timestamp=fields.text("timestamp", empty=True),
        summary=summarize(
            [call.sample for call in calls],
            scoring=scoring,
            ks=ks,
            max_latency_ms=max_latency_ms,
            weights=Weights(**weights),
        ),
        calls=calls,
        usage=_usage(fields.table("tokenCost")) or Usage(),
        judging=_usage(fields.table("judgeCost")),
        scoring=scoring,
        ks=ks,
        max_latency_ms=max_latency_ms,
        weights=weights,
    )


def _weights(fields: Fields) -> dict[str, float]:
    names = [each.name for each in dataclass_fields(Weights)]
    return {name: float(fields.number(name, least=0)) for name in names if fields.number(name, least=0) is not None}


def _calls(fields: Fields, findings: Findings) -> list[CallRecord]:
    written = fields.values.get("taskResults")
    if not isinstance(written, list):
        fields.problem("taskResults", "is missing" if written is None else f"must be a list, not {shown(written)}")
        return []
    return [_call(_object(item, f"{fields.path}.taskResults[{i}]", findings)) for i, item in enumerate(written)]


def _call(fields: Fields) -> CallRecord:
    named = fields.choice("status", _STATUSES, required=True)
    status: SampleStatus = next((word for word in _STATUSES if word == named), "error")
    if fields.flag("errored", False):
        status = "errored"
    latency = fields.number("latencyMs", default=0.0, least=0)
    evaluator = fields.text("scorerType", default="unknown")
    answered = status in {"pass", "fail"}
    return CallRecord(
        sample=Sample(
            task=fields.text("taskId", required=True),
            run=int(fields.number("runId", default=1)),
            status=status,
            score=float(fields.number("score", default=0.0, least=0, most=1.0)),
            # Others write 0 where nothing was answered.
            latency_ms=float(latency) if answered else None,
            weight=float(fields.number("weight", default=1.0, least=0)),
        ),
        evaluator=_EVALUATORS.get(evaluator, evaluator),
        output=fields.values.get("output"),
        error=fields.text("error", empty=True) or None,
        reason=fields.text("reason", empty=True),
        usage=_usage(fields.table("usage")),
        flags=fields.texts("flags"),
    )


def _usage(fields: Fields) -> Usage | None:
    if not fields.values:
        return None
    taken = fields.number("promptTokens", least=0)
    given = fields.number("completionTokens", least=0)
    cost = fields.number("estimatedUSD", least=0)
    return Usage(input_tokens=taken, output_tokens=given, cost_usd=cost, cost_source="prices" if cost else None)


def _object(item: Any, place: str, findings: Findings) -> Fields:
    if not isinstance(item, dict):
        problem = Problem(file=findings.file, field=place, message=f"must be an object, not {shown(item)}")
        findings.problems.append(problem)
    return Fields(item if isinstance(item, dict) else {}, findings, place)

"""Completion reports as a CSV table and as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from whet.model.benchmark import Interval, Latency, Sample
from whet.model.completion import CompletionReport

_COLUMNS = (
    *("skillId", "benchmarkId", "completionRate", "partialScore", "errorRate"),
    *("p50Ms", "p95Ms", "compositeScore"),
)
_SECOND_MS = 1000


def reports_csv(reports: Sequence[CompletionReport]) -> str:
    """One row for each skill; a figure that is not known is left empty."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(_COLUMNS)
    for report in reports:
        summary, latency = report.summary, report.summary.latency
        table.writerow(
            (
                report.skill,
                report.benchmark,
                _figure(summary.completion.value if summary.completion else None),
                _figure(summary.score),
                _figure(summary.error_rate.value if summary.error_rate else None),
                "" if latency is None else round(latency.p50_ms),
                "" if latency is None else round(latency.p95_ms),
                _figure(summary.composite),
            )
        )
    return out.getvalue()


def reports_markdown(reports: Sequence[CompletionReport]) -> str:
    """A summary, the best composite first, and each call with its reason."""
    if not reports:
        return "# Skill evaluation\n\nNo results.\n"
    ranked = sorted(reports, key=lambda report: -(report.summary.composite or 0))
    lines = ["# Skill evaluation", "", "| skill | benchmark | completion | errors | p95 | score | composite |"]
    lines.append("|---|---|---|---|---|---|---|")
    lines += [_row(report) for report in ranked]
    for report in ranked:
        lines += ["", f"## {_cell(report.skill)} {_cell(report.skill_version)} on {_cell(report.benchmark)}", ""]
        lines += ["| task | run | status | score | latency | reason |", "|---|---|---|---|---|---|"]
        for call in report.calls:
            said = call.error or call.reason
            lines.append(
                f"| {_cell(call.sample.task)} | {call.sample.run} | {call.sample.status} | {call.sample.score:.2f} "
                f"| {_latency(call.sample)} | {_cell(said)} |"
            )
    return "\n".join(lines) + "\n"


def _row(report: CompletionReport) -> str:
    summary = report.summary
    composite = "-" if summary.composite is None else f"{summary.composite:.3f}"
    score = "-" if summary.score is None else f"{summary.score:.3f}"
    return (
        f"| {_cell(report.skill)} | {_cell(report.benchmark)} | {_share(summary.completion)} "
        f"| {_share(summary.error_rate)} | {_p95(summary.latency)} | {score} | {composite} |"
    )


def _share(found: Interval | None) -> str:
    return "-" if found is None else f"{found.value:.1%} ({found.low:.0%} to {found.high:.0%})"


def _p95(latency: Latency | None) -> str:
    return "-" if latency is None else _time(latency.p95_ms)


def _latency(sample: Sample) -> str:
    return "-" if sample.latency_ms is None else _time(sample.latency_ms)


def _time(value_ms: float) -> str:
    return f"{value_ms / _SECOND_MS:.1f} s" if value_ms >= _SECOND_MS else f"{value_ms:.0f} ms"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _cell(text: str) -> str:
    """A text that cannot break out of its cell, nor be taken for HTML."""
    plain = " ".join(text.split())[:200]
    for letter, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|")):
        plain = plain.replace(letter, shown)
    return plain

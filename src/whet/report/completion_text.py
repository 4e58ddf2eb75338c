"""Completion reports as a CSV table and as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from html import escape

from whet.model.benchmark import CallRecord, CompletionReport, Interval, Latency, Sample

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
    lines += [_table_row(report) for report in ranked]
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


def _table_row(report: CompletionReport) -> str:
    summary = report.summary
    composite = "-" if summary.composite is None else f"{summary.composite:.3f}"
    score = "-" if summary.score is None else f"{summary.score:.3f}"
    return (
        f"| {_cell(report.skill)} | {_cell(report.benchmark)} | {_share_of(summary.completion)} "
        f"| {_share_of(summary.error_rate)} | {_p95(summary.latency)} | {score} | {composite} |"
    )


def _share_of(found: Interval | None) -> str:
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


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;width:100%;margin:1rem 0}"
    "th,td{border-bottom:1px solid #ddd;padding:.3rem .6rem;text-align:left;vertical-align:top}"
    "td.n{text-align:right;white-space:nowrap}.pass{color:#17692f}.fail,.error,.timeout{color:#a3201c}"
    ".errored{color:#8a5a00}td.t{white-space:pre-wrap;overflow-wrap:anywhere}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def reports_html(reports: Sequence[CompletionReport]) -> str:
    """The page: a summary, the best composite first, and each call with its reason."""
    ranked = sorted(reports, key=lambda report: -(report.summary.composite or 0))
    body = "\n".join([*_summary(ranked), *(line for report in ranked for line in _skill(report))])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>Skill evaluation</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _summary(reports: Sequence[CompletionReport]) -> Iterator[str]:
    yield "<h1>Skill evaluation</h1>"
    if not reports:
        yield "<p>No results.</p>"
        return
    yield _head("skill", "benchmark", "completion", "errors", "p95", "score", "composite")
    for report in reports:
        summary, latency = report.summary, report.summary.latency
        figures = (
            _share(summary.completion),
            _share(summary.error_rate),
            "-" if latency is None else f"{latency.p95_ms:.0f} ms",
            "-" if summary.score is None else f"{summary.score:.3f}",
            "-" if summary.composite is None else f"{summary.composite:.3f}",
        )
        cells = "".join(f'<td class="n">{figure}</td>' for figure in figures)
        yield f"<tr><td>{escape(report.skill)}</td><td>{escape(report.benchmark)}</td>{cells}</tr>"
    yield "</table>"


def _skill(report: CompletionReport) -> Iterator[str]:
    yield f"<h2>{escape(report.skill)} {escape(report.skill_version)} on {escape(report.benchmark)}</h2>"
    yield _head("task", "run", "status", "score", "latency", "reason")
    yield from (_row(call) for call in report.calls)
    yield "</table>"


def _row(call: CallRecord) -> str:
    sample = call.sample
    latency = "-" if sample.latency_ms is None else f"{sample.latency_ms:.0f} ms"
    return (
        f'<tr><td>{escape(sample.task)}</td><td class="n">{sample.run}</td>'
        f'<td class="{sample.status}">{sample.status}</td><td class="n">{sample.score:.2f}</td>'
        f'<td class="n">{latency}</td><td class="t">{escape(call.error or call.reason)}</td></tr>'
    )


def _head(*names: str) -> str:
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>"


def _share(found: Interval | None) -> str:
    return "-" if found is None else f"{found.value:.1%} ({found.low:.0%} to {found.high:.0%})"

"""Completion reports as one page that needs nothing else; every text in it is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from whet.model.benchmark import Interval
from whet.model.completion import CallRecord, CompletionReport

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

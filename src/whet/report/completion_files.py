"""Write completion reports to files: JSON, Markdown, HTML and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from whet.errors import RecordLost
from whet.model.benchmark import CompletionReport, Interval
from whet.report.completion import reports_json
from whet.report.documents import replacing
from whet.report.evaluation import ranked
from whet.report.markup import Kind, Table, cell, escaped, html_table, markdown_table

_TITLE = "Skill evaluation"
_SKILL_COLUMNS: Sequence[tuple[str, Kind]] = (
    ("skill", "text"),
    ("benchmark", "text"),
    ("completion", "number"),
    ("errors", "number"),
    ("p95", "number"),
    ("score", "number"),
    ("composite", "number"),
)
_CALL_COLUMNS: Sequence[tuple[str, Kind]] = (
    ("task", "text"),
    ("run", "number"),
    ("status", "word"),
    ("score", "number"),
    ("latency", "number"),
    ("reason", "prose"),
)
_CSV_COLUMNS = (
    *("skillId", "benchmarkId", "completionRate", "partialScore", "errorRate"),
    *("p50Ms", "p95Ms", "compositeScore"),
)
_SECOND_MS = 1000


def write_reports(
    reports: Sequence[CompletionReport], formats: Sequence[str], folder: Path, run_id: str
) -> Iterator[Path]:
    """Write one file for each format, and yield its path; a resumed run replaces the files it wrote before."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in dict.fromkeys(formats):
            suffix, encode = WRITERS[name]
            path = folder / f"eval-result-{run_id}.{suffix}"
            with replacing(path) as file:
                file.write(encode(reports))
            yield path
    except OSError as error:
        raise RecordLost(
            f"cannot write the reports to {folder}: {error.strerror}",
            hint=f"whet eval --resume {run_id} --output-dir DIR writes them elsewhere, and calls nothing again",
        ) from error


def reports_markdown(reports: Sequence[CompletionReport]) -> str:
    """A table of skills, the best composite first, and a table of calls for each."""
    if not reports:
        return f"# {_TITLE}\n\nNo results.\n"
    lines = [f"# {_TITLE}", "", *markdown_table(_skills(reports))]
    for report in ranked(reports):
        lines += ["", f"## {cell(_heading(report))}", "", *markdown_table(_calls(report))]
    return "\n".join(lines) + "\n"


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;width:100%;margin:1rem 0}"
    "th,td{border-bottom:1px solid #ddd;padding:.3rem .6rem;text-align:left;vertical-align:top}"
    "td.n{text-align:right;white-space:nowrap}.pass{color:#17692f}.fail,.error,.timeout{color:#a3201c}"
    ".errored{color:#8a5a00}td.t{white-space:pre-wrap;overflow-wrap:anywhere}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def reports_html(reports: Sequence[CompletionReport]) -> str:
    """A page with the same tables as the Markdown; it loads nothing and runs nothing."""
    lines = [f"<h1>{_TITLE}</h1>", *(html_table(_skills(reports)) if reports else ["<p>No results.</p>"])]
    for report in ranked(reports):
        lines += [f"<h2>{escaped(_heading(report))}</h2>", *html_table(_calls(report))]
    body = "\n".join(lines)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{_TITLE}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def reports_csv(reports: Sequence[CompletionReport]) -> str:
    """One row for each skill; an unknown figure is left empty."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(_CSV_COLUMNS)
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


# The suffix and the writer of each format.
WRITERS: dict[str, tuple[str, Callable[[Sequence[CompletionReport]], bytes]]] = {
    "json": ("json", reports_json),
    "markdown": ("md", lambda reports: reports_markdown(reports).encode()),
    "html": ("html", lambda reports: reports_html(reports).encode()),
    "csv": ("csv", lambda reports: reports_csv(reports).encode()),
}


def _heading(report: CompletionReport) -> str:
    return f"{report.skill} {report.skill_version} on {report.benchmark}"


def _skills(reports: Sequence[CompletionReport]) -> Table:
    """A row for each skill, the best composite first."""
    rows = []
    for report in ranked(reports):
        summary, latency = report.summary, report.summary.latency
        rows.append(
            (
                report.skill,
                report.benchmark,
                _share(summary.completion),
                _share(summary.error_rate),
                _time(latency.p95_ms if latency else None),
                "-" if summary.score is None else f"{summary.score:.3f}",
                "-" if summary.composite is None else f"{summary.composite:.3f}",
            )
        )
    return Table(_SKILL_COLUMNS, rows)


def _calls(report: CompletionReport) -> Table:
    """A row for each call, with the reason of its status."""
    rows = [
        (
            call.sample.task,
            str(call.sample.run),
            call.sample.status,
            f"{call.sample.score:.2f}",
            _time(call.sample.latency_ms),
            call.error or call.reason,
        )
        for call in report.calls
    ]
    return Table(_CALL_COLUMNS, rows)


def _share(found: Interval | None) -> str:
    return "-" if found is None else f"{found.value:.1%} ({found.low:.0%} to {found.high:.0%})"


def _time(value_ms: float | None) -> str:
    if value_ms is None:
        return "-"
    return f"{value_ms / _SECOND_MS:.1f} s" if value_ms >= _SECOND_MS else f"{value_ms:.0f} ms"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"

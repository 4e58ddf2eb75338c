"""Write completion reports to files, and compare two sets of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from whet.callable.report import reports_json
from whet.decide.resampling import paired_difference
from whet.decide.scores import by_task, mean
from whet.errors import RecordLost, UsageError
from whet.model import codec
from whet.model.callable import CompletionReport, Interval, SkillChange, TaskChange, TaskDifference
from whet.report.digest import LIKE_THESE, ranked
from whet.report.files.json import replacing
from whet.report.markup import Kind, Table, cell, markdown_table
from whet.view.html import write_pages

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
    reports: Sequence[CompletionReport], formats: Sequence[str], folder: Path, run_dir: Path
) -> Iterator[Path]:
    """Write one file for each format, and yield its path; a resumed run replaces the files it wrote before.

    HTML shows the whole run in *run_dir*; the other formats show the reports.
    """
    run_id = run_dir.name
    if not formats:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in dict.fromkeys(formats):
            suffix, encode = WRITERS.get(name, ("html", None))
            path = folder / f"eval-result-{run_id}.{suffix}"
            if encode is None:
                write_pages(path, [run_dir], running=False)
            else:
                with replacing(path) as file:
                    file.write(encode(reports))
            yield path
    except OSError as error:
        raise RecordLost(
            f"cannot write the reports to {folder}: {error.strerror}",
            hint=f"whet eval --resume {run_dir} --reports-dir DIR writes them elsewhere, and calls nothing again",
        ) from error


def reports_markdown(reports: Sequence[CompletionReport]) -> str:
    """Return a table of skills, the best composite first, and a table of calls for each."""
    if not reports:
        return f"# {_TITLE}\n\nNo results.\n"
    decision_lines = [line for words in _decisions(reports) for line in (f"**{cell(words)}**", "")]
    lines = [f"# {_TITLE}", "", *decision_lines, *markdown_table(_skills(reports)), "", f"{LIKE_THESE.capitalize()}."]
    for report in ranked(reports):
        lines += ["", f"## {cell(_heading(report))}", "", *markdown_table(_calls(report))]
    return "\n".join(lines) + "\n"


def reports_csv(reports: Sequence[CompletionReport]) -> str:
    """Return a row for each skill; an unknown figure is empty."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(_CSV_COLUMNS)
    for report in reports:
        latency = report.summary.latency
        latencies = (round(latency.p50_ms), round(latency.p95_ms)) if latency else ("", "")
        figures = {name: "" if value is None else f"{value:.4f}" for name, value in _figures(report).items()}
        rates = (figures["completion"], figures["score"], figures["errors"])
        table.writerow((report.label, report.benchmark, *rates, *latencies, figures["composite"]))
    return out.getvalue()


# The suffix and the writer of each format.
WRITERS: dict[str, tuple[str, Callable[[Sequence[CompletionReport]], bytes]]] = {
    "json": ("json", reports_json),
    "markdown": ("md", lambda reports: reports_markdown(reports).encode()),
    "csv": ("csv", lambda reports: reports_csv(reports).encode()),
}


def _decisions(reports: Sequence[CompletionReport]) -> list[str]:
    """Return how each candidate compares with the baseline, in a sentence."""
    return [str(report.decision["sentence"]) for report in reports if report.decision]


def _heading(report: CompletionReport) -> str:
    return f"{report.label} {report.skill_version} on {report.benchmark}"


def _skills(reports: Sequence[CompletionReport]) -> Table:
    """Return a row for each skill, the best composite first."""
    rows = []
    for report in ranked(reports):
        summary, latency = report.summary, report.summary.latency
        shares = (_share(summary.completion), _share(summary.error_rate))
        scores = ("-" if score is None else f"{score:.3f}" for score in (summary.score, summary.composite))
        rows.append((report.label, report.benchmark, *shares, _time(latency.p95_ms if latency else None), *scores))
    return Table(_SKILL_COLUMNS, rows)


def _calls(report: CompletionReport) -> Table:
    """Return a row for each call, with the reason of its status."""
    rows = [
        (call.task, str(call.run), call.status, f"{call.score:.2f}", _time(call.latency_ms), call.error or call.reason)
        for call in report.calls
    ]
    return Table(_CALL_COLUMNS, rows)


def _share(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval.value:.1%} ({interval.low:.0%} to {interval.high:.0%})"


def _time(value_ms: float | None) -> str:
    if value_ms is None:
        return "-"
    return f"{value_ms / _SECOND_MS:.1f} s" if value_ms >= _SECOND_MS else f"{value_ms:.0f} ms"


# A skill and a benchmark.
_Key = tuple[str, str]


def compare(
    before: Iterable[CompletionReport], after: Iterable[CompletionReport], *, margin: float = 0.0
) -> list[SkillChange]:
    """Compare each skill on each benchmark, in the order of *before*.

    A skill regressed if the whole interval of its difference is below -margin.
    """
    old, new = _by_key(before), _by_key(after)
    return [_change_of(key, old.get(key), new.get(key), margin) for key in dict.fromkeys((*old, *new))]


def _by_key(reports: Iterable[CompletionReport]) -> dict[_Key, CompletionReport]:
    reports_by_key: dict[_Key, CompletionReport] = {}
    for report in reports:
        key = (report.label, report.benchmark)
        if key in reports_by_key:
            raise UsageError(
                f"skill {key[0]} has two reports on benchmark {key[1]}", hint="keep one of them in each file"
            )
        reports_by_key[key] = report
    return reports_by_key


def _change_of(
    key: _Key, before: CompletionReport | None, after: CompletionReport | None, margin: float
) -> SkillChange:
    old, new = _scores(before), _scores(after)
    difference = paired_difference(old, new, weights=_weights(after or before))
    return SkillChange(
        skill=key[0],
        benchmark=key[1],
        before=before,
        after=after,
        difference=difference,
        tasks=tuple(
            TaskChange(task=task, before=mean(old.get(task, ())), after=mean(new.get(task, ())))
            for task in dict.fromkeys((*old, *new))
        ),
        regressed=difference is not None and difference.high < -margin,
    )


def _scores(report: CompletionReport | None) -> dict[str, list[float]]:
    if report is None:
        return {}
    samples_by_task = by_task(report.calls)
    return {task: [sample.score for sample in samples] for task, samples in samples_by_task.items()}


def _weights(report: CompletionReport | None) -> dict[str, float] | None:
    """Return how much each task counts in the score of a report; None if all count the same."""
    if report is None or report.scoring != "weighted_mean":
        return None
    return {call.task: call.weight for call in report.calls}


class SkillChangeFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """One skill on one benchmark before and after; figures by name, null where there is none."""

    skill_id: str
    benchmark_id: str
    regressed: bool
    before: dict[str, float | None] | None
    after: dict[str, float | None] | None
    difference: TaskDifference | None
    tasks: tuple[TaskChange, ...]


# What `whet report diff --json` prints: one object for each skill on each benchmark.
SkillChangesDocument: TypeAlias = tuple[SkillChangeFacts, ...]


def changes_json(changes: Sequence[SkillChange]) -> bytes:
    """Return the changes as JSON, one object for each skill on each benchmark."""
    document: SkillChangesDocument = tuple(
        SkillChangeFacts(
            skill_id=change.skill,
            benchmark_id=change.benchmark,
            regressed=change.regressed,
            before=_figures(change.before) if change.before else None,
            after=_figures(change.after) if change.after else None,
            difference=change.difference,
            tasks=change.tasks,
        )
        for change in changes
    )
    return codec.encode_pretty(document) + b"\n"


def changes_markdown(changes: Sequence[SkillChange], labels: tuple[str, str]) -> str:
    """Return a table for each skill: its figures, and the tasks whose score changed."""
    lines = [f"# {cell(labels[0])} and {cell(labels[1])}", ""]
    for change in changes:
        lines += [*_section(change, labels), ""]
    return "\n".join(lines)


def _section(change: SkillChange, labels: tuple[str, str]) -> Iterator[str]:
    yield f"## {cell(change.skill)} on {cell(change.benchmark)}{': regressed' if change.regressed else ''}"
    yield ""
    if change.before is None or change.after is None:
        yield f"Only in {cell(labels[1] if change.before is None else labels[0])}."
        return
    difference = change.difference
    if difference is not None:
        interval = f", 95 % interval on these tasks {difference.low:+.3f} to {difference.high:+.3f}"
        yield f"The score changed by {difference.value:+.3f} over {difference.tasks} tasks{interval}."
        yield ""
    columns: list[tuple[str, Kind]] = [("", "text"), (labels[0], "number"), (labels[1], "number"), ("change", "number")]
    yield from markdown_table(Table(columns, list(_rows(change.before, change.after, change.tasks))))


def _rows(before: CompletionReport, after: CompletionReport, tasks: Sequence[TaskChange]) -> Iterator[tuple[str, ...]]:
    """Yield every figure, and each task whose score changed."""
    new_figures = _figures(after)
    for name, old in _figures(before).items():
        new = new_figures[name]
        difference = "" if old is None or new is None else f"{new - old:+.4g}"
        yield name, _format(old), _format(new), difference
    for task in tasks:
        if task.before != task.after:
            yield task.task, _format(task.before), _format(task.after), ""


def _figures(report: CompletionReport) -> dict[str, float | None]:
    summary = report.summary
    return {
        "completion": summary.completion.value if summary.completion else None,
        "errors": summary.error_rate.value if summary.error_rate else None,
        "score": summary.score,
        "p95 in ms": summary.latency.p95_ms if summary.latency else None,
        "composite": summary.composite,
    }


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"

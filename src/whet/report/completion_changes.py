"""Compare two sets of completion reports, and write the changes as Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from whet.errors import UsageError
from whet.grade.scores import by_task
from whet.grade.statistics import paired_difference
from whet.model import wire
from whet.model.benchmark import CompletionReport, SkillChange, TaskChange
from whet.report.markup import Kind, Table, cell, markdown_table

_Key = tuple[str, str]


def compare(
    before: Iterable[CompletionReport], after: Iterable[CompletionReport], *, margin: float = 0.0
) -> list[SkillChange]:
    """Compare each skill on each benchmark, in the order of *before*.

    A skill regressed if the whole interval of its difference is below -margin.
    With one task there is no interval, and the difference decides.
    """
    old, new = _by_key(before), _by_key(after)
    return [_change_of(key, old.get(key), new.get(key), margin) for key in dict.fromkeys((*old, *new))]


def _by_key(reports: Iterable[CompletionReport]) -> dict[_Key, CompletionReport]:
    found: dict[_Key, CompletionReport] = {}
    for report in reports:
        key = (report.skill, report.benchmark)
        if key in found:
            raise UsageError(f"skill {key[0]} has two reports on benchmark {key[1]}")
        found[key] = report
    return found


def _change_of(
    key: _Key, before: CompletionReport | None, after: CompletionReport | None, margin: float
) -> SkillChange:
    old, new = _scores(before), _scores(after)
    difference = paired_difference(old, new)
    decisive = None if difference is None else difference.value if difference.high is None else difference.high
    return SkillChange(
        skill=key[0],
        benchmark=key[1],
        before=before,
        after=after,
        difference=difference,
        tasks=tuple(
            TaskChange(task=task, before=_mean(old.get(task)), after=_mean(new.get(task)))
            for task in dict.fromkeys((*old, *new))
        ),
        regressed=decisive is not None and decisive < -margin,
    )


def _scores(report: CompletionReport | None) -> dict[str, list[float]]:
    if report is None:
        return {}
    found = by_task(call.sample for call in report.calls)
    return {task: [sample.score for sample in samples] for task, samples in found.items()}


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def changes_json(changes: Sequence[SkillChange]) -> bytes:
    """Return the changes as JSON, one object for each skill on each benchmark."""
    return wire.encode_pretty([_change(change) for change in changes]) + b"\n"


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
        low, high = difference.low, difference.high
        interval = "" if low is None or high is None else f", 95 % interval {low:+.3f} to {high:+.3f}"
        yield f"The score changed by {difference.value:+.3f} over {difference.tasks} tasks{interval}."
        yield ""
    columns: list[tuple[str, Kind]] = [("", "text"), (labels[0], "number"), (labels[1], "number"), ("change", "number")]
    yield from markdown_table(Table(columns, list(_rows(change.before, change.after, change.tasks))))


def _rows(before: CompletionReport, after: CompletionReport, tasks: Sequence[TaskChange]) -> Iterator[tuple[str, ...]]:
    """Yield every figure, and each task whose score changed."""
    new_figures = _figures(after)
    for name, old in _figures(before).items():
        new = new_figures[name]
        moved = "" if old is None or new is None else f"{new - old:+.4g}"
        yield name, _shown(old), _shown(new), moved
    for task in tasks:
        if task.before != task.after:
            yield task.task, _shown(task.before), _shown(task.after), ""


def _figures(report: CompletionReport) -> dict[str, float | None]:
    summary = report.summary
    return {
        "completion": summary.completion.value if summary.completion else None,
        "errors": summary.error_rate.value if summary.error_rate else None,
        "score": summary.score,
        "p95 in ms": summary.latency.p95_ms if summary.latency else None,
        "composite": summary.composite,
    }


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _change(change: SkillChange) -> dict[str, Any]:
    return {
        "skillId": change.skill,
        "benchmarkId": change.benchmark,
        "regressed": change.regressed,
        "before": None if change.before is None else _figures(change.before),
        "after": None if change.after is None else _figures(change.after),
        "difference": change.difference,
        "tasks": change.tasks,
    }

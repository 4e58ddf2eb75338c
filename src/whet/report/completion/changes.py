"""How two sets of completion reports differ, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from whet import wire
from whet.model.completion import CompletionReport, SkillChange
from whet.report.markdown import cell


def changes_json(changes: Sequence[SkillChange]) -> bytes:
    """One object for each skill on each benchmark."""
    return wire.encode_pretty([_change(change) for change in changes]) + b"\n"


def changes_markdown(changes: Sequence[SkillChange], labels: tuple[str, str]) -> str:
    """A table of figures for each skill, and below it each task whose score is another."""
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
    yield f"| | {cell(labels[0])} | {cell(labels[1])} | change |"
    yield "|---|---:|---:|---:|"
    before, after = _figures(change.before), _figures(change.after)
    for name, old in before.items():
        new = after[name]
        moved = "" if old is None or new is None else f"{new - old:+.4g}"
        yield f"| {name} | {_shown(old)} | {_shown(new)} | {moved} |"
    moved_tasks = [task for task in change.tasks if task.before != task.after]
    for task in moved_tasks:
        yield f"| {cell(task.task)} | {_shown(task.before)} | {_shown(task.after)} | |"


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

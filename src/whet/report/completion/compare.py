"""Two sets of completion reports against one another, paired by skill, benchmark and task."""

from __future__ import annotations

from collections.abc import Iterable

from whet.errors import UsageError
from whet.model.completion import CompletionReport, SkillChange, TaskChange
from whet.score.grouping import by_task
from whet.score.resample import paired_difference

_Key = tuple[str, str]


def compare(
    before: Iterable[CompletionReport], after: Iterable[CompletionReport], *, margin: float = 0.0
) -> list[SkillChange]:
    """Each skill on each benchmark, in the order of *before*.

    One regressed where its whole interval lies below -margin.
    With one task there is no interval, and the difference itself decides.
    """
    old, new = _by_key(before), _by_key(after)
    return [_change(key, old.get(key), new.get(key), margin) for key in dict.fromkeys((*old, *new))]


def _by_key(reports: Iterable[CompletionReport]) -> dict[_Key, CompletionReport]:
    found: dict[_Key, CompletionReport] = {}
    for report in reports:
        key = (report.skill, report.benchmark)
        if key in found:
            raise UsageError(f"skill {key[0]} has two reports on benchmark {key[1]}")
        found[key] = report
    return found


def _change(key: _Key, before: CompletionReport | None, after: CompletionReport | None, margin: float) -> SkillChange:
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

"""Ask the judge of today about the answers that people have labelled, so that their labels count for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct
from msgspec.structs import replace

from whet.decide.judging.units import JudgedUnit, LabelLine, Matching, StaleLabel, UnitKey
from whet.errors import UsageError
from whet.record import folder as folders
from whet.record.judging.labels_file import add_labels
from whet.record.judging.runs import JudgedRuns
from whet.record.judging.tries import place_of
from whet.record.read.run import RecordedRun
from whet.run.judging._asking import Asking
from whet.run.judging._asking_run import ask_with, asking_context, plan_asking
from whet.run.judging._targets import find_targets
from whet.run.schedule import single_errors

# Of another judge, and still about the same statement on the same answer.
_OF_JUDGE = ("judge changed", "question texts changed")
_FOLDER = "rejudge"


class _LabelOfUnit(Struct, frozen=True):
    """A label, and the unit that it is about."""

    line: LabelLine
    unit: JudgedUnit


def rejudge(runs: JudgedRuns, flags: Mapping[str, Any], config_file: Path | None) -> JudgedRuns:
    """Add to each label what the judge of today says; return the runs with these labels alone."""
    labels = [*_labels(runs.matching)]
    if not labels:
        raise UsageError(f"no label is about {runs.names}, so there is nothing to ask", hint="whet judge label RUN")
    lines: list[LabelLine] = []
    for run in runs.runs:
        of_run = [label for label in labels if label.unit.run == run.run_dir.name]
        verdicts = _ask(run, of_run, flags, config_file) if of_run else {}
        lines += add_labels(runs.labels, _judge_again(of_run, verdicts))
    stale = tuple(entry for entry in runs.matching.stale if not _is_of_judge(entry))
    return runs.with_matching(Matching(units=(), labelled=(), elsewhere=tuple(lines), stale=stale))


def _labels(matching: Matching) -> Iterator[_LabelOfUnit]:
    for entry in matching.labelled:
        yield from (_LabelOfUnit(line, entry.unit) for line in entry.lines)
    for stale in matching.stale:
        if stale.unit is not None and _is_of_judge(stale):
            yield _LabelOfUnit(stale.line, stale.unit)


def _is_of_judge(stale: StaleLabel) -> bool:
    unit, label = stale.unit, stale.line.label
    return stale.reason in _OF_JUDGE and unit is not None and unit.answer_id == label.answer_id


def _judge_again(labels: Iterable[_LabelOfUnit], verdicts: Mapping[UnitKey, JudgedUnit]) -> Iterator[Any]:
    """Yield each label with what the judge of today says; once for each person and statement."""
    places: set[tuple[str, UnitKey]] = set()
    for entry in labels:
        label, now = entry.line.label, verdicts.get(entry.unit.key)
        if now is None or (label.by, entry.unit.key) in places:
            continue
        places.add((label.by, entry.unit.key))
        yield replace(
            label,
            judge_id=now.judge_id,
            judge=now.judge,
            judge_verdict=now.verdict,
            judge_rating=now.rating,
        )


def _ask(
    run: RecordedRun, labels: Iterable[_LabelOfUnit], flags: Mapping[str, Any], config_file: Path | None
) -> Mapping[UnitKey, JudgedUnit]:
    settings, plan = plan_asking(run, flags, config_file)
    units = {label.unit.key: label.unit for label in labels}
    targets, _ = find_targets(plan, tuple(units.values()), run.run_dir.name, of_any_judge=True)
    with ExitStack() as stack:
        stack.callback(os.close, folders.lock(run.run_dir))
        context = asking_context(run, settings, plan, stack)
        folder = place_of(run.run_dir, _FOLDER).with_suffix("")
        asking = Asking(context=context, record=run, targets=targets, folder=folder, probes=("again",))
        with single_errors():
            anyio.run(ask_with, context, asking)
    if asking.stopped and not asking.again:
        raise UsageError(f"the judge gave no verdict: {asking.stopped}")
    return asking.again

"""The cases of a suite over its runs: the rate of each in each run, and where a change of content changed it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter

from msgspec import Struct, field

from whet.decide.difference import case_chance, discoveries
from whet.decide.sequential import ALPHA
from whet.model.comparison import RunSamples

MOST_CASES = 200
_Key = tuple[str, str, str]
# The runs of each arm, those on the same content as one list, oldest first.
Segments = Sequence[Sequence[RunSamples]]


class CaseCell(Struct, kw_only=True):
    """The mean of the trials of a case in a run that did not error, by their first attempts."""

    value: float
    trials: int


class CaseStep(Struct, kw_only=True):
    """A change of a case with a change of content, which came with `run`.

    Of the changes of all cases that are `decided`, at most 5 % are there by chance; `chance` counts the others too.
    """

    run: str
    before: float
    after: float
    chance: float
    decided: bool = False


class CaseHistory(Struct, kw_only=True):
    """A case over time: a cell for each run, null where it has none, and the runs with which it was `edited`."""

    case: str
    runner: str
    arm: str
    cells: tuple[CaseCell | None, ...]
    steps: tuple[CaseStep, ...] = ()
    edited: tuple[str, ...] = ()


class _Row(Struct):
    """What is known of a case on a runner in an arm, while the runs are read."""

    cells: dict[str, CaseCell] = field(default_factory=dict)
    steps: list[CaseStep] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)
    # What its trials said on the content before, and what it asked and checked then.
    values: tuple[float, ...] = ()
    digest: str | None = None


def case_histories(segments_by_arm: Sequence[Segments], runs: Sequence[str]) -> tuple[CaseHistory, ...]:
    """Return the cases with a cell for each of *runs*, those with the largest decided change first.

    A change compares all trials on one content with all on the content before it, of runs that no failures selected. Of
    the changes that are called decided, in all cases together, at most 5 % are there by chance.
    """
    rows: dict[_Key, _Row] = {}
    for segments in segments_by_arm:
        for segment in segments:
            _take(rows, segment)
    steps = list(chain.from_iterable(map(attrgetter("steps"), rows.values())))
    for step, chance in zip(steps, discoveries(list(map(attrgetter("chance"), steps))), strict=True):
        step.chance, step.decided = chance, chance < ALPHA
    return tuple(sorted(map(partial(_history, runs), rows.items()), key=_place))


def _history(runs: Sequence[str], item: tuple[_Key, _Row]) -> CaseHistory:
    (case, runner, arm), row = item
    return CaseHistory(
        case=case,
        runner=runner,
        arm=arm,
        cells=tuple(map(row.cells.get, runs)),
        steps=tuple(filter(_size, row.steps)),
        edited=tuple(row.edited),
    )


def _take(rows: dict[_Key, _Row], segment: Sequence[RunSamples]) -> None:
    """Add the runs on one content to *rows*, and what changed since the content before."""
    # What failed by chance looks better the second time, so runs that failures selected change nothing.
    for key, run, values, digest in _values_of([samples for samples in segment if not samples.selected_from]):
        row = rows.setdefault(key, _Row())
        if row.values and digest != row.digest:
            # It asks or checks something else by now, so there is nothing to compare it with.
            row.edited.append(run)
        elif row.values:
            row.steps.append(
                CaseStep(run=run, before=_mean(row.values), after=_mean(values), chance=case_chance(row.values, values))
            )
        row.values, row.digest = values, digest
    for samples in segment:
        for key, run, values, _ in _values_of([samples]):
            rows.setdefault(key, _Row()).cells[run] = CaseCell(value=_mean(values), trials=len(values))


def _values_of(segment: Sequence[RunSamples]) -> Iterator[tuple[_Key, str, tuple[float, ...], str | None]]:
    """Yield each case of a segment with the first run that has it, the values of all runs, and its digest."""
    values: dict[_Key, list[float]] = {}
    firsts: dict[_Key, RunSamples] = {}
    for samples in segment:
        for arm in samples.arms:
            for trial in arm.trials:
                if trial.value is not None:
                    key = (trial.case, arm.runner, _arm(samples))
                    firsts.setdefault(key, samples)
                    values.setdefault(key, []).append(trial.value)
    for key, case_values in values.items():
        yield key, firsts[key].name, tuple(case_values), firsts[key].digests.get(key[0])


def _arm(samples: RunSamples) -> str:
    return samples.arms[0].arm


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _place(history: CaseHistory) -> tuple[float, int, float, str]:
    """Return where a case stands: the largest decided change first, then what ran last, the largest change first."""
    decided = max(map(_size, filter(attrgetter("decided"), history.steps)), default=0.0)
    age = next((age for age, cell in enumerate(reversed(history.cells)) if cell is not None), len(history.cells))
    return -decided, age, -max(map(_size, history.steps), default=0.0), history.case


def _size(step: CaseStep) -> float:
    return abs(step.after - step.before)

"""Several recorded runs of a suite together, with what was judged in them and the labels of people on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from whet.decide.judging.draw import seed_of
from whet.decide.judging.units import JudgedUnit, Matching, match_labels
from whet.errors import UsageError
from whet.record.batches import RecordedBatch, read_recorded
from whet.record.judging.judged import judged_units
from whet.record.judging.labels_file import labels_path, read_labels
from whet.record.read.run import RecordedRun


class JudgedRuns(Struct, frozen=True, kw_only=True, dict=True):
    """Runs of one suite, and the file with its labels."""

    runs: tuple[RecordedRun, ...]
    labels: Path

    @cached_property
    def units(self) -> list[JudgedUnit]:
        """What a judge decided in them."""
        return judged_units(*self.runs)

    @cached_property
    def matching(self) -> Matching:
        """The labels beside what they are about."""
        return match_labels(self.units, read_labels(self.labels))

    def with_matching(self, matching: Matching) -> JudgedRuns:
        """Return the same runs with these units and labels alone."""
        runs = JudgedRuns(runs=self.runs, labels=self.labels)
        runs.__dict__.update(units=list(matching.units), matching=matching)
        return runs

    @property
    def run_names(self) -> tuple[str, ...]:
        """The names of the runs."""
        return tuple(run.run_dir.name for run in self.runs)

    @property
    def names(self) -> str:
        """The names of the runs, in one text."""
        return ", ".join(self.run_names)

    @property
    def cases(self) -> dict[str, float]:
        """The cases of the runs, in order, with their weights."""
        return {case: weight for run in self.runs for case, weight in run.asked.weights.items()}

    def refuse_unjudged(self) -> None:
        """Refuse runs in which a judge decided nothing."""
        if not self.units:
            raise UsageError(
                f"nothing in {self.names} was decided by a judge, so there is nothing to label",
                hint="name a run with statements that a model judged",
            )

    @property
    def seed(self) -> str:
        """The usual seed of a draw: that of labels that there are, so that the draw goes on."""
        seeds = Counter[str]()
        for entry in self.matching.labelled:
            seeds.update(line.label.seed for line in entry.lines if line.label.seed)
        return max(sorted(seeds), key=seeds.__getitem__, default=seed_of(self.run_names))


def read_judged(names: Sequence[str], output_dir: Path, labels: Path | None = None) -> JudgedRuns:
    """Read the runs that *names* name; refuses runs of several suites, and runs in which nothing was judged."""
    runs = read_runs(names, output_dir, labels)
    runs.refuse_unjudged()
    return runs


def read_runs(names: Sequence[str], output_dir: Path, labels: Path | None = None) -> JudgedRuns:
    """Read the runs that *names* name; refuses runs of several suites."""
    runs: dict[Path, RecordedRun] = {}
    for name in names:
        recorded = read_recorded(name, output_dir)
        recorded.refuse_empty()
        members = dict(recorded.runs).values() if isinstance(recorded, RecordedBatch) else (recorded,)
        runs |= {run.run_dir: run for run in members}
    files = {labels_path(run.suite) for run in runs.values()}
    if len(files) > 1 and labels is None:
        raise UsageError(
            f"{', '.join(path.name for path in runs)} are of suites in several folders",
            hint="name runs of one suite, or the file with --labels FILE",
        )
    return JudgedRuns(runs=tuple(runs.values()), labels=labels or files.pop())

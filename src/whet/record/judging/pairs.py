"""What a judge said last of pairs of answers, beside the comparisons of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from whet.decide.comparison import with_pairs
from whet.model.comparison import Comparison
from whet.record.judging.tries import pairs_at


def with_pairs_of_run(comparisons: Sequence[Comparison], run_dir: Path) -> tuple[Comparison, ...]:
    """Return *comparisons* of a run with what its judge said of pairs last, unless the run was looked at since then."""
    looks = max((comparison.looks for comparison in comparisons), default=1)
    return with_pairs(comparisons, pairs_at(run_dir, looks))

"""Which samples count, and which belong together."""

from __future__ import annotations

from collections.abc import Iterable

from whet.model.benchmark import Sample


def counted(samples: Iterable[Sample]) -> list[Sample]:
    """Those that say something about the skill."""
    return [sample for sample in samples if sample.status != "errored"]


def by_task(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The counted samples of each task, tasks in the order first seen."""
    found: dict[str, list[Sample]] = {}
    for sample in counted(samples):
        found.setdefault(sample.task, []).append(sample)
    return found

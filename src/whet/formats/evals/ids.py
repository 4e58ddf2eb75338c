"""What cases are called that have no name of their own."""

from __future__ import annotations

from collections.abc import Sequence

from whet.evals import EvalCase
from whet.model.naming import folder_name


def case_ids(cases: Sequence[EvalCase]) -> tuple[str, ...]:
    """The id of each case: its own, or its kind with its number in the suite."""
    taken = {folder_name(case.task_id).casefold() for case in cases if case.task_id}
    found: list[str] = []
    for number, case in enumerate(cases, 1):
        name = case.task_id or f"{case.kind}-{number}"
        while case.task_id is None and folder_name(name).casefold() in taken:
            name += "-unnamed"
        found.append(name)
    return tuple(found)

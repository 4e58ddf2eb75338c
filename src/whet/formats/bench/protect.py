"""What a suite protects: whether its patterns can be used, and whether there is anything that they could mean."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from whet.claims.globs import glob_problem, literal_head
from whet.formats.bench.fields import Fields


def check_protect(given: Fields) -> None:
    """Note the patterns that cannot be used."""
    for pattern, place in _patterns(given):
        if problem := glob_problem(pattern):
            place.note("", problem)


def warn_of_nothing(given: Fields, project: Path) -> None:
    """Tell of patterns that protect nothing, because they begin with a name that the project does not have."""
    for pattern, place in _patterns(given):
        head = literal_head(pattern)
        if head and not glob_problem(pattern) and not os.path.lexists(project / head):
            place.warn("", f'"{pattern}" protects nothing: there is no "{head}" in {project}')


def _patterns(given: Fields) -> Iterator[tuple[str, Fields]]:
    node = given.members.get("protect")
    items = node.value if node is not None and isinstance(node.value, tuple) else ()
    prefix = f"{given.path}." if given.path else ""
    for index, item in enumerate(items):
        if isinstance(item.value, str) and item.value.strip():
            yield item.value, Fields(given.notes, item, f"{prefix}protect[{index}]", given.case)

"""Differences told as changes: printable paths and a diff."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from whet.model.changes import Changes
from whet.wire import printable
from whet.workspace.diff import Pair, unified
from whet.workspace.inventory import Differences, Inventory, Version
from whet.workspace.tree import Tree


def told(
    found: Differences, old: Inventory, new: Inventory, *, before: Callable[[str], Tree | None], after: Tree
) -> Changes:
    """The changes for what was *found*; *before* gives the tree that has the old content of a path."""
    if not found and not new.unread:
        return Changes()

    def pair(path: str) -> Pair:
        was, now = old.files.get(path), new.files.get(path)
        return Pair(
            path,
            old=None if was is None else Version(was, before(path)),
            new=None if now is None else Version(now, after),
        )

    paths = sorted((*found.created, *found.modified, *found.deleted))
    unread = "".join(f"Folder {path!r} may not be looked into\n" for path in _printable(new.unread))
    return Changes(
        created=_printable(found.created),
        modified=_printable(found.modified),
        deleted=_printable(found.deleted),
        diff=unified(map(pair, paths)) + unread,
    )


def _printable(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(map(printable, paths)))

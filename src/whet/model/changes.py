"""What an agent did to its workspace: created, modified and deleted files, with a diff."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Paths are relative to the workspace, with `/`, sorted; the `.git` at its top is left out.

    `diff` is a unified diff of what can be shown as text and is not too large; what is left out is said in a line.
    """

    created: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    diff: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that changed, sorted."""
        return tuple(sorted((*self.created, *self.modified, *self.deleted)))

    def __bool__(self) -> bool:
        return bool(self.created or self.modified or self.deleted)

    def __len__(self) -> int:
        return len(self.created) + len(self.modified) + len(self.deleted)

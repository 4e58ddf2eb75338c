"""What an agent must not see of a package: kept aside with its digests, and put back once the agent is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.packages.spec import is_below
from whet.workspace import remove_tree
from whet.workspace.protecting import Protected, Wanted, keep_protected, put_back


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Files by their paths in a workspace; `files` know where their content lies."""

    paths: tuple[str, ...]
    files: tuple[Protected, ...]

    def appear_in(self, workspace: Path) -> tuple[str, ...]:
        """Put all of them into *workspace* as they were; what else lay there is taken away, and told by its path."""
        own = {file.path for file in self.files}
        return tuple(path for path in put_back(workspace, _wanted(self.paths), self.files) if path not in own)


def hold_out(folder: Path, paths: tuple[str, ...], store: Path) -> HeldOut:
    """Move what lies at *paths* out of *folder* into *store*."""
    files = keep_protected(folder, _wanted(paths), store)
    for path in paths:
        remove_tree(folder / path)
    return HeldOut(paths, files)


def _wanted(paths: tuple[str, ...]) -> Wanted:
    def holds(path: str) -> bool:
        return any(is_below(path, held) for held in paths)

    def leads_to(path: str) -> bool:
        return any(is_below(path, held) or is_below(held, path) for held in paths)

    return Wanted(holds, leads_to, leads_to)

"""What an agent must not see of a package: kept aside with its digests, and put back once the agent is done."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from whet.errors import WorkspaceError
from whet.packages.spec import is_below
from whet.workspace import remove_tree
from whet.workspace.protecting import Protected, Wanted, keep_protected, put_back
from whet.workspace.tree import grant

_MOST_TOLD = 100


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Files by their paths in a workspace; `files` know where their content lies."""

    paths: tuple[str, ...]
    files: tuple[Protected, ...]

    def appear_in(self, workspace: Path) -> tuple[str, ...]:
        """Put all of them into *workspace* as they were; what else lay there is taken away, and told by its path."""
        own = {file.path for file in self.files}
        strays = [path for held in self.paths for path in _cleared(workspace, held) if path not in own]
        put_back_at = put_back(workspace, _wanted(self.paths), self.files)
        return tuple(dict.fromkeys((*strays, *(path for path in put_back_at if path not in own))))


def hold_out(folder: Path, paths: tuple[str, ...], store: Path) -> HeldOut:
    """Move what lies at *paths* out of *folder* into *store*."""
    files = keep_protected(folder, _wanted(paths), store)
    for path in paths:
        remove_tree(folder / path)
    return HeldOut(paths, files)


def _cleared(workspace: Path, held: str) -> tuple[str, ...]:
    """Remove the folder *held* as a whole, however deep and full it is; the first things that lay in it."""
    folder = workspace / held
    # A link on the way there may lead anywhere; `put_back` takes it away.
    if os.path.realpath(folder) != f"{os.path.realpath(workspace)}/{held}" or not folder.is_dir():
        return ()
    grant(str(folder), stat.S_IRWXU)
    with os.scandir(folder) as entries:
        found = sorted(f"{held}/{entry.name}" for entry in islice(entries, _MOST_TOLD))
    if problems := remove_tree(folder):
        raise WorkspaceError(problems[0])
    return tuple(found)


def _wanted(paths: tuple[str, ...]) -> Wanted:
    def holds(path: str) -> bool:
        return any(is_below(path, held) for held in paths)

    def leads_to(path: str) -> bool:
        return any(is_below(path, held) or is_below(held, path) for held in paths)

    return Wanted(holds, leads_to, leads_to)

"""Where a process finds a package: the folder that it works in, and the absolute paths that it may count on."""

from __future__ import annotations

import os
from pathlib import Path

from whet.errors import PackageError
from whet.model.suite import PackageSpec
from whet.packages.fetch import kind_of, local_path
from whet.packages.spec import SOLUTION

ShownAt = tuple[tuple[Path, Path], ...]


def in_package(spec: PackageSpec | None, workspace: Path) -> tuple[Path, ShownAt]:
    """The folder to work in, and what is shown at other paths; without a package, the workspace and nothing.

    `PackageError` where something has put a link in the place of a folder, which might lead anywhere.
    """
    if spec is None:
        return workspace, ()
    shown = ((Path(path), inside(workspace, folder)) for path, folder in spec.shown_at)
    return inside(workspace, spec.working_dir), tuple(pair for pair in shown if pair[1].is_dir())


def sources_of(spec: PackageSpec) -> tuple[Path, ...]:
    """Where a local package lies whole, verifier and all: nothing for an agent to see."""
    if kind_of(spec.ref) != "local":
        return ()
    package = Path(os.path.normpath(local_path(spec.ref, spec.base_dir)))
    if not spec.base_dir.is_relative_to(package):
        return (package,)
    # A folder that an agent is shown, as it may be the one of the suite, cannot be hidden as a whole.
    return (package, *(package / path for path in (*spec.held_out, SOLUTION)))


def inside(workspace: Path, path: str) -> Path:
    """What lies at *path* of *workspace*, whose way there must not lead out."""
    found, root = os.path.realpath(workspace / path), os.path.realpath(workspace)
    if found != root and not found.startswith(f"{root}/"):
        raise PackageError(f"{path} leads out of the workspace")
    return workspace / path

"""The packages of one run: each fetched once, unpacked once, and laid out as the template of workspaces."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread

from whet.errors import PackageError
from whet.model.suite import PackageSpec
from whet.packages.fetch import Fetched, fetch, kind_of, local_path, take_local
from whet.packages.holding import HeldOut, hold_out
from whet.packages.naming import shown_ref
from whet.packages.settings import PackageSettings
from whet.packages.spec import SOLUTION
from whet.packages.unpack import unpack
from whet.workspace import remove_tree
from whet.workspace.base import explained
from whet.workspace.copying import copy_tree
from whet.workspace.tree import identities

_SOLUTION_SCRIPT = f"{SOLUTION}/solve.sh"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A package that workspaces can begin as: a template, and what appears only after the agent."""

    template: Path
    held_out: HeldOut


@dataclass(slots=True)
class Packages:
    """What was prepared so far; whoever needs a package while it is being prepared waits for it.

    A package that is wrong is so for every attempt; one that could not be fetched is tried again by the next.
    """

    scratch: Path
    settings: PackageSettings
    environ: Mapping[str, str]
    # Folders of ours, which are no part of a package also where they lie in it.
    own: tuple[Path, ...] = ()
    _locks: defaultdict[object, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))
    _prepared: dict[PackageSpec, Prepared] = field(default_factory=dict)
    _archives: dict[str, Fetched] = field(default_factory=dict)
    _wrong: dict[object, PackageError] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def prepare(self, spec: PackageSpec) -> Prepared:
        """The package of *spec*, fetched and unpacked if it is not yet."""
        async with self._locks[spec]:
            if spec in self._wrong:
                raise self._wrong[spec]
            if spec not in self._prepared:
                try:
                    self._prepared[spec] = await self._make(spec)
                except PackageError as error:
                    told = type(error)(f"package {shown_ref(spec.ref)}: {error.message}", hint=error.hint)
                    if not error.retry:
                        self._wrong[spec] = told
                    raise told from error
            return self._prepared[spec]

    async def _make(self, spec: PackageSpec) -> Prepared:
        place = self.scratch / f"p{next(self._numbers)}"
        source = await self._source(spec)
        try:
            return await anyio.to_thread.run_sync(self._lay_out, source, spec, place)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove_tree, place)
            raise

    async def _source(self, spec: PackageSpec) -> Path:
        """The folder or the archive, whose digest is checked."""
        if kind_of(spec.ref) == "local":
            fetched = await anyio.to_thread.run_sync(self._local, spec)
        else:
            fetched = await self._remote(spec.ref)
        if spec.sha256 is not None and fetched.digest != spec.sha256.lower():
            what = f"its SHA-256 is {fetched.digest}" if fetched.digest else "it is a folder, which has no SHA-256"
            raise PackageError(f"{what}, and the suite asks for {spec.sha256.lower()}")
        return fetched.path

    def _local(self, spec: PackageSpec) -> Fetched:
        if not self.settings.allow_local_files:
            raise PackageError("files of this machine are not read", hint="packages.allow_local_files allows it")
        path = local_path(spec.ref, spec.base_dir)
        with explained("cannot read", path):
            if path.is_dir():
                return Fetched(path, "")
            if not path.is_file():
                raise PackageError(f"{path} {'is not a file' if path.exists() else 'does not exist'}")
            return take_local(path, self.settings.limits.download_bytes)

    async def _remote(self, ref: str) -> Fetched:
        async with self._locks[ref]:
            if ref not in self._archives:
                target = self.scratch / f"p{next(self._numbers)}.archive"
                try:
                    self._archives[ref] = await fetch(ref, target, self.settings, self.environ)
                except BaseException:
                    target.unlink(missing_ok=True)
                    raise
            return self._archives[ref]

    def _lay_out(self, source: Path, spec: PackageSpec, place: Path) -> Prepared:
        with explained("cannot lay out", place):
            place.mkdir()
            template = place / "template"
            if source.is_dir():
                template.mkdir()
                copy_tree(source, template, own=identities(self.own))
            else:
                unpack(source, template, self.settings.limits)
            _check_required(template, spec.required)
            held_out = spec.held_out
            if (template / _SOLUTION_SCRIPT).is_file() and SOLUTION not in held_out:
                held_out = (*held_out, SOLUTION)
            held = hold_out(template, held_out, place / "held-out")
            _check_working_dir(template, spec.working_dir)
        return Prepared(template, held)


def _check_required(template: Path, required: tuple[str, ...]) -> None:
    root = os.path.realpath(template)
    for path in required:
        if not (template / path).is_file():
            raise PackageError(f"it holds no {path}", hint=_one_folder_deeper(template, path))
        # A link would leave what it leads to where an agent sees it.
        if os.path.realpath(template / path) != os.path.join(root, path):  # noqa: PTH118 - as text
            raise PackageError(f"{path} is reached by a link, and could not be held out")


def _one_folder_deeper(template: Path, path: str) -> str | None:
    """What to do where somebody has packed a folder, and not what is in it."""
    found = next((folder.name for folder in sorted(template.iterdir()) if (folder / path).is_file()), None)
    return None if found is None else f"there is {found}/{path}: pack what is in {found}, and not {found} itself"


def _check_working_dir(template: Path, path: str) -> None:
    folder = os.path.realpath(template / path)
    root = os.path.realpath(template)
    if not Path(folder).is_dir() or not (folder == root or folder.startswith(f"{root}/")):
        raise PackageError(f"it holds no folder {path} to work in")

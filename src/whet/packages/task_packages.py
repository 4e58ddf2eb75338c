"""Task packages: check them, fetch and unpack each once per run, and hold out what the agent must not see.

An unpacked package is the template of workspaces. Its verifier and solution appear only after the agent.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec import Struct, field

from whet.errors import PackageError
from whet.model.suite import PackageSpec, WorkspaceSpec
from whet.packages.settings import FetchedFile, PackageSettings, kind_of, local_path, printable_ref, take_local
from whet.reading.paths import inside_problem
from whet.workspace.copy import clear, copy_tree, remove_tree
from whet.workspace.protected import ProtectedItem, ProtectedPaths, keep_protected, put_back
from whet.workspace.walk import explained, grant, identities, is_below, is_inside

if TYPE_CHECKING:
    from whet.model.eval_cases import TaskPackage

# The hint that maps absolute paths to folders, as tasks for containers expect.
PATHS_HINT = "paths"
# Where tasks from elsewhere keep their solution, which only the verifier may see.
SOLUTION = "solution"
# Folders of the system, over which nothing can be mounted.
_SYSTEM = frozenset(
    ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "sbin", "snap", "sys", "usr")
)

ShownAt = tuple[tuple[Path, Path], ...]

_MOST_LISTED = 100

_SOLUTION_SCRIPT = f"{SOLUTION}/solve.sh"


class PreparedPackage(Struct, frozen=True):
    """An unpacked package: a template for workspaces, and the files that appear only after the agent."""

    template: Path
    held_out: HeldOutFiles


class Packages(Struct):
    """The packages of one run; attempts that need the same package wait for one fetch.

    A package with an error fails every attempt; one that could not be fetched is tried again by the next attempt.
    """

    scratch: Path
    settings: PackageSettings
    environ: Mapping[str, str]
    # Folders of whet, which are not part of a package even inside of it.
    own: tuple[Path, ...] = ()
    # Takes out of the skill that a package brings what no agent is given with a skill.
    trim_skill: Callable[[Path], None] = lambda _: None
    _locks: defaultdict[object, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))
    _packages: dict[PackageSpec, PreparedPackage] = field(default_factory=dict)
    _archives: dict[str, FetchedFile] = field(default_factory=dict)
    _wrong: dict[object, PackageError] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def prepare(self, spec: PackageSpec) -> PreparedPackage:
        """Return the package of *spec*; fetch and unpack it the first time."""
        async with self._locks[spec]:
            if spec in self._wrong:
                raise self._wrong[spec]
            if spec not in self._packages:
                try:
                    self._packages[spec] = await self._make(spec)
                except PackageError as error:
                    explained_error = type(error)(
                        f"package {printable_ref(spec.ref)}: {error.message}", hint=error.hint
                    )
                    if not error.retry:
                        self._wrong[spec] = explained_error
                    raise explained_error from error
            return self._packages[spec]

    async def _make(self, spec: PackageSpec) -> PreparedPackage:
        place = self.scratch / f"p{next(self._numbers)}"
        source = await self._source(spec)
        try:
            return await anyio.to_thread.run_sync(self._unpack, source, spec, place)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove_tree, place)
            raise

    async def _source(self, spec: PackageSpec) -> Path:
        """Return the folder or the archive, after checking its digest."""
        if kind_of(spec.ref) == "local":
            file = await anyio.to_thread.run_sync(self._local, spec)
        else:
            file = await self._remote(spec.ref)
        if spec.sha256 is not None and file.digest != spec.sha256.lower():
            problem = f"its SHA-256 is {file.digest}" if file.digest else "it is a folder, which has no SHA-256"
            raise PackageError(f"{problem}, but the suite asks for {spec.sha256.lower()}")
        return file.path

    def _local(self, spec: PackageSpec) -> FetchedFile:
        if not self.settings.allow_local_files:
            raise PackageError("local files are not allowed", hint="set packages.allow_local_files to allow them")
        path = local_path(spec.ref, spec.base_dir)
        with explained("cannot read", path):
            if path.is_dir():
                return FetchedFile(path, "")
            if not path.is_file():
                raise PackageError(f"{path} {'is not a file' if path.exists() else 'does not exist'}")
            return take_local(path, self.settings.limits.download_bytes)

    async def _remote(self, ref: str) -> FetchedFile:
        # Only here: most runs fetch nothing, and the HTTP library takes long to import.
        from whet.packages.fetch import fetch

        async with self._locks[ref]:
            if ref not in self._archives:
                target = self.scratch / f"p{next(self._numbers)}.archive"
                try:
                    self._archives[ref] = await fetch(ref, target, self.settings, self.environ)
                except BaseException:
                    target.unlink(missing_ok=True)
                    raise
            return self._archives[ref]

    def _unpack(self, source: Path, spec: PackageSpec, place: Path) -> PreparedPackage:
        with explained("cannot prepare package", place):
            place.mkdir()
            template = place / "template"
            if source.is_dir():
                template.mkdir()
                copy_tree(source, template, own=identities(self.own))
            else:
                # Only here: the readers of archives take long to import.
                from whet.packages.unpack import unpack

                unpack(source, template, self.settings.limits)
            _check_required(template, spec.required)
            held_out = spec.held_out
            if (template / _SOLUTION_SCRIPT).is_file() and SOLUTION not in held_out:
                held_out = (*held_out, SOLUTION)
            held_files = hold_out(template, held_out, place / "held-out")
            if spec.skill is not None and is_inside(template / spec.skill, template):
                self.trim_skill(template / spec.skill)
            _check_working_dir(template, spec.working_dir)
        return PreparedPackage(template, held_files)


def _check_required(template: Path, required: tuple[str, ...]) -> None:
    root = os.path.realpath(template)
    for path in required:
        if not (template / path).is_file():
            raise PackageError(f"it has no file {path}", hint=_one_folder_deeper(template, path))
        # The target of a link would stay where the agent sees it.
        if os.path.realpath(template / path) != os.path.join(root, path):  # noqa: PTH118 - as text
            raise PackageError(f"{path} is behind a link, and cannot be kept from the agent")


def _one_folder_deeper(template: Path, path: str) -> str | None:
    """Return a hint if the archive has one folder around everything."""
    folder_name = next((folder.name for folder in sorted(template.iterdir()) if (folder / path).is_file()), None)
    return (
        None
        if folder_name is None
        else f"there is {folder_name}/{path}: pack the contents of {folder_name}, not {folder_name} itself"
    )


def _check_working_dir(template: Path, path: str) -> None:
    if not (template / path).is_dir() or not is_inside(template / path, template):
        raise PackageError(f"it has no folder {path} to work in")


def package_workspace(package: TaskPackage, base_dir: Path) -> WorkspaceSpec:
    """Return the workspace of a `task_package` case of a suite in *base_dir*; the first attempt fetches it."""
    hints = package.resource_hints
    scripts = _scripts(package)
    return WorkspaceSpec(
        package=PackageSpec(
            ref=package.environment_ref,
            base_dir=base_dir,
            sha256=package.environment_sha256,
            required=tuple(scripts),
            held_out=tuple(dict.fromkeys(_held_out(script, _clean(hints.working_dir)) for script in scripts)),
            working_dir=_clean(hints.working_dir),
            shown_at=tuple((path, _clean(inside)) for path, inside in _paths(package)),
            env=tuple(sorted(hints.env.items())),
            skill=_clean(package.skill_bundle_ref),
        )
    )


def package_problems(package: TaskPackage, base_dir: Path) -> Iterator[tuple[str, str]]:
    """Yield the field and the message for each problem that shows before fetching."""
    try:
        if kind_of(package.environment_ref) == "local":
            local = local_path(package.environment_ref, base_dir)
            if not local.exists():
                yield "environment_ref", f"{local} does not exist"
    except PackageError as error:
        yield "environment_ref", error.message
    if problem := _skill_problem(package):
        yield "skill_bundle_ref", problem
    mapping = package.resource_hints.more.get(PATHS_HINT)
    if mapping is not None and not isinstance(mapping, dict):
        yield f"resource_hints.{PATHS_HINT}", "must be an object that maps absolute paths to folders"
    for path, inside in _paths(package):
        if problem := path_problem(path) or inside_problem(inside):
            yield f"resource_hints.{PATHS_HINT}", f"{path}: {inside}: {problem}"


def _skill_problem(package: TaskPackage) -> str | None:
    """Return why the skill cannot be where the case says, or None: it would replace another part, or be replaced."""
    place, working_dir = _clean(package.skill_bundle_ref), _clean(package.resource_hints.working_dir)
    if place == ".":
        return "must be a separate folder, because the skill replaces what is there"
    for script in _scripts(package):
        hidden_path = _held_out(script, working_dir)
        if is_below(place, hidden_path):
            return f"is in {hidden_path}, which is restored before {script} runs"
    return None


def path_problem(path: str) -> str | None:
    """Return why nothing can be shown at the absolute *path*, or None."""
    parts = PurePosixPath(path).parts
    if not path.startswith("/") or len(parts) < 2 or ".." in parts:  # noqa: PLR2004 - the root and a name
        return "must be an absolute path"
    return "is in a folder of the system, which is read-only" if parts[1] in _SYSTEM else None


def _paths(package: TaskPackage) -> list[tuple[str, str]]:
    mapping = package.resource_hints.more.get(PATHS_HINT)
    return [(str(path), str(inside)) for path, inside in mapping.items()] if isinstance(mapping, dict) else []


def _scripts(package: TaskPackage) -> list[str]:
    return [_clean(ref) for ref in (package.verifier_ref, package.oracle_ref) if ref]


def _held_out(script: str, working_dir: str) -> str:
    """Return the folder of a script, with its helpers; or only the script if the agent works in that folder."""
    folder = str(PurePosixPath(script).parent)
    return script if folder == "." or is_below(working_dir, folder) else folder


def _clean(path: str) -> str:
    return str(PurePosixPath(path))


def in_package(spec: PackageSpec | None, workspace: Path) -> tuple[Path, ShownAt]:
    """Return the folder to work in, and the folders shown at other paths; without a package, only the workspace.

    Raises `PackageError` if something replaced a folder with a link that leads out of the workspace.
    """
    if spec is None:
        return workspace, ()
    mounts = ((Path(path), inside(workspace, folder)) for path, folder in spec.shown_at)
    return inside(workspace, spec.working_dir), tuple(pair for pair in mounts if pair[1].is_dir())


def sources_of(spec: PackageSpec) -> tuple[Path, ...]:
    """Return the paths of a local package, with its verifier: an agent must not see them."""
    if kind_of(spec.ref) != "local":
        return ()
    package = Path(os.path.normpath(local_path(spec.ref, spec.base_dir)))
    if not spec.base_dir.is_relative_to(package):
        return (package,)
    # A folder that contains the suite may be shown to the agent, so also hide the parts in it.
    return (package, *(package / path for path in (*spec.held_out, SOLUTION)))


def inside(workspace: Path, path: str) -> Path:
    """Return *path* in *workspace*; raises if a link leads out of it."""
    if not is_inside(workspace / path, workspace):
        raise PackageError(f"{path} leads out of the workspace")
    return workspace / path


class HeldOutFiles(Struct, frozen=True):
    """Files that are kept from the agent, by their paths in a workspace."""

    paths: tuple[str, ...]
    files: tuple[ProtectedItem, ...]

    def appear_in(self, workspace: Path) -> tuple[str, ...]:
        """Put all held-out files into *workspace* as they were; remove what else is there, and return its paths."""
        own_paths = {file.path for file in self.files}
        strays = [path for folder in self.paths for path in _clear_folder(workspace, folder) if path not in own_paths]
        put_back_at = put_back(workspace, _select_paths(self.paths), self.files)
        return tuple(dict.fromkeys((*strays, *(path for path in put_back_at if path not in own_paths))))


def hold_out(folder: Path, paths: tuple[str, ...], store: Path) -> HeldOutFiles:
    """Move everything at *paths* out of *folder* into *store*."""
    files = keep_protected(folder, _select_paths(paths), store)
    for path in paths:
        remove_tree(folder / path)
    return HeldOutFiles(paths, files)


def _clear_folder(workspace: Path, path: str) -> tuple[str, ...]:
    """Remove the folder at *path*, at any depth and size; return the first things that were in it."""
    folder = workspace / path
    # A link on the way may lead anywhere; `put_back` removes it.
    if os.path.realpath(folder) != f"{os.path.realpath(workspace)}/{path}" or not folder.is_dir():
        return ()
    grant(str(folder), stat.S_IRWXU)
    with os.scandir(folder) as entries:
        names = sorted(f"{path}/{entry.name}" for entry in islice(entries, _MOST_LISTED))
    clear(folder)
    return tuple(names)


def _select_paths(paths: tuple[str, ...]) -> ProtectedPaths:
    def holds(path: str) -> bool:
        return any(is_below(path, folder) for folder in paths)

    def leads_to(path: str) -> bool:
        return any(is_below(path, folder) or is_below(folder, path) for folder in paths)

    return ProtectedPaths(holds, leads_to, leads_to)

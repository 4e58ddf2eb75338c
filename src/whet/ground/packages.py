"""The packages of one run: each fetched once, unpacked once, and laid out as the template of workspaces."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import count, islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from whet.dataclass import dataclass
from whet.errors import PackageError, WorkspaceError
from whet.ground.copying import copy_tree, remove_tree
from whet.ground.growing import shown_ref
from whet.ground.package_refs import Fetched, kind_of, local_path, take_local
from whet.ground.package_settings import PackageSettings
from whet.ground.protecting import Protected, Wanted, keep_protected, put_back
from whet.ground.tree import grant, identities
from whet.ground.workspace import explained
from whet.model.suite import PackageSpec, WorkspaceSpec
from whet.reading.paths import inside_problem

if TYPE_CHECKING:
    from whet.model.eval_cases import TaskPackage

# The hint that names folders at absolute paths, as tasks for containers expect them.
PATHS_HINT = "paths"
# Where tasks of other makers keep their solution, which is nobody's business before the verifier's.
SOLUTION = "solution"
# Where a process finds the system, which nothing can be laid over.
_SYSTEM = frozenset(
    ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "sbin", "snap", "sys", "usr")
)


def package_workspace(package: TaskPackage, base_dir: Path) -> WorkspaceSpec:
    """The workspace of a `task_package` case of a suite in *base_dir*; an attempt that needs it has it fetched."""
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
        )
    )


def package_problems(package: TaskPackage, base_dir: Path) -> Iterator[tuple[str, str]]:
    """What can be known to be wrong before anything is fetched, each with the field that it is about."""
    try:
        if kind_of(package.environment_ref) == "local":
            local = local_path(package.environment_ref, base_dir)
            if not local.exists():
                yield "environment_ref", f"{local} does not exist"
    except PackageError as error:
        yield "environment_ref", error.message
    if problem := _skill_problem(package):
        yield "skill_bundle_ref", problem
    given = package.resource_hints.more.get(PATHS_HINT)
    if given is not None and not isinstance(given, dict):
        yield f"resource_hints.{PATHS_HINT}", "must be an object of folders by absolute path"
    for path, inside in _paths(package):
        if problem := path_problem(path) or inside_problem(inside):
            yield f"resource_hints.{PATHS_HINT}", f"{path}: {inside}: {problem}"


def _skill_problem(package: TaskPackage) -> str | None:
    """Why the skill cannot lie where the case says, if it cannot: something else of the package would go or return."""
    place, working_dir = _clean(package.skill_bundle_ref), _clean(package.resource_hints.working_dir)
    if place == ".":
        return "must be a folder of its own, because the skill takes the place of what is there"
    for script in _scripts(package):
        held = _held_out(script, working_dir)
        if is_below(place, held):
            return f"lies in {held}, which is put back as it was before {script} runs"
    return None


def path_problem(path: str) -> str | None:
    """Why nothing can be shown at the absolute *path*, if nothing can."""
    parts = PurePosixPath(path).parts
    if not path.startswith("/") or len(parts) < 2 or ".." in parts:  # noqa: PLR2004 - the root and a name
        return "must be an absolute path"
    return "lies in the system, which is read-only" if parts[1] in _SYSTEM else None


def _paths(package: TaskPackage) -> list[tuple[str, str]]:
    given = package.resource_hints.more.get(PATHS_HINT)
    return [(str(path), str(inside)) for path, inside in given.items()] if isinstance(given, dict) else []


def _scripts(package: TaskPackage) -> list[str]:
    return [_clean(ref) for ref in (package.verifier_ref, package.oracle_ref) if ref]


def _held_out(script: str, working_dir: str) -> str:
    """The folder of a script, whose other files are its helpers; the script alone where the agent works in there."""
    folder = str(PurePosixPath(script).parent)
    return script if folder == "." or is_below(working_dir, folder) else folder


def is_below(path: str, folder: str) -> bool:
    """Whether *path* is *folder* or lies in it."""
    return path == folder or path.startswith(f"{folder}/")


def _clean(path: str) -> str:
    return str(PurePosixPath(path))


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
        # Only here: most runs fetch nothing, and the HTTP library takes long to import.
        from whet.ground.fetching import fetch  # noqa: PLC0415

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
                # Only here: the readers of archives take long to import.
                from whet.ground.unpacking import unpack  # noqa: PLC0415

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

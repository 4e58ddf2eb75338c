"""What a case of an eval suite asks of its package, as the workspace that its attempts begin in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from whet.errors import PackageError
from whet.evals import TaskPackage
from whet.evals.paths import inside_problem
from whet.model.suite import PackageSpec, WorkspaceSpec
from whet.packages.fetch import kind_of, local_path

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

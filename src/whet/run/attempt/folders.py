"""The ground of an attempt: prepare its workspace, home and temporary folder, keep the workspace, clean up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from whet.dataclass import dataclass
from whet.errors import AgentError, BootstrapFailed, WorkspaceError
from whet.ground.ceilings import suspected
from whet.ground.copying import drop_privileges, remove_tree
from whet.ground.sandbox import Boundary, Command
from whet.ground.workspace import Workspace
from whet.ground.workspaces import place, take_out_skills
from whet.model.grade import Changes
from whet.model.run import Trial
from whet.model.suite import BootstrapSpec, WorkspaceSpec
from whet.run.homes import make_home, trial_folder
from whet.run.parts import RunParts
from whet.run.scratch import Capture

T = TypeVar("T")
_BOOTSTRAP_OUTPUT = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where one attempt works."""

    workspace: Workspace
    home: Path
    temporary: Path
    shared: bool
    # Whether its agent may only read the workspace.
    read_only: bool = False

    @property
    def aside(self) -> Path:
        """A folder for what graders keep of the workspace, hidden from everything else; it may not exist."""
        return self.home.with_name(f"{self.home.name}.d")


async def prepare_ground(parts: RunParts, trial: Trial, artifact_dir: Path) -> Ground:
    """Make workspace, home and temporary folder of one attempt."""
    spec = trial.execution.workspace
    # A container that was started before its trial has them already.
    home, temporary = getattr(parts.sandbox, "homes", None) or make_home(parts.scratch)
    if spec.mode == "shared":
        workspace = await _shared(parts, trial, home, temporary)
    else:
        workspace = await _isolated(parts, trial, artifact_dir, home, temporary)
    ground = Ground(workspace=workspace, home=home, temporary=temporary, shared=spec.mode == "shared")
    own = trial.execution.case.bootstrap
    if own is not None:
        try:
            await _bootstrap(parts, own, workspace, trial=trial, logs=artifact_dir, folders=(home, temporary))
        except BaseException:
            # Also if a signal ends it: there is no other chance to remove it.
            with anyio.CancelScope(shield=True):
                await clean_up(ground)
            raise
    await _done(workspace.mark, at_once=workspace.untouched)
    return ground


async def _isolated(parts: RunParts, trial: Trial, artifact_dir: Path, home: Path, temporary: Path) -> Workspace:
    spec = await _with_template(parts, trial.execution.workspace)
    workspace = await _done(lambda: parts.workspaces.isolated(spec), at_once=parts.workspaces.are_quick(spec))
    if spec.bootstrap is None and not spec.placed and not spec.without_skills:
        return workspace
    folders = (home, temporary)
    try:
        if spec.placed:
            await anyio.to_thread.run_sync(place, workspace.path, spec.placed)
        if spec.without_skills and spec.template_dir is not None:
            await anyio.to_thread.run_sync(take_out_skills, workspace.path, spec.without_skills)
        if spec.bootstrap is not None:
            await _bootstrap(parts, spec.bootstrap, workspace, trial=trial, logs=artifact_dir, folders=folders)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await remove_workspace(workspace)
        raise
    return workspace


async def _with_template(parts: RunParts, spec: WorkspaceSpec) -> WorkspaceSpec:
    """Return *spec* with the template of its package, if it has one."""
    if spec.package is None:
        return spec
    return replace(spec, template_dir=(await parts.packages.prepare(spec.package)).template)


async def _shared(parts: RunParts, trial: Trial, home: Path, temporary: Path) -> Workspace:
    shared = parts.shared
    async with shared.lock:
        if shared.trouble is not None:
            raise shared.trouble
        if shared.ready is None:
            spec = trial.execution.workspace
            logs = parts.run_dir / "workspaces"
            try:
                workspace = await _done(lambda: parts.workspaces.shared(spec))
                if spec.bootstrap is not None:
                    logs.mkdir(exist_ok=True)
                    await _bootstrap(parts, spec.bootstrap, workspace, trial=None, logs=logs, folders=(home, temporary))
            except WorkspaceError as error:
                shared.trouble = error
                raise
            shared.ready = workspace
        return shared.ready


async def _bootstrap(
    parts: RunParts,
    spec: BootstrapSpec,
    workspace: Workspace,
    *,
    trial: Trial | None,
    logs: Path,
    folders: tuple[Path, Path],
) -> None:
    """Run the author's command in the workspace; in a fresh one it sees the suite's folder. It may write artifacts."""
    home, temporary = folders
    # What another agent left in a shared workspace may run with it: then it sees and reaches what checks do.
    after_others = trial is not None and trial.execution.workspace.mode == "shared"
    timeout_s = spec.timeout_s or max(execution.limits.timeout_s or 0 for execution in parts.plan.executions)
    env = {name: parts.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in parts.environ}
    env |= {"HOME": str(home), "TMPDIR": str(temporary), **spec.env, **bootstrap_facts(parts, workspace, logs, trial)}
    command = Command(argv=(spec.command, *spec.args), env=env, cwd=workspace.path)
    boundary = Boundary(
        writable=(workspace.path, home, temporary, logs),
        readable=(*(_declared(trial) if after_others else (parts.plan.suite.source.parent,)), *parts.mounts),
        hidden=(*parts.hidden, *(parts.suite.held_out if after_others else ())),
        apart=parts.apart,
        network=trial is None or not after_others or parts.reaches_all(trial),
        ceilings=parts.ceilings,
    )
    log = Capture(logs / "bootstrap.log", masker=parts.masker, most_bytes=_BOOTSTRAP_OUTPUT)
    try:
        ended = await parts.sandbox.run(command, boundary, timeout_s=timeout_s, stdout=log, stderr=log)
    except AgentError as error:
        raise BootstrapFailed(f"the bootstrap command {error.message}", hint=error.hint) from error
    finally:
        log.close()
    ended = suspected(ended, parts.ceilings, log.tail)
    said = log.tail.decode("utf-8", "replace").strip()
    if ended.timed_out:
        raise BootstrapFailed(f"the bootstrap command was still running after {timeout_s:g} s and was stopped")
    if ended.exit_code != 0 or ended.stopped:
        how = f"exit code {ended.exit_code}" if ended.signal is None else f"signal {ended.signal}"
        reached = f"ran into its ceiling of {ended.reached} and " if ended.reached else ""
        raise BootstrapFailed(f"the bootstrap command {reached}ended with {how}" + (f":\n{said}" if said else ""))


def _declared(trial: Trial | None) -> tuple[Path, ...]:
    return trial.execution.case.check_files if trial else ()


def bootstrap_facts(parts: RunParts, workspace: Workspace, logs: Path, trial: Trial | None) -> dict[str, str]:
    """Return the `WHET_*` variables of a bootstrap command; a shared workspace has no case and no runner."""
    facts = {
        "WHET_RUN": parts.run_id,
        "WHET_WORKSPACE": str(workspace.path),
        "WHET_RUN_DIR": str(parts.run_dir),
        "WHET_ARTIFACT_DIR": str(logs),
        "WHET_SUITE_DIR": str(parts.plan.suite.source.parent),
    }
    if trial is not None:
        facts |= {"WHET_CASE_ID": trial.key.case, "WHET_RUNNER_ID": trial.key.runner}
    return facts


async def changes_of(ground: Ground) -> Changes:
    """Return what the agent changed in its workspace."""
    return Changes() if ground.workspace.untouched else await _done(ground.workspace.changes)


async def keep_workspace(parts: RunParts, ground: Ground, trial: Trial, attempt: int) -> tuple[str | None, list[str]]:
    """Keep the workspace; return its place in the run folder, and notes on what is not in it."""
    if ground.shared:
        return None, []
    where = f"workspaces/{trial_folder(trial.key)}/{attempt}"
    return where, await _done(lambda: _kept(parts, ground.workspace, parts.run_dir / where))


async def keep_shared(parts: RunParts) -> list[str]:
    """Keep the shared workspace if a trial in it went wrong; return messages on its place and what is not in it.

    Call it after the last attempt. A folder of the user stays where it is.
    """
    workspace = parts.shared.ready
    if workspace is None or not parts.shared.went_wrong or workspace.method == "given":
        return []
    names = ("shared" if number == 1 else f"shared-{number}" for number in count(1))
    destination = next(path for path in (parts.run_dir / "workspaces" / name for name in names) if not path.exists())
    try:
        not_kept = await _done(lambda: _kept(parts, workspace, destination))
    except WorkspaceError as error:
        return [parts.masker.text(f"the shared workspace could not be kept: {error.message}")]
    return [f"the shared workspace is kept in {destination}", *not_kept]


def _kept(parts: RunParts, workspace: Workspace, destination: Path) -> list[str]:
    """Move a workspace to *destination*, without secrets; return notes on what could not be kept."""
    # Only here: most workspaces are not kept.
    from whet.ground.masking import mask_files  # noqa: PLC0415

    workspace.keep(destination)
    drop_privileges((destination,))
    try:
        return mask_files(parts.masker, destination) if parts.masker else []
    except (OSError, RecursionError, ValueError) as error:
        remove_tree(destination)
        raise WorkspaceError(f"secrets cannot be taken out of it: {error}") from error


async def clean_up(ground: Ground) -> list[str]:
    """Remove what is left of the ground; return notes on what could not be removed."""
    problems = [] if ground.shared else await remove_workspace(ground.workspace)
    for folder in (ground.home, ground.temporary, ground.aside):
        if not _gone(folder):
            problems += await anyio.to_thread.run_sync(remove_tree, folder)
    return problems


async def remove_workspace(workspace: Workspace) -> list[str]:
    """Delete a workspace; return notes on what could not be deleted."""
    return await _done(workspace.remove, at_once=workspace.untouched)


def _gone(folder: Path) -> bool:
    """Remove a folder if it is empty, which is cheaper than asking a thread to; return whether it is gone."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


async def _done(work: Callable[[], T], *, at_once: bool = False) -> T:
    """Do file work in a thread, or *at_once* if a thread would take longer."""
    return work() if at_once else await anyio.to_thread.run_sync(work)

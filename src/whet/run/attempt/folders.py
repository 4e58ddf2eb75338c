"""The folders of an attempt: prepare its workspace, home and temporary folder, keep the workspace, clean up."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from whet.errors import AgentError, BootstrapFailed, WorkspaceError
from whet.model.grade import Changes
from whet.model.run import Trial
from whet.model.suite import BootstrapSpec, WorkspaceSpec
from whet.run.context import RunContext
from whet.sandbox.contract import Boundary, Command
from whet.sandbox.limits import suspected
from whet.secrets import Capture
from whet.workspace.contract import Workspace
from whet.workspace.copy import drop_privileges, remove_tree
from whet.workspace.make import make_home, place, take_out_skills

_BOOTSTRAP_OUTPUT = 16 * 1024 * 1024


class AttemptFolders(Struct, frozen=True, kw_only=True):
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


async def prepare_folders(context: RunContext, trial: Trial, artifact_dir: Path) -> AttemptFolders:
    """Make workspace, home and temporary folder of one attempt."""
    spec = trial.execution.workspace
    # A container that was started before its trial has them already.
    home, temporary = context.sandbox.homes or make_home(context.scratch)
    if spec.mode == "shared":
        workspace = await _prepare_shared(context, trial, home, temporary)
    else:
        workspace = await _make_isolated(context, trial, artifact_dir, home, temporary)
    folders = AttemptFolders(workspace=workspace, home=home, temporary=temporary, shared=spec.mode == "shared")
    case_bootstrap = trial.execution.case.bootstrap
    if case_bootstrap is not None:
        try:
            await _bootstrap(
                context, case_bootstrap, workspace, trial=trial, logs=artifact_dir, folders=(home, temporary)
            )
        except BaseException:
            # Also if a signal ends it: there is no other chance to remove it.
            with anyio.CancelScope(shield=True):
                await clean_up(folders)
            raise
    # Where nothing is, a thread would take longer than the work.
    if workspace.untouched:
        workspace.mark()
    else:
        await anyio.to_thread.run_sync(workspace.mark)
    return folders


async def _make_isolated(
    context: RunContext, trial: Trial, artifact_dir: Path, home: Path, temporary: Path
) -> Workspace:
    spec = await _with_template(context, trial.execution.workspace)
    if context.workspaces.are_quick(spec):
        workspace = context.workspaces.isolated(spec)
    else:
        workspace = await anyio.to_thread.run_sync(context.workspaces.isolated, spec)
    if spec.bootstrap is None and not spec.placed and not spec.without_skills:
        return workspace
    folders = (home, temporary)
    try:
        if spec.placed:
            await anyio.to_thread.run_sync(place, workspace.path, spec.placed)
        if spec.without_skills and spec.template_dir is not None:
            await anyio.to_thread.run_sync(take_out_skills, workspace.path, spec.without_skills)
        if spec.bootstrap is not None:
            await _bootstrap(context, spec.bootstrap, workspace, trial=trial, logs=artifact_dir, folders=folders)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await remove_workspace(workspace)
        raise
    return workspace


async def _with_template(context: RunContext, spec: WorkspaceSpec) -> WorkspaceSpec:
    """Return *spec* with the template of its package, if it has one."""
    if spec.package is None:
        return spec
    return replace(spec, template_dir=(await context.packages.prepare(spec.package)).template)


async def _prepare_shared(context: RunContext, trial: Trial, home: Path, temporary: Path) -> Workspace:
    shared_ground = context.shared
    async with shared_ground.lock:
        if shared_ground.trouble is not None:
            raise shared_ground.trouble
        if shared_ground.ready is None:
            spec = trial.execution.workspace
            logs = context.run_dir / "workspaces"
            try:
                workspace = await anyio.to_thread.run_sync(context.workspaces.shared, spec)
                if spec.bootstrap is not None:
                    logs.mkdir(exist_ok=True)
                    await _bootstrap(
                        context, spec.bootstrap, workspace, trial=None, logs=logs, folders=(home, temporary)
                    )
            except WorkspaceError as error:
                shared_ground.trouble = error
                raise
            shared_ground.ready = workspace
        return shared_ground.ready


async def _bootstrap(
    context: RunContext,
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
    timeout_s = spec.timeout_s or max(execution.limits.timeout_s or 0 for execution in context.plan.executions)
    env = {name: context.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in context.environ}
    env |= {"HOME": str(home), "TMPDIR": str(temporary), **spec.env, **bootstrap_facts(context, workspace, logs, trial)}
    command = Command(argv=(spec.command, *spec.args), env=env, cwd=workspace.path)
    boundary = Boundary(
        writable=(workspace.path, home, temporary, logs),
        readable=(*(_check_files(trial) if after_others else (context.plan.suite.source.parent,)), *context.mounts),
        hidden=(*context.hidden, *(context.suite.held_out if after_others else ())),
        apart=context.apart,
        network=trial is None or not after_others or context.reaches_all(trial),
        ceilings=context.ceilings,
    )
    log = Capture(logs / "bootstrap.log", masker=context.masker, most_bytes=_BOOTSTRAP_OUTPUT)
    try:
        ending = await context.sandbox.run(command, boundary, timeout_s=timeout_s, stdout=log, stderr=log)
    except AgentError as error:
        raise BootstrapFailed(f"the bootstrap command {error.message}", hint=error.hint) from error
    finally:
        log.close()
    ending = suspected(ending, context.ceilings, log.tail)
    output = log.tail.decode("utf-8", "replace").strip()
    if ending.timed_out:
        raise BootstrapFailed(f"the bootstrap command was still running after {timeout_s:g} s and was stopped")
    if ending.exit_code != 0 or ending.stopped:
        how = f"exit code {ending.exit_code}" if ending.signal is None else f"signal {ending.signal}"
        ceiling_note = f"ran into its ceiling of {ending.reached} and " if ending.reached else ""
        raise BootstrapFailed(
            f"the bootstrap command {ceiling_note}ended with {how}" + (f":\n{output}" if output else "")
        )


def _check_files(trial: Trial | None) -> tuple[Path, ...]:
    return trial.execution.case.check_files if trial else ()


def bootstrap_facts(context: RunContext, workspace: Workspace, logs: Path, trial: Trial | None) -> dict[str, str]:
    """Return the `WHET_*` variables of a bootstrap command; a shared workspace has no case and no runner."""
    facts = {
        "WHET_RUN": context.run_id,
        "WHET_WORKSPACE": str(workspace.path),
        "WHET_RUN_DIR": str(context.run_dir),
        "WHET_ARTIFACT_DIR": str(logs),
        "WHET_SUITE_DIR": str(context.plan.suite.source.parent),
    }
    if trial is not None:
        facts |= {"WHET_CASE_ID": trial.key.case, "WHET_RUNNER_ID": trial.key.runner}
    return facts


async def changes_of(folders: AttemptFolders) -> Changes:
    """Return what the agent changed in its workspace."""
    if folders.workspace.untouched:
        return Changes()
    return await anyio.to_thread.run_sync(folders.workspace.changes)


async def keep_workspace(
    context: RunContext, folders: AttemptFolders, trial: Trial, attempt: int
) -> tuple[str | None, list[str]]:
    """Keep the workspace; return its place in the run folder, and notes on what is not in it."""
    if folders.shared:
        return None, []
    where = f"workspaces/{trial.key.folder}/{attempt}"
    return where, await anyio.to_thread.run_sync(_move_masked, context, folders.workspace, context.run_dir / where)


async def keep_shared(context: RunContext) -> list[str]:
    """Keep the shared workspace if a trial in it went wrong; return messages on its place and what is not in it.

    Call it after the last attempt. A folder of the user stays where it is.
    """
    workspace = context.shared.ready
    if workspace is None or not context.shared.went_wrong or workspace.method == "given":
        return []
    names = ("shared" if number == 1 else f"shared-{number}" for number in count(1))
    destination = next(path for path in (context.run_dir / "workspaces" / name for name in names) if not path.exists())
    try:
        not_kept = await anyio.to_thread.run_sync(_move_masked, context, workspace, destination)
    except WorkspaceError as error:
        return [context.masker.text(f"the shared workspace could not be kept: {error.message}")]
    return [f"the shared workspace is kept in {destination}", *not_kept]


def _move_masked(context: RunContext, workspace: Workspace, destination: Path) -> list[str]:
    """Move a workspace to *destination*, without secrets; return notes on what could not be kept."""
    # Only here: most workspaces are not kept.
    from whet.workspace.mask_files import mask_files

    workspace.keep(destination)
    drop_privileges((destination,))
    try:
        return mask_files(context.masker, destination) if context.masker else []
    except (OSError, RecursionError, ValueError) as error:
        remove_tree(destination)
        raise WorkspaceError(f"secrets cannot be taken out of it: {error}") from error


async def clean_up(folders: AttemptFolders) -> list[str]:
    """Remove what is left of the folders; return notes on what could not be removed."""
    problems = [] if folders.shared else await remove_workspace(folders.workspace)
    for folder in (folders.home, folders.temporary, folders.aside):
        if not _remove_if_empty(folder):
            problems += await anyio.to_thread.run_sync(remove_tree, folder)
    return problems


async def remove_workspace(workspace: Workspace) -> list[str]:
    """Delete a workspace; return notes on what could not be deleted."""
    if workspace.untouched:
        return workspace.remove()
    return await anyio.to_thread.run_sync(workspace.remove)


def _remove_if_empty(folder: Path) -> bool:
    """Remove a folder if it is empty, which is cheaper than asking a thread to; return whether it is gone."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True

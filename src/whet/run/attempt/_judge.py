"""Let an agent judge: a session of its own, which may only read copies of what the agent on trial left."""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec.structs import replace

from whet.errors import (
    AttemptError,
    JudgeBroken,
    JudgeFailed,
    JudgeRefused,
    KeyRefused,
    ProviderUnreachable,
    WorkspaceError,
)
from whet.grade.evidence import Evidence, JudgeAnswer
from whet.grade.paying import pay
from whet.model.run import Execution, Trial
from whet.model.skills import AGENT_FOLDERS
from whet.model.suite import Case, Limits, WorkspaceSpec
from whet.run.attempt.attempt import Attempt
from whet.run.attempt.folders import AttemptFolders, clean_up
from whet.run.attempt.record import AttemptRecord
from whet.run.attempt.session import run_agent
from whet.run.context import RunContext
from whet.workspace.contract import Workspace
from whet.workspace.copy import copy_tree
from whet.workspace.make import make_home
from whet.workspace.walk import SHORTAGES

# Where the transcripts of judges are, with the other evidence of an attempt.
FOLDER = "judge"
_ARM = "judge"
_USUAL_TIMEOUT_S = 600.0
# What agents read by themselves: in the copy it must not speak to the judge before the judge looks at it.
_SPEAKING = frozenset(
    (
        *("agents.md", "agents.override.md", "agent.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md"),
        *("copilot-instructions.md", "skill.md", ".mcp.json", ".cursorrules", ".windsurfrules", "opencode.json"),
        *(folder for folder in AGENT_FOLDERS if folder != ".github"),
        *(".qwen", ".vscode", ".git"),
    )
)
_SUFFIX = ".shown"


async def ask_judge(context: RunContext, trial: Trial, evidence: Evidence, prompt: str) -> JudgeAnswer:
    """Put *prompt* to the agent that judges, before copies of the evidence; raises `JudgeFailed`."""
    assert context.judge is not None
    folder = next(path for number in count(1) if not (path := evidence.artifact_dir / FOLDER / str(number)).exists())
    record = AttemptRecord(runner=context.judge.id, number=1, artifact_dir=str(folder))
    try:
        folder.mkdir(parents=True)
        folders = await _judging_folders(context, evidence)
        try:
            silent = replace(context, link=replace(context.link, listen=None))
            judging = Attempt(context=silent, folders=folders, trial=_trial(context, trial, prompt), record=record)
            await run_agent(judging)
        finally:
            # Also of a session that did not end well.
            pay(record.paid_usage, free=not record.unpriced)
            with anyio.CancelScope(shield=True):
                await clean_up(folders)
    except AttemptError as error:
        raise _error_type(error)(
            f"the judge {context.judge.id} gave no verdict: {error.message}", hint=error.hint
        ) from error
    except OSError as error:
        raise JudgeBroken(f"the judge {context.judge.id} could not be shown the evidence: {error}") from error
    assert record.session is not None
    return JudgeAnswer(text=record.session.final_output, usage=record.paid_usage)


def _error_type(error: AttemptError) -> type[JudgeFailed]:
    if isinstance(error, KeyRefused | ProviderUnreachable):
        return JudgeRefused
    return JudgeBroken if error.cause == "infrastructure" else JudgeFailed


def _trial(context: RunContext, trial: Trial, prompt: str) -> Trial:
    """Return the session of the judge as a trial: without the skill and other skills, whatever the arm has."""
    assert context.judge is not None
    timeout_ms = context.suite.judge.get("timeout_ms")
    execution = Execution(
        case=Case(id=trial.key.case, prompt=prompt, checks=()),
        runner=replace(context.judge, skills=(), model=context.suite.judge.get("model") or context.judge.model),
        arm=_ARM,
        limits=Limits(timeout_s=timeout_ms / 1000 if timeout_ms else _USUAL_TIMEOUT_S),
        workspace=WorkspaceSpec(),
        trials=1,
    )
    return Trial(key=replace(trial.key, runner=context.judge.id, arm=_ARM), execution=execution)


async def _judging_folders(context: RunContext, evidence: Evidence) -> AttemptFolders:
    home, temporary = make_home(context.scratch)
    workspace: Workspace | None = None
    try:
        workspace = context.workspaces.isolated(WorkspaceSpec())
        await anyio.to_thread.run_sync(_show, workspace.path, evidence)
    except BaseException:
        with anyio.CancelScope(shield=True):
            if workspace is not None:
                await clean_up(AttemptFolders(workspace=workspace, home=home, temporary=temporary, shared=False))
        raise
    return AttemptFolders(workspace=workspace, home=home, temporary=temporary, shared=False, read_only=True)


def _show(folder: Path, evidence: Evidence) -> None:
    """Fill *folder* with what the judge may look at."""
    copy = folder / "workspace"
    copy.mkdir()
    try:
        copy_tree(evidence.workspace, copy, force=True)
    except (WorkspaceError, OSError) as error:
        if isinstance(error, OSError) and error.errno in SHORTAGES:
            raise
        # An agent may leave anything there, and must not keep a judge from deciding: the judge sees the rest.
        (folder / "not-copied.txt").write_text(f"{error}\n", encoding="utf-8", errors="backslashreplace")
    _silence(copy)
    (folder / "changes.diff").write_text(evidence.changes.diff or "", encoding="utf-8", errors="backslashreplace")
    transcript = folder / "transcript.jsonl"
    record_path = evidence.events_path or evidence.artifact_dir / "transcript.txt"
    if record_path.is_file():
        shutil.copyfile(record_path, transcript)
    else:
        transcript.touch()


def _silence(folder: Path) -> None:
    """Rename what agents take instructions from by themselves."""
    for place, folders, names in os.walk(folder, topdown=False):
        for name in (*folders, *names):
            if name.lower() in _SPEAKING:
                free = (Path(place, name + _SUFFIX * number) for number in count(1))
                Path(place, name).rename(next(path for path in free if not os.path.lexists(path)))

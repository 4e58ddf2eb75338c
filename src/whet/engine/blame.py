"""Whose doing it is that a check came to no decision: the agent's, where it decides without what the agent left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path

import anyio
import anyio.to_thread

from whet.engine import ground as grounds
from whet.engine.parts import Parts
from whet.errors import AttemptError, CheckMistaken, GraderError, JudgeFailed, NoVerdict
from whet.grade.base import Evidence
from whet.grade.recorded import NotRecorded
from whet.model.changes import Changes
from whet.model.run import Trial
from whet.model.session import SessionSummary, Usage
from whet.model.suite import Check
from whet.workspace import remove_tree

BECAUSE = "it decides on the untouched workspace without an answer, so what the agent left is the reason"
# These say already whose doing it is, or that a provider was not there.
_SETTLED = (CheckMistaken, NotRecorded, JudgeFailed)


def is_open(error: GraderError) -> bool:
    """Whether it is to be found out whose doing *error* is."""
    if isinstance(error, NoVerdict):
        return True
    return error.cause != "agent" and not isinstance(error, _SETTLED)


async def is_agents_doing(parts: Parts, trial: Trial, check: Check, evidence: Evidence) -> bool:
    """Whether *check* decides without what the agent left, and does not with it, also when it is asked again.

    Asking again tells a check that hangs by its own doing, or by that of a busy machine, from one that the agent hangs.
    """
    key = f"{trial.key.case}/{trial.key.variant}/{trial.execution.case.checks.index(check)}"
    if key not in parts.decides:
        parts.decides[key] = await _decides_untouched(parts, trial, check, evidence)
    if not parts.decides[key]:
        return False
    return not await _decides(parts, check, evidence)


async def _decides_untouched(parts: Parts, trial: Trial, check: Check, evidence: Evidence) -> bool:
    async with _untouched(parts, trial, evidence) as control:
        return control is not None and await _decides(parts, check, control)


async def _decides(parts: Parts, check: Check, evidence: Evidence) -> bool:
    """Whether there is a decision, whichever; a check that raises has decided."""
    try:
        given = await parts.graders[check.grader].grade(check, evidence)
    except GraderError as error:
        return not is_open(error) and not isinstance(error, NotRecorded | JudgeFailed)
    except AttemptError:
        return False
    return not given.undecided


@asynccontextmanager
async def _untouched(parts: Parts, trial: Trial, evidence: Evidence) -> AsyncIterator[Evidence | None]:
    """The evidence as it would be had the agent done nothing; none where there is no such workspace to be had."""
    spec = trial.execution.workspace
    folder = parts.scratch / f"c{len(parts.decides) + 1}-{trial.key.number}"
    if spec.cwd is not None:
        # The folder of a person, which the agent has changed by now.
        yield None
        return
    alone = replace(trial, execution=replace(trial.execution, workspace=replace(spec, mode="isolated")))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ground = await grounds.lay(parts, grounds.SharedGround(), alone, folder)
    except (AttemptError, OSError):
        yield None
        return
    try:
        yield _without_agent(evidence, ground.workspace.path, folder)
    finally:
        with anyio.CancelScope(shield=True):
            await grounds.leave(ground)
            await anyio.to_thread.run_sync(remove_tree, folder)


def _without_agent(evidence: Evidence, workspace: Path, folder: Path) -> Evidence:
    session = evidence.session
    known = {item.name: getattr(evidence, item.name) for item in fields(Evidence)}
    silent = SessionSummary(runner=session.runner, agent=session.agent, prompt=session.prompt, usage=Usage())
    nothing = {"session": silent, "events_path": None, "changes": Changes(), "workspace": workspace}
    apart = {"artifact_dir": folder, "keep": lambda _, __: None}
    return Evidence(**{**known, **nothing, **apart})

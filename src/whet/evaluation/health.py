"""Whether skills are well, asked once before anything is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio

from whet.errors import AttemptError, Problem, SuiteError
from whet.mask import Masker
from whet.model.skill import CallableSkill
from whet.sandbox.base import Sandbox
from whet.skills.connect import connect
from whet.skills.read import MANIFEST

_AT_ONCE = 8
_HINT = "correct or start it, leave it out, or add --no-health-check: its calls are then errored"


@dataclass(frozen=True, slots=True)
class _Found:
    """Why a skill is not well, and whether it can be called all the same."""

    reason: str
    callable: bool


def must_be_well(
    skills: Sequence[CallableSkill], sandbox: Sandbox, masker: Masker, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """A line for each skill that is not well; a `SuiteError` where some cannot be called at all."""
    found = anyio.run(_ask_all, skills, sandbox, environ)
    problems = [
        Problem(
            file=str(skill.root / MANIFEST),
            message=f"{skill.id} cannot be called: {masker.text(found[skill.id].reason)}",
            hint=_HINT,
        )
        for skill in skills
        if skill.id in found and not found[skill.id].callable
    ]
    if problems:
        raise SuiteError(problems)
    return tuple(f"{name} does not say that it is well: {masker.text(each.reason)}" for name, each in found.items())


async def _ask_all(skills: Sequence[CallableSkill], sandbox: Sandbox, environ: Mapping[str, str]) -> dict[str, _Found]:
    found: dict[str, _Found] = {}
    room = anyio.CapacityLimiter(_AT_ONCE)

    async def ask(skill: CallableSkill) -> None:
        async with room:
            answer = await _ask(skill, sandbox, environ)
        if answer is not None:
            found[skill.id] = answer

    try:
        async with anyio.create_task_group() as group:
            for skill in skills:
                group.start_soon(ask, skill)
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.close()
    return {skill.id: found[skill.id] for skill in skills if skill.id in found}


async def _ask(skill: CallableSkill, sandbox: Sandbox, environ: Mapping[str, str]) -> _Found | None:
    try:
        async with connect(skill, sandbox, environ) as client:
            reason = await client.health()
    except AttemptError as error:
        return _Found(error.message, callable=False)
    return None if reason is None else _Found(reason, callable=True)

"""The contract of a client: one call of a skill, and whether the skill is well."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from whet.errors import UsageError
from whet.model.session import Usage
from whet.model.skill import CallableSkill
from whet.schemas import schema_problems

HEALTH_TIMEOUT_S = 5.0
MOST_BYTES = 16 * 1024 * 1024
# The last one tells whose process it is, should we be killed and somebody resume.
_PASSED_ON = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "WHET_RUN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a skill answered, how long that took, and what it says it used."""

    output: Any
    latency_ms: float
    usage: Usage | None = None


class SkillClient(Protocol):
    """Calls one skill; several calls may be under way at the same time."""

    async def call(self, given: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """The answer to *given*.

        Raises `SkillFailed` where the skill answers with an error or not as agreed, `AgentTimedOut` at the time limit,
        `AgentCrashed` where its program ends badly, `OutputTooLarge`; and, which says nothing about the skill,
        `SkillUnreachable`, `AgentNotFound`, `AgentNotStarted` and `SandboxError`.
        """

    async def health(self) -> str | None:
        """Why the skill is not well; none where it is, or where it has no way of saying so.

        Raises where it cannot be called at all: what says nothing about the skill of what `call` raises.
        """


def missing_secrets(skill: CallableSkill, environ: Mapping[str, str]) -> list[str]:
    """The variables that the skill asks for and that are not set: to be said before anything runs."""
    wanted = (*skill.pass_env, *((skill.auth_variable,) if skill.auth_variable and skill.auth != "none" else ()))
    return [name for name in wanted if not environ.get(name)]


def secrets_of(skill: CallableSkill, environ: Mapping[str, str]) -> dict[str, str]:
    """What the skill is given of our environment beyond the usual; to be masked in everything that is kept."""
    wanted = (*skill.pass_env, *((skill.auth_variable,) if skill.auth_variable else ()))
    return {name: environ[name] for name in wanted if environ.get(name)}


def environment(skill: CallableSkill, environ: Mapping[str, str], home: str) -> dict[str, str]:
    """The environment of a skill's program: little of ours, and what it asks for by name."""
    env = {name: environ[name] for name in (*_PASSED_ON, *skill.pass_env) if name in environ}
    env.setdefault("PATH", os.defpath)
    # A Python program that keeps its answers in a buffer would look as if it hung.
    own = {"HOME": home, "TMPDIR": home, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**env, **own, **skill.env}


def auth_headers(skill: CallableSkill, environ: Mapping[str, str]) -> dict[str, str]:
    """What proves to an endpoint who we are."""
    if skill.auth == "none" or not skill.auth_variable:
        return {}
    secret = environ.get(skill.auth_variable)
    if not secret:
        raise UsageError(f"skill {skill.id}: the variable {skill.auth_variable} is not set")
    return {"Authorization": f"Bearer {secret}"} if skill.auth == "bearer" else {"X-API-Key": secret}


def input_problems(skill: CallableSkill, given: Mapping[str, Any]) -> list[str]:
    """What the skill's `inputSchema` does not allow of an input; nothing where it has none."""
    return schema_problems(skill.input_schema, given) if skill.input_schema else []


def output_problems(skill: CallableSkill, output: Any) -> list[str]:
    """The same for `outputSchema` and an answer."""
    return schema_problems(skill.output_schema, output) if skill.output_schema else []


def compact(value: Any) -> bytes:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"

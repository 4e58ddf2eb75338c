"""The client of a skill, whatever kind it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from whet.model.ceilings import Ceilings
from whet.model.skill import CallableSkill
from whet.sandbox.base import Sandbox
from whet.skills.base import SkillClient
from whet.skills.program import OneShot, Program

_NO_CEILINGS = Ceilings()


@asynccontextmanager
async def connect(
    skill: CallableSkill,
    sandbox: Sandbox,
    environ: Mapping[str, str],
    ceilings: Ceilings = _NO_CEILINGS,
    scratch: Path | None = None,
) -> AsyncIterator[SkillClient]:
    """A client for as long as the context lasts; nothing that it started is running afterwards.

    Its home is made in *scratch*, where whoever comes after a whet that was killed finds and removes it.
    """
    with TemporaryDirectory(prefix="whet-skill-", dir=scratch) as home:
        program = Program(skill, sandbox, environ, Path(home), ceilings)
        match skill.adapter:
            case "subprocess" if skill.keep_alive:
                from whet.skills.keep_alive import KeptAlive  # noqa: PLC0415 - each kind loads what it needs

                kept = KeptAlive(program)
                try:
                    yield kept
                finally:
                    with anyio.CancelScope(shield=True):
                        await kept.close()
            case "subprocess":
                yield OneShot(program)
            case "http":
                from whet.skills.http import HttpSkill, http_client  # noqa: PLC0415

                async with http_client(skill, environ) as client:
                    yield HttpSkill(skill, client)
            case "mcp":
                from whet.skills.mcp import McpSkill, over_http, over_stdio, require_mcp  # noqa: PLC0415

                require_mcp()
                if skill.url is None:
                    yield McpSkill(skill, over_stdio(program))
                    return
                from whet.skills.http import http_client  # noqa: PLC0415

                async with http_client(skill, environ) as client:
                    yield McpSkill(skill, over_http(skill.url, client))

"""The agents that whet knows: how their programs are called, installed and logged in, as their classes declare it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from whet import plugins
from whet.agents.contract import AgentSetup


class KnownAgent(Struct, frozen=True, kw_only=True):
    """One agent as its class declares it: `program` starts it, any of `variables` or `files` can log it in.

    The files are below the home.
    """

    type: str
    program: str
    files: tuple[str, ...]
    variables: tuple[str, ...]
    # Whose variables it takes.
    provider: str | None
    install: str
    helpers: Mapping[str, str]
    free: bool
    unpacks: bool


@lru_cache
def known_agent(name: str) -> KnownAgent | None:
    """Return what whet knows of the agent called *name*; None if the agent is not of whet, or has no program."""
    agent = plugins.find("agents", name) if name in plugins.BUILT_IN["agents"] else None
    if agent is None or agent.setup is None:
        return None
    setup: AgentSetup = agent.setup
    return KnownAgent(
        type=name,
        program=agent.program,
        files=agent.login,
        variables=setup.variables,
        provider=agent.provider,
        install=setup.install,
        helpers=setup.helpers,
        free=setup.free,
        unpacks=setup.unpacks,
    )


def agent_called(name: str) -> KnownAgent | None:
    """Return the agent that a person calls *name*: by its type, or by its program, such as claude."""
    return known_agent(name) or next((agent for agent in known_agents() if agent.program == name), None)


def known_agents() -> Iterator[KnownAgent]:
    """Yield every agent whose program whet knows, in the order in which whet looks for an installed one."""
    return filter(None, map(known_agent, plugins.BUILT_IN["agents"]))


def logins(agent: KnownAgent, environ: Mapping[str, str]) -> list[str]:
    """Return the names of what could log *agent* in: variables that are set and files that exist."""
    home = Path(environ.get("HOME") or "/nonexistent")
    files = [f"~/{name}" for name in agent.files if os.path.isfile(home / name)]  # noqa: PTH113 - a home that we may not read has no logins
    return [name for name in agent.variables if environ.get(name)] + files

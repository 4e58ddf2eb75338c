"""What the class of each agent with a program declares, so that nothing else has to list that agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whet import plugins
from whet.agents.contract import AgentDefaults
from whet.agents.known import KnownAgent, known_agents
from whet.gateway.routes import PROVIDERS
from whet.model.skills import AGENT_FOLDERS

ROOT = Path(__file__).resolve().parents[2]
AGENTS = pytest.mark.parametrize("agent", tuple(known_agents()), ids=lambda agent: agent.type)


def _class(agent: KnownAgent) -> Any:
    return plugins.find("agents", agent.type)


@pytest.mark.parametrize("name", plugins.BUILT_IN["agents"])
def test_an_agent_derives_from_the_contract_and_declares_its_program_whole(name: str) -> None:
    agent = plugins.find("agents", name)

    assert issubclass(agent, AgentDefaults)
    assert bool(getattr(agent, "program", None)) == (agent.setup is not None), "`program` and `setup` go together"


@AGENTS
def test_an_agent_says_how_it_is_installed_and_logged_in(agent: KnownAgent) -> None:
    assert agent.program
    assert agent.install
    assert agent.variables
    assert all(name.isupper() for name in agent.variables)
    assert not [name for name in agent.files if name.startswith(("/", "~"))], "files are relative to the home"


@AGENTS
def test_an_agent_says_how_it_reaches_its_model(agent: KnownAgent) -> None:
    assert _class(agent).always_direct == (agent.provider is None)
    assert agent.provider is None or agent.provider in PROVIDERS


@AGENTS
def test_the_folder_of_an_agents_skills_is_one_where_whet_looks_for_skills(agent: KnownAgent) -> None:
    first, _, rest = _class(agent).skills.partition("/")

    assert first in AGENT_FOLDERS or (first, rest.partition("/")[0]) == (".config", "opencode")


@AGENTS
def test_an_agent_can_be_resumed_and_has_recordings_and_a_place_in_the_reference(agent: KnownAgent) -> None:
    module = _class(agent).__module__.rpartition(".")[2]
    recordings = ROOT / "tests" / "transcripts"

    assert _class(agent).state
    assert any((recordings / name).is_dir() for name in (agent.type, module, module.partition("_")[0]))
    assert f"`{agent.type}`" in (ROOT / "docs" / "reference" / "agents.md").read_text("utf-8")

"""What holds for every adapter, whatever its program prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import RECORDINGS, garbled_output, read_output, task

from whet import plugins
from whet.agents.known import known_agent
from whet.model.run import Runner
from whet.run.attempt.home import login_secrets

# By the name of its folder of recordings.
AGENTS = {
    "claude": "claude-code",
    "codex": "codex",
    "copilot": "copilot",
    "cursor": "cursor-agent",
    "gemini": "gemini",
    "opencode": "opencode",
}
KILLED = sorted(str(path.parent.relative_to(RECORDINGS)) for path in RECORDINGS.glob("*/killed*/stdout.jsonl"))


@pytest.mark.parametrize("recording", KILLED)
def test_a_killed_session_did_not_end_well_even_if_the_program_says_0(recording: str) -> None:
    output = (RECORDINGS / recording / "stdout.jsonl").read_bytes()

    read = read_output(plugins.find("agents", AGENTS[recording.split("/", maxsplit=1)[0]])(), output, exit_code=0)

    assert read.verdict == ("unfinished" if read.observer.turn.came else "agent-not-started")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("folder", AGENTS)
def test_no_record_breaks_it(folder: str, seed: int) -> None:
    output = garbled_output(folder, seed)

    read = read_output(plugins.find("agents", AGENTS[folder])(), output, exit_code=1)

    assert read.events
    assert read.verdict != "ok"
    assert read.observer.unreadable is None


@pytest.mark.parametrize(
    ("agent", "inherit_home"),
    [*((agent, False) for agent in AGENTS.values() if agent != "copilot"), ("opencode", True), ("cursor-agent", True)],
)
def test_the_login_that_an_agent_gets_can_be_masked(agent: str, inherit_home: bool, tmp_path: Path) -> None:
    known = known_agent(agent)
    assert known is not None
    login = tmp_path / known.files[0]
    login.parent.mkdir(parents=True)
    login.write_text('{"token": "a-secret-of-the-user"}')
    runner = Runner(id="r", agent=agent, options={"inherit_home": inherit_home})

    asked = plugins.find("agents", agent)().command(task(runner, environ={"PATH": "/bin", "HOME": str(tmp_path)}))

    assert login_secrets(asked) == ("a-secret-of-the-user",)

"""Resumed sessions: how each program is asked to go on, and that an answer is charged with its own tokens only.

Nobody of us can run Cursor's agent: its arguments are as documented, and that is all that is tested of it.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from reading import RECORDINGS, read_recording, task

from whet import plugins
from whet.agents.contract import Resume
from whet.model.run import Runner
from whet.model.session import Usage

FLAGS = {
    "claude-code": ("--resume", "id-1"),
    "codex": ("resume", "id-1", "-"),
    "opencode": ("--session", "id-1"),
    "copilot": ("--resume=id-1",),
    "gemini": ("--resume", "id-1"),
    "cursor-agent": ("--resume", "id-1"),
}


@pytest.mark.parametrize(("agent", "flags"), FLAGS.items())
def test_only_the_id_of_the_session_is_added_to_what_a_program_is_asked_with(
    agent: str, flags: tuple[str, ...]
) -> None:
    runner = Runner(id="r", agent=agent, model="m", options={"args": ("--own", "arg")})

    plain = plugins.find("agents", agent)().command(task(runner))
    resumed = plugins.find("agents", agent)().command(task(runner, resume=Resume(session_id="id-1")))

    at = resumed.argv.index(flags[0])
    assert resumed.argv[at : at + len(flags)] == flags
    assert (*resumed.argv[:at], *resumed.argv[at + len(flags) :]) == plain.argv
    assert resumed.stdin == plain.stdin


@pytest.mark.parametrize("agent", FLAGS)
def test_the_state_of_a_session_lies_below_the_home_and_holds_no_login(agent: str) -> None:
    made = plugins.find("agents", agent)()
    home = RECORDINGS / "nobody"

    asked = made.command(task(Runner(id="r", agent=agent), environ={"HOME": str(home)}))

    assert made.state
    assert not any(PurePosixPath(name).is_absolute() for name in made.state)
    assert not set(made.state) & {*asked.home_files, *asked.home_copies}


@pytest.mark.parametrize("agent", ["command", "scripted", "replay"])
def test_other_agents_have_no_sessions(agent: str) -> None:
    assert plugins.find("agents", agent)().state == ()


def _usage_file(name: str) -> dict[str, bytes]:
    file = RECORDINGS / name / "usage.json"
    return {"copilot-usage.json": file.read_bytes()} if file.exists() else {}


@pytest.mark.parametrize(
    ("agent", "folder"),
    [
        ("claude-code", "claude"),
        ("codex", "codex"),
        ("opencode", "opencode"),
        ("copilot", "copilot"),
        ("gemini", "gemini"),
    ],
)
def test_the_second_turn_took_what_it_took_itself_whatever_totals_the_program_tells(agent: str, folder: str) -> None:
    first, second = f"{folder}/resume/turn1", f"{folder}/resume/turn2"
    before = read_recording(plugins.find("agents", agent)(), first, _usage_file(first)).session

    resume = Resume(session_id=before.session_id or "", usage=before.usage)
    after = read_recording(plugins.find("agents", agent)(), second, _usage_file(second), resume=resume).session

    assert before.session_id == after.session_id
    assert (before.usage.input_tokens, before.usage.output_tokens) == (1100, 21)
    assert (after.usage.input_tokens, after.usage.cached_tokens, after.usage.output_tokens) == (1700, 500, 22)


@pytest.mark.parametrize(("agent", "folder"), [("codex", "codex"), ("copilot", "copilot")])
def test_where_it_is_not_known_what_came_before_totals_of_the_session_say_nothing(agent: str, folder: str) -> None:
    name = f"{folder}/resume/turn2"

    session = read_recording(
        plugins.find("agents", agent)(), name, _usage_file(name), resume=Resume(session_id="id-1")
    ).session

    assert session.usage == Usage()

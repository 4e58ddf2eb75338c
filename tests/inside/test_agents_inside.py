"""Real agents in containers, against the scripted model: they are not in the image, and do their work there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import ALWAYS, NotInstalled, Program, installed
from project import Project
from stage import Stage

_STRICT = os.environ.get("WHET_CI_STRICT") == "1"
READY = {"say": "All is ready."}
STEPS = [
    {"run": "echo hi > out.txt && ls /app && command -v apt-get || echo no apt here"},
    {"write": "report.md", "text": "# Report\n"},
    READY,
]
CHECK = 'assert set(ctx.changes().created) == {"out.txt", "report.md"}, ctx.changes()'


@pytest.fixture(params=ALWAYS, ids=lambda program: program.agent)
def program(request: pytest.FixtureRequest) -> Program:
    """Each real agent in turn."""
    found: Program = request.param
    try:
        installed(found)
    except NotInstalled as error:
        (pytest.fail if _STRICT else pytest.skip)(str(error))
    return found


@pytest.fixture
def stage(program: Program, project: Project, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A project whose one runner is that agent, in containers."""
    monkeypatch.setattr("project.PATIENCE_S", 240)
    return Stage(project, program)


def test_an_agent_that_is_not_in_the_image_works_there(stage: Stage, image: str) -> None:
    played = stage.play(STEPS, "--image", image, check=CHECK)

    assert played.verdict == ("passed", None), played.story
    assert "no apt here" in played.turns[1].text
    assert stage.project.left_after_a_while() == []


def test_an_agent_explains_itself_in_the_same_image(stage: Stage, image: str) -> None:
    played = stage.play([READY], "--image", image, check='expect.output.includes(report, "tested", explain="Why not?")')

    asked = stage.explain([{"run": "command -v apt-get || echo no apt here"}, {"say": "Nobody asked."}])

    assert played.verdict[0] == "failed", played.story
    assert asked.outcome.code == 0, asked.story
    assert "Nobody asked." in asked.outcome.stdout
    assert "no apt here" in asked.turns[1].text


def test_an_agent_brings_the_libraries_that_an_image_lacks(stage: Stage, small_image: str) -> None:
    """Without a C library; it has no bash either, without which Claude Code runs no command."""
    check = 'assert ctx.changes().created == ("report.md",), ctx.changes()'

    played = stage.play(STEPS[1:], "--image", small_image, check=check)

    assert played.verdict == ("passed", None), played.story


def test_doctor_says_which_agents_work_in_an_image_and_what_is_missing(
    stage: Stage, image: str, small_image: str, podman: Callable[..., str], tmp_path: Path
) -> None:
    podman("image", "inspect", small_image)
    env = stage.environ("http://127.0.0.1:1")

    full = stage.project.whet("doctor", "--container", image, env=env)
    small = stage.project.whet("doctor", "--container", small_image, env=env)
    none = stage.project.whet("doctor", "--container", "127.0.0.1:1/nothing", env=env)

    assert full.code == small.code == 0, full.stdout + full.stderr
    assert stage.program.agent in full.stdout
    assert "/opt/whet" in full.stdout
    assert "libc.so.6" in small.stdout
    assert none.code == 1
    assert "cannot be pulled" in none.stdout

"""Fixtures of runs with real agents: programs from npm, a scripted model, and a project between them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The project of a flow test is used here too.
sys.path.append(str(Path(__file__).resolve().parents[1] / "flow"))

from programs import ALWAYS, MORE, NotInstalled, Program, installed
from project import Project
from stage import Stage

# Asked now: later on, tests see no such variable.
_STRICT = os.environ.get("WHET_CI_STRICT") == "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The programs that take long to install are run only by those who name their mark."""
    if "more_agents" in (config.option.markexpr or ""):
        return
    left_out = [item for item in items if item.get_closest_marker("more_agents")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("more_agents")]


_PROGRAMS = [
    *(pytest.param(program, id=program.agent) for program in ALWAYS),
    *(pytest.param(program, id=program.agent, marks=pytest.mark.more_agents) for program in MORE),
]


@pytest.fixture(params=_PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    """Each real agent in turn."""
    found: Program = request.param
    try:
        installed(found)
    except NotInstalled as error:
        # What CI does not run, nobody does.
        (pytest.fail if _STRICT else pytest.skip)(str(error))
    return found


@pytest.fixture
def stage(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A project whose one runner is that agent, in the local sandbox."""
    # Some of them take long to start, and longer on a busy machine.
    monkeypatch.setattr("project.PATIENCE_S", 240)
    project = Project(tmp_path / "project")
    yield Stage(project, program)
    project.clear()


@pytest.fixture
def boxed(stage: Stage, sandbox_name: str) -> Stage:
    """The same in each sandbox."""
    stage.project.sandbox = sandbox_name
    return stage

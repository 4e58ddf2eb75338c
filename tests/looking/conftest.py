"""A project with runs to look at, `whet view` over it, and a browser before it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The browser of the tests of the service, and what installs packages for the tests of agents.
for _folder in ("server", "agents"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / _folder))

from browsing import Visit, browser, visit  # noqa: E402
from notes_project import PATIENCE_S, Project, Viewer, make_project, viewed  # noqa: E402
from playwright.sync_api import Browser, expect  # noqa: E402

__all__ = ["browser"]
expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a run of two arms, two runs without, and one in which every text is an attack."""
    return make_project(tmp_path_factory.mktemp("project") / "notes")


@pytest.fixture(scope="session")
def viewer(project: Project) -> Iterator[Viewer]:
    """`whet view` over the project."""
    with viewed(project.folder) as viewer:
        yield viewer


@pytest.fixture
def visitor(browser: Browser, viewer: Viewer) -> Iterator[Visit]:
    """Somebody with a large screen."""
    with visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        yield visitor

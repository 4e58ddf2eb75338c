"""Fixtures of tests in containers. Most belong to root's part: what an ordinary user's podman can do differs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The project of a flow test, and the programs and the model of real agents, are used here too.
for _folder in ("flow", "agents"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / _folder))

from images import ENGINE, image, podman, small_image, why_not  # noqa: E402
from project import SHELL, Project  # noqa: E402

__all__ = ["image", "podman", "small_image"]
_HERE = Path(__file__).parent
_WITHOUT_ROOT = "test_rootless.py"
_PASSED_ON = ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "BUILDAH_ISOLATION", "DOCKER_HOST")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is for root in this folder."""
    for item in items:
        if item.path.is_relative_to(_HERE) and item.path.name != _WITHOUT_ROOT:
            item.add_marker(pytest.mark.root)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip where there are no containers, and say why."""
    del item
    # Others are told that these tests are for root.
    if os.geteuid() == 0 and (reason := why_not()) is not None:
        pytest.skip(reason)


@pytest.fixture
def project(tmp_path: Path, podman: Callable[..., str]) -> Iterator[Project]:
    """A project whose trials run in containers."""
    del podman
    made = Project(tmp_path / "project", sandbox="container")
    made.env |= {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    made.env["WHET_CONTAINER"] = ENGINE
    made.settings(SHELL)
    yield made
    made.clear()
    subprocess.run(["rm", "-rf", str(tmp_path / "project"), str(tmp_path / "outside")], check=False)


@pytest.fixture
def cleaning() -> None:
    """Asked for by tests that remove all images: no other test runs meanwhile."""


@pytest.fixture(autouse=True)
def _images_stay(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep tests that remove images apart from those that use them, also on other workers."""
    with Path(f"/var/tmp/whet-tests-{os.getuid()}.cleaning").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if "cleaning" in request.fixturenames else fcntl.LOCK_SH)
        yield

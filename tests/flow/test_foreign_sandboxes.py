"""Sandboxes of somebody else's, found by an entry point: a run uses them by their name, as ours."""

from __future__ import annotations

import pytest
from project import SHELL, Project

MODULE = """
from whet.sandbox.local import LocalSandbox

class Crate(LocalSandbox):
    name = "crate"
"""
SUITE = """
from whet import Case
suite = [Case(id="a", prompt="echo yes", check=lambda session: None)]
"""


@pytest.fixture
def extended(project: Project) -> Project:
    """A project beside which a package with a sandbox is installed."""
    project.write("lib/foreign_sandbox.py", MODULE)
    project.write(
        "lib/foreign_sandbox-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: foreign_sandbox\nVersion: 1\n"
    )
    project.write(
        "lib/foreign_sandbox-1.dist-info/entry_points.txt", "[whet.sandboxes]\ncrate = foreign_sandbox:Crate\n"
    )
    project.env["PYTHONPATH"] = str(project.root / "lib")
    project.write("suite.py", SUITE)
    return project


def test_a_run_uses_a_sandbox_by_its_name(extended: Project) -> None:
    extended.settings(SHELL)
    extended.sandbox = "crate"

    done = extended.whet("run", "suite.py")

    assert done.statuses == {"a": "passed"}, done.stderr
    assert done.results["sandbox"] == "crate"


def test_an_unknown_sandbox_is_an_error_that_suggests_the_nearest(extended: Project) -> None:
    extended.settings(SHELL)

    done = extended.whet("run", "suite.py", "--sandbox", "crat")

    assert done.code == 2
    assert (
        '--sandbox: must be one of auto, bubblewrap, container, local, crate, not "crat" (did you mean "crate"?)'
        in done.stderr
    )


def test_a_sandbox_that_cannot_turn_the_network_off_refuses_a_runner_without_one(extended: Project) -> None:
    extended.settings(f"{SHELL}\nnetwork = false\n")

    done = extended.whet("run", "suite.py", "--sandbox", "crate")

    assert done.code == 2
    assert "agent.network = false: the crate sandbox cannot turn the network off" in done.stderr


BARE = """
from whet.sandbox.local import LocalSandbox

class Crate:
    name = "crate"
    availability = LocalSandbox.availability

    def __init__(self):
        inside = LocalSandbox()
        self.run, self.open, self.close = inside.run, inside.open, inside.close
"""


def test_a_sandbox_with_nothing_but_the_methods_of_the_contract_gets_the_rest_by_default(extended: Project) -> None:
    extended.write("lib/foreign_sandbox.py", BARE)
    extended.settings(SHELL)
    extended.sandbox = "crate"

    done = extended.whet("run", "suite.py")

    assert done.statuses == {"a": "passed"}, done.stderr

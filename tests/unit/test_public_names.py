"""The names that authors import."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import whet
import whet.testing


@pytest.mark.parametrize("name", whet.__all__)
def test_a_public_name_can_be_imported_and_says_what_it_is(name: str) -> None:
    found = getattr(importlib.import_module("whet"), name)

    assert isinstance(found, str) or found.__doc__


@pytest.mark.parametrize("name", whet.testing.__all__)
def test_a_name_of_the_kit_can_be_imported_and_says_what_it_is(name: str) -> None:
    found = getattr(importlib.import_module("whet.testing"), name)

    assert found.__doc__


def test_the_public_names_are_these() -> None:
    assert sorted(whet.__all__) == [
        "Bootstrap",
        "Case",
        "Changes",
        "CheckContext",
        "Failure",
        "FailureClass",
        "Grade",
        "Ran",
        "Session",
        "SkillDetection",
        "Tool",
        "ToolCall",
        "TrialResult",
        "Turn",
        "Usage",
        "User",
        "Workspace",
        "__version__",
        "case",
        "command",
        "expect",
        "load_report",
        "read_command",
    ]


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Cases'"):
        _ = whet.Cases


@pytest.mark.parametrize("module", ["whet", "whet.testing"])
def test_importing_whet_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert not {"anyio", "click", "msgspec", "rich", "subprocess"} & set(ended.stdout.split())

"""What authors of extensions use: a contract suite for each kind of extension, and a model with a script.

`check_agent`, `check_grader`, `check_format`, `check_reporter` and `check_sandbox` raise `ContractBroken`, which says
what the extension does wrong. Call them in your own tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.testing.agent import Reading as Reading
    from whet.testing.agent import check_agent as check_agent
    from whet.testing.grader_and_format import ContractBroken as ContractBroken
    from whet.testing.grader_and_format import check_format as check_format
    from whet.testing.grader_and_format import check_grader as check_grader
    from whet.testing.reporter import Shown as Shown
    from whet.testing.reporter import check_reporter as check_reporter
    from whet.testing.sandbox import check_sandbox as check_sandbox
    from whet.testing.scripted_model.script import Step as Step
    from whet.testing.scripted_model.server import Request as Request
    from whet.testing.scripted_model.server import ScriptedModel as ScriptedModel

_HOMES = {
    "ContractBroken": "grader_and_format",
    "Reading": "agent",
    "Request": "scripted_model.server",
    "ScriptedModel": "scripted_model.server",
    "Shown": "reporter",
    "Step": "scripted_model.script",
    "check_agent": "agent",
    "check_format": "grader_and_format",
    "check_grader": "grader_and_format",
    "check_reporter": "reporter",
    "check_sandbox": "sandbox",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - every entry is a string


def __getattr__(name: str) -> Any:
    # Every run of pytest imports this package for its plug-in, and most need nothing else of it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

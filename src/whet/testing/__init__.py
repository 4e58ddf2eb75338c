"""What authors of extensions use: a contract suite for each kind of extension, and a model with a script.

`check_agent`, `check_grader`, `check_format`, `check_reporter` and `check_sandbox` raise `ContractBroken`, which says
what the extension does wrong. Call them in your own tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.testing.agent_contract import Reading as Reading
    from whet.testing.agent_contract import check_agent as check_agent
    from whet.testing.contracts import ContractBroken as ContractBroken
    from whet.testing.contracts import check_format as check_format
    from whet.testing.contracts import check_grader as check_grader
    from whet.testing.model_script import Step as Step
    from whet.testing.reporter_contract import Shown as Shown
    from whet.testing.reporter_contract import check_reporter as check_reporter
    from whet.testing.sandbox_contract import check_sandbox as check_sandbox
    from whet.testing.scripted_model import Request as Request
    from whet.testing.scripted_model import ScriptedModel as ScriptedModel

_HOMES = {
    "ContractBroken": "contracts",
    "Reading": "agent_contract",
    "Request": "scripted_model",
    "ScriptedModel": "scripted_model",
    "Shown": "reporter_contract",
    "Step": "model_script",
    "check_agent": "agent_contract",
    "check_format": "contracts",
    "check_grader": "contracts",
    "check_reporter": "reporter_contract",
    "check_sandbox": "sandbox_contract",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - every entry is a string


def __getattr__(name: str) -> Any:
    # Every run of pytest imports this package for its plug-in, and most need nothing else of it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

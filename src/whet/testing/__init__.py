"""The public kit for those who extend whet."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.testing.agent_contract import ContractBroken, Reading, check_agent
    from whet.testing.model_requests import Request
    from whet.testing.model_script import Step
    from whet.testing.scripted_model import ScriptedModel

__all__ = ["ContractBroken", "Reading", "Request", "ScriptedModel", "Step", "check_agent"]


def __getattr__(name: str) -> Any:
    # Every run of pytest imports this package for its plug-in, and most want nothing else of it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "scripted_model" if name in {"Request", "ScriptedModel", "Step"} else "agent_contract"
    return getattr(import_module(f"{__name__}.{home}"), name)

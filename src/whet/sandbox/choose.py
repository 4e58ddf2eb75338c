"""Which sandbox a run uses: the one asked for, or the best one that works here."""

from __future__ import annotations

from whet import plugins
from whet.errors import UsageError
from whet.sandbox.base import Availability, Sandbox

_BEST = "bubblewrap"
_FALLBACK = "local"


def choose_sandbox(name: str) -> tuple[Sandbox, str | None]:
    """The sandbox called *name*, or for `auto` the best that works; and what a person should know about the choice."""
    if name != "auto":
        found = plugins.find("sandboxes", name)
        state: Availability = found.availability()
        if not state.usable:
            raise UsageError(f"sandbox {name}: {state.reason}", hint="install it, or use --sandbox local")
        return found(), None
    state = plugins.find("sandboxes", _BEST).availability()
    if state.usable:
        return plugins.find("sandboxes", _BEST)(), None
    note = f"{state.reason}: agents run without a boundary and can see your files (--sandbox local)"
    return plugins.find("sandboxes", _FALLBACK)(), note

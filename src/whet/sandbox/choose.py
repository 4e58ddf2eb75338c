"""Which sandbox a run uses: the one asked for, or the best one that works here; and what it cannot keep."""

from __future__ import annotations

from collections.abc import Iterable

from whet import plugins
from whet.errors import UsageError
from whet.model.run import Runner
from whet.sandbox.base import Availability, Sandbox

_BEST = "bubblewrap"
_FALLBACK = "local"


def choose_sandbox(name: str) -> tuple[Sandbox, str | None]:
    """The sandbox called *name*, or for `auto` the best that works; and what a person should know about the choice."""
    if name != "auto":
        require_sandbox(name)
        return plugins.find("sandboxes", name)(), None
    state = plugins.find("sandboxes", _BEST).availability()
    if state.usable:
        return plugins.find("sandboxes", _BEST)(), None
    note = f"{state.reason}: agents run without a boundary and can see your files (--sandbox local)"
    return plugins.find("sandboxes", _FALLBACK)(), note


def require_sandbox(name: str) -> None:
    """Refuse to go on where the sandbox called *name* cannot be used here; for `auto` there is always one."""
    if name == "auto":
        return
    state: Availability = plugins.find("sandboxes", name).availability()
    if not state.usable:
        remedy = f"{state.remedy}, or use --sandbox local" if state.remedy else "use --sandbox local"
        raise UsageError(f"sandbox {name}: {state.reason}", hint=remedy)


def hold_network(sandbox: Sandbox, runners: Iterable[Runner]) -> tuple[str, ...]:
    """Refuse runners whose network was asked to be off and cannot be; what to know of those that go on all the same."""
    if sandbox.name != _FALLBACK:
        return ()
    asked = {runner.id: runner for runner in runners if runner.options.get("network") is False}
    strict = [name for name, runner in asked.items() if runner.options.get("network_required", True)]
    if strict:
        raise UsageError(
            "\n".join(f"runners.{name}.agent.network = false: the local sandbox cannot keep it" for name in strict),
            hint="use bubblewrap (`whet doctor` says what it needs), or set `network_required = false` beside it "
            "to run with the network",
        )
    return tuple(f"runner {name} has the network, although it says `network = false`" for name in asked)

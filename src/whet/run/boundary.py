"""Whether an agent may start without a boundary: only if you say so, unless it is a program of your own."""

from __future__ import annotations

from collections.abc import Iterable

from whet import plugins
from whet.errors import UsageError
from whet.model.run import Plan, Runner
from whet.plan.judge import is_judged
from whet.sandbox.contract import Sandbox, why_unbounded

COULD = "could read, change and delete everything that your user can"


def started_by(plan: Plan, judge: Runner | None, *, runners: bool) -> list[Runner]:
    """Return the runners whose agents start outside of containers: those of *plan* if *runners*, and the judge's."""
    outside = [execution.runner for execution in plan.executions if execution.case.task is None] if runners else []
    runners_by_id = {runner.id: runner for runner in outside}
    if judge is not None and is_judged(plan):
        runners_by_id.setdefault(judge.id, judge)
    return list(runners_by_id.values())


def require_boundary(sandbox_setting: str, sandbox: Sandbox, runners: Iterable[Runner]) -> None:
    """Raise for agents that act without asking, if nothing bounds them and *sandbox_setting* does not allow it."""
    why = why_unbounded(sandbox_setting, sandbox)
    alone = dict.fromkeys(runner.id for runner in runners if asks_nobody(runner)) if why else {}
    if why and alone:
        raise UsageError(
            "\n".join(f"runners.{name}: {problem_without_boundary(why.reason)}" for name in alone),
            hint=ways_out(why.remedy),
        )


def asks_nobody(runner: Runner) -> bool:
    """Return whether the agent of *runner* does what its model says, without asking a person."""
    # One of a third party may be older than this.
    return bool(getattr(plugins.find("agents", runner.agent), "asks_nobody", True))


def problem_without_boundary(reason: str) -> str:
    """Return what is wrong with an agent that nothing bounds."""
    return f"its agent acts without asking, and {COULD}, because nothing bounds it: {reason}"


def ways_out(remedy: str) -> str:
    """Return how to get a boundary, and how to go without."""
    install = f"{remedy}; or run" if remedy else "run"
    return f'{install} in containers (--sandbox container); or accept it: --sandbox local, or run.sandbox = "local"'

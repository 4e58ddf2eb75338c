"""The language model that judges cases of a run: whether one is needed, and whether it can be asked."""

from __future__ import annotations

import os

from whet.errors import UsageError
from whet.grade.evals.judging import settings_of
from whet.grade.judge.settings import find_key
from whet.model.run import NO_AGENT, Execution, Plan


def check_judge(plan: Plan) -> None:
    """Refuse to begin what a judge would have to decide whom nobody can ask."""
    asking = [execution for execution in plan.executions if _is_judged(execution)]
    if not asking:
        return
    settings = settings_of(plan.suite.judge)
    try:
        find_key(settings, os.environ)
        _ = settings.model_name
    except UsageError as error:
        names = ", ".join(dict.fromkeys(execution.case.id for execution in asking[:3]))
        raise UsageError(f"{error.message} (for {names})", hint=error.hint or _hint(asking[0])) from None


def judge_key(plan: Plan) -> str | None:
    """The key, which nobody may see, where a judge is asked."""
    if not any(_is_judged(execution) for execution in plan.executions):
        return None
    return find_key(settings_of(plan.suite.judge), os.environ)


def _is_judged(execution: Execution) -> bool:
    graders = {check.grader for check in execution.case.checks}
    return "rubric" in graders or ("trigger" in graders and execution.runner.agent == NO_AGENT)


def _hint(execution: Execution) -> str | None:
    if execution.runner.agent == NO_AGENT:
        return "or configure a runner: then the agent is really run, and nobody need judge"
    return None

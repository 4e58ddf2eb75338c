"""Who judges and who plays users: whether there is one, before anything starts, and what there is to choose from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whet.agents.known import known_agent
from whet.errors import UsageError
from whet.grade.contract import grader_class
from whet.grade.judge_settings import JudgeSettings, find_key, judge_settings, with_usual_model
from whet.model.request import Settings, compares_answers
from whet.model.run import NO_AGENT, REPLAY, Execution, Plan
from whet.model.suite import Check, Suite
from whet.suites.document_formats import document_format
from whet.suites.starter import installed_agent

# How many cases an error names.
_SHOWN = 3
_NO_JUDGES = (REPLAY, NO_AGENT)
# The models that an error proposes, each with the variable of its key.
_PROPOSED = (("openai", "gpt-5.5", "OPENAI_API_KEY"), ("anthropic", "claude-sonnet-5", "ANTHROPIC_API_KEY"))
# What evaluations of callable skills take instead of an agent.
_OF_BENCHMARKS = (False, 'key_variable = "EVAL_SKILLS_LLM_KEY"', "set EVAL_SKILLS_LLM_KEY first; then gpt-4o judges")


def check_judge(plan: Plan, settings: Settings, *, by_agents: bool = True) -> None:
    """Fail early if a judge is needed but not configured; *by_agents* says whether an agent could judge."""
    asking = [execution for execution in plan.executions if asks_judge(execution)]
    in_pairs = compares_answers(plan)
    if in_pairs:
        asking += [execution for execution in plan.executions if execution.case.pairwise is not None]
    if not asking:
        return
    # No check names the model that compares answers.
    named = not in_pairs and all(map(model_of, judged_checks(asking)))
    try:
        find_judge(settings, os.environ, named=named, by_agents=by_agents)
    except UsageError as error:
        cases = list(dict.fromkeys(execution.case.id for execution in asking))
        names = ", ".join(f'"{case}"' for case in cases[:_SHOWN]) + (", ..." if len(cases) > _SHOWN else "")
        is_bare = asking[0].runner.agent == NO_AGENT
        bare = "or configure a runner: then the agent is run, and no judge is needed" if is_bare else None
        hint = "\n".join(filter(None, (error.hint, bare, hint_of_unjudged(plan.suite))))
        plural = "s" if len(cases) > 1 else ""
        raise UsageError(f"{error.message} (for the case{plural} {names})", hint=hint) from None


def judge_of_pairs(settings: Settings, judging: Mapping[str, Any], environ: Mapping[str, str]) -> JudgeSettings:
    """Return the judge that compares answers, by the table *judging* of the suite; raises without one."""
    find_judge(settings, environ)
    return with_usual_model(judge_settings(judging), environ)


def hint_of_unjudged(suite: Suite) -> str | None:
    """Return how to write checks that need no judge, if all words of the suite's format are for one."""
    if document_format(suite.source) != "agent-skills":
        return None
    return 'or check without one: {"type": "contains", "path": "hello.txt", "value": "Hello"} in expectations'


def find_judge(settings: Settings, environ: Mapping[str, str], *, named: bool = False, by_agents: bool = True) -> None:
    """Raise `UsageError` unless the settings have a judge: a model with a key, or a runner.

    *named* says that every check names a model, so that the settings need none, and *by_agents* that one could judge.
    """
    runner_id = settings.judge.get("runner")
    if runner_id is None:
        _find_model(settings, environ, named=named, by_agents=by_agents)
    elif settings.judge_runner is None:
        runner_ids = ", ".join(runner.id for runner in settings.runners)
        raise UsageError(f'judge.runner: no runner is called "{runner_id}"', hint=f"known: {runner_ids or 'none'}")
    elif settings.judge_runner.agent in _NO_JUDGES:
        raise UsageError(
            f'judge.runner: "{runner_id}" is {settings.judge_runner.agent}, which cannot judge',
            hint=choices_of_judge(settings, environ),
        )


def _find_model(settings: Settings, environ: Mapping[str, str], *, named: bool, by_agents: bool) -> None:
    judge = with_usual_model(judge_settings(settings.judging), environ)
    if judge.model is None and not named:
        raise UsageError("the judge has no model", hint=choices_of_judge(settings, environ, by_agents=by_agents))
    try:
        find_key(judge, environ)
    except UsageError as error:
        agent = f"or let an agent judge: {_runner_choice(settings)[1]} in the table [judge] of the settings"
        raise UsageError(error.message, hint=agent if by_agents else None) from None


def choices_of_judge(settings: Settings, environ: Mapping[str, str], *, by_agents: bool = True) -> str:
    """Return three judges to choose from, those first for which everything is there."""
    first = _runner_choice(settings) if by_agents else _OF_BENCHMARKS
    choices = [first, *(_model_choice(*proposed, environ) for proposed in _PROPOSED)]
    width = max(len(words) for _, words, _ in choices)
    lines = (f"  {words:{width}}  {why}" for _, words, why in sorted(choices, key=lambda choice: not choice[0]))
    return "\n".join(("choose one, and put it into the table [judge] of the settings:", *lines))


def _runner_choice(settings: Settings) -> tuple[bool, str, str]:
    """Return whether an agent could judge at once, what to write for it, and why."""
    runner = next((runner for runner in settings.runners if runner.agent not in _NO_JUDGES), None)
    if runner is not None:
        return True, f'runner = "{runner.id}"', "your runner judges, in sessions of its own and with its login"
    agent = installed_agent()
    if agent is not None:
        facts = known_agent(agent)
        program = facts.program if facts else agent
        return True, f'runner = "{agent}"', f'{program} is installed; add [runners.{agent}.agent] with type = "{agent}"'
    return False, 'runner = "NAME"', "an agent judges: install one first (whet doctor lists them)"


def _model_choice(provider: str, model: str, variable: str, environ: Mapping[str, str]) -> tuple[bool, str, str]:
    is_set = bool(environ.get(variable))
    why = f"{variable} is set" if is_set else f"set {variable} first"
    return is_set, f'provider = "{provider}", model = "{model}"', why


def user_keys(plan: Plan) -> tuple[str, ...]:
    """Return the keys of the models that play users, which are secrets; raises if one is needed and missing."""
    asking = [
        execution
        for execution in plan.executions
        if execution.case.user is not None and execution.runner.agent != REPLAY
    ]
    users = {
        execution.case.user: execution.case.id for execution in reversed(asking) if execution.case.user is not None
    }
    if not users:
        return ()
    from whet.grade.judge.user import user_settings  # most suites have no users

    keys = []
    for user, case in users.items():
        try:
            keys.append(user_settings(plan.suite.user, user, os.environ)[1])
        except UsageError as error:
            raise UsageError(f'{error.message} (for the case "{case}")', hint=error.hint) from None
    return tuple(dict.fromkeys(keys))


def judge_keys(plan: Plan) -> tuple[str, ...]:
    """Return the key of the model that judges, which is a secret, if one is asked."""
    if "runner" in plan.suite.judge or not is_judged(plan):
        return ()
    return (find_key(judge_settings(plan.suite.judge), os.environ),)


def is_judged(plan: Plan) -> bool:
    """Return whether a judge decides some checks of *plan*, or compares its answers."""
    return compares_answers(plan) or any(asks_judge(execution) for execution in plan.executions)


def asks_judge(execution: Execution) -> bool:
    """Return whether a judge decides some checks of *execution*."""
    return any(grader_class(check.grader).needs_judge(check, execution.runner) for check in execution.case.checks)


def judged_checks(executions: Sequence[Execution]) -> Iterator[Check]:
    """Yield the checks of *executions* that a judge decides."""
    for execution in executions:
        for check in execution.case.checks:
            if grader_class(check.grader).needs_judge(check, execution.runner):
                yield check


def model_of(check: Check) -> str | None:
    """Return the model that *check* wants to be judged by, if it names one."""
    hints = getattr(check.params.get("case"), "judge", None)
    return getattr(hints, "model", None)

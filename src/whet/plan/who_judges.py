"""Whether a judge decides on its own answers, or on those of its family: warnings for everybody who reads the run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from msgspec import Struct

from whet import plugins
from whet.grade.judge_settings import judge_settings, with_usual_model
from whet.model.request import Settings, compares_answers
from whet.model.run import NO_AGENT, Execution, Plan, Runner, RunWarning
from whet.plan.judge import judged_checks, model_of

_FAMILIES = {
    "Claude": ("claude-*", "sonnet*", "opus*", "haiku*"),
    "GPT": ("gpt-*", "o[0-9]*", "codex-*", "chatgpt-*"),
    "Gemini": ("gemini-*", "gemma-*", "gemma[0-9]*"),
    "Llama": ("llama*", "meta-llama*"),
    "Qwen": ("qwen*", "qwq*"),
    "DeepSeek": ("deepseek*",),
    "Mistral": ("mistral*", "codestral*", "devstral*", "magistral*"),
    "Grok": ("grok*",),
    "Kimi": ("kimi*",),
    "GLM": ("glm*",),
}
# What an agent asks if nobody names its model, by the provider that its class declares.
_OF_PROVIDER = {"anthropic": "Claude", "openai": "GPT", "gemini": "Gemini"}
_PREFIX = re.compile(r"^(?:[a-z]{2,6}\.)?(?:anthropic|openai|google|meta|mistral|deepseek|qwen|xai|moonshotai?|zai)\.")
# What names a day, a place or a way to ask, and no other model.
_SUFFIX = re.compile(r"(?:-v\d+:\d+|[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest)|\[\w+\])$")
_ADVICE = "it may favour what it would write itself; [judge] in the settings names another"


class _Mind(Struct, frozen=True, kw_only=True):
    """Who answers or judges: its model and family, if they are known; `runner` and `agent` if it is an agent."""

    name: str
    model: str | None
    family: str | None
    runner: str | None = None
    agent: str | None = None


def warnings_on_judge(plan: Plan, settings: Settings) -> tuple[RunWarning, ...]:
    """Return a warning for each runner whose answers are judged by its own model, or by one of the same family."""
    in_pairs = compares_answers(plan)
    warnings = (
        warning
        for execution in plan.executions
        if execution.runner.agent != NO_AGENT
        for model in _models_asked(execution, in_pairs=in_pairs)
        if (warning := _warning(_judge_of(model, settings), execution)) is not None
    )
    return tuple(dict.fromkeys(warnings))


def _models_asked(execution: Execution, *, in_pairs: bool) -> Iterator[str | None]:
    """Yield the model that each judged check names, and None where the settings name it."""
    yield from map(model_of, judged_checks([execution]))
    if in_pairs and execution.case.pairwise is not None:
        yield None


def plain_model(name: str) -> str:
    """Return the name of a model without its provider, its date and how it is asked."""
    plain = _PREFIX.sub("", name.strip().lower().rpartition("/")[2])
    while (shorter := _SUFFIX.sub("", plain)) != plain:
        plain = shorter
    return plain


def family_of(name: str) -> str | None:
    """Return the family of a model; None if it is not known."""
    plain = plain_model(name)
    families = (family for family, patterns in _FAMILIES.items() if any(fnmatchcase(plain, text) for text in patterns))
    return next(families, None)


def _judge_of(model: str | None, settings: Settings) -> _Mind:
    runner = settings.judge_runner
    if runner is not None:
        return _mind_of(runner, settings.judge.get("model") or runner.model)
    model = model or with_usual_model(judge_settings(settings.judge), os.environ).model
    return _Mind(name=model or "the judge", model=model and plain_model(model), family=model and family_of(model))


def _mind_of(runner: Runner, model: str | None) -> _Mind:
    if model is not None:
        family = family_of(model)
    else:
        family = _OF_PROVIDER.get(plugins.find("agents", runner.agent)().provider_of(runner) or "")
    return _Mind(
        name=f"runner {runner.id}" if model is None else f"{model} of runner {runner.id}",
        model=model and plain_model(model),
        family=family,
        runner=runner.id,
        agent=runner.agent,
    )


def _warning(judge: _Mind, execution: Execution) -> RunWarning | None:
    """Return the warning about a judge of the answers of *execution*, if there is one."""
    runner = execution.runner
    answering = _mind_of(runner, runner.model)
    if _is_same(judge, answering):
        message = f"{judge.name} judges its own answers: {_ADVICE}"
        if judge.runner != runner.id:
            message = f"{judge.name} judges answers of {answering.name}, which is the same model: {_ADVICE}"
        return RunWarning(code="judge-self", message=message, runner=runner.id)
    if judge.family is None or judge.family != answering.family:
        return None
    message = f"{judge.name} judges answers of {answering.name}, of the same family ({judge.family}): {_ADVICE}"
    return RunWarning(code="judge-family", message=message, runner=runner.id)


def _is_same(judge: _Mind, answering: _Mind) -> bool:
    if judge.runner is not None and judge.runner == answering.runner:
        return True
    if judge.model is not None or answering.model is not None:
        return judge.model == answering.model
    # Nobody names a model of either: the same agent asks the same one.
    return judge.family is not None and judge.agent == answering.agent

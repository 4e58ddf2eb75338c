"""How a judge is asked, and with which key: the table `[judge]` of the settings, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, convert
from msgspec.structs import replace

from whet.errors import UsageError

Provider = Literal["openai", "anthropic"]
# The key that the format of benchmarks names, and the model that the format asks with it.
KEY_OF_BENCHMARKS, MODEL_OF_BENCHMARKS = "EVAL_SKILLS_LLM_KEY", "gpt-4o"


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where a provider is asked; a key is looked for in `key_variables`, in order, unless the settings name one."""

    url: str
    path: str
    key_variables: tuple[str, ...]


ENDPOINTS: Mapping[Provider, Endpoint] = {
    "openai": Endpoint(
        url="https://api.openai.com/v1",
        path="chat/completions",
        key_variables=(KEY_OF_BENCHMARKS, "OPENAI_API_KEY"),
    ),
    "anthropic": Endpoint(
        url="https://api.anthropic.com/v1",
        path="messages",
        key_variables=(KEY_OF_BENCHMARKS, "ANTHROPIC_API_KEY"),
    ),
}


class JudgeSettings(Struct, frozen=True, kw_only=True):
    """Any endpoint that speaks as OpenAI (chat completions) or Anthropic (messages) does; `url` ends before those."""

    # The runner whose agent judges, instead of a model.
    runner: str | None = None
    # The model that its agent asks, if its runner names one.
    runner_model: str | None = None
    provider: Provider = "openai"
    url: str | None = None
    model: str | None = None
    key_variable: str | None = None
    votes: int = 1
    # How many verdicts of a hundred are wrong, as far as anybody has found out; only comparisons use it.
    error: float | None = None
    # None leaves it to the endpoint: some models take no temperature.
    temperature: float | None = 0.0
    timeout_s: float = 60.0
    retries: int = 3
    max_parallel: int = 4
    cache_dir: Path | None = None

    @property
    def address(self) -> str:
        """Where requests go."""
        return f"{self.base}/{ENDPOINTS[self.provider].path}"

    @property
    def base(self) -> str:
        """What the addresses of the endpoint begin with."""
        return (self.url or ENDPOINTS[self.provider].url).rstrip("/")

    @property
    def model_name(self) -> str:
        """The model, or the runner that judges instead; raises `UsageError` without both."""
        name = self.runner or self.model
        if name is None:
            raise UsageError("the judge has no model", hint="name one in `model` of the judge's settings")
        return name


def judge_settings(table: Mapping[str, Any]) -> JudgeSettings:
    """Return the table `[judge]` of the settings, which is checked already, with the defaults."""
    values: dict[str, Any] = dict(table)
    if "timeout_ms" in values:
        values["timeout_s"] = values.pop("timeout_ms") / 1000
    if values.get("temperature") == "default":
        values["temperature"] = None
    return convert(values, JudgeSettings)


def with_usual_model(settings: JudgeSettings, environ: Mapping[str, str]) -> JudgeSettings:
    """Return *settings* with the model that belongs to the key of benchmarks, if they use that key and name no model.

    No other key has a usual model: who judges is a choice that decides results.
    """
    names_none = settings.runner is None and settings.model is None and settings.provider == "openai"
    if not names_none or find_variable(settings, environ) != KEY_OF_BENCHMARKS:
        return settings
    return replace(settings, model=MODEL_OF_BENCHMARKS)


def find_key(settings: JudgeSettings, environ: Mapping[str, str], why: str = "a language model has to judge") -> str:
    """Return the key; raises `UsageError` if there is none, with *why* it is needed."""
    name = find_variable(settings, environ)
    if name is None:
        raise UsageError(f"{why}, and there is no key for it: set {' or '.join(_variables(settings))}")
    return environ[name]


def find_variable(settings: JudgeSettings, environ: Mapping[str, str]) -> str | None:
    """Return the variable that the key is in, if there is one."""
    return next((name for name in _variables(settings) if environ.get(name)), None)


def _variables(settings: JudgeSettings) -> tuple[str, ...]:
    return (settings.key_variable,) if settings.key_variable else ENDPOINTS[settings.provider].key_variables

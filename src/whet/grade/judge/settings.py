"""Which language model judges, and where its key is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from whet.errors import UsageError

Provider = Literal["openai", "anthropic"]
PROVIDERS: tuple[Provider, ...] = ("openai", "anthropic")
# Where a key is looked for, in this order, unless the settings name a variable.
KEY_VARIABLES: Mapping[Provider, tuple[str, ...]] = {
    "openai": ("EVAL_SKILLS_LLM_KEY", "OPENAI_API_KEY"),
    "anthropic": ("EVAL_SKILLS_LLM_KEY", "ANTHROPIC_API_KEY"),
}
_URLS: Mapping[Provider, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
}
_MODELS: Mapping[Provider, str | None] = {"openai": "gpt-4o", "anthropic": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """Any endpoint that speaks as OpenAI (chat completions) or Anthropic (messages) does; `url` ends before those."""

    provider: Provider = "openai"
    url: str | None = None
    model: str | None = None
    key_variable: str | None = None
    votes: int = 1
    # None leaves it to the endpoint: some models take no temperature.
    temperature: float | None = 0.0
    timeout_s: float = 60.0
    retries: int = 3
    max_parallel: int = 4
    cache_dir: Path | None = None

    @property
    def address(self) -> str:
        """Where requests go."""
        base = (self.url or _URLS[self.provider]).rstrip("/")
        return f"{base}/chat/completions" if self.provider == "openai" else f"{base}/messages"

    @property
    def model_name(self) -> str:
        """The model, which only one provider has a usual one of."""
        found = self.model or _MODELS[self.provider]
        if found is None:
            raise UsageError("the judge has no model", hint="name one in `model` of the judge's settings")
        return found


def judge_settings(given: Mapping[str, Any], *, cache_dir: Path | None) -> JudgeSettings:
    """The `[judge]` table of the settings, checked by then, over the defaults; *cache_dir* where it names none."""
    values: dict[str, Any] = {"cache_dir": cache_dir, **given}
    if "timeout_ms" in values:
        values["timeout_s"] = values.pop("timeout_ms") / 1000
    if values.get("temperature") == "default":
        values["temperature"] = None
    return JudgeSettings(**values)


def find_key(settings: JudgeSettings, environ: Mapping[str, str]) -> str:
    """The key; its absence is an error before anything runs."""
    names = (settings.key_variable,) if settings.key_variable else KEY_VARIABLES[settings.provider]
    for name in names:
        if environ.get(name):
            return environ[name]
    raise UsageError(f"a language model should judge (llm_judge), and there is no key for it: set {' or '.join(names)}")

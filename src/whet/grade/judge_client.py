"""How each provider is asked, and how its answer is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio

from whet.agents.prices import priced
from whet.errors import JudgeFailed, NoVerdict, UsageError
from whet.grade.judge_questions import TOOL, VERDICT_SCHEMA, Prompt, Verdict, Vote, read_call, read_text
from whet.model.session import Usage, token_count

if TYPE_CHECKING:
    import httpx2


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


def judge_settings(given: Mapping[str, Any]) -> JudgeSettings:
    """Lay the table `[judge]` of the settings, which is checked already, over the defaults."""
    values: dict[str, Any] = dict(given)
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


_MOST_TOKENS = 1024
_ABOUT = "Record the rating of the answer."


class JudgeWire(Protocol):
    """One provider's way of talking."""

    def headers(self, key: str) -> dict[str, str]:
        """What proves who asks."""

    def body(self, settings: JudgeSettings, prompt: Prompt) -> dict[str, Any]:
        """The request."""

    def read(self, answer: Mapping[str, Any]) -> tuple[Verdict, Usage]:
        """The verdict and what it took; a `JudgeFailed` where there is none."""


class ChatCompletions:
    """OpenAI, and the many that do as it does."""

    def headers(self, key: str) -> dict[str, str]:
        """A bearer."""
        return {"Authorization": f"Bearer {key}"}

    def body(self, settings: JudgeSettings, prompt: Prompt) -> dict[str, Any]:
        """Two messages and one tool that must be called."""
        tool = {"name": TOOL, "description": _ABOUT, "parameters": VERDICT_SCHEMA}
        return {
            "model": settings.model_name,
            "messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}],
            "tools": [{"type": "function", "function": tool}],
            "tool_choice": {"type": "function", "function": {"name": TOOL}},
            **_temperature(settings),
        }

    def read(self, answer: Mapping[str, Any]) -> tuple[Verdict, Usage]:
        """The call, or what was said instead."""
        message = answer["choices"][0]["message"]
        told = answer.get("usage") or {}
        usage = Usage(
            input_tokens=token_count(told.get("prompt_tokens")),
            output_tokens=token_count(told.get("completion_tokens")),
            cached_tokens=token_count((told.get("prompt_tokens_details") or {}).get("cached_tokens")),
        )
        for call in message.get("tool_calls") or ():
            if call["function"]["name"] == TOOL:
                return read_call(call["function"]["arguments"]), usage
        if message.get("refusal"):
            raise JudgeFailed(f"the judge refused: {message['refusal']}")
        return read_text(message.get("content") or ""), usage


class Messages:
    """Anthropic."""

    def headers(self, key: str) -> dict[str, str]:
        """A key and the date of the interface."""
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def body(self, settings: JudgeSettings, prompt: Prompt) -> dict[str, Any]:
        """The same, in its own shape."""
        return {
            "model": settings.model_name,
            "max_tokens": _MOST_TOKENS,
            "system": prompt.system,
            "messages": [{"role": "user", "content": prompt.user}],
            "tools": [{"name": TOOL, "description": _ABOUT, "input_schema": VERDICT_SCHEMA}],
            "tool_choice": {"type": "tool", "name": TOOL},
            **_temperature(settings),
        }

    def read(self, answer: Mapping[str, Any]) -> tuple[Verdict, Usage]:
        """The call, or what was said instead; input tokens are told without the cached ones."""
        told = answer.get("usage") or {}
        cached = token_count(told.get("cache_read_input_tokens")) or 0
        given = token_count(told.get("input_tokens"))
        written = token_count(told.get("cache_creation_input_tokens")) or 0
        usage = Usage(
            input_tokens=None if given is None else given + cached + written,
            output_tokens=token_count(told.get("output_tokens")),
            cached_tokens=cached,
        )
        for block in answer["content"]:
            if block["type"] == "tool_use" and block["name"] == TOOL:
                return read_call(block["input"]), usage
        return read_text("".join(block.get("text", "") for block in answer["content"])), usage


WIRES: Mapping[Provider, JudgeWire] = {"openai": ChatCompletions(), "anthropic": Messages()}


def _temperature(settings: JudgeSettings) -> dict[str, float]:
    return {} if settings.temperature is None else {"temperature": settings.temperature}


# Busy, broken or overloaded: another try may fare better.
_WORTH_ANOTHER = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# What was asked was not to its liking, and an answer that is judged is a part of that.
_REFUSED = frozenset({400, 413, 422})
_LONGEST_WAIT_S = 30.0
_FIRST_WAIT_S = 0.5
_SHOWN = 300


class JudgeClient:
    """Asks one model; to be closed by whoever made it."""

    def __init__(self, settings: JudgeSettings, key: str) -> None:
        self._settings = settings
        self._wire = WIRES[settings.provider]
        self._key = key
        self._client: httpx2.AsyncClient | None = None

    async def ask(self, prompt: Prompt) -> Vote:
        """A verdict; a `JudgeFailed` after as many tries as the settings allow."""
        body = self._wire.body(self._settings, prompt)
        for attempt in range(self._settings.retries + 1):
            last = attempt == self._settings.retries
            answer, wait_s = await self._post(body, attempt, last=last)
            if answer is not None:
                return self._vote(answer)
            await anyio.sleep(wait_s)
        raise AssertionError("the last try either answers or raises")

    async def _post(
        self, body: Mapping[str, Any], attempt: int, *, last: bool
    ) -> tuple[Mapping[str, Any] | None, float]:
        """The answer, or how long to wait before the next try."""
        import httpx2  # noqa: PLC0415 - only those who are judged by a model wait for this

        client = self._client = self._client or httpx2.AsyncClient(timeout=self._settings.timeout_s)
        usual_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**attempt)
        try:
            response = await client.post(self._settings.address, json=body, headers=self._wire.headers(self._key))
        except httpx2.TransportError as error:
            if last:
                raise JudgeFailed(f"the judge at {self._settings.address}: {_named(error)}") from error
            return None, usual_s
        if response.is_success:
            return _json(response), 0.0
        if response.status_code not in _WORTH_ANOTHER or last:
            failed = NoVerdict if response.status_code in _REFUSED else JudgeFailed
            raise failed(f"the judge at {self._settings.address}: HTTP {response.status_code}: {_said(response)}")
        return None, _asked_wait(response.headers, usual_s)

    def _vote(self, answer: Mapping[str, Any]) -> Vote:
        try:
            verdict, usage = self._wire.read(answer)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise NoVerdict(f"the judge answered in another shape: {str(dict(answer))[:_SHOWN]}") from error
        return Vote(verdict=verdict, usage=priced(usage, self._settings.model_name))

    async def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            await self._client.aclose()


def _json(response: httpx2.Response) -> Mapping[str, Any]:
    try:
        answer = response.json()
    except ValueError as error:
        raise JudgeFailed(f"the judge answered no JSON: {response.text[:_SHOWN]}") from error
    if not isinstance(answer, Mapping):
        raise JudgeFailed(f"the judge answered in another shape: {response.text[:_SHOWN]}")
    return answer


def _said(response: httpx2.Response) -> str:
    """The provider's own word."""
    try:
        return str(response.json()["error"]["message"])[:_SHOWN]
    except (ValueError, KeyError, TypeError):
        return response.text[:_SHOWN]


def _asked_wait(headers: Mapping[str, str], usual_s: float) -> float:
    """How long the provider asks us to wait, within reason."""
    try:
        return min(_LONGEST_WAIT_S, max(0.0, float(headers.get("retry-after", ""))))
    except ValueError:
        return usual_s


def _named(error: Exception) -> str:
    return str(error) or type(error).__name__

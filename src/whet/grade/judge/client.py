"""Ask the model of a provider for a verdict: requests, retries and replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import httpx2

from whet.agents.prices import priced
from whet.errors import JudgeFailed, JudgeRefused, NoVerdict
from whet.gateway.refusals import NobodyAnswers, ask_about_key
from whet.grade.judge.questions import VERDICT, Form, ModelPrompt, T, Vote
from whet.grade.judge_settings import JudgeSettings, Provider
from whet.grade.paying import pay
from whet.model.session import Usage, token_count

_MOST_TOKENS = 1024


class ChatCompletions:
    """The interface of OpenAI, which many others have too."""

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers with the key."""
        return {"Authorization": f"Bearer {key}"}

    def body(self, settings: JudgeSettings, prompt: ModelPrompt, form: Form[T]) -> dict[str, Any]:
        """Return a request with two messages and one tool that must be called."""
        tool = {"name": form.tool, "description": form.about, "parameters": form.schema}
        return {
            "model": settings.model_name,
            "messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}],
            "tools": [{"type": "function", "function": tool}],
            "tool_choice": {"type": "function", "function": {"name": form.tool}},
            **_temperature(settings),
        }

    def usage(self, answer: Mapping[str, Any]) -> Usage:
        """Return what an answer says that it took."""
        counts = answer.get("usage") or {}
        return Usage(
            input_tokens=token_count(counts.get("prompt_tokens")),
            output_tokens=token_count(counts.get("completion_tokens")),
            cached_tokens=token_count((counts.get("prompt_tokens_details") or {}).get("cached_tokens")),
        )

    def read(self, answer: Mapping[str, Any], form: Form[T]) -> T:
        """Return what is in the call, or else in the text; raises `JudgeFailed`."""
        message = answer["choices"][0]["message"]
        for call in message.get("tool_calls") or ():
            if call["function"]["name"] == form.tool:
                return form.read_call(call["function"]["arguments"])
        if message.get("refusal"):
            raise JudgeFailed(f"the judge refused: {message['refusal']}")
        return form.read_text(message.get("content") or "")


class Messages:
    """The interface of Anthropic."""

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers with the key, and the date of the interface."""
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def body(self, settings: JudgeSettings, prompt: ModelPrompt, form: Form[T]) -> dict[str, Any]:
        """Return the request as Anthropic's interface takes it."""
        return {
            "model": settings.model_name,
            "max_tokens": _MOST_TOKENS,
            "system": prompt.system,
            "messages": [{"role": "user", "content": prompt.user}],
            "tools": [{"name": form.tool, "description": form.about, "input_schema": form.schema}],
            "tool_choice": {"type": "tool", "name": form.tool},
            **_temperature(settings),
        }

    def usage(self, answer: Mapping[str, Any]) -> Usage:
        """Return the usage; `input_tokens` of a reply does not include cached tokens."""
        counts = answer.get("usage") or {}
        cache_reads = token_count(counts.get("cache_read_input_tokens")) or 0
        fresh_input = token_count(counts.get("input_tokens"))
        cache_writes = token_count(counts.get("cache_creation_input_tokens")) or 0
        return Usage(
            input_tokens=None if fresh_input is None else fresh_input + cache_reads + cache_writes,
            output_tokens=token_count(counts.get("output_tokens")),
            cached_tokens=cache_reads,
        )

    def read(self, answer: Mapping[str, Any], form: Form[T]) -> T:
        """Return the same of a list of blocks."""
        for block in answer["content"]:
            if block["type"] == "tool_use" and block["name"] == form.tool:
                return form.read_call(block["input"])
        return form.read_text("".join(block.get("text", "") for block in answer["content"]))


WIRES: Mapping[Provider, ChatCompletions | Messages] = {"openai": ChatCompletions(), "anthropic": Messages()}


def _temperature(settings: JudgeSettings) -> dict[str, float]:
    return {} if settings.temperature is None else {"temperature": settings.temperature}


# Busy, broken or overloaded: another try may succeed.
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# The request was refused, perhaps because of the answer in it.
_REFUSED = frozenset({400, 413, 422})
# The key was refused; or only this request, if it was not the first of these.
_UNAUTHORIZED, _FORBIDDEN = 401, 403
# What comes of reading an answer that is not as it should be.
_OTHER_SHAPE = (KeyError, IndexError, TypeError, AttributeError)
_LONGEST_WAIT_S = 30.0
_FIRST_WAIT_S = 0.5
_SHOWN = 300


class JudgeClient:
    """Asks one model, which errors call *who*, with the key of *variable*; close it after use."""

    def __init__(
        self, settings: JudgeSettings, key: str, who: str = "the judge", *, variable: str | None = None
    ) -> None:
        self._settings, self._variable = settings, variable
        # Whether the endpoint has taken the key before.
        self._worked = False
        self._who = who
        self._wire = WIRES[settings.provider]
        self._key = key
        self._client: httpx2.AsyncClient | None = None

    async def ask(self, prompt: ModelPrompt) -> Vote:
        """Return a verdict; raises `JudgeFailed` after as many tries as the settings allow."""
        verdict, usage = await self.fill(prompt, VERDICT)
        return Vote(verdict=verdict, usage=usage)

    async def fill(self, prompt: ModelPrompt, form: Form[T]) -> tuple[T, Usage]:
        """Return what the model filled in, and what that used; raises as `ask` does."""
        body = self._wire.body(self._settings, prompt, form)
        attempt = 0
        while isinstance(answer := await self._post(body, attempt), float):
            await anyio.sleep(answer)
            attempt += 1
        return self._read_answer(answer, form)

    async def _post(self, body: Mapping[str, Any], attempt: int) -> Mapping[str, Any] | float:
        """Return the answer, or how long to wait before the next try, in seconds."""
        client = self._client = self._client or httpx2.AsyncClient(timeout=self._settings.timeout_s)
        last = attempt >= self._settings.retries
        usual_s: float = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**attempt)
        try:
            response = await client.post(self._settings.address, json=body, headers=self._wire.headers(self._key))
        except httpx2.TransportError as error:
            if last:
                raise JudgeFailed(
                    f"{self._who} at {self._settings.address}: {str(error) or type(error).__name__}"
                ) from error
            return usual_s
        if response.is_success:
            self._worked = True
            return _json(response, self._who)
        if await self._is_refused(response.status_code):
            place = f" in {self._variable}" if self._variable else ""
            message = f"the key of {self._who}{place} was refused ({response.status_code}) by {self._settings.base}"
            hint = f"correct {self._variable}" if self._variable else None
            raise JudgeRefused(f"{message}: {_provider_message(response)}", hint=hint)
        if response.status_code not in _RETRIED or last:
            error_class = NoVerdict if response.status_code in _REFUSED else JudgeFailed
            raise error_class(
                f"{self._who} at {self._settings.address}: HTTP {response.status_code}: {_provider_message(response)}"
            )
        return _retry_delay(response.headers, usual_s)

    async def _is_refused(self, status: int) -> bool:
        """Return whether it is the key that the endpoint refuses: what an agent wrote may bring about a 403."""
        if status != _FORBIDDEN:
            return status == _UNAUTHORIZED

        try:
            key_status = await ask_about_key(f"{self._settings.base}/models", self._wire.headers(self._key))
        except NobodyAnswers:
            key_status = None
        return key_status == "refused" or (key_status is None and not self._worked)

    def _read_answer(self, answer: Mapping[str, Any], form: Form[T]) -> tuple[T, Usage]:
        usage = self._usage(answer)
        # Before it is read: what cannot be read was paid for as well.
        pay(usage)
        try:
            return self._wire.read(answer, form), usage
        except _OTHER_SHAPE as error:
            raise NoVerdict(f"{self._who} answered in another shape: {str(dict(answer))[:_SHOWN]}") from error

    def _usage(self, answer: Mapping[str, Any]) -> Usage:
        try:
            return priced(self._wire.usage(answer), self._settings.model_name)
        except _OTHER_SHAPE:
            return Usage()

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


def _json(response: httpx2.Response, who: str) -> Mapping[str, Any]:
    try:
        answer = response.json()
    except ValueError as error:
        raise JudgeFailed(f"the answer of {who} is not JSON: {response.text[:_SHOWN]}") from error
    if not isinstance(answer, Mapping):
        raise JudgeFailed(f"{who} answered in another shape: {response.text[:_SHOWN]}")
    return answer


def _provider_message(response: httpx2.Response) -> str:
    """Return the message of the provider."""
    try:
        return str(response.json()["error"]["message"])[:_SHOWN]
    except (ValueError, KeyError, TypeError):
        return response.text[:_SHOWN]


def _retry_delay(headers: Mapping[str, str], usual_s: float) -> float:
    """Return how long the provider asks to wait, within reason."""
    try:
        return min(_LONGEST_WAIT_S, max(0.0, float(headers.get("retry-after", ""))))
    except ValueError:
        return usual_s

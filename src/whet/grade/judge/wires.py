"""How each provider is asked, and how its answer is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from whet.errors import JudgeFailed
from whet.grade.judge.prompt import TOOL, VERDICT_SCHEMA, Question
from whet.grade.judge.settings import JudgeSettings, Provider
from whet.grade.judge.verdict import Verdict, read_call, read_text
from whet.model.session import Usage
from whet.model.usage import token_count

_MOST_TOKENS = 1024
_ABOUT = "Record the rating of the answer."


class JudgeWire(Protocol):
    """One provider's way of talking."""

    def headers(self, key: str) -> dict[str, str]:
        """What proves who asks."""

    def body(self, settings: JudgeSettings, asked: Question) -> dict[str, Any]:
        """The request."""

    def read(self, answer: Mapping[str, Any]) -> tuple[Verdict, Usage]:
        """The verdict and what it took; a `JudgeFailed` where there is none."""


class ChatCompletions:
    """OpenAI, and the many that do as it does."""

    def headers(self, key: str) -> dict[str, str]:
        """A bearer."""
        return {"Authorization": f"Bearer {key}"}

    def body(self, settings: JudgeSettings, asked: Question) -> dict[str, Any]:
        """Two messages and one tool that must be called."""
        tool = {"name": TOOL, "description": _ABOUT, "parameters": VERDICT_SCHEMA}
        return {
            "model": settings.model_name,
            "messages": [{"role": "system", "content": asked.system}, {"role": "user", "content": asked.user}],
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

    def body(self, settings: JudgeSettings, asked: Question) -> dict[str, Any]:
        """The same, in its own shape."""
        return {
            "model": settings.model_name,
            "max_tokens": _MOST_TOKENS,
            "system": asked.system,
            "messages": [{"role": "user", "content": asked.user}],
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

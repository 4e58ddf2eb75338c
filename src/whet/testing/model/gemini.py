"""Gemini: `POST /v1beta/models/MODEL:generateContent` and `:streamGenerateContent`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from whet.testing.model.reply import Body, Frame, Reply, Tool, new_id, pieces
from whet.testing.model.script import Fault

_ERRORS: dict[Fault, tuple[str, str]] = {
    "auth": ("UNAUTHENTICATED", "API key not valid."),
    "model-rejected": (
        "NOT_FOUND",
        "models/{model} is not found for API version v1beta, or is not supported for generateContent.",
    ),
    "bad-request": ("INVALID_ARGUMENT", "Invalid request."),
    "context": (
        "INVALID_ARGUMENT",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "rate-limit": ("RESOURCE_EXHAUSTED", "Quota exceeded."),
    "server": ("INTERNAL", "An internal error has occurred."),
    "overloaded": ("UNAVAILABLE", "The model is overloaded. Please try again later."),
}


class Gemini:
    """Parts in a candidate; every piece of a stream is a whole answer of its own, and has the usage."""

    name = "gemini"

    def tools(self, body: Body) -> list[Tool]:
        """Declared functions, in groups."""
        groups = body.get("tools") or ()
        declared = [each for group in groups for each in group.get("functionDeclarations") or ()]
        return [
            Tool(
                name=str(each.get("name", "")), schema=each.get("parametersJsonSchema") or each.get("parameters") or {}
            )
            for each in declared
        ]

    def message(self, reply: Reply) -> dict[str, Any]:
        """All parts at once."""
        return _answer(reply, [*_thought(reply), *_said([reply.say] if reply.say else []), *_calls(reply)], ends=True)

    def frames(self, reply: Reply, body: Body) -> Iterator[Frame]:
        """Thoughts, words, and the calls with the end."""
        del body
        for part in (*_thought(reply), *_said(pieces(reply.say))):
            yield None, _answer(reply, [part], ends=False)
        yield None, _answer(reply, list(_calls(reply)) or [{"text": ""}], ends=True)

    def error(self, fault: Fault, status: int, message: str | None, model: str) -> dict[str, Any]:
        """An error with its status in words."""
        word, text = _ERRORS[fault]
        return {"error": {"code": status, "message": message or text.format(model=model), "status": word}}


def _schema(function: dict[str, Any]) -> dict[str, Any]:
    return function.get("parametersJsonSchema") or function.get("parameters") or {}


def _thought(reply: Reply) -> list[dict[str, Any]]:
    return [{"text": reply.think, "thought": True}] if reply.think else []


def _said(texts: Sequence[str]) -> list[dict[str, Any]]:
    return [{"text": text} for text in texts]


def _calls(reply: Reply) -> Iterator[dict[str, Any]]:
    for call in reply.calls:
        yield {"functionCall": {"id": call.id, "name": call.tool.name, "args": call.args}}


def _answer(reply: Reply, parts: list[dict[str, Any]], *, ends: bool) -> dict[str, Any]:
    usage = reply.usage
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if ends:
        candidate["finishReason"] = "STOP"
    return {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": usage.input,
            "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.output - usage.reasoning,
            "thoughtsTokenCount": usage.reasoning,
            "totalTokenCount": usage.input + usage.output,
        },
        "modelVersion": reply.model,
        "responseId": new_id("answer"),
    }

"""The formats of Anthropic (`POST /v1/messages`) and Gemini (`POST .../models/MODEL:generateContent`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from whet.testing.scripted_model.script import Body, Fault, Frame, OfferedTool, Reply, new_id, pieces

_ANTHROPIC_ERRORS: dict[Fault, tuple[str, str]] = {
    "auth": ("authentication_error", "invalid x-api-key"),
    "model-rejected": ("not_found_error", "model: {model}"),
    "bad-request": ("invalid_request_error", "invalid request"),
    "context": ("invalid_request_error", "prompt is too long: 215000 tokens > 200000 maximum"),
    "rate-limit": ("rate_limit_error", "Rate limited"),
    "server": ("api_error", "Internal server error"),
    "overloaded": ("overloaded_error", "Overloaded"),
}


class Anthropic:
    """Content in blocks; input tokens do not count the cached ones."""

    name = "anthropic"

    def tools(self, body: Body) -> list[OfferedTool]:
        """All tools, each with its own name at the top."""
        definitions = body.get("tools") or ()
        return [
            OfferedTool(name=str(tool.get("name", "")), schema=tool.get("input_schema") or {}) for tool in definitions
        ]

    def message(self, reply: Reply) -> dict[str, Any]:
        """A message with all its blocks."""
        usage = reply.usage
        return {
            "id": new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": reply.model,
            "content": list(_blocks(reply)),
            "stop_reason": "tool_use" if reply.calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.input - usage.cached - usage.written,
                "cache_creation_input_tokens": usage.written,
                "cache_read_input_tokens": usage.cached,
                "output_tokens": usage.output,
            },
        }

    def frames(self, reply: Reply, _body: Body) -> Iterator[Frame]:
        """The message without its content, the blocks in pieces, and the end with the tokens."""
        message = self.message(reply)
        head = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
        yield _frame("message_start", message=head)
        for index, block in enumerate(message["content"]):
            empty, deltas = _in_pieces(block)
            yield _frame("content_block_start", index=index, content_block=empty)
            for delta in deltas:
                yield _frame("content_block_delta", index=index, delta=delta)
            yield _frame("content_block_stop", index=index)
        stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield _frame("message_delta", delta=stop, usage={"output_tokens": reply.usage.output})
        yield _frame("message_stop")

    def error(self, fault: Fault, _status: int, message: str | None, model: str) -> dict[str, Any]:
        """An error with its type."""
        kind, text = _ANTHROPIC_ERRORS[fault]
        details = {"type": kind, "message": message or text.format(model=model)}
        return {"type": "error", "error": details, "request_id": "req_scripted"}


def _frame(kind: str, **values: Any) -> Frame:
    return kind, {"type": kind, **values}


def _blocks(reply: Reply) -> Iterator[dict[str, Any]]:
    if reply.think:
        yield {"type": "thinking", "thinking": reply.think, "signature": "c2NyaXB0ZWQ="}
    if reply.say or not reply.calls:
        yield {"type": "text", "text": reply.say}
    for call in reply.calls:
        yield {"type": "tool_use", "id": call.id, "name": call.tool.name, "input": call.args}


def _in_pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block as it begins, and its pieces."""
    match block["type"]:
        case "thinking":
            thinking = {"type": "thinking_delta", "thinking": block["thinking"]}
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [thinking, signature]
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        case _:
            parts = pieces(json.dumps(block["input"]))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]


_GEMINI_ERRORS: dict[Fault, tuple[str, str]] = {
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
    """Parts in a candidate; every piece of a stream is an answer by itself, with the usage."""

    name = "gemini"

    def tools(self, body: Body) -> list[OfferedTool]:
        """Declared functions, in groups."""
        groups = body.get("tools") or ()
        declarations = [declaration for group in groups for declaration in group.get("functionDeclarations") or ()]
        return [
            OfferedTool(name=str(declaration.get("name", "")), schema=_schema(declaration))
            for declaration in declarations
        ]

    def message(self, reply: Reply) -> dict[str, Any]:
        """All parts of the message at once."""
        return _answer(reply, [*_thought(reply), *_said([reply.say] if reply.say else []), *_calls(reply)], ends=True)

    def frames(self, reply: Reply, _body: Body) -> Iterator[Frame]:
        """Thoughts, words, and the calls with the end."""
        for part in (*_thought(reply), *_said(pieces(reply.say))):
            yield None, _answer(reply, [part], ends=False)
        yield None, _answer(reply, list(_calls(reply)) or [{"text": ""}], ends=True)

    def error(self, fault: Fault, status: int, message: str | None, model: str) -> dict[str, Any]:
        """An error with its status in words."""
        word, text = _GEMINI_ERRORS[fault]
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

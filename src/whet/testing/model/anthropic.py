"""Anthropic Messages: `POST /v1/messages`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from whet.testing.model.reply import Body, Frame, Reply, Tool, new_id, pieces
from whet.testing.model.script import Fault

_ERRORS: dict[Fault, tuple[str, str]] = {
    "auth": ("authentication_error", "invalid x-api-key"),
    "model-rejected": ("not_found_error", "model: {model}"),
    "bad-request": ("invalid_request_error", "invalid request"),
    "context": ("invalid_request_error", "prompt is too long: 215000 tokens > 200000 maximum"),
    "rate-limit": ("rate_limit_error", "Rate limited"),
    "server": ("api_error", "Internal server error"),
    "overloaded": ("overloaded_error", "Overloaded"),
}


class Anthropic:
    """Content in blocks; input tokens are told without the cached ones."""

    name = "anthropic"

    def tools(self, body: Body) -> list[Tool]:
        """Each with its own name at the top."""
        offered = body.get("tools") or ()
        return [Tool(name=str(tool.get("name", "")), schema=tool.get("input_schema") or {}) for tool in offered]

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

    def frames(self, reply: Reply, body: Body) -> Iterator[Frame]:
        """The message without its content, the blocks in pieces, and the end with the tokens."""
        del body
        whole = self.message(reply)
        begun = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
        yield _frame("message_start", message=begun)
        for index, block in enumerate(whole["content"]):
            empty, deltas = _in_pieces(block)
            yield _frame("content_block_start", index=index, content_block=empty)
            for delta in deltas:
                yield _frame("content_block_delta", index=index, delta=delta)
            yield _frame("content_block_stop", index=index)
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield _frame("message_delta", delta=stop, usage={"output_tokens": reply.usage.output})
        yield _frame("message_stop")

    def error(self, fault: Fault, status: int, message: str | None, model: str) -> dict[str, Any]:
        """An error with its type."""
        del status
        kind, text = _ERRORS[fault]
        said = {"type": kind, "message": message or text.format(model=model)}
        return {"type": "error", "error": said, "request_id": "req_scripted"}


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
    """A block as it begins, and what is then added to it."""
    match block["type"]:
        case "thinking":
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [thought, signed]
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        case _:
            parts = pieces(json.dumps(block["input"]))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]

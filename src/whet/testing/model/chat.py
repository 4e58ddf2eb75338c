"""OpenAI Chat Completions: `POST /v1/chat/completions`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from whet.testing.model.openai import error_of
from whet.testing.model.reply import Body, Frame, Reply, Tool, new_id, pieces
from whet.testing.model.script import Fault


class Chat:
    """One choice; usage is streamed only to those who ask for it."""

    name = "chat"

    def tools(self, body: Body) -> list[Tool]:
        """Functions, each in a wrapping of its own."""
        functions = [tool.get("function") or {} for tool in body.get("tools") or ()]
        return [Tool(name=str(each.get("name", "")), schema=each.get("parameters") or {}) for each in functions]

    def message(self, reply: Reply) -> dict[str, Any]:
        """A whole completion."""
        message: dict[str, Any] = {"role": "assistant", "content": reply.say or None}
        if reply.think:
            message["reasoning_content"] = reply.think
        if reply.calls:
            message["tool_calls"] = list(_calls(reply))
        choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
        return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def frames(self, reply: Reply, body: Body) -> Iterator[Frame]:
        """Deltas, the end, the usage and `[DONE]`."""
        head = _head(reply, "chat.completion.chunk")
        for delta in _deltas(reply):
            yield None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield None, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]}
        if (body.get("stream_options") or {}).get("include_usage"):
            yield None, {**head, "choices": [], "usage": _usage(reply)}
        yield None, "[DONE]"

    def error(self, fault: Fault, status: int, message: str | None, model: str) -> dict[str, Any]:
        """An error with its code."""
        del status
        return error_of(fault, message, model)


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    return {"id": new_id("chatcmpl"), "object": kind, "created": int(time.time()), "model": reply.model}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _calls(reply: Reply) -> Iterator[dict[str, Any]]:
    for call in reply.calls:
        function = {"name": call.tool.name, "arguments": json.dumps(call.args)}
        yield {"id": call.id, "type": "function", "function": function}


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    if reply.think:
        yield {"reasoning_content": reply.think}
    for piece in pieces(reply.say):
        yield {"content": piece}
    for index, call in enumerate(_calls(reply)):
        begun = {**call["function"], "arguments": ""}
        yield {"tool_calls": [{"index": index, **call, "function": begun}]}
        for piece in pieces(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }

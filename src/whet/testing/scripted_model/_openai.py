"""The formats of OpenAI: Chat Completions (`POST /v1/chat/completions`) and Responses (`POST /v1/responses`)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from whet.testing.scripted_model.script import Body, Call, Fault, Frame, OfferedTool, Reply, new_id, pieces

_ERRORS: dict[Fault, tuple[str, str | None, str]] = {
    "auth": ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "model-rejected": (
        "invalid_request_error",
        "model_not_found",
        "The model `{model}` does not exist or you do not have access to it.",
    ),
    "bad-request": ("invalid_request_error", None, "Invalid request."),
    "context": (
        "invalid_request_error",
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    "rate-limit": ("rate_limit_error", "rate_limit_exceeded", "Rate limit reached."),
    "server": ("server_error", None, "The server had an error while processing your request."),
    "overloaded": ("server_error", "server_is_overloaded", "The server is currently overloaded."),
}


class _OpenAI:
    """What both formats share."""

    def error(self, fault: Fault, _status: int, message: str | None, model: str) -> dict[str, Any]:
        """An error with its type and code."""
        kind, code, text = _ERRORS[fault]
        return {"error": {"message": message or text.format(model=model), "type": kind, "param": None, "code": code}}


class Chat(_OpenAI):
    """Chat Completions: one choice; usage is streamed only if the request asks for it."""

    name = "chat"

    def tools(self, body: Body) -> list[OfferedTool]:
        """Functions, each wrapped in an object."""
        functions = [tool.get("function") or {} for tool in body.get("tools") or ()]
        return [
            OfferedTool(name=str(function.get("name", "")), schema=function.get("parameters") or {})
            for function in functions
        ]

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
        head = {**call["function"], "arguments": ""}
        yield {"tool_calls": [{"index": index, **call, "function": head}]}
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


_SEARCH = "tool_search"
_TOOL_ITEMS = ("additional_tools", f"{_SEARCH}_output")


class Responses(_OpenAI):
    """Responses: output in items; tools may be grouped by namespace, or be part of the input."""

    name = "responses"

    def tools(self, body: Body) -> list[OfferedTool]:
        """Return the tools of the request, of a search, and of an item that Codex sends to some models."""
        definitions = list(body.get("tools") or ())
        items = body.get("input")
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and item.get("type") in _TOOL_ITEMS:
                definitions += item.get("tools") or ()
        return list(_flat(definitions))

    def message(self, reply: Reply) -> dict[str, Any]:
        """A whole response."""
        return _response(reply, new_id("resp"), "completed", list(_items(reply)))

    def frames(self, reply: Reply, _body: Body) -> Iterator[Frame]:
        """The response as it begins, its items in pieces, and all of it at the end."""
        name, items, numbers = new_id("resp"), list(_items(reply)), count()
        head = {"response": _response(reply, name, "in_progress", [])}
        middle = [(kind, {"output_index": index, **values}) for index, item in enumerate(items)
                  for kind, values in _in_pieces(item)]  # fmt: skip
        tail = {"response": _response(reply, name, "completed", items)}
        for kind, values in [("created", head), ("in_progress", head), *middle, ("completed", tail)]:
            full = f"response.{kind}"
            yield full, {"type": full, "sequence_number": next(numbers), **values}


def _flat(offered: Sequence[dict[str, Any]]) -> Iterator[OfferedTool]:
    for tool in offered:
        inner = tool.get("tools") or () if tool.get("type") == "namespace" else None
        if inner is None:
            yield _tool(tool, None)
        else:
            yield from (_tool(function, tool.get("name")) for function in inner)


def _tool(tool: dict[str, Any], namespace: str | None) -> OfferedTool:
    kind = str(tool.get("type") or "function")
    return OfferedTool(
        name=str(tool.get("name") or kind), kind=kind, schema=tool.get("parameters") or {}, namespace=namespace
    )


def _items(reply: Reply) -> Iterator[dict[str, Any]]:
    if reply.think:
        summary = [{"type": "summary_text", "text": reply.think}]
        yield {"type": "reasoning", "id": new_id("rs"), "summary": summary, "encrypted_content": None}
    if reply.say or not reply.calls:
        content = [{"type": "output_text", "text": reply.say, "annotations": []}]
        role = {"role": "assistant", "status": "completed"}
        yield {"type": "message", "id": new_id("msg"), **role, "content": content}
    yield from map(_call_item, reply.calls)


def _call_item(call: Call) -> dict[str, Any]:
    common = {"id": new_id("item"), "call_id": call.id, "status": "completed"}
    if call.tool.kind == "local_shell":
        action = {"type": "exec", "command": call.args["command"], "env": {}}
        return {"type": "local_shell_call", **common, "action": action}
    if call.tool.kind == _SEARCH:
        # The search runs in the agent, which knows the tools.
        return {"type": f"{_SEARCH}_call", **common, "execution": "client", "arguments": dict(call.args)}
    common["name"] = call.tool.name
    if call.tool.kind == "custom":
        # Such a tool is in the namespace "functions" by default.
        namespace = call.tool.namespace if call.tool.namespace != "functions" else None
        item = {"type": "custom_tool_call", **common, "input": call.args.get("input", "")}
    else:
        namespace = call.tool.namespace
        item = {"type": "function_call", **common, "arguments": json.dumps(call.args)}
    return item | ({"namespace": namespace} if namespace else {})


def _in_pieces(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an item as it begins, its pieces, and all of it."""
    mine = {"item_id": item["id"]}
    match item["type"]:
        case "message":
            text = item["content"][0]["text"]
            yield "output_item.added", {"item": {**item, "status": "in_progress", "content": []}}
            yield from _text_part(text, item["content"][0], mine | {"content_index": 0})
        case "reasoning":
            yield "output_item.added", {"item": {**item, "summary": []}}
            yield from _summary_part(item["summary"][0], mine | {"summary_index": 0})
        case "function_call":
            yield from _argument(item, "arguments", "function_call_arguments")
        case "custom_tool_call":
            yield from _argument(item, "input", "custom_tool_call_input")
        case _:
            yield "output_item.added", {"item": item}
    yield "output_item.done", {"item": item}


def _text_part(text: str, part: dict[str, Any], mine: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "content_part.added", {**mine, "part": {**part, "text": ""}}
    for piece in pieces(text):
        yield "output_text.delta", {**mine, "delta": piece}
    yield "output_text.done", {**mine, "text": text}
    yield "content_part.done", {**mine, "part": part}


def _summary_part(part: dict[str, Any], mine: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "reasoning_summary_part.added", {**mine, "part": {**part, "text": ""}}
    yield "reasoning_summary_text.delta", {**mine, "delta": part["text"]}
    yield "reasoning_summary_text.done", {**mine, "text": part["text"]}
    yield "reasoning_summary_part.done", {**mine, "part": part}


def _argument(item: dict[str, Any], name: str, event: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "output_item.added", {"item": {**item, "status": "in_progress", name: ""}}
    yield f"{event}.delta", {"item_id": item["id"], "delta": item[name]}
    yield f"{event}.done", {"item_id": item["id"], name: item[name]}


def _response(reply: Reply, name: str, status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    usage = reply.usage
    tokens = {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }
    return {
        "id": name,
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "model": reply.model,
        "output": items,
        "parallel_tool_calls": True,
        "tools": [],
        "tool_choice": "auto",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "usage": tokens if status == "completed" else None,
    }

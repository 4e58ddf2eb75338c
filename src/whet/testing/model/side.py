"""What agents ask beside their task: titles, routes, lists of models and counts of tokens; no step is taken by it."""

from __future__ import annotations

import json
from typing import Any

from whet.testing.model.reply import Body
from whet.testing.model.script import Step, Tokens
from whet.testing.model.tools import filler

_MODELS = ("scripted-model",)


def side_step(body: Body) -> Step:
    """An answer to a request without tools: the shape that it asks for, or a title."""
    schema = _asked_shape(body)
    text = "Scripted session" if schema is None else json.dumps(_filled(schema))
    return Step(say=text, usage=Tokens(input=50, output=5))


def _asked_shape(body: Body) -> Body | None:
    """The JSON schema of the answer, in any of the formats; an empty one where only JSON is asked for."""
    config = body.get("generationConfig") or {}
    if config.get("responseMimeType") == "application/json" or config.get("responseJsonSchema"):
        found: Body = config.get("responseJsonSchema") or config.get("responseSchema") or {}
        return found
    asked = (body.get("output_config") or {}).get("format") or (body.get("text") or {}).get("format")
    asked = asked or (body.get("response_format") or {}).get("json_schema")
    if not isinstance(asked, dict) or asked.get("type") == "text":
        return None
    return asked.get("schema") or {}


def _filled(schema: Body) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    wanted = schema.get("required") or list(properties)
    return {name: filler(properties.get(name) or {}) for name in wanted}


def models(path: str) -> dict[str, Any]:
    """The list of models, as either kind of provider gives it."""
    if "v1beta" in path:
        return {
            "models": [
                {"name": f"models/{name}", "supportedGenerationMethods": ["generateContent"]} for name in _MODELS
            ]
        }
    data = [{"id": name, "object": "model", "type": "model", "display_name": name, "created": 0} for name in _MODELS]
    return {"object": "list", "data": data, "has_more": False}


def token_count(path: str) -> dict[str, Any] | None:
    """The answer to a question for the number of tokens, where *path* asks it."""
    if path.endswith("/count_tokens"):
        return {"input_tokens": 1000}
    return {"totalTokens": 1000} if path.endswith(":countTokens") else None

"""Requests of an agent to a scripted model, and the answers to those that no step of the script is for."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from whet.testing.model_openai import Chat, Responses
from whet.testing.model_others import Anthropic, Gemini
from whet.testing.model_script import Body, Step, Tokens, Wire, filler

_PREFIX = re.compile(r"/s/(?P<script>[^/]+)(?P<path>/.*)?")
_GEMINI = re.compile(r"/models/(?P<model>[^/:]+):(?P<verb>stream)?[gG]enerateContent$")
_BY_ENDING: dict[str, Wire] = {"/messages": Anthropic(), "/responses": Responses(), "/chat/completions": Chat()}
_BY_MODEL = Gemini()
_MODELS = ("scripted-model",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked, of which script, and the step that answered it; none where no step was taken."""

    method: str
    path: str
    script: str
    headers: Mapping[str, str]
    data: bytes
    body: Mapping[str, Any]
    wire: Wire | None = None
    model: str = ""
    streams: bool = False
    tools: tuple[str, ...] = ()
    step: int | None = None

    @property
    def format(self) -> str | None:
        """The wire format by name."""
        return self.wire.name if self.wire else None

    @property
    def text(self) -> str:
        """The whole body as it came."""
        return self.data.decode("utf-8", "replace")


def read_request(method: str, target: str, headers: Message, data: bytes) -> Request:
    """Find out what is asked."""
    whole = urlsplit(target).path
    found = _PREFIX.fullmatch(whole)
    script, path = (found["script"], found["path"] or "/") if found else ("", whole)
    body = _body(data)
    wire, model, streams = _asked(path, body)
    return Request(
        method=method,
        path=path,
        script=script,
        headers={name.lower(): value for name, value in headers.items()},
        data=data,
        body=body,
        wire=wire,
        model=model,
        streams=streams,
        tools=tuple(tool.name for tool in wire.tools(body)) if wire else (),
    )


def _asked(path: str, body: Mapping[str, Any]) -> tuple[Wire | None, str, bool]:
    gemini = _GEMINI.search(path)
    if gemini:
        return _BY_MODEL, gemini["model"], gemini["verb"] is not None
    wire = next((wire for ending, wire in _BY_ENDING.items() if path.endswith(ending)), None)
    return wire, str(body.get("model", "")), bool(body.get("stream"))


def _body(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def read_data(stream: BinaryIO, headers: Message) -> bytes:
    """The body of a request, also of one that is sent in chunks or packed."""
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        data = b"".join(_chunks(stream))
    else:
        data = stream.read(int(headers.get("Content-Length") or 0))
    match headers.get("Content-Encoding", "").lower():
        case "gzip":
            return gzip.decompress(data)
        case "deflate":
            return zlib.decompress(data)
        case _:
            return data


def _chunks(stream: BinaryIO) -> list[bytes]:
    found = []
    while size := int(stream.readline().split(b";")[0].strip() or b"0", 16):
        found.append(stream.read(size))
        stream.readline()
    while stream.readline().strip():
        pass
    return found


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

"""What an agent proxy lets through: the requests that a model needs, and tools that the agent itself carries out.

A key can do much more than ask a model: read and delete files, start training, make other keys. And a provider can do
more than answer: search the web, fetch an address, call a server, run programs. Both pass only if settings name them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from unicodedata import normalize
from urllib.parse import unquote

from msgspec import Struct

from whet.agents.observe.records import table
from whet.gateway.wire.formats import Format, format_of, is_batch
from whet.reading.requests import fits_request

# Nothing is paid for these.
_FREE = ("GET", "HEAD", "OPTIONS", "DELETE")
_LONGEST_SHOWN = 200


class Need(Struct, frozen=True, kw_only=True):
    """A request that a model needs; without a format, nothing is paid for it."""

    methods: tuple[str, ...] = ("POST",)
    path: re.Pattern[str]
    format: Format | None = None


def _need(path: str, format: Format | None = None, *methods: str) -> Need:  # noqa: A002 - the word for it
    return Need(methods=methods or ("POST",), path=re.compile(path), format=format)


# Some agents look whether there is a server at all.
_PRESENCE = _need("/?", None, "HEAD")
_ANTHROPIC = (
    _need("/v1/messages", "messages"),
    _need("/v1/messages/count_tokens"),
    _need("/v1/models(/.+)?", None, "GET", "HEAD"),
    _need("/v1/chat/completions", "chat"),
)
# The address of a server may end before its version, and that of Azure before the name of a deployment.
_BASE = "(/openai)?(/v1)?(/deployments/[^/]+)?"
_OPENAI = (
    _need(f"{_BASE}/responses", "responses"),
    _need(f"{_BASE}/responses/compact", "responses"),
    _need(f"{_BASE}/responses/input_tokens"),
    _need(f"{_BASE}/(chat/)?completions", "chat"),
    _need(f"{_BASE}/models(/.+)?", None, "GET", "HEAD"),
)
_VERSION = "/v1(alpha|beta)?"
_GEMINI = (
    _need(f"{_VERSION}/(models|tunedModels)/[^/:]+:(generateContent|streamGenerateContent)", "gemini"),
    _need(f"{_VERSION}/(models|tunedModels)/[^/:]+:countTokens"),
    _need(f"{_VERSION}/models(/.+)?", None, "GET", "HEAD"),
    _need(f"{_VERSION}/openai/chat/completions", "chat"),
    _need(f"{_VERSION}/openai/models(/.+)?", None, "GET", "HEAD"),
)
_NEEDS = {
    "anthropic": (_PRESENCE, *_ANTHROPIC),
    "openai": (_PRESENCE, *_OPENAI),
    "openai-compatible": (_PRESENCE, *_OPENAI),
    "gemini": (_PRESENCE, *_GEMINI),
    # Copilot speaks the protocol that the variables of a case name.
    "copilot": (_PRESENCE, *_OPENAI, *_ANTHROPIC),
}


class Admission(Struct, frozen=True, kw_only=True):
    """A request that passes; without a format, nothing is paid for it.

    What a model needs is *examined*. What settings name passes as it is.
    """

    format: Format | None
    examined: bool


class Refusal(Struct, frozen=True, kw_only=True):
    """A request that does not pass, and why."""

    why: str


class Rules(Struct, frozen=True, kw_only=True):
    """What passes: requests by method and path, and tools of the provider; None means all of them."""

    provider: str
    requests: tuple[str, ...] = ()
    hosted_tools: tuple[str, ...] | None = None

    def admit(self, method: str, path: str) -> Admission | Refusal:
        """Return whether a request passes by its method and path."""
        decoded_path = unquote(path)
        if method == "POST" and is_batch(path):
            return Refusal(why="what is answered later cannot be counted")
        for need in _NEEDS[self.provider]:
            if method in need.methods and need.path.fullmatch(decoded_path):
                return Admission(format=need.format, examined=method == "POST")
        if any(fits_request(method, decoded_path, pattern) for pattern in self.requests):
            return Admission(format=None if method in _FREE else format_of(path) or "other", examined=False)
        what = f"{method} {decoded_path[:_LONGEST_SHOWN]}"
        return Refusal(why=f"{what} is not among the requests that a model needs; allow_requests can name it")

    def examine(self, wire_format: Format | None, body: Mapping[str, Any]) -> str | None:
        """Return why a request to a model does not pass because of what it asks for, or None."""
        fields = [*_fields(body)]
        if any(_answers_later(field, body) for field in fields):
            return "what is answered in the background cannot be counted"
        if (name := _other_models(fields)) is not None:
            return f"{name} lets the provider choose among models, so the price is unknown: name one model"
        if self.hosted_tools is None:
            return None
        for name in _find_hosted(wire_format, body, fields):
            if not any(_plain(name).startswith(_plain(tool)) for tool in self.hosted_tools):
                return f"{name[:_LONGEST_SHOWN]} takes the provider out of this network; allow_hosted_tools can name it"
        return None


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    """Return a name as servers may read it.

    Some take both `google_search` and `googleSearch`, and those in Go every letter of the same case: also a long s.
    """
    return _SEPARATORS.sub("", normalize("NFKC", name).casefold())


_SEPARATORS = re.compile(r"[\s_-]+")


# Tools that the agent itself carries out, by their type without a version. Those that look for tools reach nothing.
_AGENT_TOOLS = re.compile(
    r"(function|custom|bash|texteditor|computer|computeruse|memory|localshell|applypatch|namespace"
    r"|toolsearch(tool(regex|bm25))?)(preview)?[0-9]*"
)
_AGENT_TOOLS_GEMINI = ("functiondeclarations", "computeruse")
# What says of a tool that an agent carries it out, if it has no type.
_AGENT_TOOL_FIELDS = ("name", "function")
# A field of a tool that some servers take for a tool of theirs, whatever the type says.
_HOSTED_FIELD = re.compile(r"search|url|uri$|server|mcp|connector|retrieval|codeexecution|interpreter|maps|grounding")
# Fields by which a request asks for the web, for a server, or for what is stored at the provider, without a tool.
_AS_FIELDS = frozenset(
    (
        *("mcpservers", "serverurl", "connectorid", "connectors", "datasources", "plugins", "cachedcontent"),
        *("websearch", "websearchoptions", "searchparameters", "searchoptions", "searchsettings", "enablesearch"),
        *("compoundcustom", "apibase", "baseurl", "preset"),
        *("builtintools", "servertools", "hostedtools", "enablecodeinterpreter"),
    )
)
# What asks for nothing. An empty object does: it takes all that it does not say as the provider has it.
_NOTHING: tuple[Any, ...] = (None, False, 0, "", [])
# Fields by which the answer comes later, to another request.
_LATER = ("background", "deferred")
# What servers between agents and models take fields of the request from.
_MORE_FIELDS = "extrabody"
# Models that search the web by themselves, as providers name them, and what is stored at a provider as a model.
_SEARCHING = re.compile(r"search-(preview|api)|:online$|^@preset/", re.IGNORECASE)
# Fields by which a request names other models than the one that it is priced by.
_OTHER_MODELS = frozenset(("models", "fallbacks", "fallbackmodels", "fallbackmodel", "contextwindowfallbackdict"))
# What a schema or a tool call of the agent is free to hold: no provider reads tools, addresses or models there.
_FREE_BELOW = frozenset(
    (
        *("parameters", "parametersjsonschema", "inputschema", "outputschema", "inputexamples", "arguments"),
        *("args", "response", "action", "annotations", "citations"),
    )
)
_FREE_ANYWHERE = frozenset(
    ("metadata", "clientmetadata", "labels", "schema", "jsonschema", "responseschema", "responsejsonschema")
)
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
# What the provider had found before: its address is not fetched again.
_RESULTS = ("web_search_result", "web_fetch_result")
# Where pictures, sound and files are, as data or by an address.
_MEDIA = frozenset(("image", "images", "video", "videos", "audio", "data", "file", "filedata", "document", "media"))
_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class _Field(Struct, frozen=True, kw_only=True):
    """A field of a request, at whatever depth: its key as written and plain, its value, and the object that has it."""

    key: str
    name: str
    value: Any
    owner: Mapping[str, Any]


def _fields(body: Mapping[str, Any]) -> Iterator[_Field]:
    """Yield all fields of a request that a provider may read, but not what an agent is free to write."""
    places: list[Any] = [body]
    while places:
        place = places.pop()
        if isinstance(place, list):
            places += place
        elif isinstance(place, dict):
            for key, value in place.items():
                name = _plain(key)
                if not _is_free(name, value, place, below=place is not body):
                    yield _Field(key=key, name=name, value=value, owner=place)
                    if isinstance(value, dict | list):
                        places += _below(name, value)


def _below(name: str, value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    """Return what is looked at below a field; what belongs to a tool of the provider passes or not with that tool."""
    if name in _AS_FIELDS:
        return ()
    if name == "tools":
        tools = value if isinstance(value, list) else [value]
        return [tool for tool in tools if isinstance(tool, dict) and _is_agent_tool(tool)]
    return (value,)


def _is_free(name: str, value: Any, owner: Mapping[str, Any], *, below: bool) -> bool:
    if name in _FREE_ANYWHERE or (below and name in _FREE_BELOW):
        return True
    # Only the arguments of a call are free, and nothing else in the same block.
    return name == "input" and isinstance(value, dict) and owner.get("type") in _CALLS


def _answers_later(field: _Field, body: Mapping[str, Any]) -> bool:
    if field.name not in _LATER or field.value in (False, None):
        return False
    return field.owner is body or any(field.owner is body[key] for key in body if _plain(key) == _MORE_FIELDS)


def _other_models(fields: Iterable[_Field]) -> str | None:
    """Return the field by which a request names more than one model."""
    for field in fields:
        if field.name in _OTHER_MODELS and field.value:
            return field.key
        # Some servers take a list of models, also as one text.
        if field.name == "model" and "," in str(field.value):
            return field.key
    return None


def _find_hosted(wire_format: Format | None, body: Mapping[str, Any], fields: Iterable[_Field]) -> Iterator[str]:
    """Yield what the provider would carry out, by its name in the request."""
    # A prompt that is kept at the provider may have any tool.
    yield from (key for key, value in body.items() if _plain(key) == "prompt" and isinstance(value, dict))
    for field in fields:
        if field.name in _AS_FIELDS and field.value not in _NOTHING:
            yield field.key
        elif field.name == "tools":
            yield from _find_hosted_tools(wire_format, field.value)
        elif field.name == "model" and _SEARCHING.search(str(field.value)):
            yield str(field.value)
        elif _fetches(field):
            yield "url"


def _find_hosted_tools(wire_format: Format | None, tools: Any) -> Iterator[str]:
    """Yield the tools that are not the agent's own; what is below one of these, `_fields` finds."""
    for tool in tools if isinstance(tools, list) else [tools]:
        if not isinstance(tool, dict):
            # Some servers take the name of a tool of theirs.
            yield from () if tool is None else (str(tool),)
        elif wire_format == "gemini" or any(_plain(name).startswith(_AGENT_TOOLS_GEMINI) for name in tool):
            # Each field is a tool.
            yield from (name for name in tool if not _plain(name).startswith(_AGENT_TOOLS_GEMINI))
        elif not _is_agent_tool(tool):
            yield str(tool.get("type") or next(iter(tool), "tools"))
        else:
            yield from (name for name in tool if _HOSTED_FIELD.search(_plain(name)))


def _is_agent_tool(tool: Mapping[str, Any]) -> bool:
    kind = tool.get("type")
    if kind is None:
        return any(tool.get(name) for name in _AGENT_TOOL_FIELDS)
    if _plain(str(kind)) == "shell":
        return bool(table(tool, "environment").get("type", "local") == "local")
    return _AGENT_TOOLS.fullmatch(_plain(str(kind))) is not None


def _fetches(field: _Field) -> bool:
    """Return whether the provider would fetch an address: of a picture, a document or a video."""
    was_fetched = field.name == "url" and field.owner.get("type") in _RESULTS
    is_address = field.name.endswith(("url", "uri", "urls", "uris")) and not was_fetched
    for value in field.value if isinstance(field.value, list) else [field.value]:
        if not isinstance(value, str):
            continue
        if is_address and value.strip() and value.lstrip()[:5].lower() != "data:":
            return True
        if field.name in _MEDIA and _SCHEME.match(value):
            return True
    return False

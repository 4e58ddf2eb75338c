"""What a passage lends: the requests that a model needs, and tools that the agent itself carries out.

A key can do much more than ask a model: read and delete files, start training, make other keys. And a provider can do
more than answer: search the web, fetch an address, call a server, run programs. Both pass only if settings name them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from whet.agents.gateway_wire import Format, format_of, is_batch
from whet.agents.records import table, text
from whet.dataclass import dataclass
from whet.reading.requests import fits_request

# Nothing is paid for these.
_FREE = ("GET", "HEAD", "OPTIONS", "DELETE")
_LONGEST_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
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
    # It speaks the protocol that the variables of a case name.
    "copilot": (_PRESENCE, *_OPENAI, *_ANTHROPIC),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A request that passes; without a format, nothing is paid for it.

    What a model needs is *examined*. What settings name passes as it is.
    """

    format: Format | None
    examined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A request that does not pass, and why."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What passes: requests by method and path, and tools of the provider; None stands for all of these."""

    provider: str
    requests: tuple[str, ...] = ()
    hosted_tools: tuple[str, ...] | None = None

    def admit(self, method: str, path: str) -> Admitted | Refused:
        """Return whether a request passes by its method and path."""
        read = unquote(path)
        if method == "POST" and is_batch(path):
            return Refused(why="what is answered later cannot be counted")
        for need in _NEEDS[self.provider]:
            if method in need.methods and need.path.fullmatch(read):
                return Admitted(format=need.format, examined=method == "POST")
        if any(fits_request(method, read, allowed) for allowed in self.requests):
            return Admitted(format=None if method in _FREE else format_of(path) or "other", examined=False)
        what = f"{method} {read[:_LONGEST_SHOWN]}"
        return Refused(why=f"{what} is not among the requests that a model needs; allow_requests can name it")

    def examine(self, asked: Format | None, body: Mapping[str, Any]) -> str | None:
        """Return why a request to a model does not pass because of what it asks for, or None."""
        if any(_plain(key) == "background" and value not in (False, None) for key, value in body.items()):
            return "what is answered in the background cannot be counted"
        if self.hosted_tools is None:
            return None
        for name in _hosted(asked, body):
            if not any(_plain(name).startswith(_plain(allowed)) for allowed in self.hosted_tools):
                return f"{name[:_LONGEST_SHOWN]} takes the provider out of this network; allow_hosted_tools can name it"
        return None


def _plain(name: str) -> str:
    """Return a name as servers may read it: some take both `google_search` and `googleSearch`."""
    return name.lower().replace("_", "").replace("-", "")


# Tools that the agent itself carries out, by the beginning of their type. Those that look for tools reach nothing.
_OWN = (
    *("function", "custom", "bash", "texteditor", "computer", "memory", "localshell", "applypatch"),
    *("toolsearch", "namespace"),
)
_OWN_GEMINI = ("functiondeclarations", "computeruse")
# Fields by which a request asks for the web, for a server, or for what is stored at the provider, without a tool.
_AS_FIELDS = ("mcpservers", "websearchoptions", "searchparameters", "enablesearch", "plugins")
# Models that search the web by themselves, as providers name them.
_SEARCHING = re.compile(r"search-(preview|api)|:online$", re.IGNORECASE)


def _hosted(asked: Format | None, body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the provider would carry out, by its name in the request."""
    for key, value in body.items():
        name = _plain(key)
        # A prompt that is kept at the provider may have any tool.
        if (name in _AS_FIELDS and value) or (name == "prompt" and isinstance(value, dict)):
            yield key
        elif name == "tools":
            yield from _hosted_tools(asked, value)
    if (model := text(body, "model")) is not None and _SEARCHING.search(model):
        yield model
    if _fetches(body):
        yield "url"


def _hosted_tools(asked: Format | None, tools: Any) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else [tools]:
        if not isinstance(tool, dict):
            continue
        kind = tool.get("type")
        if asked == "gemini":
            # Each field is a tool.
            yield from (name for name in tool if not _begins(name, _OWN_GEMINI))
        elif kind is not None and not _is_own(str(kind), tool):
            yield str(kind)
        elif kind is not None and _begins(str(kind), ("namespace",)):
            yield from _hosted_tools(asked, tool.get("tools"))


def _is_own(kind: str, tool: Mapping[str, Any]) -> bool:
    if _begins(kind, ("shell",)):
        return bool(table(tool, "environment").get("type", "local") == "local")
    return _begins(kind, _OWN)


def _begins(name: str, beginnings: tuple[str, ...]) -> bool:
    return _plain(name).startswith(beginnings)


# Where a request holds what a model reads. The arguments and results of an agent's own tools are elsewhere.
_READ = frozenset(
    (
        *("messages", "input", "contents", "content", "parts", "system", "systeminstruction", "output", "source"),
        *("filedata", "functionresponse", "generatecontentrequest"),
    )
)
_ADDRESSES = frozenset(("url", "imageurl", "fileurl", "fileuri", "videourl", "audiourl"))
# Of such a block, a model reads what a tool was given, or what the provider had fetched before.
_NOT_FETCHED = ("tool_use", "server_tool_use", "mcp_tool_use", "web_search_tool_result", "web_fetch_tool_result")


def _fetches(body: Mapping[str, Any]) -> bool:
    """Return whether the provider would fetch an address: of a picture, a document or a video."""
    places: list[Any] = [value for key, value in body.items() if _plain(key) in _READ]
    while places:
        place = places.pop()
        if isinstance(place, list):
            places += place
        elif isinstance(place, dict) and place.get("type") not in _NOT_FETCHED:
            for key, value in place.items():
                name = _plain(key)
                if name in _ADDRESSES and isinstance(value, str) and value.lstrip()[:5].lower() != "data:":
                    return True
                if name in _READ or name in _ADDRESSES:
                    places.append(value)
    return False

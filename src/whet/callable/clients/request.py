"""The HTTP request of a call: where each field of the input goes, and what cannot be sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from whet.model.callable import CallableSkill, HttpRequest
from whet.reading.text import shown


def request_of(skill: CallableSkill, url: str, arguments: Mapping[str, Any]) -> tuple[str, str, dict[str, str], Any]:
    """Return the method, the address, more headers and the JSON body of a call of *skill*."""
    request = skill.request
    if request is None:
        return "POST", url, {}, {"skillId": skill.id, "version": skill.version, "input": dict(arguments)}
    return request.method, _address(request, url, arguments), _headers(request, arguments), _json(request, arguments)


def _address(request: HttpRequest, url: str, arguments: Mapping[str, Any]) -> str:
    """Return *url* with the fields of the input that belong into its path and its query."""
    for name in request.path:
        url = url.replace(f"{{{name}}}", quote(_text(arguments.get(name)), safe=""))
    # A list is a field several times.
    pairs = [(name, _text(item)) for name, value in _present(request.query, arguments) for item in _items(value)]
    if not pairs:
        return url
    separator = "&" if "?" in url else "?"
    return f"{url}{separator}{urlencode(pairs)}"


def _headers(request: HttpRequest, arguments: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in _present(request.header, arguments)}


def _json(request: HttpRequest, arguments: Mapping[str, Any]) -> Any:
    return arguments.get(request.body) if request.body is not None else None


def _present(names: tuple[str, ...], arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, arguments[name]) for name in names if arguments.get(name) is not None)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    """Return a value as addresses and headers have it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def unfit_input(skill: CallableSkill, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield why *arguments* cannot be sent: a field has no place in the request, or a field of the path is missing."""
    request = skill.request
    if request is None:
        return
    places = (*request.path, *request.query, *request.header, *((request.body,) if request.body else ()))
    for name in arguments:
        if name not in places:
            yield f'the request has no place for "{name}"; it takes {", ".join(places) or "nothing"}'
    for name in request.path:
        if arguments.get(name) is None or _text(arguments[name]) in {"", ".", ".."}:
            yield f'the address needs "{name}"'
    for name, value in _present(request.header, arguments):
        text = _text(value)
        if not text.isprintable() or not text.isascii():
            yield f'"{name}" cannot be sent in a header: {shown(value)}'

"""What a provider refuses over all sessions of a run: a key that is not good, or to answer at all.

Both end the trials of a runner, so a program under test must not bring them about. Before whet believes a refusal, it
asks the provider itself. What an agent asked may be odd in a way that brings about a refusal; nothing of an agent is in
whet's own question, so only the key can be the reason for its answer.

Import it only if a model is asked: the HTTP library takes long to import.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct, field

from whet.errors import AgentError, KeyRefused, ProviderUnreachable
from whet.gateway.routes import Route

_PATIENCE_S, _CONNECT_S = 5.0, 3.0
REFUSING = frozenset({401, 403})
UNAUTHORIZED = 401
_GOOD = range(200, 300)
_UNWELL = 500
# The key is refused, or it is good, or the list is open to everybody; None if the answer does not tell.
KeyVerdict = Literal["refused", "good", "open"]


class NobodyAnswers(Exception):
    """The server does not answer: no such host, no way to it, or nothing listens there."""


async def ask_about_key(url: str, headers: Mapping[str, str]) -> KeyVerdict | None:
    """Ask for the list of models at *url*; raises `NobodyAnswers`.

    403 does not tell: there are keys that may ask a model and may not list the models. A list that is answered without
    the key too says nothing about the key.
    """
    try:
        async with httpx2.AsyncClient(
            timeout=httpx2.Timeout(_PATIENCE_S, connect=_CONNECT_S), follow_redirects=False
        ) as client:
            status = (await client.get(url, headers=dict(headers))).status_code
            is_open = status in _GOOD and (await client.get(url)).status_code in _GOOD
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
        raise NobodyAnswers(str(error) or type(error).__name__) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError):
        return None
    if status == UNAUTHORIZED:
        return "refused"
    if is_open:
        return "open"
    return "good" if status in _GOOD else None


async def is_answered(url: str, headers: Mapping[str, str]) -> bool:
    """Return whether somebody who is well answers at *url*; a refusal is an answer."""
    try:
        async with httpx2.AsyncClient(
            timeout=httpx2.Timeout(_PATIENCE_S, connect=_CONNECT_S), follow_redirects=False
        ) as client:
            return (await client.get(url, headers=dict(headers))).status_code < _UNWELL
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError):
        return False


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def _anthropic(key: str) -> dict[str, str]:
    return {"x-api-key": key, "anthropic-version": "2023-06-01"}


# How each variable's key is sent.
_HEADERS: dict[str, Callable[[str], dict[str, str]]] = {
    "ANTHROPIC_API_KEY": _anthropic,
    "GEMINI_API_KEY": lambda key: {"x-goog-api-key": key},
    "GOOGLE_API_KEY": lambda key: {"x-goog-api-key": key},
}
# Where a provider lists its models, below the address that its own tools take.
_PATHS = {"anthropic": "/v1/models", "gemini": "/v1beta/models"}


def models_url(provider: str, url: str) -> str:
    """Return where *provider* lists its models."""
    return f"{url}{_PATHS.get(provider, '/models')}"


def key_headers(variable: str, key: str) -> dict[str, str]:
    """Return the headers with the key of a variable, as the provider's own tools send it."""
    return _HEADERS.get(variable, _bearer)(key)


# A key that was good a moment ago is not asked about again.
_GOOD_FOR_S = 30.0
# For how long whet tries to reach a provider that has never answered, and the first and the longest pause.
_TRIED_S = 8.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 3.0
_WELL = 400


class _KeyState(Struct):
    """What is known of one key at one address."""

    # Whether a model has answered with it.
    worked: bool = False
    good_until: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class ProviderChecks:
    """What the sessions of a run have learned of their providers."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], _KeyState] = {}
        # The addresses at which somebody answered, and the tries to reach the others.
        self._there: set[str] = set()
        self._tries: dict[str, asyncio.Task[str | None]] = {}

    async def after(self, route: Route, variable: str | None, status: int, *, trusted: bool) -> AgentError | None:
        """Return the refusal that an answer with *status* to a model request means, if any.

        *variable* is the one whose key whet put in; None if the agent sent none of them.
        """
        self._there.add(route.url)
        if route.keys and variable is None:
            # The agent left its key out, or has one of its own.
            return None
        key = self._keys.setdefault((route.url, route.keys.get(variable or "", "")), _KeyState())
        if status < _WELL:
            key.worked = True
        if status not in REFUSING:
            return None
        async with key.asking:
            # What an agent that whet knows asks before its model has said anything is surely not provoked.
            is_unprovoked = trusted and not key.worked
            verdict = await self._ask(route, variable, key)
        # Where everybody may see the list, a 403 may be about the model or the place.
        is_believed = is_unprovoked and (verdict is None or (verdict == "open" and status == UNAUTHORIZED))
        return _key_error(route, variable, status) if verdict == "refused" or is_believed else None

    async def _ask(self, route: Route, variable: str | None, key: _KeyState) -> KeyVerdict | None:
        """Return what the provider says about a key by itself."""
        if time.monotonic() < key.good_until:
            return "good"
        headers = key_headers(variable, route.keys[variable]) if variable else {}
        try:
            verdict = await ask_about_key(models_url(route.provider.name, route.url), headers)
        except NobodyAnswers:
            verdict = None
        if verdict == "good":
            key.good_until = time.monotonic() + _GOOD_FOR_S
        return verdict

    async def answers(self, route: Route) -> bool:
        """Return whether the provider answers a question of whet's own, in which no agent has a part."""
        variable = next(iter(route.keys), None)
        headers = key_headers(variable, route.keys[variable]) if variable else {}
        return await is_answered(models_url(route.provider.name, route.url), headers)

    async def unreachable(self, route: Route) -> AgentError | None:
        """Return the error for a provider that does not answer for some seconds; None if it does, or ever has."""
        if route.url in self._there:
            return None
        if route.url not in self._tries:
            self._tries[route.url] = asyncio.ensure_future(self._try(route))
        # One session that ends does not end the tries for others.
        reason = await asyncio.shield(self._tries[route.url])
        return None if reason is None else _unreachable_error(route, reason)

    async def _try(self, route: Route) -> str | None:
        """Return why the provider cannot be reached; None as soon as it can."""
        until, pause_s = time.monotonic() + _TRIED_S, _FIRST_PAUSE_S
        url = models_url(route.provider.name, route.url)
        while True:
            await asyncio.sleep(pause_s)
            if route.url in self._there:
                return None
            try:
                await ask_about_key(url, {})
            except NobodyAnswers as error:
                if time.monotonic() >= until:
                    return str(error)
            else:
                self._there.add(route.url)
                return None
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def close(self) -> None:
        """End the tries."""
        for task in self._tries.values():
            task.cancel()
        if self._tries:
            await asyncio.wait(self._tries.values())
        self._tries.clear()


def _key_error(route: Route, variable: str | None, status: int) -> KeyRefused:
    where = _place(route)
    if variable is None:
        names = " or ".join(route.provider.keys)
        return KeyRefused(f"{where} asks for a key ({status}), and there is none in {names}", hint=f"set {names}")
    return KeyRefused(f"the key in {variable} was refused ({status}) by {where}", hint=f"correct {variable}")


def _unreachable_error(route: Route, why: str) -> ProviderUnreachable:
    message = f"{_place(route)} does not answer: {why}"
    return ProviderUnreachable(message, hint=f"look at your network, your proxy and {route.provider.base}")


def _place(route: Route) -> str:
    """Return the address of a provider, without what could be a secret in it."""
    parts = urlsplit(route.url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"

"""What a provider refuses over all sessions of a run: a key that is not good, or to answer at all.

Both end the trials of a runner, so a program under test must not bring them about. Before whet believes a refusal, it
asks the provider itself (`key_question.py`). Import it only if an agent goes through the gateway.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import field
from urllib.parse import urlsplit

from whet.agents.gateway_routes import Route
from whet.agents.key_question import REFUSING, UNAUTHORIZED, Nobody, Said, ask_about_key, key_headers, models_url
from whet.dataclass import dataclass
from whet.errors import AgentError, KeyRefused, ProviderUnreachable

# A key that was good a moment ago is not asked about again.
_GOOD_FOR_S = 30.0
# For how long whet tries to reach a provider that has never answered, and the first and the longest pause.
_TRIED_S = 8.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 3.0
_WELL = 400


@dataclass(slots=True)
class _Key:
    """What is known of one key at one address."""

    # Whether a model has answered with it.
    worked: bool = False
    good_until: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Refusals:
    """What the sessions of a run have learned of their providers."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], _Key] = {}
        # The addresses at which somebody answered, and the tries to reach the others.
        self._there: set[str] = set()
        self._tries: dict[str, asyncio.Task[str | None]] = {}

    async def after(self, route: Route, variable: str | None, status: int, *, trusted: bool) -> AgentError | None:
        """Return the refusal that an answer with *status* to a model request stands for, if it does.

        *variable* is the one whose key whet put in; None if the agent sent none of them.
        """
        self._there.add(route.url)
        if route.keys and variable is None:
            # The agent left its key out, or has one of its own.
            return None
        key = self._keys.setdefault((route.url, route.keys.get(variable or "", "")), _Key())
        if status < _WELL:
            key.worked = True
        if status not in REFUSING:
            return None
        async with key.asking:
            # What an agent that whet knows asks before its model has said anything is surely not provoked.
            unprovoked = trusted and not key.worked
            said = await self._ask(route, variable, key)
        # Where everybody may see the list, a 403 may be about the model or the place.
        believed = unprovoked and (said is None or (said == "open" and status == UNAUTHORIZED))
        return _refused(route, variable, status) if said == "refused" or believed else None

    async def _ask(self, route: Route, variable: str | None, key: _Key) -> Said | None:
        """Return what the provider says about a key by itself."""
        if time.monotonic() < key.good_until:
            return "good"
        headers = key_headers(variable, route.keys[variable]) if variable else {}
        try:
            said = await ask_about_key(models_url(route.provider.name, route.url), headers)
        except Nobody:
            said = None
        if said == "good":
            key.good_until = time.monotonic() + _GOOD_FOR_S
        return said

    async def unreachable(self, route: Route) -> AgentError | None:
        """Return that nobody answers for a provider, after some seconds; None if somebody does, or ever has."""
        if route.url in self._there:
            return None
        if route.url not in self._tries:
            self._tries[route.url] = asyncio.ensure_future(self._try(route))
        # One session that ends does not end the tries for others.
        why = await asyncio.shield(self._tries[route.url])
        return None if why is None else _unreachable(route, why)

    async def _try(self, route: Route) -> str | None:
        """Return why nobody can be reached; None as soon as somebody is there."""
        until, pause_s = time.monotonic() + _TRIED_S, _FIRST_PAUSE_S
        url = models_url(route.provider.name, route.url)
        while True:
            await asyncio.sleep(pause_s)
            if route.url in self._there:
                return None
            try:
                await ask_about_key(url, {})
            except Nobody as error:
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


def _refused(route: Route, variable: str | None, status: int) -> KeyRefused:
    where = _place(route)
    if variable is None:
        names = " or ".join(route.provider.keys)
        return KeyRefused(f"{where} asks for a key ({status}), and there is none in {names}", hint=f"set {names}")
    return KeyRefused(f"the key in {variable} was refused ({status}) by {where}", hint=f"correct {variable}")


def _unreachable(route: Route, why: str) -> ProviderUnreachable:
    message = f"nobody answers at {_place(route)}: {why}"
    return ProviderUnreachable(message, hint=f"look at your network, your proxy and {route.provider.base}")


def _place(route: Route) -> str:
    """Return the address of a provider, without what could be a secret in it."""
    parts = urlsplit(route.url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"

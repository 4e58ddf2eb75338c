"""Who asks: a key in the header `Authorization`, its organisation, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from whet.server.problems import Refused
from whet.server.service import Service
from whet.server.storage.keys import Key, find_key
from whet.server.threads import in_thread

_bearer = HTTPBearer(auto_error=False, scheme_name="key", description='A key from "whet keys create".')


async def service_of(request: Request) -> Service:
    """The server that *request* came to; async, because FastAPI would give anything else a thread of its own."""
    return cast(Service, request.app.state.service)


At = Annotated[Service, Depends(service_of)]


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whose key is known."""

    organisation_id: str
    key_id: str
    # Of the key, the part that may be shown.
    key_prefix: str


class _Allowed:
    """Lets those pass whose key has a scope."""

    def __init__(self, scope: str) -> None:
        self._scope = scope

    async def __call__(
        self,
        request: Request,
        service: At,
        shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    ) -> Caller:
        """The caller; refused without a key that counts, without the scope, or too often."""
        key = await in_thread(_look_up, service, shown.credentials) if shown is not None else None
        if key is None:
            raise _unknown(service, request.client.host if request.client else "nobody")
        if wait_s := service.rates.wait_s(key.id):
            raise _too_often(wait_s, "too many requests")
        service.rates.take(key.id)
        if self._scope not in key.scopes:
            raise Refused(403, f'this key may not do that: it lacks the scope "{self._scope}"')
        return Caller(key.organisation_id, key.id, key.prefix)


def _look_up(service: Service, secret: str) -> Key | None:
    with service.database.reading() as connection:
        return find_key(connection, secret)


def _unknown(service: Service, address: str) -> Refused:
    """Wrong keys are counted by address, and right ones from there still count: behind a proxy, all have the same."""
    if wait_s := service.failures.wait_s(address):
        return _too_often(wait_s, "too many wrong keys")
    service.failures.take(address)
    return Refused(401, "a valid key is needed", headers={"www-authenticate": "Bearer"})


def _too_often(wait_s: int, error: str) -> Refused:
    return Refused(429, error, headers={"retry-after": str(wait_s)})


Reader = Annotated[Caller, Depends(_Allowed("read"))]
Writer = Annotated[Caller, Depends(_Allowed("write"))]
Starter = Annotated[Caller, Depends(_Allowed("run"))]

"""Organisations and their keys: made, listed, revoked, and known again by what a caller shows."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Connection, bindparam, insert, select, update

from whet.errors import UsageError
from whet.service.database import Database, keys, now_us, organisations
from whet.service.http import Refused
from whet.service.service import Service, in_thread

SCOPES = ("read", "write", "run")
# whet_<8 to be shown>_<43 that only the owner has>; long enough to be hashed once, without salt or stretching.
_KEY = re.compile(r"(whet_[0-9a-f]{8})_[A-Za-z0-9_-]{43}")
_ORGANISATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as it is stored: without what would let anybody use it."""

    id: str
    organisation_id: str
    organisation: str
    prefix: str
    scopes: tuple[str, ...]
    created_us: int
    revoked_us: int | None


def create_key(database: Database, organisation: str, scopes: Sequence[str]) -> tuple[Key, str]:
    """A new key of *organisation*, which is made if there is none of that name; and the secret, for this once."""
    if not _ORGANISATION.fullmatch(organisation):
        raise UsageError(
            f'"{organisation}" is no name for an organisation', hint="up to 100 letters, digits, dots, - and _"
        )
    prefix = f"whet_{secrets.token_hex(4)}"
    secret = f"{prefix}_{secrets.token_urlsafe(32)}"
    wanted = tuple(scope for scope in SCOPES if scope in scopes)
    with database.writing() as connection:
        key = Key(
            id=str(uuid.uuid4()),
            organisation_id=_organisation_id(connection, organisation),
            organisation=organisation,
            prefix=prefix,
            scopes=wanted,
            created_us=now_us(),
            revoked_us=None,
        )
        connection.execute(
            insert(keys).values(
                id=key.id,
                organisation_id=key.organisation_id,
                prefix=prefix,
                hash=_hash(secret),
                scopes=",".join(wanted),
                created_us=key.created_us,
            )
        )
    return key, secret


def list_keys(database: Database, organisation: str | None) -> list[Key]:
    """All keys, or those of one organisation, oldest first."""
    wanted = _SELECT.order_by(keys.c.created_us, keys.c.prefix)
    if organisation is not None:
        wanted = wanted.where(organisations.c.name == organisation)
    with database.reading() as connection:
        return [_key(row) for row in connection.execute(wanted)]


def revoke_key(database: Database, name: str) -> Key:
    """End the key that has this prefix or id; one that was revoked stays as it was."""
    with database.writing() as connection:
        row = connection.execute(_SELECT.where((keys.c.prefix == name) | (keys.c.id == name))).first()
        if row is None:
            raise UsageError(f'there is no key "{name}"', hint='"whet keys list" shows the prefixes')
        if row.revoked_us is None:
            connection.execute(update(keys).where(keys.c.id == row.id).values(revoked_us=now_us()))
        return _key(connection.execute(_SELECT.where(keys.c.id == row.id)).one())


def find_key(connection: Connection, secret: str) -> Key | None:
    """The key that *secret* is, if it is one that still counts."""
    matched = _KEY.fullmatch(secret)
    if matched is None:
        return None
    row = connection.execute(_BY_PREFIX, {"prefix": matched[1]}).first()
    if row is None or row.revoked_us is not None or not hmac.compare_digest(row.hash, _hash(secret)):
        return None
    return _key(row)


_SELECT = select(keys, organisations.c.name).join(organisations)
# Built once, because every request asks it.
_BY_PREFIX = _SELECT.where(keys.c.prefix == bindparam("prefix"))


def _organisation_id(connection: Connection, name: str) -> str:
    found = connection.execute(select(organisations.c.id).where(organisations.c.name == name)).scalar()
    if found is not None:
        return str(found)
    fresh = str(uuid.uuid4())
    connection.execute(insert(organisations).values(id=fresh, name=name, created_us=now_us()))
    return fresh


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(row: Any) -> Key:
    return Key(
        id=row.id,
        organisation_id=row.organisation_id,
        organisation=row.name,
        prefix=row.prefix,
        scopes=tuple(row.scopes.split(",")) if row.scopes else (),
        created_us=row.created_us,
        revoked_us=row.revoked_us,
    )


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

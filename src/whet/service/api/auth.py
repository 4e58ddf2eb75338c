"""Who may do what: organisations, their keys, and what a key allows a caller of the service."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from msgspec import Struct
from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from whet.errors import UsageError
from whet.service.database import Database, keys, now_us, organisations
from whet.service.errors import Refused
from whet.service.service import Service, work_for

SCOPES = ("read", "write", "run", "label")
# whet_<8 digits to show>_<43 characters that only the owner has>. They are random, so one hash without salt is enough.
_KEY = re.compile(r"(whet_[0-9a-f]{8})_[A-Za-z0-9_-]{43}")
_LONGEST_LABEL = 100
# A last use is stored at most this often for each key, so that reading does not become writing.
_USE_EVERY_S = 60.0
_ORGANISATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Key(Struct, frozen=True, kw_only=True):
    """A key without its secret part."""

    id: str
    organisation_id: str
    organisation: str
    prefix: str
    scopes: tuple[str, ...]
    revoked: bool = False
    label: str | None = None
    created_us: int = 0
    # To the minute.
    used_us: int | None = None

    @classmethod
    def of(cls, row: Any) -> Key:
        """Return the key in a row of `_SELECT`."""
        return cls(
            id=row.id,
            organisation_id=row.organisation_id,
            organisation=row.name,
            prefix=row.prefix,
            scopes=tuple(row.scopes.split(",")) if row.scopes else (),
            revoked=row.revoked_us is not None,
            label=row.label,
            created_us=row.created_us,
            used_us=row.used_us,
        )


_SELECT = select(keys, organisations.c.name).join(organisations)
# Built once, because every request uses it.
_BY_PREFIX = _SELECT.where(keys.c.prefix == bindparam("prefix"))


def create_key(
    database: Database, organisation: str, scopes: Sequence[str], label: str | None = None
) -> tuple[Key, str]:
    """Create a key, and its organisation if that is new; returns the key and its secret, which is not stored."""
    if not _ORGANISATION.fullmatch(organisation):
        raise UsageError(
            f'"{organisation}" is not a valid name for an organisation',
            hint="use up to 100 letters, digits, dots, - and _",
        )
    if label is not None and (not 0 < len(label) <= _LONGEST_LABEL or not label.isprintable()):
        raise UsageError(f"the label must be one line of up to {_LONGEST_LABEL} characters")
    prefix = f"whet_{secrets.token_hex(4)}"
    secret = f"{prefix}_{secrets.token_urlsafe(32)}"
    with database.writing() as connection:
        key = Key(
            id=str(uuid.uuid4()),
            organisation_id=_organisation_id(connection, organisation),
            organisation=organisation,
            prefix=prefix,
            scopes=tuple(scope for scope in SCOPES if scope in scopes),
            label=label,
            created_us=now_us(),
        )
        connection.execute(
            insert(keys).values(
                id=key.id,
                organisation_id=key.organisation_id,
                prefix=prefix,
                hash=_hash(secret),
                scopes=",".join(key.scopes),
                created_us=key.created_us,
                label=label,
            )
        )
    return key, secret


def _organisation_id(connection: Connection, name: str) -> str:
    organisation_id = connection.execute(select(organisations.c.id).where(organisations.c.name == name)).scalar()
    if organisation_id is not None:
        return str(organisation_id)
    id_ = str(uuid.uuid4())
    connection.execute(insert(organisations).values(id=id_, name=name, created_us=now_us()))
    return id_


def list_keys(database: Database, organisation: str | None) -> list[Key]:
    """Return all keys, or those of one organisation, oldest first."""
    query = _SELECT.order_by(keys.c.created_us, keys.c.prefix)
    if organisation is not None:
        query = query.where(organisations.c.name == organisation)
    with database.reading() as connection:
        return [Key.of(row) for row in connection.execute(query)]


def revoke_key(database: Database, name: str) -> Key:
    """Revoke the key with this prefix or id, if it is not revoked yet."""
    with database.writing() as connection:
        row = connection.execute(_SELECT.where((keys.c.prefix == name) | (keys.c.id == name))).first()
        if row is None:
            raise UsageError(f'there is no key "{name}"', hint='"whet keys list" shows the prefixes')
        if row.revoked_us is None:
            connection.execute(update(keys).where(keys.c.id == row.id).values(revoked_us=now_us()))
        return Key.of(connection.execute(_SELECT.where(keys.c.id == row.id)).one())


def _find_key(connection: Connection, secret: str) -> Key | None:
    """Return the key that *secret* belongs to, unless it was revoked."""
    match = _KEY.fullmatch(secret)
    row = connection.execute(_BY_PREFIX, {"prefix": match[1]}).first() if match is not None else None
    if row is None or row.revoked_us is not None or not hmac.compare_digest(row.hash, _hash(secret)):
        return None
    return Key.of(row)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


async def _service(request: Request) -> Service:
    # Async, because FastAPI calls other functions on a thread.
    return cast(Service, request.app.state.service)


At = Annotated[Service, Depends(_service)]
_bearer = HTTPBearer(auto_error=False, scheme_name="key", description='A key from "whet keys create".')


def _with_scope(scope: str | None) -> Callable[..., Awaitable[Key]]:
    """Return a dependency that gives the caller's key; refuses a wrong key, a missing scope, and too many requests.

    Without a *scope*, any key will do.
    """

    async def check(
        request: Request, service: At, bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Key:
        key = await service.look(_find_key, bearer.credentials) if bearer is not None else None
        if key is None:
            raise _wrong_key(service, request.client.host if request.client else "unknown")
        if wait_s := service.rates.wait_s(key.id):
            raise _too_often(wait_s, "too many requests")
        service.rates.take(key.id)
        work_for(key.organisation_id)
        await _note_use(service, key)
        if scope is not None and scope not in key.scopes:
            raise Refused(403, f'this key lacks the scope "{scope}"')
        return key

    return check


async def _note_use(service: Service, key: Key) -> None:
    now = time.monotonic()
    if now - service.key_uses.get(key.id, -math.inf) < _USE_EVERY_S:
        return
    service.key_uses[key.id] = now
    # A database that others write to is no reason to refuse a reader.
    with suppress(SQLAlchemyError):
        await service.write(_store_use, key.id)


def _store_use(connection: Connection, key_id: str) -> None:
    connection.execute(update(keys).where(keys.c.id == key_id).values(used_us=now_us()))


def _wrong_key(service: Service, address: str) -> Refused:
    """Count a wrong key of an address. Right keys from there stay valid: behind a proxy, all callers share one."""
    if wait_s := service.failures.wait_s(address):
        return _too_often(wait_s, "too many wrong keys")
    service.failures.take(address)
    return Refused(401, "a valid key is needed", headers={"www-authenticate": "Bearer"})


def _too_often(wait_s: int, error: str) -> Refused:
    return Refused(429, error, headers={"retry-after": str(wait_s)})


Reader = Annotated[Key, Depends(_with_scope("read"))]
Writer = Annotated[Key, Depends(_with_scope("write"))]
Starter = Annotated[Key, Depends(_with_scope("run"))]
Labeller = Annotated[Key, Depends(_with_scope("label"))]
Anybody = Annotated[Key, Depends(_with_scope(None))]

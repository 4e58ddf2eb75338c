"""Requests that may come twice: the second one with the same key is answered with what the first one made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from whet.server.storage.database import now_us
from whet.server.storage.tables import idempotency

KEPT_US = 24 * 3600 * 1_000_000


class OtherRequest(Exception):
    """The key was used before, for something else."""


@dataclass(frozen=True, slots=True)
class Once:
    """A request under a key: `fingerprint` tells whether it is the same one."""

    key_hash: str
    fingerprint: str

    @staticmethod
    def of(key: str, *parts: bytes) -> Once:
        """The request that consists of *parts*, under *key*."""
        whole = hashlib.sha256()
        for part in parts:
            whole.update(len(part).to_bytes(8, "big") + part)
        return Once(hashlib.sha256(key.encode()).hexdigest(), whole.hexdigest())


def made_before(connection: Connection, organisation_id: str, once: Once) -> str | None:
    """The id of what this request has made already; `OtherRequest` where its key stands for another."""
    row = connection.execute(
        select(idempotency.c.fingerprint, idempotency.c.resource_id).where(
            idempotency.c.organisation_id == organisation_id,
            idempotency.c.key_hash == once.key_hash,
            idempotency.c.created_us > now_us() - KEPT_US,
        )
    ).first()
    if row is None:
        return None
    if row.fingerprint != once.fingerprint:
        raise OtherRequest
    return str(row.resource_id)


def remember(connection: Connection, organisation_id: str, once: Once, resource_id: str) -> None:
    """Note what the request made, in the transaction that made it; two at once cannot both succeed."""
    now = now_us()
    connection.execute(delete(idempotency).where(idempotency.c.created_us <= now - KEPT_US))
    connection.execute(
        insert(idempotency).values(
            organisation_id=organisation_id,
            key_hash=once.key_hash,
            fingerprint=once.fingerprint,
            resource_id=resource_id,
            created_us=now,
        )
    )

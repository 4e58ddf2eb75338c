"""Suites and their versions: a version is written once, and the suite names its newest."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, insert, select, update

from whet.service.database import Page, idempotency, next_cursor, now_us, suite_versions, suites


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSuite:
    """One version of a suite: `head` is its document without the cases, as JSON; a list leaves `cases` out."""

    id: str
    version: int
    head: bytes
    cases: bytes
    created_us: int
    updated_us: int


def create_suite(connection: Connection, organisation_id: str, head: bytes, cases: bytes) -> StoredSuite:
    """A new suite in its first version."""
    id_, now = str(uuid.uuid4()), now_us()
    connection.execute(
        insert(suites).values(id=id_, organisation_id=organisation_id, version=1, created_us=now, updated_us=now)
    )
    return _add(connection, StoredSuite(id=id_, version=1, head=head, cases=cases, created_us=now, updated_us=now))


def get_suite(
    connection: Connection,
    organisation_id: str,
    id_: str,
    *,
    version: int | None = None,
    lock: bool = False,
    deleted: bool = False,
) -> StoredSuite | None:
    """A suite of the organisation, in its newest or the named version; with *lock*, nobody changes it meanwhile.

    One that was deleted is found only with *deleted*.
    """
    if lock:
        # In a statement of its own: PostgreSQL would pair the suite as it is after waiting with versions of before.
        connection.execute(select(suites.c.id).where(suites.c.id == id_).with_for_update())
    asked = {"id": id_, "organisation_id": organisation_id, "version": version}
    row = connection.execute(_one(newest=version is None, deleted=deleted), asked).first()
    return _stored(row, row.cases) if row is not None else None


@cache
def _one(*, newest: bool, deleted: bool) -> Select[Any]:
    """The query for one suite; built once, because building it takes longer than asking it."""
    at = suites.c.version if newest else bindparam("version")
    return (
        select(suites.c.id, suites.c.created_us, suite_versions.c.version, suite_versions.c.head, _CHANGED)
        .add_columns(suite_versions.c.cases)
        .join(suite_versions, and_(suite_versions.c.suite_id == suites.c.id, suite_versions.c.version == at))
        .where(*_visible(bindparam("organisation_id"), deleted=deleted), suites.c.id == bindparam("id"))
    )


def list_suites(connection: Connection, organisation_id: str, page: Page) -> tuple[list[StoredSuite], str | None]:
    """The suites of the organisation, newest first, without their cases; and the cursor for more."""
    query = (
        select(suites.c.id, suites.c.created_us, suite_versions.c.version, suite_versions.c.head, _CHANGED)
        .join(
            suite_versions, and_(suite_versions.c.suite_id == suites.c.id, suite_versions.c.version == suites.c.version)
        )
        .where(*_visible(organisation_id))
    )
    rows = list(connection.execute(page.of_rows(query, suites)))
    cursor = next_cursor(page, rows)
    return [_stored(row, b"") for row in rows], cursor


def list_versions(connection: Connection, suite: StoredSuite, limit: int, before: int | None) -> list[StoredSuite]:
    """The versions of a suite, newest first, without their cases; those below *before*."""
    query = select(suite_versions.c.version, suite_versions.c.head, _CHANGED).where(
        suite_versions.c.suite_id == suite.id
    )
    if before is not None:
        query = query.where(suite_versions.c.version < before)
    rows = connection.execute(query.order_by(suite_versions.c.version.desc()).limit(limit))
    return [
        StoredSuite(
            id=suite.id,
            version=row.version,
            head=row.head,
            cases=b"",
            created_us=suite.created_us,
            updated_us=row.changed_us,
        )
        for row in rows
    ]


def add_version(connection: Connection, suite: StoredSuite, head: bytes, cases: bytes) -> StoredSuite:
    """The next version of *suite*, which the caller holds locked."""
    now = now_us()
    fresh = StoredSuite(
        id=suite.id, version=suite.version + 1, head=head, cases=cases, created_us=suite.created_us, updated_us=now
    )
    connection.execute(update(suites).where(suites.c.id == suite.id).values(version=fresh.version, updated_us=now))
    return _add(connection, fresh)


def delete_suite(connection: Connection, suite: StoredSuite) -> None:
    """Let *suite* be found no more; its versions and runs stay."""
    connection.execute(update(suites).where(suites.c.id == suite.id).values(deleted_us=now_us()))


_CHANGED = suite_versions.c.created_us.label("changed_us")


def _visible(organisation_id: Any, *, deleted: bool = False) -> list[Any]:
    own = suites.c.organisation_id == organisation_id
    return [own] if deleted else [own, suites.c.deleted_us.is_(None)]


def _add(connection: Connection, suite: StoredSuite) -> StoredSuite:
    connection.execute(
        insert(suite_versions).values(
            suite_id=suite.id, version=suite.version, head=suite.head, cases=suite.cases, created_us=suite.updated_us
        )
    )
    return suite


def _stored(row: Any, cases: bytes) -> StoredSuite:
    return StoredSuite(
        id=row.id,
        version=row.version,
        head=row.head,
        cases=cases,
        created_us=row.created_us,
        updated_us=row.changed_us,
    )


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

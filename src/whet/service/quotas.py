"""How much an organisation may keep: runs, and the bytes of all it keeps.

That is its runs, improve runs and proposals, its skills, and all versions of its suites with their splits.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from sqlalchemy import Connection, func, select, update

from whet.errors import UsageError
from whet.reading.text import count
from whet.service.database import Database, bundles, organisations, proposals, runs, suite_versions, suites
from whet.service.errors import Refused

_MB = 1024 * 1024


class Quota(Struct, frozen=True, kw_only=True):
    """The most that an organisation may keep; None is without a limit."""

    runs: int | None = None
    bytes: int | None = None


class StorageUse(Struct, frozen=True, kw_only=True):
    """What an organisation keeps, and what it may keep if that is not as for all others."""

    organisation: str
    runs: int
    bytes: int
    own: Quota


def _usages(connection: Connection, organisation_id: str | None) -> Iterator[StorageUse]:
    kept = select(runs.c.organisation_id, func.count().label("runs"), func.sum(runs.c.bytes).label("bytes"))
    kept = kept.where(runs.c.deleted_us.is_(None))
    skills = select(bundles.c.organisation_id, func.sum(bundles.c.size).label("bytes"))
    size = func.length(suite_versions.c.head) + func.length(suite_versions.c.cases)
    versions = select(suites.c.organisation_id, func.sum(size).label("bytes")).join(
        suite_versions, suite_versions.c.suite_id == suites.c.id
    )
    splits = select(suites.c.organisation_id, func.sum(func.length(suites.c.split)).label("bytes"))
    documents = select(proposals.c.organisation_id, func.sum(func.length(proposals.c.document)).label("bytes"))
    query = select(organisations).order_by(organisations.c.name)
    sizes = []
    for part in (kept, skills, versions, splits, documents):
        owner = part.selected_columns.organisation_id
        mine = part if organisation_id is None else part.where(owner == organisation_id)
        table = mine.group_by(owner).subquery()
        query = query.outerjoin(table, table.c.organisation_id == organisations.c.id)
        sizes.append(func.coalesce(table.c.bytes, 0))
        if part is kept:
            query = query.add_columns(table.c.runs)
    # One by one, because their sums have different types.
    query = query.add_columns(*(size.label(f"bytes_{number}") for number, size in enumerate(sizes)))
    if organisation_id is not None:
        query = query.where(organisations.c.id == organisation_id)
    for row in connection.execute(query):
        yield StorageUse(
            organisation=row.name,
            runs=row.runs or 0,
            bytes=sum(int(getattr(row, f"bytes_{number}")) for number in range(len(sizes))),
            own=Quota(runs=row.quota_runs, bytes=row.quota_bytes),
        )


def refuse_over_quota(
    connection: Connection, allowed: Quota, organisation_id: str, *, more_runs: int = 0, more_bytes: int = 0
) -> None:
    """Refuse so much more if it is more than the organisation may keep; *allowed* is for those without a quota."""
    # On PostgreSQL, two requests at the same time must not both see the last free place.
    # FOR NO KEY UPDATE: rows that refer to the organisation may be added meanwhile.
    place = select(organisations.c.id).where(organisations.c.id == organisation_id).with_for_update(key_share=True)
    connection.execute(place)
    (usage,) = _usages(connection, organisation_id)
    most_runs = usage.own.runs if usage.own.runs is not None else allowed.runs
    most_bytes = usage.own.bytes if usage.own.bytes is not None else allowed.bytes
    if more_runs and most_runs is not None and usage.runs + more_runs > most_runs:
        amount = count(usage.runs, "run")
        raise Refused(
            409, f"the organisation keeps {amount}, and its quota is {most_runs}: delete runs that you do not need"
        )
    # A run says how large it is when it has ended, so one may start as long as anything is free.
    if most_bytes is not None and (usage.bytes + more_bytes > most_bytes or usage.bytes >= most_bytes):
        amount, room = (f"{size / _MB:,.1f} MB" for size in (usage.bytes, most_bytes))
        more = f", {more_bytes / _MB:,.1f} MB more do not fit" if more_bytes else ""
        message = f"the organisation keeps {amount} of runs, skills and suites, and its quota is {room}{more}"
        raise Refused(409, f"{message}: delete what you do not need")


def list_usage(database: Database) -> list[StorageUse]:
    """Return what each organisation keeps, sorted by name."""
    with database.reading() as connection:
        return list(_usages(connection, None))


def set_quota(database: Database, organisation: str, quota: Quota) -> StorageUse:
    """Give an organisation a quota of its own; None is what the server allows all."""
    with database.writing() as connection:
        id_ = connection.execute(select(organisations.c.id).where(organisations.c.name == organisation)).scalar()
        if id_ is None:
            raise UsageError(f'there is no organisation "{organisation}"', hint='"whet orgs list" shows them')
        values = {"quota_runs": quota.runs, "quota_bytes": quota.bytes}
        connection.execute(update(organisations).where(organisations.c.id == id_).values(**values))
        (usage,) = _usages(connection, str(id_))
        return usage

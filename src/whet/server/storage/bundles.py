"""Which skill bundles an organisation has uploaded; the archives lie in the data folder."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from whet.server.storage.database import now_us
from whet.server.storage.tables import bundles


def has_bundle(connection: Connection, organisation_id: str, sha256: str) -> bool:
    """Whether the organisation has uploaded this archive."""
    query = select(bundles.c.sha256).where(bundles.c.organisation_id == organisation_id, bundles.c.sha256 == sha256)
    return connection.execute(query).first() is not None


def add_bundle(connection: Connection, organisation_id: str, sha256: str, size: int) -> None:
    """Note an archive; one that is known already stays as it is."""
    if not has_bundle(connection, organisation_id, sha256):
        connection.execute(
            insert(bundles).values(organisation_id=organisation_id, sha256=sha256, size=size, created_us=now_us())
        )

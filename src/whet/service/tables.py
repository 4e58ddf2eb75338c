"""The tables of the service, as its code reads and writes them; the migrations make them.

Times are whole microseconds since 1970 in UTC, so that both databases order them alike.
What people wrote is kept as JSON bytes: text columns refuse some of it, such as the character NUL in PostgreSQL.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

metadata = MetaData()

organisations = Table(
    "organisations",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("created_us", BigInteger, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), ForeignKey("organisations.id"), nullable=False),
    Column("prefix", String(32), nullable=False, unique=True),
    Column("hash", String(64), nullable=False),
    Column("scopes", String(100), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger),
)

suites = Table(
    "suites",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), ForeignKey("organisations.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Column("deleted_us", BigInteger),
    Index("suites_by_age", "organisation_id", "created_us", "id"),
)

# A version is never changed: a run names the one that it ran.
suite_versions = Table(
    "suite_versions",
    metadata,
    Column("suite_id", String(36), ForeignKey("suites.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("head", LargeBinary, nullable=False),
    Column("cases", LargeBinary, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), ForeignKey("organisations.id"), nullable=False),
    Column("suite_id", String(36), ForeignKey("suites.id"), nullable=False),
    Column("suite_version", Integer, nullable=False),
    Column("status", String(20), nullable=False),
    Column("outcome", String(20)),
    Column("request", LargeBinary, nullable=False),
    Column("summary", LargeBinary),
    Column("error", LargeBinary),
    Column("created_us", BigInteger, nullable=False),
    Column("started_us", BigInteger),
    Column("ended_us", BigInteger),
    Column("cancel_us", BigInteger),
    Column("event_count", Integer, nullable=False),
    Index("runs_by_age", "organisation_id", "created_us", "id"),
    Index("runs_of_suite", "suite_id", "created_us", "id"),
    Index("runs_by_status", "status", "created_us"),
)

# `mark` names what an event tells of, so that telling it again after a restart adds nothing.
run_events = Table(
    "run_events",
    metadata,
    Column("run_id", String(36), ForeignKey("runs.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("mark", String(64), nullable=False),
    Column("type", String(40), nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    UniqueConstraint("run_id", "mark", name="run_events_once"),
)

bundles = Table(
    "bundles",
    metadata,
    Column("organisation_id", String(36), ForeignKey("organisations.id"), primary_key=True),
    Column("sha256", String(64), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("organisation_id", String(36), ForeignKey("organisations.id"), primary_key=True),
    Column("key_hash", String(64), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("resource_id", String(36), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Index("idempotency_by_age", "created_us"),
)

"""The first tables: organisations with keys, suites with versions, runs with events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "organisations",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("name", sa.String(100), nullable=False, unique=True),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("prefix", sa.String(32), nullable=False, unique=True),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("scopes", sa.String(100), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("revoked_us", sa.BigInteger),
    )
    _make_suites()
    _make_runs()
    op.create_table(
        "idempotency",
        sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), primary_key=True),
        sa.Column("key_hash", sa.String(64), primary_key=True),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("resource_id", sa.String(36), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Index("idempotency_by_age", "created_us"),
    )


def _make_suites() -> None:
    op.create_table(
        "suites",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("updated_us", sa.BigInteger, nullable=False),
        sa.Column("deleted_us", sa.BigInteger),
        sa.Index("suites_by_age", "organisation_id", "created_us", "id"),
    )
    op.create_table(
        "suite_versions",
        sa.Column("suite_id", sa.String(36), sa.ForeignKey("suites.id"), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("head", sa.LargeBinary, nullable=False),
        sa.Column("cases", sa.LargeBinary, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )


def _make_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("suite_id", sa.String(36), sa.ForeignKey("suites.id"), nullable=False),
        sa.Column("suite_version", sa.Integer, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("outcome", sa.String(20)),
        sa.Column("request", sa.LargeBinary, nullable=False),
        sa.Column("summary", sa.LargeBinary),
        sa.Column("error", sa.LargeBinary),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("started_us", sa.BigInteger),
        sa.Column("ended_us", sa.BigInteger),
        sa.Column("cancel_us", sa.BigInteger),
        sa.Column("event_count", sa.Integer, nullable=False),
        sa.Index("runs_by_age", "organisation_id", "created_us", "id"),
        sa.Index("runs_of_suite", "suite_id", "created_us", "id"),
        sa.Index("runs_by_status", "status", "created_us"),
    )
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.String(36), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("mark", sa.String(64), nullable=False),
        sa.Column("type", sa.String(40), nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("run_id", "mark", name="run_events_once"),
    )
    op.create_table(
        "bundles",
        sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), primary_key=True),
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )

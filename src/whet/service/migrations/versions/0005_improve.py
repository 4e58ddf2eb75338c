"""Improve runs, which wait in the queue as runs do, and what they propose."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Say of each run what it is, keep the split of each suite, and make the table of proposals."""
    op.add_column("suites", sa.Column("split", sa.LargeBinary))
    op.add_column("runs", sa.Column("kind", sa.String(20), nullable=False, server_default="run"))
    op.add_column("runs", sa.Column("phase", sa.String(20)))
    op.create_table(
        "proposals",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("run_id", sa.String(36), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, unique=True),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("applied_us", sa.BigInteger),
        sa.Column("applied_sha256", sa.String(64)),
        sa.Index("proposals_by_age", "organisation_id", "created_us", "id"),
    )

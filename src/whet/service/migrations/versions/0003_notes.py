"""Notes of people on the trials of runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table of notes."""
    op.create_table(
        "notes",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("run_id", sa.String(36), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("trial", sa.LargeBinary, nullable=False),
        sa.Column("author", sa.LargeBinary),
        sa.Column("text", sa.LargeBinary, nullable=False),
        sa.Column("verdict", sa.String(10)),
        sa.Column("at", sa.String(40), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Index("notes_of_run", "run_id", "created_us"),
    )

"""Labels of people on what a judge decided."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table of labels."""
    op.create_table(
        "labels",
        sa.Column("run_id", sa.String(36), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("line", sa.LargeBinary, nullable=False),
        sa.Column("author", sa.String(40), nullable=False),
        sa.Column("revealed", sa.Boolean, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Index("labels_of_run", "run_id", "created_us"),
    )

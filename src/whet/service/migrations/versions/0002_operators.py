"""What operators need: labels, last uses, quotas, sizes, deleted runs, and the comparison with the run before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns. None of them has a value for what is there already."""
    op.add_column("organisations", sa.Column("quota_runs", sa.Integer))
    op.add_column("organisations", sa.Column("quota_bytes", sa.BigInteger))
    op.add_column("keys", sa.Column("label", sa.String(100)))
    op.add_column("keys", sa.Column("used_us", sa.BigInteger))
    op.add_column("runs", sa.Column("label", sa.String(100)))
    op.add_column("runs", sa.Column("bytes", sa.BigInteger))
    op.add_column("runs", sa.Column("previous", sa.LargeBinary))
    op.add_column("runs", sa.Column("deleted_us", sa.BigInteger))
    op.add_column("bundles", sa.Column("label", sa.String(100)))
    op.create_index("bundles_by_label", "bundles", ["organisation_id", "label"], unique=True)

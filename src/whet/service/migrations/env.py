"""How alembic reaches the database: over the connection that `open_database` gives it."""

from __future__ import annotations

from alembic import context

from whet.service.database import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot change a column in place.
    render_as_batch=True,
    # The caller has opened one transaction for all steps.
    transactional_ddl=False,
)
context.run_migrations()

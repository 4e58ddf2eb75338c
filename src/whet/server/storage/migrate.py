"""Bringing a database to the tables of this version, in steps that are kept for ever."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

from whet.errors import UsageError
from whet.server.storage.database import Database

# Any number, as long as it is always the same one: who migrates holds it, so that two servers do not do it at once.
_LOCK = 7_739_844_001


def migrate(database: Database) -> None:
    """Do the steps that *database* still lacks; `UsageError` where it is newer than we are."""
    database.check()
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        config = _config(connection)
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise UsageError(
                f"{database.shown} was made by a newer whet: {error}", hint="install that one, or name another database"
            ) from None


def version_of(database: Database) -> str | None:
    """The last step that was done."""
    with database.reading() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest_version() -> str | None:
    """The last step that there is."""
    return ScriptDirectory.from_config(_config(None)).get_current_head()


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", "whet.server.storage:migrations")
    config.attributes["connection"] = connection
    return config

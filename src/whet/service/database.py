"""The database of the service: its tables, its connections, and its migrations."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, get_args

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError

from whet.errors import UsageError

Status = Literal["queued", "running", "completed", "failed", "cancelled"]
STATUSES: tuple[Status, ...] = get_args(Status)
# What waits in the queue: runs of suites, and runs that improve a skill.
Kind = Literal["run", "improve"]

metadata = sa.MetaData()

organisations = sa.Table(
    "organisations",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("name", sa.String(100), nullable=False, unique=True),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    # Null is what the server allows every organisation.
    sa.Column("quota_runs", sa.Integer),
    sa.Column("quota_bytes", sa.BigInteger),
)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), nullable=False),
    sa.Column("prefix", sa.String(32), nullable=False, unique=True),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("scopes", sa.String(100), nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.Column("revoked_us", sa.BigInteger),
    sa.Column("label", sa.String(100)),
    sa.Column("used_us", sa.BigInteger),
)

suites = sa.Table(
    "suites",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.Column("updated_us", sa.BigInteger, nullable=False),
    sa.Column("deleted_us", sa.BigInteger),
    # The lock of its split, once an improve run has drawn it: all improve runs share its parts and its confirm steps.
    sa.Column("split", sa.LargeBinary),
    sa.Index("suites_by_age", "organisation_id", "created_us", "id"),
)

# A version is never changed: a run names the one that it ran.
suite_versions = sa.Table(
    "suite_versions",
    metadata,
    sa.Column("suite_id", sa.String(36), sa.ForeignKey("suites.id"), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("head", sa.LargeBinary, nullable=False),
    sa.Column("cases", sa.LargeBinary, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
)

# A run with `deleted_us` is gone for everybody; only its folder, or what is left of it, has still to be removed.
# `previous` is the comparison with the run before, and `bytes` the size of the folder, once the run has ended.
runs = sa.Table(
    "runs",
    metadata,
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
    sa.Column("label", sa.String(100)),
    sa.Column("bytes", sa.BigInteger),
    sa.Column("previous", sa.LargeBinary),
    sa.Column("deleted_us", sa.BigInteger),
    sa.Column("kind", sa.String(20), nullable=False, server_default="run"),
    # Of an improve run, while it is running.
    sa.Column("phase", sa.String(20)),
    sa.Index("runs_by_age", "organisation_id", "created_us", "id"),
    sa.Index("runs_of_suite", "suite_id", "created_us", "id"),
    sa.Index("runs_by_status", "status", "created_us"),
)

# `mark` identifies an event, so that a server that restarts does not add it again.
run_events = sa.Table(
    "run_events",
    metadata,
    sa.Column("run_id", sa.String(36), sa.ForeignKey("runs.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("mark", sa.String(64), nullable=False),
    sa.Column("type", sa.String(40), nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("run_id", "mark", name="run_events_once"),
)

# What people say of trials. A run that is deleted takes its notes with it.
notes = sa.Table(
    "notes",
    metadata,
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

# What people say of what a judge decided, as lines. A run that is deleted takes its labels with it.
labels = sa.Table(
    "labels",
    metadata,
    sa.Column("run_id", sa.String(36), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("line", sa.LargeBinary, nullable=False),
    sa.Column("author", sa.String(40), nullable=False),
    # Whether its author has seen since what the judge said.
    sa.Column("revealed", sa.Boolean, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.Index("labels_of_run", "run_id", "created_us"),
)

# What improve runs found, at most one version each. An improve run that is deleted takes its proposal with it.
proposals = sa.Table(
    "proposals",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), nullable=False),
    sa.Column("run_id", sa.String(36), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, unique=True),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.Column("applied_us", sa.BigInteger),
    # The archive that it was applied as.
    sa.Column("applied_sha256", sa.String(64)),
    sa.Index("proposals_by_age", "organisation_id", "created_us", "id"),
)

bundles = sa.Table(
    "bundles",
    metadata,
    sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), primary_key=True),
    sa.Column("sha256", sa.String(64), primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.Column("label", sa.String(100)),
    sa.Index("bundles_by_label", "organisation_id", "label", unique=True),
)

idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("organisation_id", sa.String(36), sa.ForeignKey("organisations.id"), primary_key=True),
    sa.Column("key_hash", sa.String(64), primary_key=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("resource_id", sa.String(36), nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.Index("idempotency_by_age", "created_us"),
)


_FILE = "whet.db"
_POSTGRESQL_DRIVER = "postgresql+psycopg"
_POSTGRESQL_NAMES = ("postgresql", "postgres", _POSTGRESQL_DRIVER)
# Between two tries to change the mode of an SQLite file.
_PAUSE_S = 0.01
_EXAMPLES = "write sqlite:///whet.db or postgresql://user@host/name"
# As many as there are threads that use them, see `_Threads` in `service/service.py`.
CONNECTIONS = 16
# How long a write waits for its turn. It occupies a thread that others could read with.
_PATIENCE_S = 10.0
# Any constant works. A server that migrates holds this lock, so that two servers do not migrate at the same time.
_MIGRATION_LOCK = 7_739_844_001


class Database:
    """Connections to one database; every use is a transaction that reads or writes."""

    def __init__(self, url: str, patience_s: float = _PATIENCE_S) -> None:
        self.url = _database_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = _sqlite_engine(self.url, patience_s) if self.is_sqlite else _postgresql_engine(self.url)
        self._turn = _WriteQueue(patience_s) if self.is_sqlite else nullcontext()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that only reads."""
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that is committed, or rolled back if the block raises."""
        with self._turn, self.engine.connect() as plain:
            connection = plain.execution_options(writes=True)
            with connection.begin():
                yield connection

    @property
    def file(self) -> Path | None:
        """The file of an SQLite database."""
        return Path(str(self.url.database)) if self.is_sqlite else None

    @property
    def shown(self) -> str:
        """The URL of the database without the password."""
        return self.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


class _WriteQueue:
    """Lets one thread write at a time; by itself, SQLite makes the others poll."""

    def __init__(self, patience_s: float) -> None:
        self._lock = threading.Lock()
        self._patience_s = patience_s

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._patience_s):
            # The error that SQLite gives if another process holds the lock.
            raise OperationalError("BEGIN IMMEDIATE", None, sqlite3.OperationalError("database is locked"))

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def now_us() -> int:
    """Return the current time as the tables store it."""
    return time.time_ns() // 1000


def default_database(data_dir: Path) -> str:
    """Return the URL of the database in a data folder."""
    return f"sqlite:///{(data_dir / _FILE).absolute()}"


def open_database(url: str) -> Database:
    """Open the database at *url*, and bring its tables up to date."""
    database = Database(url)
    if (file := database.file) is not None:
        try:
            # Closed to other users, because it holds the suites of all organisations.
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make_private(file)
        except OSError as error:
            raise UsageError(f"cannot create {error.filename or file.parent}: {error.strerror}") from error
    try:
        _check(database)
        _migrate(database)
    except BaseException:
        database.close()
        raise
    return database


def _make_private(file: Path) -> None:
    """Create *file* if it is missing, and let only its owner read it, whatever the umask."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _database_url(text: str) -> URL:
    """Parse *text*, and add the driver that we use."""
    try:
        url = sa.make_url(text)
    except ArgumentError:
        # Do not repeat it: it may contain a password.
        raise UsageError("the database is not a URL", hint=_EXAMPLES) from None
    if url.drivername in _POSTGRESQL_NAMES:
        return url.set(drivername=_POSTGRESQL_DRIVER)
    if url.drivername == "sqlite":
        if not url.database or url.database == ":memory:":
            raise UsageError("the database of a service must be a file", hint=_EXAMPLES)
        return url
    raise UsageError(f'whet does not support the database "{url.drivername}"', hint=_EXAMPLES)


def _sqlite_engine(url: URL, patience_s: float) -> Engine:
    engine = sa.create_engine(url, pool_size=CONNECTIONS, max_overflow=0)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        # Otherwise the driver begins transactions by itself, and too late.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {int(patience_s * 1000)}")
        _use_write_ahead_log(connection, patience_s)
        for pragma in ("synchronous = NORMAL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that starts to write later fails if another one was faster.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _use_write_ahead_log(connection: sqlite3.Connection, patience_s: float) -> None:
    """Change to the mode in which readers and a writer do not wait for each other.

    SQLite does not wait by itself if two connections change it at once: each holds what the other needs.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _postgresql_engine(url: URL) -> Engine:
    # One more connection for the lock that a server holds (`service/start.py`).
    # With pre-ping, a connection that PostgreSQL has closed is replaced instead of failing a request.
    return sa.create_engine(url, pool_size=CONNECTIONS + 1, max_overflow=0, pool_pre_ping=True)


def _check(database: Database) -> None:
    try:
        with database.reading() as connection:
            connection.exec_driver_sql("SELECT 1")
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).strip().split("\n")[0]
        raise UsageError(f"{database.shown} cannot be opened: {reason}", hint=_EXAMPLES) from None


def _migrations() -> Config:
    config = Config()
    config.set_main_option("script_location", "whet.service:migrations")
    return config


def is_migrated(connection: Connection) -> bool:
    """Return whether the tables are those of this version."""
    newest = ScriptDirectory.from_config(_migrations()).get_current_head()
    return MigrationContext.configure(connection).get_current_revision() == newest


def _migrate(database: Database) -> None:
    config = _migrations()
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise UsageError(
                f"{database.shown} was made by a newer whet: {error}",
                hint="install that version, or use another database",
            ) from None

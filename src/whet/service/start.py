"""Starting a server: everything that can be wrong is found before anybody is answered."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from sqlalchemy import text
from uvicorn.protocols.http.h11_impl import H11Protocol

from whet.errors import UsageError
from whet.ground.package_settings import package_settings
from whet.ground.sandbox import require_sandbox
from whet.plan.settings import load_settings
from whet.service.app import make_app
from whet.service.bundles import clear_drafts
from whet.service.database import Database, migrate
from whet.service.http import Limits
from whet.service.service import Service, find_lacking

# Any number, as long as it is always the same one.
_LOCK = 7_739_844_002


@contextmanager
def alone(database: Database, data_dir: Path) -> Iterator[None]:
    """Hold both for ourselves; `UsageError` where another server does. Ends with our process, however it ends."""
    with _file_held(data_dir / ".lock", str(data_dir)), _database_held(database):
        yield


def _database_held(database: Database) -> AbstractContextManager[None]:
    if database.is_sqlite:
        # Resolved, because a link to the file is another name of the same database.
        return _file_held(Path(f"{Path(str(database.url.database)).resolve()}-server"), database.shown)
    return _advisory_lock(database)


@contextmanager
def _file_held(path: Path, what: str) -> Iterator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(what) from None
        yield
    finally:
        os.close(file)


@contextmanager
def _advisory_lock(database: Database) -> Iterator[None]:
    """The database's own lock, which it lets go of when our connection ends."""
    with database.engine.connect() as plain:
        connection = plain.execution_options(isolation_level="AUTOCOMMIT")
        if not connection.execute(text("SELECT pg_try_advisory_lock(:number)"), {"number": _LOCK}).scalar():
            raise _in_use(database.shown)
        try:
            yield
        finally:
            # Not given back to the pool with the lock; where the database was restarted, there is none any more.
            plain.invalidate()


def _in_use(what: str) -> UsageError:
    return UsageError(
        f"{what} is in use by another server", hint="a server has its database and data folder for itself"
    )


class ImpatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, which by itself would wait for the end of a head for ever."""

    # For the head of a request; bodies have a limit of their own (`service/http.py`).
    patience_s = 20.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody is there."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Somebody said something, which may be a whole head or a part of it."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._is_answering():
            self._forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.patience_s, self._send_away)

    def _send_away(self) -> None:
        self._timer = None
        if not self._is_answering():
            self.transport.close()

    def _is_answering(self) -> bool:
        # None before the first request, whatever its type says.
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


DATABASE_FILE = "whet.db"
_CONFIG = "whet.toml"
# How long answers that are under way may take once the server is asked to end.
_GRACE_S = 10
_BACKLOG = 128


def default_database(data_dir: Path) -> str:
    """The URL of the database in a data folder."""
    return f"sqlite:///{(data_dir / DATABASE_FILE).absolute()}"


def open_database(url: str) -> Database:
    """The database at *url*, with the tables of this version."""
    database = Database(url)
    if database.is_sqlite:
        folder = Path(str(database.url.database)).parent
        try:
            # For ourselves alone, as `serve` makes it: the suites of all organisations will lie in it.
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _close_to_others(Path(str(database.url.database)))
        except OSError as error:
            raise UsageError(f"{error.filename or folder} cannot be made: {error.strerror}") from error
    try:
        migrate(database)
    except BaseException:
        database.close()
        raise
    return database


def _close_to_others(file: Path) -> None:
    """Make the database a file that only its owner reads, whatever the umask, or whoever made it, left it."""
    opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(opened).st_uid == os.geteuid():
            os.fchmod(opened, 0o600)
    finally:
        os.close(opened)


def serve(
    *,
    address: tuple[str, int],
    database_url: str,
    data_dir: Path,
    config_file: Path | None,
    limits: Limits,
    allow_private_addresses: bool,
    trusted_proxies: tuple[str, ...],
    **options: Any,
) -> int:
    """Answer requests and work on runs until we are asked to end; the exit code."""
    _log_to_stderr()
    data_dir = _own_folder(data_dir)
    config = config_file.resolve() if config_file is not None else _own_config(data_dir)
    settings = load_settings(config, flags={}, environ=os.environ, config_file=config)
    # Every run would fail by it, one after the other.
    require_sandbox(options["sandbox"])
    packages = replace(
        package_settings(settings.packages),
        allow_private_addresses=allow_private_addresses,
        allow_local_files=False,
    )
    with closing(open_database(database_url)) as database, alone(database, data_dir), _listening(address) as listener:
        clear_drafts(data_dir)
        service = Service(
            database=database,
            data_dir=data_dir,
            config_file=config,
            runners=tuple(runner.id for runner in settings.runners),
            lacking=find_lacking(settings, packages, os.environ),
            packages=packages,
            limits=limits,
            **options,
        )
        server = _Server(_uvicorn_config(service, trusted_proxies), service, lambda: _announce(listener, database))
        # uvicorn ends in good order and then raises the signal once more, for whoever listened before it.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        server.run(sockets=[listener])
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """Says where it answers once it does, and ends event streams when it is asked to end."""

    def __init__(self, config: uvicorn.Config, service: Service, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End; a stream would keep us until its run has ended."""
        self._service.notices.stop()
        await super().shutdown(sockets)


def _uvicorn_config(service: Service, trusted_proxies: tuple[str, ...]) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(service),
        # Ours says less: a query may hold what nobody should read.
        access_log=False,
        log_config=None,
        server_header=False,
        # Anybody can write a header that says where they come from; wrong keys are counted by address.
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        timeout_graceful_shutdown=_GRACE_S,
        lifespan="on",
        http=ImpatientProtocol,
        # So often asyncio tries to accept, and logs each failure, once no more files may be open.
        backlog=_BACKLOG,
    )


def _own_folder(data_dir: Path) -> Path:
    """The data folder, which only we may look into: it holds keys, suites and what agents said."""
    # For whatever is made below it, the database among it.
    os.umask(0o077)
    data_dir.mkdir(parents=True, exist_ok=True)
    data_dir = data_dir.resolve()
    found = data_dir.stat()
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        data_dir.chmod(0o700)
        logging.getLogger("whet.service").info("closed %s to other users: it holds what agents said", data_dir)
    return data_dir


def _listening(address: tuple[str, int]) -> socket.socket:
    host, port = address
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        raise UsageError(
            f"{host}:{port} cannot be listened on: {error.strerror}", hint="choose another --port"
        ) from error
    return listener


def _announce(listener: socket.socket, database: Database) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"whet answers on http://{shown}:{port} with {database.shown}\n")
    sys.stdout.flush()


def _own_config(data_dir: Path) -> Path:
    """Settings that say nothing, so that no file that happens to lie above the data folder is found."""
    path = data_dir / _CONFIG
    if not path.exists():
        path.write_text("# The settings of runs; name another file with --config.\n")
    return path


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, level in (("whet.service", logging.INFO), ("uvicorn", logging.WARNING)):
        log = logging.getLogger(name)
        log.handlers = [handler]
        log.setLevel(level)
        log.propagate = False

"""Starting a server: find everything that can be wrong before the first request, then answer until we are stopped."""

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
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from sqlalchemy import text
from uvicorn.protocols.http.h11_impl import H11Protocol

from whet.errors import UsageError
from whet.packages.settings import package_settings
from whet.plan.settings.load import load_settings
from whet.reading.hosts import cluster_problem
from whet.sandbox.contract import require_sandbox
from whet.service.app import make_app
from whet.service.database import Database, open_database
from whet.service.service import Service, ServiceLimits, find_lacking
from whet.service.store.skills import clear_bundles, known_bundles
from whet.version import install_command

log = logging.getLogger("whet.service")
# Any constant will do. A server holds this lock of PostgreSQL.
_LOCK = 7_739_844_002
_CONFIG = "whet.toml"
# How long running requests may take after the server is asked to end.
_GRACE_S = 10
# If no more files can be opened, asyncio tries to accept this many connections, and logs each failure.
_BACKLOG = 128


def serve(
    *,
    address: tuple[str, int],
    database_url: str,
    data_dir: Path,
    config_file: Path | None,
    limits: ServiceLimits,
    allow_private_addresses: bool,
    allow_verifier_network: bool,
    trusted_proxies: tuple[str, ...],
    **options: Any,
) -> int:
    """Answer requests and work on runs until we are asked to end; returns the exit code."""
    _log_to_stderr()
    _warn_without_tls(address[0], trusted_proxies)
    data_dir = _private_folder(data_dir)
    config = config_file.resolve() if config_file is not None else _empty_config(data_dir)
    settings = load_settings(config, flags={}, environ=os.environ, config_file=config)
    # Without it, every run would fail.
    require_sandbox(options["sandbox"])
    _require_cluster(options.get("on"))
    # What callers name is fetched with the keys of the operator, who therefore names each bucket.
    rules = {"allow_private_addresses": allow_private_addresses, "allow_local_files": False, "allow_any_bucket": False}
    packages = package_settings({**settings.packages, **rules})
    with (
        closing(open_database(database_url)) as database,
        _file_lock(data_dir / ".lock", str(data_dir)),
        _database_lock(database),
        _listen(address) as listener,
    ):
        with database.reading() as connection:
            clear_bundles(data_dir, known_bundles(connection))
        service = Service(
            database=database,
            data_dir=data_dir,
            config_file=config,
            runners=tuple(runner.id for runner in settings.runners),
            trials=settings.trials,
            max_parallel=settings.max_parallel,
            lacking=find_lacking(settings, packages, os.environ, verifier_network=allow_verifier_network),
            packages=packages,
            limits=limits,
            **options,
        )
        server = _Server(_uvicorn_config(service, trusted_proxies), service, lambda: _announce(listener, database))
        # After a clean end, uvicorn raises the signal again for the handlers that were there before.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        server.run(sockets=[listener])
    return 0 if server.started else 1


def _require_cluster(on: str | None) -> None:
    """Raise if runs could not use the cluster that was named, as far as that is known without it."""
    if on is None:
        return
    if problem := cluster_problem(on):
        raise UsageError(f"--on {on}: {problem}")
    if find_spec("ray") is None:
        raise UsageError("--on needs Ray, which is not installed", hint=install_command("ray"))


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, level in (("whet.service", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def _warn_without_tls(host: str, trusted_proxies: tuple[str, ...]) -> None:
    """Warn if other machines can reach us: we speak no TLS, and keys are sent in a header."""
    try:
        addresses = {ip_address(str(entry[4][0]).partition("%")[0]) for entry in socket.getaddrinfo(host, None)}
    except (OSError, ValueError):
        # Listening on it will fail, and say why.
        return
    if trusted_proxies or all(address.is_loopback for address in addresses):
        return
    log.warning(
        "other machines can reach %s, and keys and results are sent without encryption: listen on 127.0.0.1 behind "
        "a proxy with TLS, and name the proxy with --trusted-proxy",
        host,
    )


def _private_folder(data_dir: Path) -> Path:
    """Make the data folder private: it holds keys, suites, and what agents wrote."""
    # For everything below it, such as the database.
    os.umask(0o077)
    data_dir.mkdir(parents=True, exist_ok=True)
    data_dir = data_dir.resolve()
    status = data_dir.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        data_dir.chmod(0o700)
        log.info("closed %s to other users, because it holds what agents wrote", data_dir)
    return data_dir


def _empty_config(data_dir: Path) -> Path:
    """Return an empty settings file, so that whet does not look for one above the data folder."""
    path = data_dir / _CONFIG
    if not path.exists():
        path.write_text("# The settings of runs; name another file with --config.\n")
    return path


def _database_lock(database: Database) -> AbstractContextManager[None]:
    if database.file is not None:
        # Resolved, because a link would be another name of the same database.
        return _file_lock(Path(f"{database.file.resolve()}-server"), database.shown)
    return _postgresql_lock(database)


@contextmanager
def _file_lock(path: Path, what: str) -> Iterator[None]:
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
def _postgresql_lock(database: Database) -> Iterator[None]:
    """Hold a lock of PostgreSQL, which ends with our connection."""
    with database.engine.connect() as plain:
        connection = plain.execution_options(isolation_level="AUTOCOMMIT")
        if not connection.execute(text("SELECT pg_try_advisory_lock(:number)"), {"number": _LOCK}).scalar():
            raise _in_use(database.shown)
        try:
            yield
        finally:
            # Close the connection instead of giving it back to the pool with the lock.
            plain.invalidate()


def _in_use(what: str) -> UsageError:
    return UsageError(f"{what} is in use by another server", hint="give each server its own database and data folder")


def _listen(address: tuple[str, int]) -> socket.socket:
    host, port = address
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another --port") from error
    return listener


def _announce(listener: socket.socket, database: Database) -> None:
    host, port = listener.getsockname()[:2]
    host_text = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"whet answers on http://{host_text}:{port} with {database.shown}\n")
    sys.stdout.flush()


def _uvicorn_config(service: Service, trusted_proxies: tuple[str, ...]) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(service),
        # Our own log leaves out queries, which may contain secrets.
        access_log=False,
        log_config=None,
        server_header=False,
        # Anybody can send a header with a false address, and we count wrong keys by address.
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        timeout_graceful_shutdown=_GRACE_S,
        lifespan="on",
        http=ImpatientProtocol,
        backlog=_BACKLOG,
    )


class _Server(uvicorn.Server):
    """Announces that it answers, and ends event streams when it is asked to end."""

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
        """End, without waiting for streams to end with their runs."""
        self._service.notices.stop()
        await super().shutdown(sockets)


class ImpatientProtocol(H11Protocol):
    """HTTP of uvicorn that closes a connection if the head of a request takes too long; uvicorn waits for ever."""

    # Bodies have a limit of their own (`service/http.py`).
    patience_s = 20.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for a head."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Stop to wait if the head is complete."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._stop_timer()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._is_answering():
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.patience_s, self._close)

    def _close(self) -> None:
        self._timer = None
        if not self._is_answering():
            self.transport.close()

    def _is_answering(self) -> bool:
        # None before the first request, whatever its type says.
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""`whet serve`, `keys` and `suites`: run the service, manage its keys, and exchange suites with it."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import AT_LEAST_1, FILE, JSON, with_options
from whet.errors import UsageError
from whet.model.request import SANDBOXES
from whet.reading.text import count

if TYPE_CHECKING:
    from whet.service.auth import Key
    from whet.service.client import SuitesClient
    from whet.service.database import Database


DATA_DIR = ".whet/service"
DATABASE = click.option(
    "--database",
    metavar="URL",
    envvar="WHET_DATABASE",
    show_envvar=True,
    help="sqlite:///FILE or postgresql://... (default: a file in the data folder).",
)
DATA = click.option(
    "--data-dir",
    type=FILE,
    metavar="DIR",
    default=DATA_DIR,
    show_default=True,
    help="Keep runs and uploaded skills in this folder.",
)


@click.command("serve", short_help="Serve eval suites and their runs over HTTP.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Listen on this port; 0 takes any free one.",
)
@DATABASE
@DATA
@click.option(
    "--config",
    "config_file",
    type=FILE,
    metavar="FILE",
    help="Read the settings of runs, such as runners, from this file.",
)
@click.option(
    "--workers", type=AT_LEAST_1, default=2, show_default=True, metavar="N", help="Run at most N runs at the same time."
)
@click.option(
    "--sandbox",
    type=click.Choice(SANDBOXES),
    default="bubblewrap",
    show_default=True,
    help="The sandbox that agents and verifiers run in.",
)
@click.option("--allow-private-addresses", is_flag=True, help="Fetch packages from private networks too.")
@click.option(
    "--requests-per-minute", type=AT_LEAST_1, default=600, show_default=True, metavar="N", help="Limit for each key."
)
@click.option("--max-body-mb", type=AT_LEAST_1, default=4, show_default=True, metavar="N", help="The largest suite.")
@click.option(
    "--max-bundle-mb",
    type=AT_LEAST_1,
    default=64,
    show_default=True,
    metavar="N",
    help="The largest archive of a skill.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Trust X-Forwarded-For from this address or network (repeatable).",
)
def serve_command(
    *,
    host: str,
    port: int,
    database: str | None,
    data_dir: Path,
    config_file: Path | None,
    workers: int,
    sandbox: str,
    allow_private_addresses: bool,
    requests_per_minute: int,
    max_body_mb: int,
    max_bundle_mb: int,
    trusted_proxies: tuple[str, ...],
) -> int:
    """Serve suites and runs over HTTP until you interrupt it.

    Create a key first: whet keys create --org ORG
    """
    with _server_extra():
        from whet.service.database import default_database
        from whet.service.service import MB, Limits
        from whet.service.start import serve

    return serve(
        address=(host, port),
        database_url=database or default_database(data_dir),
        data_dir=data_dir,
        config_file=config_file,
        limits=Limits(
            requests_per_minute=requests_per_minute,
            max_body_bytes=max_body_mb * MB,
            max_bundle_bytes=max_bundle_mb * MB,
        ),
        workers=workers,
        sandbox=sandbox,
        allow_private_addresses=allow_private_addresses,
        trusted_proxies=trusted_proxies,
    )


_SCOPES = ("read", "write", "run")


@click.group("keys", short_help="Create, list and revoke keys of the service.")
def keys_command() -> None:
    """Create, list and revoke keys. Each belongs to an organisation, which sees only its own suites and runs."""


@keys_command.command("create")
@click.option(
    "--org", "organisation", required=True, metavar="ORG", help="The organisation, which is created if it is new."
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    help="What the key may do (repeatable; default: all).",
)
@DATABASE
@DATA
@JSON
def create(organisation: str, scopes: tuple[str, ...], database: str | None, data_dir: Path, as_json: bool) -> None:
    """Create a key and print it. whet cannot show it again."""
    _warn_of_readers()
    with closing(_open(database, data_dir)) as opened:
        from whet.service.auth import create_key

        key, secret = create_key(opened, organisation, scopes or _SCOPES)
    if as_json:
        click.echo(json.dumps({**_facts(key), "key": secret}))
        return
    click.echo(secret)
    click.echo(f"for {key.organisation}, may {', '.join(key.scopes)}; whet cannot show it again", err=True)


@keys_command.command("list")
@click.option("--org", "organisation", metavar="ORG", help="List only the keys of this organisation.")
@DATABASE
@DATA
@JSON
def list_keys(organisation: str | None, database: str | None, data_dir: Path, as_json: bool) -> None:
    """List the prefixes of all keys."""
    with closing(_open(database, data_dir)) as opened:
        from whet.service.auth import list_keys

        found = list_keys(opened, organisation)
    if as_json:
        click.echo(json.dumps({"keys": [_facts(key) for key in found]}))
        return
    for key in found:
        state = "revoked" if key.revoked else ", ".join(key.scopes)
        click.echo(f"{key.prefix}  {key.organisation}  {state}")


@keys_command.command("revoke")
@click.argument("key", metavar="PREFIX")
@DATABASE
@DATA
@JSON
def revoke(key: str, database: str | None, data_dir: Path, as_json: bool) -> None:
    """Revoke the key with this prefix, from the next request on."""
    with closing(_open(database, data_dir)) as opened:
        from whet.service.auth import revoke_key

        ended = revoke_key(opened, key)
    click.echo(json.dumps(_facts(ended)) if as_json else f"{ended.prefix} is revoked")


# The packages of the extra "server".
_SERVER_PACKAGES = frozenset(
    ("alembic", "fastapi", "prometheus_client", "psycopg", "pydantic", "sqlalchemy", "starlette", "uvicorn")
)


@contextmanager
def _server_extra() -> Iterator[None]:
    """Import what the service needs; raises UsageError if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _SERVER_PACKAGES:
            raise
        raise UsageError(
            f"the service needs {missing}, which is not installed", hint="pip install 'whet[server]'"
        ) from error


def _open(database: str | None, data_dir: Path) -> Database:
    with _server_extra():
        from whet.service.database import default_database, open_database

    return open_database(database or default_database(data_dir))


def _facts(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "prefix": key.prefix,
        "organisation": key.organisation,
        "scopes": list(key.scopes),
        "revoked": key.revoked,
    }


def _warn_of_readers() -> None:
    """Warn if stdout is a file that other users can read: the key goes into it."""
    try:
        found = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):
        return
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o044:
        click.echo(
            f"warning: others can read the file that the key goes to (mode {stat.S_IMODE(found.st_mode):04o})\n"
            "  run chmod 600 on it, or umask 077 before the command",
            err=True,
        )


_KEY = "WHET_API_KEY"
# Fields of a suite that cannot change after it is created.
_PROVENANCE = ("source_id", "source_kind")


_asking = with_options(
    (
        click.option(
            "--server", metavar="URL", envvar="WHET_SERVER", show_envvar=True, help="The address of the service."
        ),
        click.option(
            "--key-file", type=FILE, metavar="FILE", help=f"Read the key from this file (default: the key in {_KEY})."
        ),
    )
)


@click.group("suites", short_help="Exchange eval suites with a service.")
def suites_command() -> None:
    """Exchange eval suites with a service. The key comes from a file or the environment, never from an option."""


@suites_command.command("list")
@_asking
@JSON
def list_suites(server: str | None, key_file: Path | None, as_json: bool) -> None:
    """List the suites of the organisation."""
    with _client(server, key_file) as client:
        found = list(client.all())
    if as_json:
        click.echo(json.dumps({"suites": found}, ensure_ascii=False, indent=2))
        return
    for suite in found:
        runnable = "" if suite["runnable"] else "  (not runnable)"
        cases = count(suite["case_count"], "case")
        click.echo(f"{suite['id']}  v{suite['version']}  {cases}  {suite['name']}{runnable}")


@suites_command.command("get")
@click.argument("id_", metavar="ID")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Get this version instead of the newest.")
@_asking
def get(id_: str, version: int | None, server: str | None, key_file: Path | None) -> None:
    """Print a suite as JSON."""
    with _client(server, key_file) as client:
        click.echo(json.dumps(client.get(id_, version), ensure_ascii=False, indent=2))


@suites_command.command("pull")
@click.argument("id_", metavar="ID")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Get this version instead of the newest.")
@click.option("--output", type=FILE, metavar="FILE", help="Write to this file (default: NAME.json).")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@_asking
def pull(
    *, id_: str, version: int | None, output: Path | None, force: bool, server: str | None, key_file: Path | None
) -> None:
    """Write a suite to a file.

    Run the file with "whet run", or send it back with "whet suites push".
    """
    with _client(server, key_file) as client:
        suite = client.get(id_, version)
    from whet.model.run import folder_name

    target = output or Path(f"{folder_name(suite['name'])}.json")
    if target.exists() and not force:
        raise UsageError(f"{target} already exists", hint="name another file with --output, or use --force")
    _write(target, suite)
    click.echo(f"{target}: {suite['name']}, version {suite['version']}")


@suites_command.command("push")
@click.argument("file", type=FILE)
@click.option("--new", is_flag=True, help="Create a new suite, even from a file that you pulled.")
@_asking
def push(file: Path, new: bool, server: str | None, key_file: Path | None) -> None:
    """Send a suite to the service.

    A suite that you pulled becomes its next version, and its file is updated. Any other suite is created.
    """
    document = _read(file)
    from whet.suites.eval_documents import read_suite, to_json

    plain = to_json(read_suite(document))
    id_, version = document.get("id"), document.get("version")
    with _client(server, key_file) as client:
        if new or not isinstance(id_, str) or not isinstance(version, int):
            suite = client.create(plain)
        else:
            change = {name: value for name, value in plain.items() if name not in _PROVENANCE}
            suite = client.change(id_, {"resource_limits_json": {}, **change}, version=version)
            # The next push must start from this version, or the service refuses it.
            _write(file, suite)
    click.echo(f"{suite['id']}  v{suite['version']}  {suite['name']}")
    for reason in suite["not_runnable_reasons"]:
        click.echo(f"not runnable: {reason}")


def _write(file: Path, suite: dict[str, Any]) -> None:
    try:
        file.write_text(json.dumps(suite, ensure_ascii=False, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{file} is not a suite", hint="it must be a JSON object with cases_json")
    return document


def _client(server: str | None, key_file: Path | None) -> SuitesClient:
    if not server:
        raise UsageError("no service was given", hint="name it with --server, or in WHET_SERVER")
    key = _key(key_file)
    from whet.service.client import SuitesClient

    return SuitesClient(server, key)


def _key(key_file: Path | None) -> str:
    if key_file is None:
        key = os.environ.get(_KEY, "").strip()
        if not key:
            raise UsageError("no key was given", hint=f"put it into {_KEY}, or name a file with --key-file")
        return key
    try:
        return key_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {key_file}: {error}") from error

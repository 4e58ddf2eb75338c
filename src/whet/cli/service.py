"""`whet serve`, `keys` and `orgs`: run the service, and manage its keys and organisations."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import convert

from whet.cli.common import AT_LEAST_1, FILE, JSON, print_document
from whet.cli.grammar.options import option
from whet.cli.grammar.quantities import TIME_METAVAR, Duration
from whet.cli.machine.documents import (
    KeyDocument,
    KeyFacts,
    KeysDocument,
    OrganisationDocument,
    OrganisationFacts,
    OrganisationsDocument,
)
from whet.errors import UsageError
from whet.model.request import SANDBOXES
from whet.reading.text import aligned, count
from whet.version import install_command

if TYPE_CHECKING:
    from whet.service.api.auth import Key
    from whet.service.database import Database
    from whet.service.quotas import StorageUse


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
    metavar=f"[{'|'.join(SANDBOXES)}]",
    default="bubblewrap",
    show_default=True,
    help="The sandbox that agents and verifiers run in.",
)
@click.option("--on", metavar="ray[://HEAD:PORT]", help="Run the trials of runs on the nodes of a Ray cluster.")
@click.option("--allow-private-addresses", is_flag=True, help="Fetch packages from private networks too.")
@click.option("--allow-verifier-network", is_flag=True, help="Let verifiers that ask for it use the network.")
@option(
    "--max-time-limit",
    "max_time_limit_ms",
    type=Duration("s"),
    default="4h",
    show_default=True,
    metavar=TIME_METAVAR,
    help="The longest time limit that a suite may ask for, such as 30m; a bare number is seconds.",
)
@click.option(
    "--run-memory-mb",
    type=click.IntRange(min=512),
    default=4096,
    show_default=True,
    metavar="N",
    help="The most memory that whet itself takes for a run; agents have ceilings of their own.",
)
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
@click.option("--keep-days", type=AT_LEAST_1, metavar="N", help="Delete runs N days after their end.")
@click.option("--keep-runs", type=AT_LEAST_1, metavar="N", help="Keep only the newest N runs of each suite.")
@click.option("--quota-runs", type=AT_LEAST_1, metavar="N", help="Let each organisation keep at most N runs.")
@click.option("--quota-mb", type=AT_LEAST_1, metavar="N", help="Let each organisation keep at most N MB.")
@click.option(
    "--min-free-mb",
    type=click.IntRange(min=0),
    default=500,
    show_default=True,
    metavar="N",
    help="Be ready only if so much of the disk is free.",
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
    on: str | None,
    allow_private_addresses: bool,
    allow_verifier_network: bool,
    max_time_limit_ms: int,
    run_memory_mb: int,
    requests_per_minute: int,
    max_body_mb: int,
    max_bundle_mb: int,
    trusted_proxies: tuple[str, ...],
    keep_days: int | None,
    keep_runs: int | None,
    quota_runs: int | None,
    quota_mb: int | None,
    min_free_mb: int,
) -> int:
    """Serve suites and runs over HTTP until you interrupt it.

    Create a key first: whet keys create --org ORG
    """
    with _server_extra():
        from whet.service.database import default_database
        from whet.service.quotas import Quota
        from whet.service.service import MB, Retention, ServiceLimits
        from whet.service.start import serve

    return serve(
        address=(host, port),
        database_url=database or default_database(data_dir),
        data_dir=data_dir,
        config_file=config_file,
        limits=ServiceLimits(
            requests_per_minute=requests_per_minute,
            max_body_bytes=max_body_mb * MB,
            max_bundle_bytes=max_bundle_mb * MB,
            max_time_limit_s=max_time_limit_ms / 1000,
            quota=Quota(runs=quota_runs, bytes=None if quota_mb is None else quota_mb * MB),
        ),
        retention=Retention(days=keep_days, runs=keep_runs),
        min_free_bytes=min_free_mb * MB,
        run_memory_bytes=run_memory_mb * MB,
        workers=workers,
        sandbox=sandbox,
        on=on,
        allow_private_addresses=allow_private_addresses,
        allow_verifier_network=allow_verifier_network,
        trusted_proxies=trusted_proxies,
    )


_SCOPES = ("read", "write", "run", "label")
_MB = 1024 * 1024


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
@click.option("--label", metavar="TEXT", help="What the key is for, such as the name of a CI job.")
@DATABASE
@DATA
@JSON
def create(
    *,
    organisation: str,
    scopes: tuple[str, ...],
    label: str | None,
    database: str | None,
    data_dir: Path,
    as_json: bool,
) -> None:
    """Create a key and print it. whet cannot show it again."""
    _warn_of_readers()
    with closing(_open(database, data_dir)) as connection:
        from whet.service.api.auth import create_key

        key, secret = create_key(connection, organisation, scopes or _SCOPES, label)
    if as_json:
        print_document(_key_document(key, secret))
        return
    click.echo(secret)
    click.echo(f"for {key.organisation}, may {', '.join(key.scopes)}; whet cannot show it again", err=True)


@keys_command.command("list")
@click.option("--org", "organisation", metavar="ORG", help="List only the keys of this organisation.")
@DATABASE
@DATA
@JSON
def list_keys(organisation: str | None, database: str | None, data_dir: Path, as_json: bool) -> None:
    """List all keys: prefix, organisation, what they may do, when they were created and last used, and the label."""
    with closing(_open(database, data_dir)) as connection:
        from whet.service.api.auth import list_keys

        keys = list_keys(connection, organisation)
    if as_json:
        print_document(KeysDocument(keys=tuple(convert(_facts(key), KeyFacts) for key in keys)))
        return
    for line in aligned([_row(key) for key in keys]):
        click.echo(line)


@keys_command.command("revoke")
@click.argument("key", metavar="PREFIX")
@DATABASE
@DATA
@JSON
def revoke(key: str, database: str | None, data_dir: Path, as_json: bool) -> None:
    """Revoke the key with this prefix, from the next request on."""
    with closing(_open(database, data_dir)) as connection:
        from whet.service.api.auth import revoke_key

        revoked_key = revoke_key(connection, key)
    if as_json:
        print_document(_key_document(revoked_key))
    else:
        click.echo(f"{revoked_key.prefix} is revoked")


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
            f"the service needs {missing}, which is not installed", hint=install_command("server")
        ) from error


def _open(database: str | None, data_dir: Path) -> Database:
    with _server_extra():
        from whet.service.database import default_database, open_database

    return open_database(database or default_database(data_dir))


def _key_document(key: Key, secret: str | None = None) -> KeyDocument:
    return convert({**_facts(key), "key": secret}, KeyDocument)


def _facts(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "prefix": key.prefix,
        "organisation": key.organisation,
        "scopes": tuple(key.scopes),
        "revoked": key.revoked,
        "label": key.label,
        "created_at": _time(key.created_us),
        "used_at": _time(key.used_us),
    }


def _row(key: Key) -> list[str]:
    state = "revoked" if key.revoked else ", ".join(key.scopes)
    last_use = f"used {_day(key.used_us)}" if key.used_us is not None else "never used"
    return [key.prefix, key.organisation, state, f"created {_day(key.created_us)}", last_use, key.label or ""]


def _time(moment_us: int | None) -> str | None:
    if moment_us is None:
        return None
    return datetime.fromtimestamp(moment_us / 1_000_000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _day(moment_us: int) -> str:
    return datetime.fromtimestamp(moment_us / 1_000_000, UTC).date().isoformat()


def _warn_of_readers() -> None:
    """Warn if stdout is a file that other users can read: the key goes into it."""
    try:
        status = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):
        return
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o044:
        click.echo(
            f"warning: others can read the file that the key goes to (mode {stat.S_IMODE(status.st_mode):04o})\n"
            "  run chmod 600 on it, or umask 077 before the command",
            err=True,
        )


@click.group("orgs", short_help="Show what organisations keep, and set their quotas.")
def orgs_command() -> None:
    """Show what each organisation of the service keeps, and set how much it may keep."""


@orgs_command.command("list")
@DATABASE
@DATA
@JSON
def list_organisations(database: str | None, data_dir: Path, as_json: bool) -> None:
    """List organisations with their runs, their bytes, and the quotas that are their own."""
    with closing(_open(database, data_dir)) as connection:
        from whet.service.quotas import list_usage

        usages = list_usage(connection)
    if as_json:
        organisations = tuple(convert(_usage(usage), OrganisationFacts) for usage in usages)
        print_document(OrganisationsDocument(organisations=organisations))
        return
    for line in aligned([_usage_row(usage) for usage in usages]):
        click.echo(line)


@orgs_command.command("quota")
@click.argument("organisation", metavar="ORG")
@click.option("--runs", type=click.IntRange(min=0), metavar="N", help="The most runs that it may keep.")
@click.option("--mb", type=click.IntRange(min=0), metavar="N", help="The most MB of runs, skills and suites.")
@DATABASE
@DATA
@JSON
def quota(
    *, organisation: str, runs: int | None, mb: int | None, database: str | None, data_dir: Path, as_json: bool
) -> None:
    """Set the quota of an organisation, from the next request on.

    What you leave out is as "whet serve" says for all.
    """
    with closing(_open(database, data_dir)) as connection:
        from whet.service.quotas import Quota, set_quota

        new_quota = Quota(runs=runs, bytes=None if mb is None else mb * _MB)
        usage = set_quota(connection, organisation, new_quota)
    if as_json:
        print_document(convert(_usage(usage), OrganisationDocument))
    else:
        click.echo("  ".join(_usage_row(usage)))


def _usage(usage: StorageUse) -> dict[str, Any]:
    return {
        "organisation": usage.organisation,
        "runs": usage.runs,
        "bytes": usage.bytes,
        "quota_runs": usage.own.runs,
        "quota_bytes": usage.own.bytes,
    }


def _usage_row(usage: StorageUse) -> list[str]:
    runs = "" if usage.own.runs is None else f" of {usage.own.runs}"
    room = "" if usage.own.bytes is None else f" of {usage.own.bytes / _MB:,.0f} MB"
    return [usage.organisation, f"{count(usage.runs, 'run')}{runs}", f"{usage.bytes / _MB:,.1f} MB{room}"]

"""`whet keys`: who may ask the service for what."""

from __future__ import annotations

import json
import os
import stat
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.extra import server_extra
from whet.cli.serve import DATA, DATABASE

if TYPE_CHECKING:
    from whet.server.storage.database import Database
    from whet.server.storage.keys import Key

_SCOPES = ("read", "write", "run")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("keys", short_help="Make, list and revoke keys of the service.")
def command() -> None:
    """Keys of the service: each belongs to an organisation, which sees only what is its own."""


@command.command("create")
@click.option("--org", "organisation", required=True, metavar="ORG", help="Its organisation; made if it is new.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    help="What it may do; repeatable, all of them by default.",
)
@DATABASE
@DATA
@_JSON
def create(organisation: str, scopes: tuple[str, ...], database: str | None, data_dir: Path, as_json: bool) -> None:
    """Make a key and show it, this once."""
    _warn_of_readers()
    with closing(_open(database, data_dir)) as opened:
        from whet.server.storage.keys import create_key

        key, secret = create_key(opened, organisation, scopes or _SCOPES)
    if as_json:
        click.echo(json.dumps({**_facts(key), "key": secret}))
        return
    click.echo(secret)
    click.echo(f"for {key.organisation}, may {', '.join(key.scopes)}; it is not shown again", err=True)


@command.command("list")
@click.option("--org", "organisation", metavar="ORG", help="Only of this organisation.")
@DATABASE
@DATA
@_JSON
def list_(organisation: str | None, database: str | None, data_dir: Path, as_json: bool) -> None:
    """Show all keys by their prefixes."""
    with closing(_open(database, data_dir)) as opened:
        from whet.server.storage.keys import list_keys

        found = list_keys(opened, organisation)
    if as_json:
        click.echo(json.dumps({"keys": [_facts(key) for key in found]}))
        return
    for key in found:
        state = "revoked" if key.revoked_us is not None else ", ".join(key.scopes)
        click.echo(f"{key.prefix}  {key.organisation}  {state}")


@command.command("revoke")
@click.argument("key", metavar="PREFIX")
@DATABASE
@DATA
@_JSON
def revoke(key: str, database: str | None, data_dir: Path, as_json: bool) -> None:
    """End the key that has this prefix; it counts no more from the next request on."""
    with closing(_open(database, data_dir)) as opened:
        from whet.server.storage.keys import revoke_key

        ended = revoke_key(opened, key)
    click.echo(json.dumps(_facts(ended)) if as_json else f"{ended.prefix} is revoked")


def _open(database: str | None, data_dir: Path) -> Database:
    with server_extra():
        from whet.server.start import default_database, open_database

    return open_database(database or default_database(data_dir))


def _facts(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "prefix": key.prefix,
        "organisation": key.organisation,
        "scopes": list(key.scopes),
        "revoked": key.revoked_us is not None,
    }


def _warn_of_readers() -> None:
    """A file that a shell made for us is as open as the umask, and a key in it is everybody's."""
    try:
        found = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):
        return
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o044:
        click.echo(
            f"warning: others can read the file that the key goes to (mode {stat.S_IMODE(found.st_mode):04o})\n"
            "  close it with chmod 600, or type umask 077 before",
            err=True,
        )

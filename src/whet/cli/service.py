"""`whet suites`: eval suites between files and a service."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from whet.cli.errors import FilePath, server_extra
from whet.errors import UsageError
from whet.model.request import SANDBOXES
from whet.plan.plan import counted

if TYPE_CHECKING:
    from whet.service.auth import Key
    from whet.service.client import SuitesClient
    from whet.service.database import Database


DATA_DIR = ".whet/service"
DATABASE = click.option(
    "--database",
    metavar="URL",
    envvar="WHET_DATABASE",
    help="sqlite:///FILE or postgresql://...; by default a file in the data folder. Also WHET_DATABASE.",
)
DATA = click.option(
    "--data-dir",
    type=FilePath(),
    metavar="DIR",
    default=DATA_DIR,
    show_default=True,
    help="Where runs and uploaded skills are kept.",
)
_AMOUNT = click.IntRange(min=1)


@click.command("serve", short_help="Keep eval suites and run them, over HTTP.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to answer on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes any free one.")
@DATABASE
@DATA
@click.option("--config", "config_file", type=FilePath(), metavar="FILE", help="The settings of runs: runners, judge.")
@click.option("--workers", type=_AMOUNT, default=2, show_default=True, metavar="N", help="Most runs at a time.")
@click.option(
    "--sandbox",
    type=click.Choice(SANDBOXES),
    default="bubblewrap",
    show_default=True,
    help="The boundary of agents and verifiers.",
)
@click.option("--allow-private-addresses", is_flag=True, help="Fetch packages also from addresses of this network.")
@click.option("--requests-per-minute", type=_AMOUNT, default=600, show_default=True, metavar="N", help="Most per key.")
@click.option("--max-body-mb", type=_AMOUNT, default=4, show_default=True, metavar="N", help="Largest suite.")
@click.option(
    "--max-bundle-mb", type=_AMOUNT, default=64, show_default=True, metavar="N", help="Largest skill archive."
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Believe X-Forwarded-For from this address or network; repeatable.",
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
    """Answer requests for suites and runs until interrupted.

    Make a key first: whet keys create --org ORG
    """
    with server_extra():
        from whet.service.http import MB, Limits
        from whet.service.start import default_database, serve

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
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("keys", short_help="Make, list and revoke keys of the service.")
def keys_command() -> None:
    """Keys of the service: each belongs to an organisation, which sees only what is its own."""


@keys_command.command("create")
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
        from whet.service.auth import create_key

        key, secret = create_key(opened, organisation, scopes or _SCOPES)
    if as_json:
        click.echo(json.dumps({**_facts(key), "key": secret}))
        return
    click.echo(secret)
    click.echo(f"for {key.organisation}, may {', '.join(key.scopes)}; it is not shown again", err=True)


@keys_command.command("list")
@click.option("--org", "organisation", metavar="ORG", help="Only of this organisation.")
@DATABASE
@DATA
@_JSON
def list_keys(organisation: str | None, database: str | None, data_dir: Path, as_json: bool) -> None:
    """Show all keys by their prefixes."""
    with closing(_open(database, data_dir)) as opened:
        from whet.service.auth import list_keys

        found = list_keys(opened, organisation)
    if as_json:
        click.echo(json.dumps({"keys": [_facts(key) for key in found]}))
        return
    for key in found:
        state = "revoked" if key.revoked_us is not None else ", ".join(key.scopes)
        click.echo(f"{key.prefix}  {key.organisation}  {state}")


@keys_command.command("revoke")
@click.argument("key", metavar="PREFIX")
@DATABASE
@DATA
@_JSON
def revoke(key: str, database: str | None, data_dir: Path, as_json: bool) -> None:
    """End the key that has this prefix; it counts no more from the next request on."""
    with closing(_open(database, data_dir)) as opened:
        from whet.service.auth import revoke_key

        ended = revoke_key(opened, key)
    click.echo(json.dumps(_facts(ended)) if as_json else f"{ended.prefix} is revoked")


def _open(database: str | None, data_dir: Path) -> Database:
    with server_extra():
        from whet.service.start import default_database, open_database

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


Command = TypeVar("Command", bound=Callable[..., Any])
_KEY = "WHET_API_KEY"
# What can be changed of a suite; the rest of a document is settled when it is created.
_PROVENANCE = ("source_id", "source_kind")


def _asking(suites_command: Command) -> Command:
    for option in (
        click.option("--key-file", type=FilePath(), metavar="FILE", help=f"Holds the key; otherwise {_KEY} does."),
        click.option("--server", metavar="URL", envvar="WHET_SERVER", help="The service. Also WHET_SERVER."),
    ):
        suites_command = option(suites_command)
    return suites_command


@click.group("suites", short_help="Exchange eval suites with a service.")
def suites_command() -> None:
    """Suites of a service, by their ids; the key comes from a file or the environment, never from an option."""


@suites_command.command("list")
@_asking
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_suites(server: str | None, key_file: Path | None, as_json: bool) -> None:
    """Show the suites of the organisation."""
    with _client(server, key_file) as client:
        found = list(client.all())
    if as_json:
        click.echo(json.dumps({"suites": found}, ensure_ascii=False, indent=2))
        return
    for suite in found:
        runnable = "" if suite["runnable"] else "  (not runnable)"
        count = counted(suite["case_count"], "case")
        click.echo(f"{suite['id']}  v{suite['version']}  {count}  {suite['name']}{runnable}")


@suites_command.command("get")
@click.argument("id_", metavar="ID")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="An earlier version.")
@_asking
def get(id_: str, version: int | None, server: str | None, key_file: Path | None) -> None:
    """Print a suite as the service shows it."""
    with _client(server, key_file) as client:
        click.echo(json.dumps(client.get(id_, version), ensure_ascii=False, indent=2))


@suites_command.command("pull")
@click.argument("id_", metavar="ID")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="An earlier version.")
@click.option("--output", type=FilePath(), metavar="FILE", help="By default NAME.json, after the suite.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@_asking
def pull(
    *, id_: str, version: int | None, output: Path | None, force: bool, server: str | None, key_file: Path | None
) -> None:
    """Write a suite to a file that `whet run` takes and `push` gives back."""
    with _client(server, key_file) as client:
        suite = client.get(id_, version)
    from whet.model.run import folder_name

    target = output or Path(f"{folder_name(suite['name'])}.json")
    if target.exists() and not force:
        raise UsageError(f"{target} is there already", hint="name another one with --output, or say --force")
    _write(target, suite)
    click.echo(f"{target}: {suite['name']}, version {suite['version']}")


@suites_command.command("push")
@click.argument("file", type=FilePath())
@click.option("--new", is_flag=True, help="Make a new suite, also of a file that was pulled.")
@_asking
def push(file: Path, new: bool, server: str | None, key_file: Path | None) -> None:
    """Give a suite to the service: a pulled one as its next version, which its file then names, any other as new."""
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
            # Else the next push of it would be refused, as a change of an earlier version.
            _write(file, suite)
    click.echo(f"{suite['id']}  v{suite['version']}  {suite['name']}")
    for reason in suite["not_runnable_reasons"]:
        click.echo(f"not runnable: {reason}")


def _write(file: Path, suite: dict[str, Any]) -> None:
    try:
        file.write_text(json.dumps(suite, ensure_ascii=False, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{file} holds no suite", hint="it must be a JSON object with cases_json")
    return document


def _client(server: str | None, key_file: Path | None) -> SuitesClient:
    if not server:
        raise UsageError("which service?", hint="name it with --server, or in WHET_SERVER")
    key = _key(key_file)
    from whet.service.client import SuitesClient

    return SuitesClient(server, key)


def _key(key_file: Path | None) -> str:
    if key_file is None:
        key = os.environ.get(_KEY, "").strip()
        if not key:
            raise UsageError("there is no key", hint=f"put it into {_KEY}, or name a file with --key-file")
        return key
    try:
        return key_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{key_file} cannot be read: {error}") from error

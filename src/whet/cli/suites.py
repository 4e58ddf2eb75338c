"""`whet suites`: eval suites between files and a service."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from whet.cli.paths import FilePath
from whet.errors import UsageError
from whet.plan.words import counted

if TYPE_CHECKING:
    from whet.client import SuitesClient

Command = TypeVar("Command", bound=Callable[..., Any])
_KEY = "WHET_API_KEY"
# What can be changed of a suite; the rest of a document is settled when it is created.
_PROVENANCE = ("source_id", "source_kind")


def _asking(command: Command) -> Command:
    for option in (
        click.option("--key-file", type=FilePath(), metavar="FILE", help=f"Holds the key; otherwise {_KEY} does."),
        click.option("--server", metavar="URL", envvar="WHET_SERVER", help="The service. Also WHET_SERVER."),
    ):
        command = option(command)
    return command


@click.group("suites", short_help="Exchange eval suites with a service.")
def command() -> None:
    """Suites of a service, by their ids; the key comes from a file or the environment, never from an option."""


@command.command("list")
@_asking
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(server: str | None, key_file: Path | None, as_json: bool) -> None:
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


@command.command("get")
@click.argument("id_", metavar="ID")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="An earlier version.")
@_asking
def get(id_: str, version: int | None, server: str | None, key_file: Path | None) -> None:
    """Print a suite as the service shows it."""
    with _client(server, key_file) as client:
        click.echo(json.dumps(client.get(id_, version), ensure_ascii=False, indent=2))


@command.command("pull")
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
    from whet.model.naming import folder_name

    target = output or Path(f"{folder_name(suite['name'])}.json")
    if target.exists() and not force:
        raise UsageError(f"{target} is there already", hint="name another one with --output, or say --force")
    _write(target, suite)
    click.echo(f"{target}: {suite['name']}, version {suite['version']}")


@command.command("push")
@click.argument("file", type=FilePath())
@click.option("--new", is_flag=True, help="Make a new suite, also of a file that was pulled.")
@_asking
def push(file: Path, new: bool, server: str | None, key_file: Path | None) -> None:
    """Give a suite to the service: a pulled one as its next version, which its file then names, any other as new."""
    document = _read(file)
    from whet.evals import read_suite, to_json

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
    from whet.client import SuitesClient

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

"""`whet suites`: exchange eval suites with a service."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import FILE, JSON, with_options
from whet.errors import UsageError
from whet.reading.text import count

if TYPE_CHECKING:
    from whet.service.client import SuitesClient

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

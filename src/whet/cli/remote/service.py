"""Which service to ask, and with which key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whet.cli.common import FILE, with_options
from whet.errors import UsageError

if TYPE_CHECKING:
    from whet.service.client import SuitesClient

_KEY = "WHET_API_KEY"

ASKING = with_options(
    (
        click.option(
            "--server", metavar="URL", envvar="WHET_SERVER", show_envvar=True, help="The address of the service."
        ),
        click.option(
            "--key-file", type=FILE, metavar="FILE", help=f"Read the key from this file (default: the key in {_KEY})."
        ),
    )
)


def client_of(server: str | None, key_file: Path | None) -> SuitesClient:
    """Return the client of the service that was named."""
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

"""`whet serve`: the eval-suites service."""

from __future__ import annotations

from pathlib import Path

import click

from whet.cli.extra import server_extra
from whet.cli.paths import FilePath
from whet.config.settings import SANDBOXES

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
def command(
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
        from whet.server.limits import MB, Limits
        from whet.server.start import default_database, serve

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

"""`whet improve status`: where an improve run stands."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet import exit_codes
from whet.cli.common import CONFIG, JSON, given_settings, print_document, print_lines, screen_of, setting

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def improve_runs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the improve runs that begin like *incomplete*."""
    from click.shell_completion import CompletionItem

    from whet.record.folder import LATEST
    from whet.record.improve.folder import improve_folders

    ids = [LATEST, *(folder.id for folder in improve_folders(_output_dir(dict(ctx.params), ctx.params["config_file"])))]
    return [CompletionItem(name) for name in ids if name.startswith(incomplete)]


@click.command("status", short_help="Say where an improve run stands.")
@click.argument("run", metavar="[RUN]", default="latest", shell_complete=improve_runs)
@setting("output_dir", help="Find improve runs beside this folder of runs.")
@JSON
@CONFIG
def status_command(run: str, *, as_json: bool, config_file: Path | None, **options: Any) -> int:
    """Say what an improve run has done so far, and what it came to.

    RUN is the folder of an improve run, its id, or "latest" (default).
    """
    from whet.record.improve.folder import find_improve_folder
    from whet.report.improve.ending import status_lines

    folder = find_improve_folder(run, _output_dir(options, config_file))
    document = folder.read()
    if as_json:
        print_document(document)
    else:
        print_lines(status_lines(document, folder.path, Path.cwd(), screen_of(sys.stdout)))
    return exit_codes.DONE


def _output_dir(options: dict[str, Any], config_file: Path | None) -> Path:
    from whet.improve.plan import improve_dir
    from whet.plan.settings.load import load_settings

    settings = load_settings(Path.cwd(), flags=given_settings(options), environ=os.environ, config_file=config_file)
    return improve_dir(settings)

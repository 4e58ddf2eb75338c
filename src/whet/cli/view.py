"""`whet view` and `history`: look at runs in a browser, and at a suite over time."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import CONFIG, JSON, given_settings, setting

if TYPE_CHECKING:
    from whet.model.request import Settings

_PORTS = click.IntRange(0, 65535)


@click.command("view", short_help="Look at runs in your browser.")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--port", type=_PORTS, default=0, metavar="N", help="Use this port (default: any that is free).")
@click.option("--no-open", is_flag=True, help="Only print the address.")
@setting("output_dir", help="Show the runs in this folder, and find RUN there.")
@CONFIG
def view_command(runs: tuple[str, ...], *, port: int, no_open: bool, config_file: Path | None, **given: Any) -> int:
    """Serve pages with the runs of this project, or with each RUN, to your browser, until you press Ctrl-C.

    RUN is the folder of a run, its id, or "latest". A run that is under way is followed. Only who has the printed
    address can look, and only on this machine.
    """
    from whet.report.view_source import Runs
    from whet.report.viewer import Viewer, opened, serve

    settings = _settings(given, config_file)
    found = Runs(_project(settings), _folders(runs, settings))
    viewer = Viewer(found, port)
    # Ctrl-C and `kill` end it alike.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    click.echo(viewer.address)
    sys.stdout.flush()
    shown = opened(viewer.address, os.environ) if not no_open and sys.stdout.isatty() else nullcontext()
    # Around everything: it may come while the browser is being opened.
    with suppress(KeyboardInterrupt), shown:
        serve(viewer)
    return 0


def _folders(runs: tuple[str, ...], settings: Settings) -> Any:
    """Return what lists the folders to show: those of *runs*, or all of the project, also ones that come later."""
    from whet.record.batches import find_runs
    from whet.record.recorded_run import run_folders

    if not runs:
        return lambda: run_folders(settings.output_dir)
    found = list(dict.fromkeys(folder for run in runs for folder in find_runs(run, settings.output_dir)))
    return lambda: found


@click.command("history", short_help="Show how a suite did over time, and where that changed.")
@click.argument("suite", metavar="SUITE")
@JSON
@setting("output_dir", help="Find runs in this folder.")
@CONFIG
def history_command(suite: str, *, as_json: bool, config_file: Path | None, **given: Any) -> int:
    """Show the rate of SUITE run by run, where a change of it is decided, and which cases are flaky.

    SUITE is the path or the name of a suite.
    """
    from whet.model import wire
    from whet.record.recorded_run import run_folders
    from whet.report.history import find_history, history_lines

    settings = _settings(given, config_file)
    found = find_history(suite, run_folders(settings.output_dir))
    click.echo(wire.encode_pretty(found).decode().rstrip() if as_json else "\n".join(history_lines(found)))
    return 0


def _settings(given: dict[str, Any], config_file: Path | None) -> Settings:
    from whet.plan.settings import load_settings

    return load_settings(Path.cwd(), flags=given_settings(given), environ=os.environ, config_file=config_file)


def _project(settings: Settings) -> str:
    return (settings.file.parent if settings.file else Path.cwd()).resolve().name

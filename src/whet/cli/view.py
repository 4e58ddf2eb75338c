"""`whet view` and `history`: look at runs in a browser, and at a suite over time."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from whet import exit_codes
from whet.cli.common import CONFIG, JSON, SOME_TEXT, given_settings, print_document, print_lines, screen_of, setting
from whet.cli.grammar.candidates import complete_runs

if TYPE_CHECKING:
    from whet.model.request import Settings
    from whet.record.improve.folder import ImproveFolder

_PORTS = click.IntRange(0, 65535)


@click.command("view", short_help="Look at runs in your browser.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--port", type=_PORTS, default=0, metavar="N", help="Use this port (default: any that is free).")
@click.option("--no-open", is_flag=True, help="Only print the address.")
@setting("output_dir", help="Show the runs in this folder, and find RUN there.")
@CONFIG
def view_command(runs: tuple[str, ...], *, port: int, no_open: bool, config_file: Path | None, **options: Any) -> int:
    """Serve pages with the runs of this project, or with each RUN, to your browser, until you press Ctrl-C.

    RUN is the folder of a run or of an improve run, its id, or "latest". One RUN opens its own page.
    A run that is under way is followed. Only those who have the printed address can look, and only on this machine.
    """
    from whet.view.addresses import Runs
    from whet.view.improve.page import ImproveRuns
    from whet.view.server import Viewer, opened, serve

    settings = _settings(options, config_file)
    project, improve_runs = _project(settings), _improve_runs(settings)
    # Who names one run wants to see it, and no list of one row.
    improve_run = _improve_run(runs, improve_runs)
    runs_to_show = Runs(
        project,
        _folders(() if improve_run else runs, settings),
        improve=ImproveRuns(project, lambda: _improve_runs(settings)),
    )
    viewer = Viewer(runs_to_show, port)
    # Ctrl-C and `kill` end it alike.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names = list(runs_to_show.folders())
    address = viewer.address
    if improve_run:
        address = f"{viewer.address}#/improve/{quote(improve_run, safe='')}"
    elif runs and len(names) == 1:
        address = f"{viewer.address}#/runs/{quote(names[0], safe='')}"
    click.echo(address)
    sys.stdout.flush()
    browser = opened(address, os.environ) if not no_open and sys.stdout.isatty() else nullcontext()
    # Around everything: it may come while the browser is being opened.
    with suppress(KeyboardInterrupt), browser:
        serve(viewer)
    return exit_codes.DONE


def _folders(runs: tuple[str, ...], settings: Settings) -> Any:
    """Return what lists the folders to show: those of *runs*, or all of the project, also ones that come later."""
    from whet.record.batches import find_runs
    from whet.record.read.run import run_folders

    if not runs:
        return lambda: run_folders(settings.output_dir)
    folders = list(dict.fromkeys(folder for run in runs for folder in find_runs(run, settings.output_dir)))
    return lambda: folders


def _improve_runs(settings: Settings) -> list[ImproveFolder]:
    """Return the improve runs of the project, the newest first."""
    from whet.record.improve.folder import IMPROVE_RUNS, improve_folders

    return improve_folders(settings.output_dir.parent / IMPROVE_RUNS)


def _improve_run(names: tuple[str, ...], improve_runs: list[ImproveFolder]) -> str | None:
    """Return the id of the improve run that is named, if one is: by its id, or by its folder."""
    if len(names) != 1:
        return None
    folder = Path(names[0]).resolve()
    return next((run.id for run in improve_runs if names[0] == run.id or folder == run.path.resolve()), None)


@click.command("search", short_help="Find what sessions of a run did, and count it by arm.")
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("words", metavar="QUERY...", nargs=-1, required=True, shell_complete=lambda *typed: _kinds(typed[-1]))
@JSON
@setting("output_dir", help="Find RUN in this folder.")
@CONFIG
def search_command(run: str, words: tuple[str, ...], *, as_json: bool, config_file: Path | None, **options: Any) -> int:
    """Search the sessions of RUN, and count by arm in how many of them QUERY was found.

    RUN is the folder of a run, its id, or "latest". A session must have all terms; capitals make no difference.

    \b
    Terms:
      tool:Bash          called this tool; * stands for any letters
      cmd:unittest       ran a command with these words
      skill:notes        loaded this skill
      file:CHANGELOG.md  read or wrote a file with this in its path
      text:"not found"   in a message, in what a tool was asked, or in its answer
      unittest           in any of these
    """
    from whet.record.folder import find_run_folder
    from whet.view.run import RunView
    from whet.view.search import search_document, search_lines

    folder = find_run_folder(run, _settings(options, config_file).output_dir)
    document = search_document(RunView(folder), words[0] if len(words) == 1 else " ".join(map(_term, words)))
    if as_json:
        print_document(document)
    else:
        print_lines(search_lines(document, screen_of(sys.stdout)))
    return exit_codes.DONE


def _kinds(incomplete: str) -> list[str]:
    """Return what a term may begin with."""
    from whet.record.read.search import KINDS

    return [f"{kind}:" for kind in KINDS if kind.startswith(incomplete)]


def _term(word: str) -> str:
    """Return a word as a term of a query: the shell has taken its quotes away."""
    if '"' in word or not any(letter.isspace() for letter in word):
        return word
    kind, colon, words = word.partition(":")
    return f'{kind}:"{words}"' if colon and kind.isalpha() else f'"{word}"'


@click.command("history", short_help="Show how a suite did over time, and where that changed.")
@click.argument("suites", metavar="[SUITE]...", nargs=-1, type=SOME_TEXT)
@JSON
@setting("output_dir", help="Find runs in this folder.")
@CONFIG
def history_command(suites: tuple[str, ...], *, as_json: bool, config_file: Path | None, **options: Any) -> int:
    """Show the rate of SUITE run by run, where a change of it is decided, and which cases are flaky.

    SUITE is the path or the name of a suite, a skill, or a folder of these; of a folder, those that were run.
    """
    from whet.record.read.run import run_folders
    from whet.view.history.documents import HistoriesDocument
    from whet.view.history_table import find_histories, history_lines
    from whet.view.improve.page import ImproveRuns

    settings = _settings(options, config_file)
    improve = ImproveRuns("", lambda: _improve_runs(settings))
    histories = find_histories(_suites_of(suites), run_folders(settings.output_dir), improve)
    if as_json:
        document = histories[0] if len(histories) == 1 else HistoriesDocument(histories=tuple(histories))
        print_document(document)
    else:
        screen = screen_of(sys.stdout)
        for number, history in enumerate(histories):
            print_lines([*([""] * bool(number)), *history_lines(history, screen)])
    return exit_codes.DONE


def _suites_of(names: tuple[str, ...]) -> list[str]:
    """Return the suites of folders among *names*, and the others as they are: a name needs no file."""
    from whet.cli.grammar.targets import find_named

    if not names:
        return [str(suite.path) for suite in find_named(())]
    suites: list[str] = []
    for name in names:
        if Path(name).is_dir():
            suites += (str(suite.path) for suite in find_named([Path(name)]))
        else:
            suites.append(name)
    return suites


def _settings(options: dict[str, Any], config_file: Path | None) -> Settings:
    from whet.plan.settings.load import load_here

    return load_here(given_settings(options), config_file)


def _project(settings: Settings) -> str:
    return (settings.file.parent if settings.file else Path.cwd()).resolve().name

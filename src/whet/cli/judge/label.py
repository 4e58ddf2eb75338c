"""`whet judge label`: people say what is true of what a judge decided, without knowing what it said."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet import exit_codes
from whet.cli.common import CONFIG, setting
from whet.cli.grammar.candidates import complete_runs
from whet.cli.judge.runs import LABELS, judged_runs, person

if TYPE_CHECKING:
    from whet.view.labels.queue import LabelQueue

_PORTS = click.IntRange(0, 65535)
_MOST = 10_000


@click.command("label", short_help="Say what is true of what the judge decided, one statement at a time.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option(
    "--n", "number", type=click.IntRange(1, _MOST), default=60, metavar="N", help="Draw N statements (default: 60)."
)
@click.option("--by", metavar="NAME", help="Whose labels they are (default: you).")
@click.option("--second", is_flag=True, help="Label a third of what one other person has labelled.")
@click.option("--seed", metavar="TEXT", help="Draw with this seed (default: that of labels there are, or the runs).")
@click.option("--terminal", is_flag=True, help="Ask here instead of in your browser.")
@click.option("--port", type=_PORTS, default=0, metavar="N", help="Use this port (default: any that is free).")
@click.option("--no-open", is_flag=True, help="Only print the address.")
@LABELS
@setting("output_dir", help="Find runs in this folder.")
@CONFIG
def label_command(
    runs: tuple[str, ...],
    *,
    number: int,
    by: str | None,
    second: bool,
    seed: str | None,
    terminal: bool,
    port: int,
    no_open: bool,
    labels: Path | None,
    config_file: Path | None,
    **options: Any,
) -> int:
    """Label what a judge decided in each RUN (default: latest), one statement at a time, in your browser.

    You see what the agent was asked, what it answered and changed, and one statement about it. You do not see which
    arm it was, or what the judge said: you could not help agreeing with it. What you say is added to labels.jsonl
    beside the suite, and "whet judge report" says how good the judge is.

    \b
    Keys:
      t  true      f  false     u  unsure
      s  skip      n  a note    b  take the last one back
    """
    from whet.view.labels.queue import LabelQueue, LabelsBeside, QueueOptions

    judged = judged_runs(runs, options, config_file, labels)
    folders = {run.run_dir.name: run.run_dir for run in judged.runs}
    options_of_queue = QueueOptions(n=number, seed=seed or judged.seed, second=second)
    queue = LabelQueue(judged.units, folders, LabelsBeside(judged.labels), options_of_queue)
    name = person(by)
    # Refuses a damaged file of labels before anybody looks at anything.
    document = queue.document(name)
    if not document.names:
        click.echo(_nothing_left(document.drawn, second=second))
        return exit_codes.DONE
    if terminal:
        from whet.cli.judge.terminal import ask

        return ask(queue, name, sys.stdin, sys.stdout)
    return _serve(queue, name, port, is_opened=not no_open)


def _nothing_left(drawn: int, *, second: bool) -> str:
    if second:
        return "nothing is left for a second person: one label of somebody else is needed for each"
    return f"all {drawn} are labelled: whet judge report says how good the judge is, and a larger --n draws more"


def _serve(queue: LabelQueue, name: str, port: int, *, is_opened: bool) -> int:
    """Serve the queue to a browser until Ctrl-C."""
    from whet.view.labels.desk import LabelDesk
    from whet.view.server import Viewer, opened, serve

    viewer = Viewer(LabelDesk(queue, name), port)
    address = f"{viewer.address}#/labels"
    # Ctrl-C and `kill` end it alike.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    click.echo(address)
    sys.stdout.flush()
    browser = opened(address, os.environ) if is_opened and sys.stdout.isatty() else nullcontext()
    # Around everything: it may come while the browser is being opened.
    with suppress(KeyboardInterrupt), browser:
        serve(viewer)
    return exit_codes.DONE

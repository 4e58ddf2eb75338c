"""`whet judge import`: labels of people that are in other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whet import exit_codes
from whet.cli.common import CONFIG, FILE, setting
from whet.cli.grammar.candidates import complete_runs
from whet.cli.judge.runs import LABELS, judged_runs

_FIND = setting("output_dir", help="Find runs in this folder.")


@click.command("import", short_help="Add labels from a CSV file or from a feedback.json.")
@click.argument("file", type=FILE)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--by", metavar="NAME", help="Whose labels they are, if the file does not say (default: you).")
@LABELS
@_FIND
@CONFIG
def import_command(
    file: Path,
    runs: tuple[str, ...],
    *,
    by: str | None,
    labels: Path | None,
    config_file: Path | None,
    **options: Any,
) -> int:
    """Add the labels in FILE, which are about each RUN (default: latest), to labels.jsonl beside the suite.

    FILE is a CSV file with the columns statement_id, answer_id and label (true, false or unsure), and perhaps by and
    note; or the feedback.json of skill-creator, if each of its cases has one statement.
    """
    from whet.cli.judge.runs import person
    from whet.reading.text import count
    from whet.record.judging.labelling import import_labels
    from whet.record.judging.labels_file import add_labels, policy_of

    runs_read = judged_runs(runs, options, config_file, labels)
    imported = import_labels(
        file, runs_read.units, person(by), cases=tuple(runs_read.cases), policy=policy_of(runs_read.labels)
    )
    lines = add_labels(runs_read.labels, imported.labels)
    click.echo(f"{runs_read.labels}: {count(len(lines), 'label')} added")
    if imported.unknown:
        click.echo(f"{count(imported.unknown, 'line')} of {file} about no statement of {runs_read.names}")
    return exit_codes.DONE

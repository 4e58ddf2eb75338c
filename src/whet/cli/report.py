"""`whet report`: what can be done with the reports of an evaluation."""

from __future__ import annotations

from pathlib import Path

import click

from whet.cli.paths import FILE
from whet.cli.writing import write_out

_FORMATS = ("json", "markdown", "html", "csv")


@click.group("report", short_help="Compare or convert the reports of an evaluation.")
def command() -> None:
    """Compare or convert the JSON reports of an evaluation, ours or those of others."""


@command.command("diff")
@click.argument("before", metavar="A", type=FILE)
@click.argument("after", metavar="B", type=FILE)
@click.option("--label-a", default="before", metavar="TEXT", help="What A is called.")
@click.option("--label-b", default="after", metavar="TEXT", help="What B is called.")
@click.option("--margin", type=click.FloatRange(0, 1), default=0.0, metavar="SHARE", help="How much worse is allowed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--output", type=FILE, metavar="FILE", help="Write to a file instead.")
def diff(
    before: Path, after: Path, *, label_a: str, label_b: str, margin: float, as_json: bool, output: Path | None
) -> int:
    """Say how the skills of B did against those of A, paired by task. Exit code: 0 none regressed, 1 one did."""
    from whet.report.completion.changes import changes_json, changes_markdown
    from whet.report.completion.compare import compare
    from whet.report.completion.read import read_reports

    changes = compare(read_reports(before), read_reports(after), margin=margin)
    text = changes_json(changes) if as_json else changes_markdown(changes, (label_a, label_b)).encode()
    write_out(text, output)
    return 1 if any(change.regressed for change in changes) else 0


@command.command("convert")
@click.option("--input", "source", type=FILE, required=True, metavar="FILE", help="JSON reports.")
@click.option("--format", "wanted", type=click.Choice(_FORMATS), required=True, help="What they become.")
@click.option("--output", type=FILE, metavar="FILE", help="Write to a file instead of stdout.")
def convert(source: Path, wanted: str, output: Path | None) -> None:
    """Write the reports of an evaluation in another format."""
    from whet.evaluation.reports import WRITERS
    from whet.report.completion.read import read_reports

    write_out(WRITERS[wanted][1](read_reports(source)), output)

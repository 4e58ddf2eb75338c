"""`whet report`: what can be done with the reports of an evaluation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.errors import FILE, FilePath, write_out
from whet.cli.running import given_settings, setting
from whet.errors import UsageError

if TYPE_CHECKING:
    from whet.record.verifying import Verified


@click.command("regrade", short_help="Apply a suite's checks as they are now to a recorded run.")
@click.argument("run", metavar="RUN")
@click.option("--suite", type=FILE, metavar="FILE", help="The suite; by default the one that was run.")
@setting("max_parallel")
@setting("sandbox", help="The boundary that commands of checks run inside.")
@setting("output_dir", help="Where runs are, and the folder of this one is made.")
@setting("reporters")
@click.option("--config", "config_file", type=FILE, metavar="FILE", help="The settings file; none is searched for.")
def regrade_command(run: str, suite: Path | None, config_file: Path | None, **given: Any) -> int:
    """Apply the checks of a suite as they are now to what RUN recorded, and say which verdicts change.

    RUN is the folder of a run, its id, or "latest". No agent is started. Exit code: as for "whet run".
    """
    if suite is not None and not suite.exists():
        raise UsageError(f"{suite}: no such file")
    # Only now: "whet regrade --help" needs none of it.
    from whet.run.regrade import regrade

    return regrade(run, suite=suite, flags=given_settings(given), config_file=config_file)


_CHANGED = 1


@click.command("verify", short_help="Say whether the record of a run was changed.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@setting("output_dir", help="Where runs are.")
@click.option(
    "--config", "config_file", type=FilePath(), metavar="FILE", help="The settings file; none is searched for."
)
def verify_command(runs: tuple[str, ...], config_file: Path | None, **given: Any) -> int:
    """Say whether anything in the record of each RUN was changed since whet wrote it, and where.

    RUN is the folder of a run, its id, or "latest". Exit code: 0 whole, 1 changed, 2 not a run.
    """
    # Only now: "whet verify --help" needs none of it.
    from whet.plan.settings import load_settings
    from whet.record.folder import find_run_folder
    from whet.record.verifying import verify

    settings = load_settings(Path.cwd(), flags=given_settings(given), environ=os.environ, config_file=config_file)
    folders = [find_run_folder(run, settings.output_dir) for run in runs]
    found = [(folder, verify(folder)) for folder in folders]
    for folder, verified in found:
        for line in _lines(folder, verified):
            click.echo(line)
    return _CHANGED if any(verified.problems for _, verified in found) else 0


def _lines(folder: Path, verified: Verified) -> Iterator[str]:
    """The verdict, each thing that does not fit, and what cannot be known."""
    if verified.problems:
        yield f"{folder}: changed"
    else:
        lines = "1 line" if verified.lines == 1 else f"{verified.lines} lines"
        last = f", the last hash is {verified.link}" if verified.link else ""
        yield f"{folder}: whole, {lines} in the journal{last}"
    yield from (f"  {problem}" for problem in verified.problems)
    yield from (f"  note: {note}" for note in verified.notes)


@click.command("explain", short_help="Ask the agent of a trial why it did what it did.")
@click.argument("folder", metavar="TRIAL_FOLDER", type=FILE)
@click.option(
    "--ask", "typed", multiple=True, metavar="TEXT", help="This question instead of the kept ones; repeatable."
)
@click.option("--rerun", is_flag=True, help="Ask again what was answered before.")
@setting("timeout_ms", help="Time limit of an answer.")
@setting("sandbox", help="The boundary that the agent runs inside.")
@click.option("--config", "config_file", type=FILE, metavar="FILE", help="The settings file; none is searched for.")
def explain_command(folder: Path, typed: tuple[str, ...], rerun: bool, config_file: Path | None, **given: Any) -> int:
    """Resume the session of a trial, and ask its agent the questions that failed expectations left.

    TRIAL_FOLDER is the folder of a trial or of one of its attempts. Answers are kept beside, in explanations.json.
    Exit code: 0 all answered, 1 the agent failed to answer, 3 something else went wrong.
    """
    # Only now: "whet explain --help" needs none of it.
    from whet.run.explain import ExplainRequest, explain

    flags = given_settings(given)
    return explain(ExplainRequest(folder=folder, typed=typed, rerun=rerun, flags=flags, config_file=config_file))


_FORMATS = ("json", "markdown", "html", "csv")


@click.group("report", short_help="Compare or convert the reports of an evaluation.")
def report_command() -> None:
    """Compare or convert the JSON reports of an evaluation, ours or those of others."""


@report_command.command("diff")
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
    from whet.report.completion import read_reports
    from whet.report.completion_changes import changes_json, changes_markdown, compare

    changes = compare(read_reports(before), read_reports(after), margin=margin)
    text = changes_json(changes) if as_json else changes_markdown(changes, (label_a, label_b)).encode()
    write_out(text, output)
    return 1 if any(change.regressed for change in changes) else 0


@report_command.command("convert")
@click.option("--input", "source", type=FILE, required=True, metavar="FILE", help="JSON reports.")
@click.option("--format", "wanted", type=click.Choice(_FORMATS), required=True, help="What they become.")
@click.option("--output", type=FILE, metavar="FILE", help="Write to a file instead of stdout.")
def convert(source: Path, wanted: str, output: Path | None) -> None:
    """Write the reports of an evaluation in another format."""
    from whet.report.completion import read_reports
    from whet.run.evaluation_reports import WRITERS

    write_out(WRITERS[wanted][1](read_reports(source)), output)

"""`whet merge`, `regrade`, `verify`, `export`, `explain` and `report`: work with what runs and evaluations recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import CONFIG, EXPORT_FORMATS, FILE, JSON, REPORT_FORMATS, given_settings, setting, write_out
from whet.errors import UsageError
from whet.reading.text import count

if TYPE_CHECKING:
    from whet.record.verifying import Verified


@click.command("merge", short_help="Make one record of the shards of a run.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--partial", is_flag=True, help="Merge what there is, although shards or trials are missing.")
@setting("output_dir", help="Find RUN in this folder, and create the new run there.")
@setting("reporters")
@CONFIG
def merge_command(runs: tuple[str, ...], partial: bool, config_file: Path | None, **given: Any) -> int:
    """Make one record of runs that were started with --shard, and report on it.

    RUN is the folder of a run or of a batch, its id, or a folder in which such folders lie. The runs stay as they are.

    \b
    Exit codes:
      0  every trial went as expected; of arms that you compare: every trial counts
      1  some did not; of arms that you compare: never
      2  nothing was merged: correct what the error says
      3  none failed, but some errored, or with --partial some are missing
    """
    from whet.run.merge import merge

    return merge(runs, partial=partial, flags=given_settings(given), config_file=config_file)


@click.command("regrade", short_help="Apply the current checks of a suite to a recorded run.")
@click.argument("run", metavar="RUN")
@click.option("--suite", type=FILE, metavar="FILE", help="Use the checks of this suite (default: the one that ran).")
@setting("max_parallel", help="Grade at most N trials at the same time.")
@setting("sandbox", help="The sandbox that commands of checks run in.")
@setting("output_dir", help="Find RUN in this folder, and create the new run there.")
@setting("reporters")
@CONFIG
def regrade_command(run: str, suite: Path | None, config_file: Path | None, **given: Any) -> int:
    """Apply the current checks of a suite to what RUN recorded, and report which verdicts change.

    RUN is the folder of a run, its id, or "latest". Starts no agent. Exit codes are those of "whet run".
    """
    if suite is not None and not suite.exists():
        raise UsageError(f"{suite}: no such file")
    # Imported here and not above, as in every command: its --help does not need it.
    from whet.run.regrade import regrade

    return regrade(run, suite=suite, flags=given_settings(given), config_file=config_file)


_CHANGED = 1


@click.command("verify", short_help="Check that nothing changed the record of a run.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@setting("output_dir", help="Find RUN in this folder.")
@CONFIG
def verify_command(runs: tuple[str, ...], config_file: Path | None, **given: Any) -> int:
    """Check whether anything in the record of each RUN changed after whet wrote it, and where.

    RUN is the folder of a run, its id, or "latest".

    \b
    Exit codes:
      0  nothing changed
      1  something changed
      2  not a run
    """
    from whet.plan.settings import load_settings
    from whet.record.batches import find_runs
    from whet.record.verifying import verify

    settings = load_settings(Path.cwd(), flags=given_settings(given), environ=os.environ, config_file=config_file)
    folders = [folder for run in runs for folder in find_runs(run, settings.output_dir)]
    found = [(folder, verify(folder)) for folder in folders]
    for folder, verified in found:
        for line in _lines(folder, verified):
            click.echo(line)
    return _CHANGED if any(verified.problems for _, verified in found) else 0


def _lines(folder: Path, verified: Verified) -> Iterator[str]:
    """Yield the verdict, each change that was found, and what cannot be known."""
    if verified.problems:
        yield f"{folder}: changed"
    else:
        last = f", the last hash is {verified.link}" if verified.link else ""
        yield f"{folder}: whole, {count(verified.lines, 'line')} in the journal{last}"
    yield from (f"  {problem}" for problem in verified.problems)
    yield from (f"  note: {note}" for note in verified.notes)


@click.command("export", short_help="Write a run as a table, as trajectories or as traces.")
@click.argument("run", metavar="RUN")
@click.option("--format", "wanted", type=click.Choice(EXPORT_FORMATS), required=True, help="The format.")
@click.option(
    "--output", type=FILE, metavar="PATH", help="Write to this file instead of stdout; for atif, to this new folder."
)
@click.option("--endpoint", metavar="URL", help="Send traces to this receiver, such as http://127.0.0.1:4318.")
@click.option("--content", is_flag=True, help="Include messages, tool calls and results in traces.")
@setting("output_dir", help="Find RUN in this folder.")
@CONFIG
def export_command(run: str, config_file: Path | None, wanted: str, **given: Any) -> None:
    """Write the trials of RUN for other tools.

    RUN is the folder of a run, its id, or "latest".

    \b
    Formats:
      csv, jsonl, parquet  a table with one row for each trial
      atif                 a folder with a trajectory of each attempt, for Harbor
      otlp                 OpenTelemetry traces, one for each trial

    parquet needs whet[parquet], and otlp needs whet[otlp].
    """
    from whet.cli.errors import warn_of
    from whet.plan.settings import load_settings
    from whet.record.folder import find_run_folder
    from whet.report.export import ExportRequest, check_request, export

    settings = load_settings(Path.cwd(), flags=given_settings(given), environ=os.environ, config_file=config_file)
    output: Path | None = given["output"]
    request = ExportRequest(
        run_dir=find_run_folder(run, settings.output_dir),
        format=wanted,
        output=output,
        endpoint=given["endpoint"],
        content=given["content"],
    )
    check_request(request)
    warn_of(export(request, lambda chunks: write_out(chunks, output), os.environ))


@click.command("explain", short_help="Ask the agent of a trial why it did what it did.")
@click.argument("folder", metavar="TRIAL_FOLDER", type=FILE)
@click.option(
    "--ask", "typed", multiple=True, metavar="TEXT", help="Ask this instead of the recorded questions (repeatable)."
)
@click.option("--rerun", is_flag=True, help="Ask again, even if there is an answer.")
@setting("timeout_ms", help="Time limit of an answer.")
@setting("max_cost_usd", help="Ask nothing more once the run and its questions cost this much.")
@setting("sandbox", help="The sandbox that the agent runs in.")
@CONFIG
def explain_command(folder: Path, typed: tuple[str, ...], rerun: bool, config_file: Path | None, **given: Any) -> int:
    """Resume the session of a trial, and ask its agent the questions of the expectations that failed.

    TRIAL_FOLDER is the folder of a trial or of one of its attempts. The answers go to explanations.json in it.

    \b
    Exit codes:
      0  the agent answered every question
      1  it failed to answer
      3  something else went wrong
    """
    from whet.run.explain import ExplainRequest, explain

    flags = given_settings(given)
    return explain(ExplainRequest(folder=folder, typed=typed, rerun=rerun, flags=flags, config_file=config_file))


class _Reports(click.Group):
    """Takes what is not one of its commands as the name of a run."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command, and the words after it."""
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        return "RUN", _pages, args

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show both ways."""
        super().format_usage(ctx, formatter)
        formatter.write_usage(ctx.command_path, "RUN --html FILE", prefix="   or: ")


@click.command("RUN")
@click.argument("run", metavar="RUN")
@click.option("--html", "target", type=FILE, required=True, metavar="FILE", help="Write the pages of RUN to this file.")
@setting("output_dir", help="Find RUN in this folder.")
@CONFIG
def _pages(run: str, target: Path, config_file: Path | None, **given: Any) -> None:
    """Write the pages of RUN to a file that opens from disk; of a large run, to a folder beside it.

    RUN is the folder of a run or of a batch, its id, or "latest".
    """
    from whet.plan.settings import load_settings
    from whet.record.batches import find_runs
    from whet.report.html import write_pages

    settings = load_settings(Path.cwd(), flags=given_settings(given), environ=os.environ, config_file=config_file)
    folders = find_runs(run, settings.output_dir)
    if not target.parent.is_dir():
        raise UsageError(f"no such folder: {target.parent}", hint=f"create it first: mkdir -p {target.parent}")
    try:
        click.echo(f"wrote {write_pages(target, folders)}")
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error


@click.group("report", cls=_Reports, short_help="Write the pages of a run, or compare reports of evaluations.")
def report_command() -> None:
    """Write the pages of RUN to a file, or compare or convert the JSON reports of evaluations."""


@report_command.command("diff")
@click.argument("before", metavar="A", type=FILE)
@click.argument("after", metavar="B", type=FILE)
@click.option("--label-a", default="before", metavar="TEXT", help="The name of A in the output.")
@click.option("--label-b", default="after", metavar="TEXT", help="The name of B in the output.")
@click.option(
    "--margin", type=click.FloatRange(0, 1), default=0.0, metavar="SHARE", help="Allow a score to drop by this much."
)
@JSON
@click.option("--output", type=FILE, metavar="FILE", help="Write to this file instead of stdout.")
def diff(
    before: Path, after: Path, *, label_a: str, label_b: str, margin: float, as_json: bool, output: Path | None
) -> int:
    """Compare the skills in B with those in A, task by task.

    \b
    Exit codes:
      0  no skill regressed
      1  at least one did
    """
    from whet.report.completion import read_reports
    from whet.report.completion_files import changes_json, changes_markdown, compare

    changes = compare(read_reports(before), read_reports(after), margin=margin)
    text = changes_json(changes) if as_json else changes_markdown(changes, (label_a, label_b)).encode()
    write_out([text], output)
    return 1 if any(change.regressed for change in changes) else 0


@report_command.command("convert")
@click.option("--input", "source", type=FILE, required=True, metavar="FILE", help="The JSON reports.")
@click.option("--format", "wanted", type=click.Choice(REPORT_FORMATS), required=True, help="The new format.")
@click.option("--output", type=FILE, metavar="FILE", help="Write to this file instead of stdout.")
def convert(source: Path, wanted: str, output: Path | None) -> None:
    """Convert the reports of an evaluation to another format."""
    from whet.report.completion import read_reports
    from whet.report.completion_files import WRITERS

    write_out([WRITERS[wanted][1](read_reports(source))], output)

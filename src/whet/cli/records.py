"""`whet merge`, `regrade`, `verify`, `export`, `explain` and `report`: work with what runs and evaluations recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet import exit_codes
from whet.cli.common import (
    CONFIG,
    EXPORT_FORMATS,
    FILE,
    JSON,
    REPORT_FORMATS,
    RESULTS_JSON,
    given_settings,
    print_document,
    print_lines,
    screen_of,
    setting,
    write_out,
)
from whet.cli.grammar.candidates import complete_runs
from whet.cli.grammar.quantities import Points
from whet.errors import UsageError
from whet.reading.text import count

if TYPE_CHECKING:
    from whet.model.request import Settings
    from whet.record.verify.verify import Verification
    from whet.report.screen import Screen


@click.command("merge", short_help="Make one record of the shards of a run.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_runs)
@click.option("--partial", is_flag=True, help="Merge what there is, although shards or trials are missing.")
@setting("output_dir", help="Find RUN in this folder, and create the new run there.")
@setting("reporters")
@RESULTS_JSON
@CONFIG
def merge_command(runs: tuple[str, ...], partial: bool, config_file: Path | None, **options: Any) -> int:
    """Make one record of runs that were started with --shard, and report on it.

    RUN is the folder of a run or of a batch, its id, or a folder in which such folders lie. The runs stay as they are.

    \b
    Exit codes:
      0  every trial went as expected; of arms that you compare: every trial counts
      1  some did not; of arms that you compare: never
      2  nothing was merged: correct what the error says
      3  none failed, but some errored, or with --partial some are missing
    """
    from whet.run.other.merge import merge

    return merge(runs, partial=partial, flags=given_settings(options), config_file=config_file)


@click.command("regrade", short_help="Apply the current checks of a suite to a recorded run.")
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option("--suite", type=FILE, metavar="FILE", help="Use the checks of this suite (default: the one that ran).")
@setting("max_parallel", help="Grade at most N trials at the same time.")
@setting("sandbox", help="The sandbox that commands of checks run in.")
@setting("output_dir", help="Find RUN in this folder, and create the new run there.")
@setting("reporters")
@RESULTS_JSON
@CONFIG
def regrade_command(run: str, suite: Path | None, config_file: Path | None, **options: Any) -> int:
    """Apply the current checks of a suite to what RUN recorded, and report which verdicts change.

    RUN is the folder of a run, its id, or "latest". Starts no agent. Exit codes are those of "whet run".
    """
    if suite is not None and not suite.exists():
        raise UsageError(f"{suite}: no such file")
    # Imported here and not above, as in every command: its --help does not need it.
    from whet.run.other.regrade import regrade

    return regrade(run, suite=suite, flags=given_settings(options), config_file=config_file)


@click.command("verify", short_help="Check that nothing changed the record of a run.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_runs)
@setting("output_dir", help="Find RUN in this folder.")
@JSON
@CONFIG
def verify_command(runs: tuple[str, ...], as_json: bool, config_file: Path | None, **options: Any) -> int:
    """Check whether anything in the record of each RUN changed after whet wrote it, and where.

    RUN is the folder of a run or of an improve run, its id, or "latest".

    \b
    Exit codes:
      0  nothing changed
      1  something changed
      2  not a run
    """
    from whet.plan.settings.load import load_here
    from whet.record.batches import find_runs
    from whet.record.verify.verify import verify

    settings = load_here(given_settings(options), config_file)
    verifications: list[tuple[Path, Verification]] = []
    for run in runs:
        improvement = _find_improvement(run, settings)
        if improvement is None:
            verifications += ((folder, verify(folder)) for folder in find_runs(run, settings.output_dir))
        else:
            verifications.append(improvement)
    code = exit_codes.FAILED if any(verification.problems for _, verification in verifications) else exit_codes.DONE
    if as_json:
        _print_verifications(verifications)
        return code
    for folder, verification in verifications:
        print_lines(_lines(folder, verification, screen_of(sys.stdout)))
    return code


def _find_improvement(name: str, settings: Settings) -> tuple[Path, Verification] | None:
    """Return how an improve run is that *name* names; None if it names none."""
    from whet.improve.plan import improve_dir
    from whet.record.folder import LATEST
    from whet.record.improve.document import FILE as IMPROVE_FILE
    from whet.record.improve.folder import ImproveFolder

    places = (Path(name), *([] if name == LATEST else [improve_dir(settings) / name]))
    place = next((place for place in places if (place / IMPROVE_FILE).is_file()), None)
    if place is None:
        return None
    from whet.improve.verify import verify_improvement

    return place, verify_improvement(ImproveFolder(place.resolve()))


def _print_verifications(verifications: Sequence[tuple[Path, Verification]]) -> None:
    from whet.cli.machine.documents import VerificationDocument, VerifiedRun

    runs = tuple(
        VerifiedRun(
            run=str(folder),
            whole=not verification.problems,
            lines=verification.lines,
            last_hash=verification.link,
            problems=verification.problems,
            notes=verification.notes,
        )
        for folder, verification in verifications
    )
    document = VerificationDocument(whole=all(run.whole for run in runs), runs=runs)
    print_document(document)


def _lines(folder: Path, verification: Verification, screen: Screen) -> Iterator[str]:
    """Yield the verdict, each change that was found, and what cannot be known."""
    if verification.problems:
        yield f"{folder}: {screen.paint('changed', 'bad')}"
    else:
        last = f", the last hash is {verification.link}" if verification.link else ""
        yield f"{folder}: {screen.paint('whole', 'good')}, {count(verification.lines, 'line')} in the journal{last}"
    yield from (f"  {problem}" for problem in verification.problems)
    yield from (f"  note: {note}" for note in verification.notes)


@click.command("export", short_help="Write a run as a table, as trajectories or as traces.")
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option("--format", "wanted", type=click.Choice(EXPORT_FORMATS), required=True, help="The format.")
@click.option(
    "--output", type=FILE, metavar="PATH", help="Write to this file instead of stdout; for atif, to this new folder."
)
@click.option("--endpoint", metavar="URL", help="Send traces to this receiver, such as http://127.0.0.1:4318.")
@click.option("--content", is_flag=True, help="Include messages, tool calls and results in traces.")
@setting("output_dir", help="Find RUN in this folder.")
@CONFIG
def export_command(run: str, config_file: Path | None, wanted: str, **options: Any) -> None:
    """Write the trials of RUN for other tools.

    RUN is the folder of a run, its id, or "latest".

    \b
    Formats:
      csv, jsonl, parquet  a table with one row for each trial
      atif                 a folder with a trajectory of each attempt, for Harbor
      otlp                 OpenTelemetry traces, one for each trial

    parquet needs whet-eval[parquet], and otlp needs whet-eval[otlp].
    """
    from whet.cli.errors import warn_of
    from whet.plan.settings.load import load_here
    from whet.record.folder import find_run_folder
    from whet.report.export.export import ExportRequest, check_request, export

    settings = load_here(given_settings(options), config_file)
    output: Path | None = options["output"]
    request = ExportRequest(
        run_dir=find_run_folder(run, settings.output_dir),
        format=wanted,
        output=output,
        endpoint=options["endpoint"],
        content=options["content"],
    )
    check_request(request)
    warn_of(export(request, lambda chunks: write_out(chunks, output), os.environ))


@click.command("explain", short_help="Ask the agent of a trial why it did what it did.")
@click.argument("folder", metavar="[TRIAL]", type=FILE, required=False)
@click.option(
    "--ask", "typed", multiple=True, metavar="TEXT", help="Ask this instead of the recorded questions (repeatable)."
)
@click.option("--rerun", is_flag=True, help="Ask again, even if there is an answer.")
@setting("timeout_ms", help="Time limit of an answer: 30s, 500ms or 2m; a bare number is ms.")
@setting("max_cost_usd", help="Ask nothing more once the run and its questions cost this much.")
@setting("sandbox", help="The sandbox that the agent runs in.")
@setting("output_dir", help="Find the trial, or the newest run, in this folder.")
@JSON
@CONFIG
def explain_command(
    folder: Path | None, *, typed: tuple[str, ...], rerun: bool, as_json: bool, config_file: Path | None, **options: Any
) -> int:
    """Resume the session of a trial, and ask its agent the questions of the expectations that failed.

    TRIAL is the folder of a trial or of one of its attempts, or the id that a failure prints.
    The answers go to explanations.json in its folder.
    Without TRIAL, whet asks nothing: it lists what failed in the newest run, and why.

    \b
    Exit codes:
      0  the agent answered every question
      1  it failed to answer
      3  something else went wrong
    """
    from whet.cli.grammar.targets import find_trial
    from whet.plan.settings.load import load_here
    from whet.run.explain.explain import ExplainRequest, explain
    from whet.run.explain.last_failures import last_failure_lines, last_failures

    flags = given_settings(options)

    def find_output_dir() -> Path:
        return load_here(flags, config_file).output_dir

    if folder is None:
        if typed or rerun:
            raise UsageError("which trial?", hint="whet explain without options lists those that failed")
        if as_json:
            print_document(last_failures(find_output_dir()))
        else:
            print_lines(last_failure_lines(find_output_dir()))
        return exit_codes.DONE
    if as_json:
        raise UsageError("--json is for the list of failures", hint="the answers are in explanations.json of the trial")
    folder = find_trial(folder, find_output_dir)
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
        """Show both ways to call the command."""
        super().format_usage(ctx, formatter)
        formatter.write_usage(ctx.command_path, "RUN --html FILE", prefix="   or: ")


@click.command("RUN")
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option("--html", "target", type=FILE, required=True, metavar="FILE", help="Write the pages of RUN to this file.")
@setting("output_dir", help="Find RUN in this folder.")
@CONFIG
def _pages(run: str, target: Path, config_file: Path | None, **options: Any) -> None:
    """Write the pages of RUN to a file that opens from disk; of a large run, to a folder beside it.

    RUN is the folder of a run or of a batch, its id, or "latest".
    """
    from whet.plan.settings.load import load_here
    from whet.record.batches import find_runs
    from whet.view.html import write_pages

    settings = load_here(given_settings(options), config_file)
    folders = find_runs(run, settings.output_dir)
    if not target.parent.is_dir():
        raise UsageError(f"no such folder: {target.parent}", hint=f"create it first: mkdir -p {target.parent}")
    try:
        pages = write_pages(target, folders)
        print_lines([f"wrote {screen_of(sys.stdout).link(str(pages), pages)}"])
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
    "--margin",
    type=Points(0, 100),
    default=0.0,
    metavar="POINTS",
    help="Allow a score to drop by so many points of 100.",
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
    from whet.callable.report import read_reports
    from whet.callable.report_files import changes_json, changes_markdown, compare

    changes = compare(read_reports(before), read_reports(after), margin=margin / 100)
    text = changes_json(changes) if as_json else changes_markdown(changes, (label_a, label_b)).encode()
    write_out([text], output)
    return exit_codes.FAILED if any(change.regressed for change in changes) else exit_codes.DONE


@report_command.command("convert")
@click.option("--input", "source", type=FILE, required=True, metavar="FILE", help="The JSON reports.")
@click.option("--format", "wanted", type=click.Choice(REPORT_FORMATS), required=True, help="The new format.")
@click.option("--output", type=FILE, metavar="FILE", help="Write to this file instead of stdout.")
def convert(source: Path, wanted: str, output: Path | None) -> None:
    """Convert the reports of an evaluation to another format."""
    from whet.callable.report import read_reports
    from whet.callable.report_files import WRITERS

    write_out([WRITERS[wanted][1](read_reports(source))], output)

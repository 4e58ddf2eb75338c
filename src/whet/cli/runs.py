"""`whet runs` and `whet status`: list and remove the runs that are recorded, and say what they have measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet import exit_codes
from whet.cli.common import (
    AT_LEAST_1,
    CONFIG,
    FILE,
    JSON,
    SOME_TEXT,
    Decorator,
    given_settings,
    print_document,
    print_lines,
    screen_of,
    setting,
    with_options,
)
from whet.cli.grammar.candidates import complete_cases, complete_runners, complete_runs
from whet.cli.grammar.options import option
from whet.cli.grammar.quantities import TIME_METAVAR, Duration
from whet.errors import UsageError
from whet.reading.text import aligned, count, money, one_line, path_for_people

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from whet.model.request import RunRequest
    from whet.plan.outstanding import SuiteStatus
    from whet.record.listing import ListedRun
    from whet.record.removal import Removal

_KB, _MB = 1_000, 1_000_000
_OTHER_WORDS = {"ls": "list", "rm": "remove", "delete": "remove"}
_FILTER_NAMES = ("suite", "outcome", "older_than", "since")
_OUTCOMES = ("passed", "failed", "errored", "unfinished", "running")


def _age(name: str, help_text: str) -> Decorator[Any]:
    """Return an option that is a time."""
    return click.option(name, type=Duration("days"), metavar=TIME_METAVAR, help=help_text)


_FILTERS = with_options(
    (
        click.option(
            "--suite",
            type=SOME_TEXT,
            metavar="NAME|PATH",
            help="Only runs of this suite, or of those that fit a pattern.",
        ),
        click.option("--outcome", type=click.Choice(_OUTCOMES), help="Only runs that ended like this."),
        _age("--older-than", "Only runs that began longer ago: 30d or 12h; a bare number is days."),
        _age("--since", "Only runs that began within this time: 7d or 2h; a bare number is days."),
        setting("output_dir", help="Find runs in this folder."),
        CONFIG,
    )
)


class _ListByDefault(click.Group):
    """Lists runs, if no command is named; the Tab key offers the other commands too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the words after the command, which is `list` unless another one is named."""
        if not args and ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        word = _OTHER_WORDS.get(args[0], args[0]) if args else ""
        is_named = word in self.commands or word in ctx.help_option_names
        return super().parse_args(ctx, [word, *args[1:]] if is_named else ["list", *args])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, and the options of the one that runs without its name."""
        listing = self.commands["list"]
        with click.Context(listing, parent=ctx, resilient_parsing=True) as list_context:
            options = listing.shell_complete(list_context, incomplete)
        own = super().shell_complete(ctx, incomplete)
        names = {item.value for item in own}
        return [*own, *(item for item in options if item.value not in names)]


@click.group("runs", cls=_ListByDefault, short_help="List, filter and remove runs.")
def runs_command() -> None:
    """List the runs of this project, or remove some.

    "whet runs" is "whet runs list", and takes its options.
    """


@runs_command.command("list", short_help="List runs, the newest first.")
@click.argument("place", metavar="[SUITE]", type=SOME_TEXT, required=False)
@_FILTERS
@click.option("--limit", type=AT_LEAST_1, default=20, show_default=True, metavar="N", help="List at most N.")
@JSON
def list_command(place: str | None, *, limit: int, as_json: bool, config_file: Path | None, **options: Any) -> None:
    """List runs, the newest first: what they ran, and how they ended. SUITE is the same as --suite."""
    from whet.record.listing import RunListing

    output_dir = _output_dir(options, config_file)
    wanted = options | {"suite": options["suite"] or place}
    runs = _filtered(output_dir, wanted)
    if as_json:
        print_document(RunListing(output_dir=str(output_dir), runs=tuple(runs[:limit])))
        return
    print_lines(_table(runs[:limit], output_dir) if runs else [_nothing(output_dir, wanted)])
    if len(runs) > limit:
        click.echo(f"and {count(len(runs) - limit, 'more run')}: --limit {len(runs)} lists all")


def _table(runs: Sequence[ListedRun], output_dir: Path) -> Iterator[str]:
    """Yield a line for each run, whose name is a link to its folder if the terminal opens links."""
    screen = screen_of(sys.stdout)
    heading, *lines = aligned([_HEAD, *map(_row, runs)])
    yield heading
    for run, line in zip(runs, lines, strict=True):
        yield screen.link(run.run, output_dir / run.run) + line.removeprefix(run.run)


def _nothing(output_dir: Path, wanted: Mapping[str, Any]) -> str:
    """Return why the list is empty."""
    folder = path_for_people(output_dir, Path.cwd())
    return f"no run in {folder} is like that" if _are_filtered(wanted) else f"there are no runs in {folder}"


def _are_filtered(options: Mapping[str, Any]) -> bool:
    return any(options[name] is not None for name in _FILTER_NAMES)


_HEAD = ("run", "suite", "arms", "trials", "outcome", "cost")


def _row(run: ListedRun) -> tuple[str, ...]:
    arms = ", ".join(run.arms)
    return (
        run.run,
        one_line(run.suite or "-", 40),
        one_line("-" if arms == "default" else arms, 40),
        f"{run.passed} of {run.trials}",
        _outcome(run),
        "-" if run.cost_usd is None else money(run.cost_usd),
    )


def _outcome(run: ListedRun) -> str:
    parts = [f"{number} {word}" for number, word in ((run.failed, "failed"), (run.errored, "errored")) if number]
    if run.outcome in ("unfinished", "running"):
        parts.insert(0, run.outcome)
    return ", ".join(parts) or run.outcome


@runs_command.command("remove", short_help="Remove runs, and say what that frees.")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@_FILTERS
@click.option("--keep", type=AT_LEAST_1, metavar="N", help="Keep the newest N of what the filters choose.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@JSON
def remove_command(
    names: tuple[str, ...],
    *,
    keep: int | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    config_file: Path | None,
    **options: Any,
) -> int:
    """Remove each RUN, or the runs that the filters choose, and say what that frees.

    RUN is the folder of a run or of several suites, its id, or "latest". A run that is under way stays.

    \b
    Exit codes:
      0  all of them are removed
      1  some are still there
      2  nothing was removed: correct what the error says
    """
    from whet.record.removal import foresee_removal, remove_runs

    output_dir = _output_dir(options, config_file)
    folders = _named(names, output_dir) if names else _chosen(output_dir, options, keep)
    outlook = foresee_removal(folders, output_dir)
    if dry_run or not outlook.removed:
        _print_removal(outlook, as_json=as_json)
        return exit_codes.FAILED if outlook.spared and not dry_run else exit_codes.DONE
    if not yes:
        _ask(outlook)
    removal = remove_runs(folders, output_dir)
    _print_removal(removal, as_json=as_json)
    return exit_codes.FAILED if removal.spared else exit_codes.DONE


def _named(names: Sequence[str], output_dir: Path) -> list[Path]:
    from whet.record.batches import find_batch
    from whet.record.folder import find_run_folder

    return [find_batch(name, output_dir) or find_run_folder(name, output_dir) for name in names]


def _chosen(output_dir: Path, options: dict[str, Any], keep: int | None) -> list[Path]:
    """Return the folders that the filters choose; removing everything has to be said."""
    if keep is None and not _are_filtered(options):
        raise UsageError(
            "say which runs to remove",
            hint="name them, or choose some: whet runs remove --older-than 30d, or --keep 10",
        )
    return [Path(run.folder) for run in _filtered(output_dir, options)[keep or 0 :]]


def _ask(outlook: Removal) -> None:
    """Ask whether to remove what was chosen; raises if nobody can be asked, or the answer is no."""
    what = f"{count(len(outlook.removed), 'run')} ({_size(outlook.bytes)})"
    if not sys.stdin.isatty():
        raise UsageError(f"removing {what} needs your word", hint="add --yes, or look first with --dry-run")
    for name in outlook.removed:
        click.echo(name, err=True)
    click.confirm(f"Remove {what}?", abort=True, err=True)


def _print_removal(removal: Removal, *, as_json: bool) -> None:
    if as_json:
        print_document(removal)
        return
    if removal.dry_run:
        for name in removal.removed:
            click.echo(name)
    for run in removal.spared:
        click.echo(f"warning: {run.run} {run.reason}", err=True)
    verb = "would remove" if removal.dry_run else "removed"
    frees = f", which frees {_size(removal.bytes)}" if removal.removed else ""
    click.echo(f"{verb} {count(len(removal.removed), 'run')}{frees}")


def _size(size: int) -> str:
    return f"{size / _MB:,.1f} MB" if size >= _MB else f"{size / _KB:,.1f} kB"


def _filtered(output_dir: Path, options: dict[str, Any]) -> list[ListedRun]:
    from whet.record.listing import age_s, list_runs

    now = datetime.now(UTC)
    suite, outcome = options["suite"], options["outcome"]
    older_ms, since_ms = options["older_than"], options["since"]

    def fits(run: ListedRun) -> bool:
        age = age_s(run, now)
        return (
            (suite is None or _is_of(run, suite))
            and outcome in (None, run.outcome)
            and (older_ms is None or (age is not None and age * 1000 > older_ms))
            and (since_ms is None or (age is not None and age * 1000 <= since_ms))
        )

    return [run for run in list_runs(output_dir) if fits(run)]


def _is_of(run: ListedRun, suite: str) -> bool:
    """Return whether a run is of the suite with this name, pattern or path, or of one in this folder."""
    if run.suite is not None and fnmatchcase(run.suite, suite):
        return True
    path = Path(suite).resolve()
    return run.suite_path is not None and Path(run.suite_path).is_relative_to(path)


def _output_dir(options: dict[str, Any], config_file: Path | None) -> Path:
    from whet.plan.settings.load import load_here

    flags = given_settings(options)
    return load_here(flags, config_file).output_dir


@click.command("status", short_help="Say what has changed since it was measured.")
@click.argument("paths", metavar="[PATH]...", type=FILE, nargs=-1)
@option(
    "--case",
    "cases",
    multiple=True,
    metavar="ID",
    shell_complete=complete_cases,
    help="Look only at this case, or those that fit a pattern.",
)
@option("--tag", "tags", multiple=True, metavar="TAG", help="Look only at cases with this tag (repeatable).")
@option(
    "--runner",
    "runners",
    multiple=True,
    metavar="ID",
    shell_complete=complete_runners,
    help="Look only at this runner (repeatable).",
)
@option("--arm", "arms", multiple=True, metavar="NAME[=SPEC]", help="Look at this arm, as whet run does (repeatable).")
@option("--skill", type=FILE, metavar="PATH", help="The skill that the suite is about: a folder, or an archive.")
@option("--model", metavar="NAME", help="Ask for a run with this model.")
@setting("trials")
@option("--check", is_flag=True, help="Exit with 1 if something is outstanding.")
@setting("output_dir", help="Find runs in this folder.")
@JSON
@CONFIG
def status_command(*, paths: tuple[Path, ...], check: bool, as_json: bool, **options: Any) -> int:
    """Say which cases of PATH a finished run has measured as they are now, and what has changed since of the others.

    PATH is a suite, a skill, or a folder of these. Nothing is started: "whet run --changed" runs what is outstanding.

    \b
    Exit codes:
      0  nothing is outstanding, or you did not ask with --check
      1  something is outstanding
      2  the suite or the settings cannot be read
    """
    from whet.cli.grammar.targets import find_named
    from whet.plan.load import load_inputs, plan_run
    from whet.plan.outstanding import StatusDocument, find_outstanding
    from whet.suites.format import load_suite

    statuses: list[SuiteStatus] = []
    output_dir = Path()
    for suite in find_named(paths):
        inputs = load_inputs(_request_of_status(suite.path, suite.skill, options))
        planned_run = plan_run(inputs, load_suite(suite.path))
        output_dir = planned_run.settings.output_dir
        statuses.append(find_outstanding(planned_run.plan, planned_run.settings))
    is_outstanding = any(status.outstanding for status in statuses)
    if as_json:
        print_document(StatusDocument(ok=not is_outstanding, output_dir=str(output_dir), suites=tuple(statuses)))
    else:
        _print_status(statuses)
    return exit_codes.FAILED if check and is_outstanding else exit_codes.DONE


def _request_of_status(suite: Path, skill: Path | None, options: dict[str, Any]) -> RunRequest:
    from whet.cli.run import request_of

    defaults = {"shard": None, "last_failed": False, "dry_run": False, "resume": None, "verbose": False}
    return request_of("status", {**defaults, **options, "paths": (suite,), "skill": options["skill"] or skill})


def _print_status(statuses: Sequence[SuiteStatus]) -> None:
    from whet.plan.outstanding import nothing_outstanding

    for status in statuses:
        for unread in status.unread:
            click.echo(f"warning: {unread}", err=True)
        if status.outstanding:
            print_lines([status.headline])
        print_lines(f"  {line}" for line in status.lines())
    if not any(status.outstanding for status in statuses):
        cases = sum(status.cases for status in statuses)
        failed = sum(len(status.failed_cases) for status in statuses)
        click.echo(nothing_outstanding(cases, failed, len(statuses)))

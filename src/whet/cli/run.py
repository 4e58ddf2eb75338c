"""`whet run`: what was typed becomes a request, and the pipeline does the rest."""

from __future__ import annotations

from typing import Any

import click

from whet.cli.paths import FilePath
from whet.config.settings import SANDBOXES
from whet.errors import UsageError
from whet.model.run import SCHEDULES
from whet.plan import RunRequest, Selection, parse_shard, split_list

_FILE = FilePath()
# Options that override a setting, by the setting's name.
_OVERRIDES = (
    "cwd",
    "output_dir",
    "schedule",
    "max_parallel",
    "trials",
    "retries",
    "max_steps",
    "timeout_ms",
    "reporters",
    "sandbox",
)


@click.command("run", short_help="Run a suite and report verdicts.")
@click.argument("suite", type=_FILE, required=False)
@click.option("--case", "cases", multiple=True, metavar="ID", help="Only these cases; repeatable, comma lists.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only cases with one of these tags.")
@click.option("--runner", "runners", multiple=True, metavar="ID", help="Only these runners.")
@click.option("--shard", metavar="I/N", help="Only the I-th of N equal parts of what is selected.")
@click.option("--last-failed", is_flag=True, help="Only what did not go as expected last time.")
@click.option("--dry-run", is_flag=True, help="Print the plan and start nothing.")
@click.option("--resume", metavar="RUN", help="Do what is missing of an earlier run; SUITE may be left out.")
@click.option("--update-snapshots", is_flag=True, help="Take new usage snapshots of what is run.")
@click.option("--trials", type=click.IntRange(min=1), metavar="N", help="Samples of every case on every runner.")
@click.option("--retries", type=click.IntRange(min=0), metavar="N", help="Further attempts at a trial that failed.")
@click.option("--timeout-ms", type=click.IntRange(min=1), metavar="MS", help="Time limit of an attempt.")
@click.option("--max-steps", type=click.IntRange(min=1), metavar="N", help="Most model rounds of an attempt.")
@click.option("--schedule", type=click.Choice(SCHEDULES), help="What may run at the same time.")
@click.option("--max-parallel", type=click.IntRange(min=1), metavar="N", help="Most trials at a time.")
@click.option("--sandbox", type=click.Choice(SANDBOXES), help="The boundary that agents run inside.")
@click.option("--cwd", type=_FILE, metavar="DIR", help="Work in this folder, shared by all.")
@click.option("--output-dir", type=_FILE, metavar="DIR", help="Where the folder of the run is made.")
@click.option(
    "--reporter", "reporters", multiple=True, metavar="NAME[=FILE]", help="Who reports; replaces the configured list."
)
@click.option("--config", "config_file", type=_FILE, metavar="FILE", help="The settings file; none is searched for.")
def command(**given: Any) -> int:
    """Run SUITE against the configured runners and report verdicts.

    Exit code: 0 all as expected, 1 some not, 2 nothing was run because something must be corrected first,
    3 nothing failed but some trials errored, 4 the run began and could not be recorded, 130 interrupted.
    """
    request = _request(given)
    # Only now: "whet run --help" and a mistyped option need none of it.
    from whet import pipeline

    return pipeline.run(request)


def _request(given: dict[str, Any]) -> RunRequest:
    suite = given["suite"]
    if suite is None and given["resume"] is None:
        raise UsageError("which suite?", hint='name its file, such as "whet run suite.py"')
    if suite is not None and not suite.exists():
        raise UsageError(f"{suite}: no such file")
    return RunRequest(
        suite=suite,
        flags={name: given[name] for name in _OVERRIDES if given[name] not in (None, ())},
        config_file=given["config_file"],
        selection=_selection(given),
        last_failed=given["last_failed"],
        dry_run=given["dry_run"],
        resume=given["resume"],
        update_snapshots=given["update_snapshots"],
    )


def _selection(given: dict[str, Any]) -> Selection:
    return Selection(
        cases=split_list(given["cases"]),
        tags=split_list(given["tags"]),
        runners=split_list(given["runners"]),
        shard=parse_shard(given["shard"]) if given["shard"] is not None else None,
    )

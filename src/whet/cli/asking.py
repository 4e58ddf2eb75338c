"""What can be asked of any run: the options that its commands share, and the request that they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from whet.cli.paths import FilePath
from whet.cli.typed import typed_again, typed_for_resume
from whet.config.settings import SANDBOXES
from whet.errors import UsageError
from whet.plan import RunRequest, Selection, parse_shard, split_list

Command = TypeVar("Command", bound=Callable[..., Any])
FILE = FilePath()
DOLLARS = click.FloatRange(min=0)
# Options that override a setting, by the setting's name.
_OVERRIDES = (
    "cwd",
    "output_dir",
    "schedule",
    "max_parallel",
    "trials",
    "retries",
    "max_steps",
    "max_cost_usd",
    "budget_usd",
    "timeout_ms",
    "reporters",
    "sandbox",
)
_WHICH = (
    click.argument("suite", type=FILE, required=False),
    click.option("--case", "cases", multiple=True, metavar="ID", help="Only these cases; repeatable, comma lists."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only cases with one of these tags."),
    click.option("--runner", "runners", multiple=True, metavar="ID", help="Only these runners."),
    click.option("--shard", metavar="I/N", help="Only the I-th of N equal parts of what is selected."),
    click.option("--last-failed", is_flag=True, help="Only what did not go as expected last time."),
    click.option("--dry-run", is_flag=True, help="Print the plan and start nothing."),
    click.option("--resume", metavar="RUN", help="Do what is missing of an earlier run; SUITE may be left out."),
)
_HOW = (
    click.option("--model", metavar="NAME", help="The model, whatever cases, suite and runners say."),
    click.option("--retries", type=click.IntRange(min=0), metavar="N", help="Further attempts at a trial that failed."),
    click.option(
        "--max-cost", "max_cost_usd", type=DOLLARS, metavar="USD", help="Start no trial once so much is spent."
    ),
    click.option("--sandbox", type=click.Choice(SANDBOXES), help="The boundary that agents run inside."),
    click.option("--verbose", is_flag=True, help="Show what agents say and do while they do it."),
    click.option("--output-dir", type=FILE, metavar="DIR", help="Where the folder of the run is made."),
    click.option(
        "--reporter",
        "reporters",
        multiple=True,
        metavar="NAME[=FILE]",
        help="Who reports; replaces the configured list.",
    ),
    click.option("--config", "config_file", type=FILE, metavar="FILE", help="The settings file; none is searched for."),
)


def asking(command: Command) -> Command:
    """Give *command* the shared options around its own: what is run, then how."""
    for option in reversed(_HOW):
        command = option(command)
    return command


def selecting(command: Command) -> Command:
    """Give *command* the suite and the options that choose from it."""
    for option in reversed(_WHICH):
        command = option(command)
    return command


def request_of(name: str, given: dict[str, Any]) -> RunRequest:
    """What `whet NAME` was asked."""
    suite = given["suite"]
    if suite is None and given["resume"] is None:
        example = "suite.json" if name == "bench" else "suite.py"
        raise UsageError("which suite?", hint=f'name its file, such as "whet {name} {example}"')
    if suite is not None and not suite.exists():
        raise UsageError(f"{suite}: no such file")
    model = given["model"]
    if model is not None and not model.strip():
        raise UsageError("--model: must not be empty")
    return RunRequest(
        suite=suite,
        flags={name: given[name] for name in _OVERRIDES if given.get(name) not in (None, ())},
        config_file=given["config_file"],
        selection=Selection(
            cases=split_list(given["cases"]),
            tags=split_list(given["tags"]),
            runners=split_list(given["runners"]),
            variants=split_list(given.get("variants", ())),
            shard=parse_shard(given["shard"]) if given["shard"] is not None else None,
        ),
        last_failed=given["last_failed"],
        dry_run=given["dry_run"],
        resume=given["resume"],
        update_snapshots=given.get("update_snapshots", False),
        model=model,
        in_place=given.get("in_place", False),
        fail_fast=given.get("fail_fast", False),
        strict=given.get("strict", False),
        verbose=given["verbose"],
        command=name,
        again=typed_again(),
        going_on=typed_for_resume("--verbose"),
        skill=given.get("skill"),
    )

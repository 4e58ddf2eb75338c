"""What can be asked of any run: the options that its commands share, and the request that they become."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from whet.cli.errors import FilePath
from whet.errors import UsageError
from whet.model.request import RunRequest, Selection, parse_shard, split_list
from whet.plan.settings_table import GIVEN, Rule

if TYPE_CHECKING:
    from whet.ground.sandbox import Sandbox
    from whet.model.run import Plan

# Where the words after the name of a command are kept while it runs.
TYPED = "whet.typed"
# What chooses from a suite, and what asks for something else than running it.
_SELECTING = frozenset(
    ("--case", "--task", "--tag", "--runner", "--variant", "--shard", "--last-failed", "--dry-run", "--resume")
)


def typed_again() -> tuple[str, ...]:
    """All that was typed but what selects."""
    return _typed(lambda name: name not in _SELECTING, others=True)


def typed_for_resume(*names: str) -> tuple[str, ...]:
    """Of what was typed the options of these *names*: the record has the rest."""
    return _typed(lambda name: name in names, others=False)


def _typed(wanted: Callable[[str], bool], *, others: bool) -> tuple[str, ...]:
    context = click.get_current_context(silent=True)
    if context is None:
        return ()
    return tuple(_chosen(context.meta.get(TYPED, ()), context.command, wanted, others=others))


def _chosen(
    words: Sequence[str], command: click.Command, wanted: Callable[[str], bool], *, others: bool
) -> Iterator[str]:
    """The options that are *wanted*, each with its value as it was typed, and the *others*, which are no options."""
    flags = {
        name for option in command.params if isinstance(option, click.Option) and option.is_flag for name in option.opts
    }
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if word == "--":
            yield from (word, *rest) if others else ()
        elif not word.startswith("-"):
            yield from [word] if others else []
        else:
            value = [] if equals or name in flags else [next(rest, "")]
            yield from (word, *value) if wanted(name) else ()


Command = TypeVar("Command", bound=Callable[..., Any])
FILE = FilePath()


def setting(name: str, *flags: str, **words: Any) -> Callable[[Command], Command]:
    """Make the option that sets the setting *name*, from its row; *flags* and *words* replace those of the row."""
    row = GIVEN[name][1]
    assert flags or row.flag
    return click.option(
        *(flags or (row.flag,)),
        name,
        **{"type": _type(row.rule), "multiple": row.rule.many, "metavar": row.metavar, "help": row.help} | words,
    )


def _type(rule: Rule) -> click.ParamType[Any] | None:
    """Return how click reads a value; what is too large is refused with the other problems of settings."""
    if rule.choices:
        return click.Choice(rule.choices)
    if rule.kind == "whole":
        return click.IntRange(min=int(rule.least))
    if rule.kind == "number":
        return click.FloatRange(min=rule.least)
    return FILE if rule.place == "path" else None


def given_settings(given: Mapping[str, Any], *, but: Collection[str] = ()) -> dict[str, Any]:
    """Pick the settings that were typed from all parameters, *but* those that mean something else to the command."""
    return {name: given[name] for name in GIVEN if name not in but and given.get(name) not in (None, ())}


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
    setting("retries"),
    setting("max_cost_usd"),
    setting("sandbox"),
    click.option("--verbose", is_flag=True, help="Show what agents say and do while they do it."),
    setting("output_dir"),
    setting("reporters"),
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
        flags=given_settings(given, but=("tags",)),
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


def ready(plan: Plan, sandbox: Sandbox) -> tuple[str, ...]:
    """What the doctor has to say about the agents of *plan*; most runs have none that it knows."""
    from whet.run.readiness import refuse_unready

    return refuse_unready(plan, sandbox, os.environ)


@click.command("run", short_help="Run a suite and report verdicts.")
@selecting
@click.option("--skill", type=FILE, metavar="PATH", help="The skill under test: its folder, or an archive of it.")
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only these variants, such as no_skill.")
@click.option("--update-snapshots", is_flag=True, help="Take new usage snapshots of what is run.")
@setting("trials")
@setting("timeout_ms")
@setting("max_steps")
@setting("schedule")
@setting("max_parallel")
@setting("cwd")
@asking
def run_command(**given: Any) -> int:
    """Run SUITE against the configured runners and report verdicts.

    Exit code: 0 all as expected, 1 some not, 2 nothing was run because something must be corrected first,
    3 nothing failed but some trials errored, 4 the run began and could not be recorded, 130 interrupted.
    """
    request = request_of("run", given)
    # Only now: "whet run --help" and a mistyped option need none of it.
    from whet.run import flow as pipeline

    return pipeline.run(request, ready)


_SECONDS = click.FloatRange(min=0, min_open=True)
# Ten years; infinity and what is not a number are not among them.
_MOST_SECONDS = 315_360_000


@click.command("bench", short_help="Run a suite of expectations and report what holds.")
@selecting
@setting("max_parallel", "--concurrent", help="Cases at a time: 1.")
@click.option("--output", type=FILE, metavar="FILE", help="Write the results as JSON.")
@setting("trials", "--runs", help="Run every case so often.")
@click.option("--fail-fast", is_flag=True, help="Ask no expectation of a case after one that does not hold.")
@click.option("--strict", is_flag=True, help="Take warnings for errors, and try no case that is vacuous.")
@click.option("--in-place", is_flag=True, help="Work in the project itself, one case at a time.")
@setting("budget_usd")
@click.option("--timeout", type=_SECONDS, metavar="S", help="Time limit of the agent, instead of what the suite says.")
@asking
def bench_command(**given: Any) -> int:
    """Run the cases of SUITE, a JSON or YAML file, and report which expectations hold.

    Exit code: 0 all cases pass, 1 some do not, 2 nothing was run because something must be corrected first,
    3 no case failed but some could not be tried, 4 the run began and could not be recorded, 130 interrupted.
    """
    request = _request(given)
    # Only now: "whet bench --help" and a mistyped option need none of it.
    from whet.run import flow as pipeline

    return pipeline.run(request, ready)


def _request(given: dict[str, Any]) -> RunRequest:
    output: Path | None = given.pop("output")
    seconds: float | None = given.pop("timeout")
    if seconds is not None and not 0 < seconds <= _MOST_SECONDS:
        raise UsageError(f"--timeout: must be more than 0 and at most {_MOST_SECONDS:,} seconds, not {seconds:g}")
    given["timeout_ms"] = None if seconds is None else max(1, round(seconds * 1000))
    if given["resume"] is None and given["max_parallel"] is None:
        given["max_parallel"] = 1
    request = request_of("bench", given)
    # A resume may be asked for from another folder.
    return request if output is None else replace(request, more_reporters=(f"bench={output.absolute()}",))

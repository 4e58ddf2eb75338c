"""`whet eval`: callable skills on a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whet.cli.paths import FILE
from whet.cli.typed import typed_again, typed_for_resume
from whet.config.settings import SANDBOXES
from whet.errors import UsageError

_EVALUATORS = ("exact", "contains", "regex", "json_schema", "llm_judge", "custom")
_FORMATS = ("json", "markdown", "html", "csv")
# Options that override a setting, by the setting's name.
_OVERRIDES = ("max_parallel", "trials", "retries", "timeout_ms", "max_cost_usd", "reporters", "sandbox")
_WEIGHTS = ("completion", "speed", "reliability", "consistency")
_DOLLARS = click.FloatRange(min=0)
_USUAL_MIN_COMPLETION = 0.7
# What is made of the results, which no record tells.
_TOLD_AGAIN = (
    "--verbose",
    "--no-health-check",
    "--k",
    "--weights",
    "--min-completion",
    "--exit-on-fail",
    "--format",
    "--output-dir",
)


@click.command("eval", short_help="Score callable skills on a benchmark.")
@click.option("--skills", multiple=True, type=FILE, metavar="PATH", help="A skill, or a folder of them; repeatable.")
@click.argument("more_skills", metavar="[PATH]...", nargs=-1, type=FILE)
@click.option("--benchmark", metavar="ID|PATH", help="The benchmark, by its id or its path: coding-easy.")
@click.option("--benchmarks-dir", type=FILE, metavar="DIR", help="Where ids are looked for first: benchmarks.")
@click.option("--tasks", type=FILE, metavar="FILE", help="A bare list of tasks, instead of a benchmark.")
@click.option("--task", "--case", "cases", multiple=True, metavar="ID", help="Only these tasks; comma lists.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only tasks with one of these tags.")
@click.option("--last-failed", is_flag=True, help="Only what did not pass in the newest run of this benchmark.")
@click.option("--evaluator", type=click.Choice(_EVALUATORS), help="For tasks that name none.")
@click.option("--runs", "trials", type=click.IntRange(min=1), metavar="N", help="Run every task so often.")
@click.option("--k", type=click.IntRange(min=1), metavar="N", help="Of pass@k and pass^k; the benchmark's own.")
@click.option("--concurrency", "max_parallel", type=click.IntRange(min=1), metavar="N", help="Calls at a time: 4.")
@click.option("--retries", type=click.IntRange(min=0), metavar="N", help="Further attempts at calls without an answer.")
@click.option("--timeout", "timeout_ms", type=click.IntRange(min=1), metavar="MS", help="Time limit of a call: 30000.")
@click.option("--max-cost", "max_cost_usd", type=_DOLLARS, metavar="USD", help="Call nothing once so much is spent.")
@click.option("--no-health-check", is_flag=True, help="Do not ask skills whether they are well before calling them.")
@click.option("--check-schemas", is_flag=True, help="Hold inputs and answers to the skills' own schemas.")
@click.option("--min-completion", type=click.FloatRange(0, 1), metavar="RATE", help="Exit with 1 if a skill has less.")
@click.option("--exit-on-fail", is_flag=True, help="The same with 0.7, unless --min-completion says more.")
@click.option("--weights", multiple=True, metavar="PART=N", help=f"Of the composite: {', '.join(_WEIGHTS)}.")
@click.option("--format", "formats", multiple=True, metavar="NAME", help=f"Report files: {', '.join(_FORMATS)}.")
@click.option("--output-dir", type=FILE, metavar="DIR", default="reports", help="Where report files go: reports.")
@click.option("--resume", metavar="RUN", help="Do what is missing of an earlier run.")
@click.option("--dry-run", is_flag=True, help="Print the plan and call nothing.")
@click.option("--verbose", is_flag=True, help="Show what each call was given and what it answered.")
@click.option("--sandbox", type=click.Choice(SANDBOXES), help="The boundary that skills run inside.")
@click.option(
    "--reporter", "reporters", multiple=True, metavar="NAME[=FILE]", help="Who reports; replaces the configured list."
)
@click.option("--config", "config_file", type=FILE, metavar="FILE", help="The settings file; none is searched for.")
def command(skills: tuple[Path, ...], more_skills: tuple[Path, ...], **given: Any) -> int:
    """Call skills with the tasks of a benchmark, evaluate their answers and report how they did.

    Exit code: 0 done, 1 a skill completes less than was asked for, 2 nothing was run because something must be
    corrected first, 3 some calls could not be made, 4 the run could not be recorded, 130 interrupted.
    """
    more_skills, given["formats"] = _taken_apart(more_skills, given["formats"])
    if given["benchmark"] and given["tasks"]:
        raise UsageError("--benchmark and --tasks exclude one another")
    least = given["min_completion"]
    if least is None and given["exit_on_fail"]:
        least = _USUAL_MIN_COMPLETION
    # Only now: "whet eval --help" needs none of it.
    from whet.evaluation.request import EvalRequest
    from whet.evaluation.run import evaluate
    from whet.plan import Selection, split_list

    return evaluate(
        EvalRequest(
            skills=(*skills, *more_skills),
            benchmark=given["benchmark"],
            benchmarks_dir=given["benchmarks_dir"],
            tasks=given["tasks"],
            evaluator=given["evaluator"],
            flags={name: given[name] for name in _OVERRIDES if given[name] not in (None, ())},
            config_file=given["config_file"],
            check_schemas=given["check_schemas"],
            check_health=not given["no_health_check"],
            selection=Selection(cases=split_list(given["cases"]), tags=split_list(given["tags"])),
            last_failed=given["last_failed"],
            verbose=given["verbose"],
            k=given["k"],
            weights=_weights(given["weights"]),
            resume=given["resume"],
            dry_run=given["dry_run"],
            formats=_formats(given["formats"]),
            reports_dir=given["output_dir"],
            min_completion=least,
            again=typed_again(),
            going_on=typed_for_resume(*_TOLD_AGAIN),
        )
    )


def _taken_apart(paths: tuple[Path, ...], formats: tuple[str, ...]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Formats behind one --format, as in `--format json markdown`, which would be taken for paths of skills."""
    more = tuple(str(path) for path in paths if formats and str(path) in _FORMATS and not path.exists())
    return tuple(path for path in paths if str(path) not in more), (*formats, *more)


def _weights(given: tuple[str, ...]) -> dict[str, float]:
    """Such as `completion=0.6,speed=0.4`; what is not named keeps its weight."""
    found: dict[str, float] = {}
    for piece in (piece.strip() for value in given for piece in value.split(",")):
        name, _, number = (part.strip() for part in piece.partition("="))
        if name not in _WEIGHTS:
            raise UsageError(f'--weights: the composite has no part "{name}"', hint=f"known: {', '.join(_WEIGHTS)}")
        try:
            found[name] = float(number)
        except ValueError:
            raise UsageError(f'--weights: "{piece}" names no number', hint=f"such as {name}=0.5") from None
    return found


def _formats(given: tuple[str, ...]) -> tuple[str, ...]:
    """The formats, each of which may be a comma list."""
    names = tuple(name.strip() for value in given for name in value.split(","))
    for name in names:
        if name not in _FORMATS:
            raise UsageError(f'no report format is called "{name}"', hint=f"known: {', '.join(_FORMATS)}")
    return names or ("json", "markdown")

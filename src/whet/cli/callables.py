"""`whet eval`, `create`, `find` and `select`: work with callable skills."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from whet.cli.common import (
    AT_LEAST_1,
    CONFIG,
    FILE,
    JSON,
    REPORT_FORMATS,
    Decorator,
    given_settings,
    setting,
    typed_again,
    typed_for_resume,
    write_out,
)
from whet.errors import SuiteError, UsageError

_TEMPLATES = ("python_script", "http_request", "mcp_tool")


def _folder(flag: str, default: str, help_text: str) -> Decorator[Any]:
    """Return an option for a folder."""
    kind = click.Path(path_type=Path)
    return click.option(flag, type=kind, default=default, show_default=True, metavar="DIR", help=help_text)


def _min_completion(help_text: str) -> Decorator[Any]:
    """Return the option for a completion rate."""
    return click.option("--min-completion", type=click.FloatRange(0, 1), metavar="RATE", help=help_text)


@click.command("create", short_help="Create a callable skill from a template.")
@click.option("--name", required=True, metavar="NAME", help="The name of the skill; its id is made from it.")
@click.option(
    "--from-template",
    "template",
    type=click.Choice(_TEMPLATES),
    default="python_script",
    show_default=True,
    help="The kind of skill.",
)
@_folder("--output-dir", "skills", "Create the folder of the skill in this folder.")
@click.option("--description", default="", metavar="TEXT", help="What the skill does, in one sentence.")
def create_command(name: str, template: str, output_dir: Path, description: str) -> None:
    """Create a folder with a manifest, a program if the skill needs one, and a benchmark with one task."""
    # Imported here and not above, as in every command: its --help does not need it.
    from whet.agents.callable_folders import TEMPLATES, create_skill

    kind = next(known for known in TEMPLATES if known == template)
    root = create_skill(name, kind, output_dir, description)
    click.echo(f"created {root}")
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        click.echo(f"  {file.relative_to(root)}")
    click.echo(f"Next: whet eval --skills {root} --benchmark {root}/tests/basic.eval.json")


_COLUMNS = ("id", "name", "version", "adapter", "tags")


@click.command("find", short_help="Search for callable skills by words, tags and kind.")
@click.option("-q", "--query", default="", metavar="TEXT", help="Search names, descriptions and tags for these words.")
@click.option("-t", "--tag", "tags", multiple=True, metavar="TAG", help="Only skills with this tag (repeatable).")
@click.option("-a", "--adapter", type=click.Choice(["subprocess", "http", "mcp"]), help="Only skills of this kind.")
@click.option("--limit", type=AT_LEAST_1, default=20, show_default=True, metavar="N", help="List at most N skills.")
@_min_completion("Only skills whose manifest states at least this completion.")
@_folder("--skills-dir", "skills", "Search this folder.")
@JSON
def find_command(limit: int, skills_dir: Path, as_json: bool, **asked: Any) -> None:
    """List the skills in a folder that match, the best first."""
    from whet.agents.callable_folders import search
    from whet.agents.callable_reading import load_skills
    from whet.reading.text import aligned

    if not skills_dir.exists():
        raise UsageError(f"{skills_dir}: no such folder", hint="name one with --skills-dir")
    loaded, problems = load_skills([skills_dir])
    found = search([each.skill for each in loaded], **asked)
    if as_json:
        rows = [
            {**{name: getattr(skill, name) for name in _COLUMNS}, "path": str(skill.root)} for skill in found[:limit]
        ]
        click.echo(json.dumps({"total": len(found), "skills": rows}, indent=2, ensure_ascii=False))
    else:
        lines = [(skill.id, skill.name, skill.version, skill.adapter, ", ".join(skill.tags)) for skill in found[:limit]]
        for line in aligned([_COLUMNS, *lines]) if lines else []:
            click.echo(line)
        more = f"; {len(found) - limit} more, see --limit" if len(found) > limit else ""
        click.echo(f"{len(found)} found{more}" if found else "found no skill")
    if problems:
        raise SuiteError(problems)


@click.command("select", short_help="Select the callable skills that did well enough.")
@click.option("--from", "source", type=FILE, required=True, metavar="PATH", help="A skill, or a folder of skills.")
@click.option("--reports", type=FILE, required=True, metavar="FILE", help="The JSON reports of an evaluation.")
@click.option("--strategy", "strategy_file", type=FILE, metavar="FILE", help="Select by this JSON, YAML or TOML file.")
@_min_completion("At least this completion; overrides the strategy.")
@click.option("--top-k", type=AT_LEAST_1, metavar="N", help="At most N skills; overrides the strategy.")
@click.option("--output", type=FILE, metavar="FILE", help="Write the selected skills to this file as JSON.")
def select_command(
    source: Path,
    reports: Path,
    strategy_file: Path | None,
    min_completion: float | None,
    top_k: int | None,
    output: Path | None,
) -> int:
    """Select skills by their reports, the best first.

    \b
    Exit codes:
      0  at least one skill was selected
      1  none was
    """
    from whet.agents.callable_folders import Strategy, read_strategy, select
    from whet.agents.callable_reading import find_skills
    from whet.report.completion import read_reports

    strategy = read_strategy(strategy_file) if strategy_file else Strategy()
    if min_completion is not None:
        strategy = replace(strategy, min_completion=min_completion)
    if top_k is not None:
        strategy = replace(strategy, top=top_k)
    skills = [loaded.skill for loaded in find_skills([source])]
    chosen = select(skills, read_reports(reports), strategy)
    for rank, (skill, report) in enumerate(chosen, 1):
        completion, composite = report.summary.completion, report.summary.composite
        shown = f"{completion.value:.1%}" if completion else "-"
        click.echo(f"{rank}. {skill.id}  completion {shown}  composite {composite or 0:.3f}")
    click.echo(f"{len(chosen)} of {len(skills)} selected")
    if output is not None:
        manifests = [json.loads((skill.root / "skill.json").read_text("utf-8")) for skill, _ in chosen]
        write_out(json.dumps(manifests, indent=2).encode() + b"\n", output)
    return 0 if chosen else 1


_EVALUATORS = ("exact", "contains", "regex", "json_schema", "llm_judge", "custom")
_WEIGHTS = ("completion", "speed", "reliability", "consistency")
_USUAL_MIN_COMPLETION = 0.7
# Options about the reports, which the record does not hold.
_NOT_RECORDED = (
    *("--verbose", "--no-health-check", "--k", "--weights"),
    *("--min-completion", "--exit-on-fail", "--format", "--output-dir"),
)


@click.command("eval", short_help="Score callable skills on a benchmark.")
@click.option("--skills", multiple=True, type=FILE, metavar="PATH", help="A skill, or a folder of skills (repeatable).")
@click.argument("more_skills", metavar="[PATH]...", nargs=-1, type=FILE)
@click.option("--benchmark", metavar="ID|PATH", help="The id or the path of the benchmark (default: coding-easy).")
@click.option(
    "--benchmarks-dir",
    type=FILE,
    metavar="DIR",
    help="Look here first for the id of a benchmark (default: benchmarks).",
)
@click.option("--tasks", type=FILE, metavar="FILE", help="Use this list of tasks instead of a benchmark.")
@click.option(
    "--task", "--case", "cases", multiple=True, metavar="ID", help="Run only this task (repeatable, comma-separated)."
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Run only tasks with this tag (repeatable).")
@click.option("--last-failed", is_flag=True, help="Run only what did not pass in the last run of this benchmark.")
@click.option("--evaluator", type=click.Choice(_EVALUATORS), help="The evaluator of tasks that name none.")
@setting("trials", "--runs", help="Run every task N times.")
@click.option("--k", type=AT_LEAST_1, metavar="N", help="The k of pass@k and pass^k (default: the benchmark's).")
@setting("max_parallel", "--concurrency", help="Make N calls at the same time (default: 4).")
@setting("retries", help="Retry a call without an answer up to N times.")
@setting("timeout_ms", "--timeout", help="Time limit of a call (default: 30000).")
@setting("max_cost_usd", help="Make no call after spending this much.")
@click.option("--no-health-check", is_flag=True, help="Do not check the health of skills before calling them.")
@click.option("--check-schemas", is_flag=True, help="Validate inputs and answers against the schemas of the skills.")
@_min_completion("Exit with 1 if a skill completes less.")
@click.option("--exit-on-fail", is_flag=True, help=f"Short for --min-completion {_USUAL_MIN_COMPLETION}.")
@click.option("--weights", multiple=True, metavar="PART=N", help=f"Weights of the composite: {', '.join(_WEIGHTS)}.")
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    help=f"Write reports in this format: {', '.join(REPORT_FORMATS)} (repeatable).",
)
@click.option(
    "--output-dir",
    type=FILE,
    metavar="DIR",
    default="reports",
    show_default=True,
    help="Write the reports to this folder.",
)
@click.option("--resume", metavar="RUN", help="Make the calls that are missing from an earlier run.")
@click.option("--dry-run", is_flag=True, help="Print the plan and call nothing.")
@click.option("--verbose", is_flag=True, help="Show the input and the answer of each call.")
@setting("sandbox", help="The sandbox that skills run in.")
@setting("reporters")
@CONFIG
def eval_command(skills: tuple[Path, ...], more_skills: tuple[Path, ...], **given: Any) -> int:
    """Call skills with the tasks of a benchmark, evaluate their answers and report how they did.

    \b
    Exit codes:
      0    every call could be made
      1    a skill completes less than you asked for
      2    nothing ran: correct what the error says
      3    some calls could not be made
      4    the run started, but could not be recorded
      130  interrupted
    """
    more_skills, given["formats"] = _split_formats(more_skills, given["formats"])
    if given["benchmark"] and given["tasks"]:
        raise UsageError("--benchmark and --tasks cannot be used together")
    least = given["min_completion"]
    if least is None and given["exit_on_fail"]:
        least = _USUAL_MIN_COMPLETION
    from whet.model.request import RunRequest, Selection, split_list
    from whet.plan.settle_eval import COMMAND, EvalRequest
    from whet.record.run_file import EvalAsked
    from whet.run.evaluation import evaluate

    run = RunRequest(
        command=COMMAND,
        suite=None,
        flags=given_settings(given, but=("tags", "output_dir")),
        config_file=given["config_file"],
        selection=Selection(cases=split_list(given["cases"]), tags=split_list(given["tags"])),
        last_failed=given["last_failed"],
        dry_run=given["dry_run"],
        resume=given["resume"],
        verbose=given["verbose"],
        again=typed_again(),
        going_on=typed_for_resume(*_NOT_RECORDED),
    )
    return evaluate(
        EvalRequest(
            run=run,
            asked=EvalAsked(
                skills=tuple(map(str, (*skills, *more_skills))),
                benchmark=given["benchmark"],
                tasks=None if given["tasks"] is None else str(given["tasks"]),
                evaluator=given["evaluator"],
                check_schemas=given["check_schemas"],
            ),
            benchmarks_dir=given["benchmarks_dir"],
            check_health=not given["no_health_check"],
            formats=_formats(given["formats"]),
            reports_dir=given["output_dir"],
            min_completion=least,
            k=given["k"],
            weights=_weights(given["weights"]),
        )
    )


def _split_formats(paths: tuple[Path, ...], formats: tuple[str, ...]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Take formats out of *paths*: in `--format json markdown`, click reads the second one as a path."""
    more = tuple(str(path) for path in paths if formats and str(path) in REPORT_FORMATS and not path.exists())
    return tuple(path for path in paths if str(path) not in more), (*formats, *more)


def _weights(given: tuple[str, ...]) -> dict[str, float]:
    """Parse weights such as `completion=0.6,speed=0.4`; the other parts keep theirs."""
    found: dict[str, float] = {}
    for piece in (piece.strip() for value in given for piece in value.split(",")):
        name, _, number = (part.strip() for part in piece.partition("="))
        if name not in _WEIGHTS:
            raise UsageError(f'--weights: the composite has no part "{name}"', hint=f"known: {', '.join(_WEIGHTS)}")
        try:
            found[name] = float(number)
        except ValueError:
            raise UsageError(f'--weights: "{piece}" has no number', hint=f"such as {name}=0.5") from None
    return found


def _formats(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the formats; each value may be a comma-separated list."""
    names = tuple(name.strip() for value in given for name in value.split(","))
    for name in names:
        if name not in REPORT_FORMATS:
            raise UsageError(f'no report format is called "{name}"', hint=f"known: {', '.join(REPORT_FORMATS)}")
    return names or ("json", "markdown")

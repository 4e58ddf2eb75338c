"""`whet eval`, `task`, `create`, `find` and `select`: work with callable skills."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from whet.cli.common import (
    AT_LEAST_1,
    CONFIG,
    EVAL_FORMATS,
    FILE,
    JSON,
    Decorator,
    given_settings,
    setting,
    typed_again,
    typed_for_resume,
    write_out,
)
from whet.errors import SuiteError, UsageError
from whet.model.comparison import MOST_ADDED

_SKILLS = "skills"
_TEMPLATES = ("python_script", "http_request", "mcp_tool")


def _folder(flag: str, default: str, help_text: str) -> Decorator[Any]:
    """Return an option for a folder."""
    kind = click.Path(path_type=Path)
    return click.option(flag, type=kind, default=default, show_default=True, metavar="DIR", help=help_text)


def _min_completion(help_text: str) -> Decorator[Any]:
    """Return the option for a completion rate."""
    return click.option("--min-completion", type=click.FloatRange(0, 1), metavar="RATE", help=help_text)


@click.command("create", short_help="Create a callable skill from a template or an OpenAPI document.")
@click.option("--name", required=True, metavar="NAME", help="The name of the skill; its id is made from it.")
@click.option(
    "--from-template",
    "template",
    type=click.Choice(_TEMPLATES),
    help=f"The kind of skill (default: {_TEMPLATES[0]}).",
)
@click.option(
    "--from-openapi", "document", type=FILE, metavar="FILE", help="Create a skill for each operation of this document."
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="ID|'GET /path'",
    help="With --from-openapi: only this operation (repeatable).",
)
@click.option("--server", metavar="URL", help="With --from-openapi: the base URL of its paths.")
@_folder("--output-dir", _SKILLS, "Create the folder of the skill in this folder.")
@click.option("--description", default="", metavar="TEXT", help="What the skill does, in one sentence.")
def create_command(
    name: str, template: str | None, document: Path | None, output_dir: Path, description: str, **api: Any
) -> None:
    """Create a folder with a manifest, a program if the skill needs one, and a benchmark with one task."""
    # Imported here and not above, as in every command: its --help does not need it.
    from whet.agents.callable_folders import TEMPLATES, create_skill

    if document is not None:
        if template or description:
            raise UsageError("--from-openapi says what the skills are: leave out --from-template and --description")
        roots = _create_from_openapi(name, document, output_dir, **api)
    elif api["operations"] or api["server"]:
        raise UsageError("--operation and --server are for --from-openapi")
    else:
        kind = next(known for known in TEMPLATES if known == (template or TEMPLATES[0]))
        roots = [create_skill(name, kind, output_dir, description)]
    for root in roots:
        click.echo(f"created {root}")
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            click.echo(f"  {file.relative_to(root)}")
    click.echo(f"Next: whet eval --skills {roots[0]} --benchmark {roots[0]}/tests/basic.eval.json")


def _create_from_openapi(
    name: str, document: Path, folder: Path, operations: tuple[str, ...], server: str | None
) -> list[Path]:
    from whet.agents.callable_folders import create_from_openapi
    from whet.agents.openapi import read_operations, server_problem

    if server is not None and (problem := server_problem(server)):
        raise UsageError(f"--server {problem}")
    found = read_operations(document, operations, server)
    roots = create_from_openapi(name, found, folder)
    for operation in found:
        for loss in operation.losses:
            click.echo(f"note: {operation.label}: {loss}", err=True)
    return roots


_COLUMNS = ("id", "name", "version", "adapter", "tags")


@click.command("find", short_help="Search for callable skills by words, tags and kind.")
@click.option("-q", "--query", default="", metavar="TEXT", help="Search names, descriptions and tags for these words.")
@click.option("-t", "--tag", "tags", multiple=True, metavar="TAG", help="Only skills with this tag (repeatable).")
@click.option("-a", "--adapter", type=click.Choice(["subprocess", "http", "mcp"]), help="Only skills of this kind.")
@click.option("--limit", type=AT_LEAST_1, default=20, show_default=True, metavar="N", help="List at most N skills.")
@_min_completion("Only skills whose manifest states at least this completion.")
@_folder("--skills-dir", _SKILLS, "Search this folder.")
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
        write_out([json.dumps(manifests, indent=2).encode(), b"\n"], output)
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
@click.option(
    "--skills",
    "--skill",
    "skills",
    multiple=True,
    type=FILE,
    metavar="PATH",
    help="A skill, or a folder of skills (repeatable).",
)
@click.option("--all", "all_skills", is_flag=True, help=f"Every skill in the folder {_SKILLS}.")
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
@click.option(
    "--arm",
    "arms",
    multiple=True,
    metavar="NAME=SPEC",
    help="Compare this arm, such as new=skill:./v2,env:FAST=1; the first is the baseline (repeatable).",
)
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
    help=f"Write reports in this format: {', '.join(EVAL_FORMATS)} (repeatable).",
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
@click.option(
    "--add-trials",
    type=click.IntRange(1, MOST_ADDED),
    metavar="N",
    help="With --resume: run every task N more times in every arm.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and call nothing.")
@click.option("--verbose", is_flag=True, help="Show the input and the answer of each call.")
@setting("sandbox", help="The sandbox that skills run in.")
@setting("reporters")
@CONFIG
def eval_command(skills: tuple[Path, ...], more_skills: tuple[Path, ...], **given: Any) -> int:
    """Call skills with the tasks of a benchmark, evaluate their answers and report how they did.

    \b
    Exit codes:
      0    every call could be made, even if every answer is wrong
      1    a skill completes less than --min-completion
      2    nothing ran: correct what the error says
      3    some calls could not be made
      4    the run started, but could not be recorded
      130  interrupted
    """
    more_skills, given["formats"] = _split_formats(more_skills, given["formats"])
    skills = _chosen_skills((*skills, *more_skills), all_skills=given["all_skills"])
    if given["benchmark"] and given["tasks"]:
        raise UsageError("--benchmark and --tasks cannot be used together")
    least = given["min_completion"]
    if least is None and given["exit_on_fail"]:
        least = _USUAL_MIN_COMPLETION
    if given["add_trials"] and given["resume"] is None:
        raise UsageError("--add-trials makes an earlier run longer", hint="name that run with --resume")
    from whet.model.request import RunRequest, Selection, split_arms, split_list
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
        arms=split_arms(given["arms"]),
        add_trials=given["add_trials"],
        verbose=given["verbose"],
        again=typed_again(),
        going_on=typed_for_resume(*_NOT_RECORDED),
    )
    return evaluate(
        EvalRequest(
            run=run,
            asked=EvalAsked(
                skills=tuple(map(str, skills)),
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


@click.command("task", short_help="Call a callable skill once and evaluate its answer.")
@click.option("--skill", type=FILE, required=True, metavar="PATH", help="The folder of the skill.")
@click.option("--input", "given_input", required=True, metavar="JSON", help="What the skill gets: a JSON object.")
@click.option("--exact", metavar="JSON", help="The answer must be this value.")
@click.option("--contains", multiple=True, metavar="TEXT", help="The answer must contain this text (repeatable).")
@click.option("--regex", multiple=True, metavar="PATTERN", help="The pattern must match in the answer (repeatable).")
@click.option("--schema", metavar="JSON", help="The answer must match this JSON Schema.")
@click.option("--judge", metavar="TEXT", help="A judge rates the answer by these criteria.")
@click.option("--custom", metavar="PATH", help="This grader decides: file.py:function, module:function or a program.")
@setting("trials", "--runs", help="Call it N times.")
@setting("timeout_ms", "--timeout", help="Time limit of a call (default: 30000).")
@click.option("--no-health-check", is_flag=True, help="Do not check the health of the skill before calling it.")
@setting("sandbox", help="The sandbox that the skill runs in.")
@setting("reporters")
@CONFIG
def task_command(skill: Path, **given: Any) -> int:
    """Call a skill with an input that you type, and evaluate its answer: a benchmark of one task, without a file.

    \b
    Exit codes:
      0    the answer is as expected
      1    it is not
      2    nothing ran: correct what the error says
      3    the call could not be made
    """
    from whet.model.benchmark import TYPED_TASK
    from whet.model.request import RunRequest, Selection
    from whet.plan.settle_eval import COMMAND, EvalRequest
    from whet.record.run_file import EvalAsked
    from whet.run.evaluation import evaluate

    run = RunRequest(
        command=COMMAND,
        suite=None,
        flags=given_settings(given, but=("tags", "output_dir")),
        config_file=given["config_file"],
        selection=Selection(),
        last_failed=False,
        dry_run=False,
        resume=None,
        verbose=True,
    )
    return evaluate(
        EvalRequest(
            run=run,
            asked=EvalAsked(skills=(str(skill),), tasks=TYPED_TASK, task=_typed_task(given)),
            check_health=not given["no_health_check"],
            formats=(),
            min_completion=1.0,
        )
    )


# The options of `whet task` that say what is expected: the evaluator and the field of each, and whether it is JSON.
_EXPECTING = {
    "exact": ("exact", "value", True),
    "contains": ("contains", "keywords", False),
    "regex": ("regex", "patterns", False),
    "schema": ("json_schema", "schema", True),
    "judge": ("llm_judge", "judgePrompt", False),
    "custom": ("custom", "customScorerPath", False),
}


def _typed_task(given: dict[str, Any]) -> dict[str, Any]:
    """Return the task that the options of `whet task` describe; raises `UsageError` if they describe none, or two."""
    asked = [name for name in _EXPECTING if given[name] not in (None, ())]
    options = ", ".join(f"--{name}" for name in _EXPECTING)
    if len(asked) != 1:
        wrong = "what is expected?" if not asked else f"--{asked[0]} and --{asked[1]} cannot be used together"
        raise UsageError(wrong, hint=f"use one of {options}")
    kind, place, is_json = _EXPECTING[asked[0]]
    value = given[asked[0]]
    expected = _json_option(asked[0], value) if is_json else list(value) if isinstance(value, tuple) else value
    return {
        "id": "task",
        "inputData": _json_option("input", given["given_input"]),
        "expectedOutput": {"type": kind, place: expected},
    }


def _json_option(name: str, text: str) -> Any:
    from whet.reading.documents import DocumentError, load_json

    try:
        return load_json(text)
    except DocumentError as error:
        hint = "put a text in double quotes within single ones: '\"text\"'" if name == "exact" else None
        raise UsageError(f"--{name} {error}", hint=hint) from error


def _chosen_skills(named: tuple[Path, ...], *, all_skills: bool) -> tuple[Path, ...]:
    """Return where to look for skills: at what you named, or with `--all` in their usual folder."""
    if all_skills and named:
        raise UsageError("--all is every skill: leave out the others", hint="or name them, without --all")
    return (Path(_SKILLS),) if all_skills else named


def _split_formats(paths: tuple[Path, ...], formats: tuple[str, ...]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Take formats out of *paths*: in `--format json markdown`, click reads the second one as a path."""
    more = tuple(str(path) for path in paths if formats and str(path) in EVAL_FORMATS and not path.exists())
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
        if name not in EVAL_FORMATS:
            raise UsageError(f'no report format is called "{name}"', hint=f"known: {', '.join(EVAL_FORMATS)}")
    return names or ("json", "markdown")

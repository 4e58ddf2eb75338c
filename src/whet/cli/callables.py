"""`whet eval`: callable skills on a benchmark."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.errors import FILE, write_out
from whet.cli.running import given_settings, setting, typed_again, typed_for_resume
from whet.errors import Problem, SuiteError, UsageError

if TYPE_CHECKING:
    from whet.agents.callable_folders import Strategy


_TEMPLATES = ("python_script", "http_request", "mcp_tool")


@click.command("create", short_help="Make a new callable skill from a template.")
@click.option("--name", required=True, metavar="NAME", help="What the skill is called; its id follows from it.")
@click.option(
    "--from-template", "template", type=click.Choice(_TEMPLATES), default="python_script", help="What kind of skill."
)
@click.option(
    "--output-dir", type=click.Path(path_type=Path), default="skills", metavar="DIR", help="Where its folder is made."
)
@click.option("--description", default="", metavar="TEXT", help="What it does, in a sentence.")
def create_command(name: str, template: str, output_dir: Path, description: str) -> None:
    """Make a folder with a manifest, a program where there is one, and a benchmark of one task."""
    # Only now: "whet create --help" needs none of it.
    from whet.agents.callable_folders import TEMPLATES, create_skill

    kind = next(known for known in TEMPLATES if known == template)
    root = create_skill(name, kind, output_dir, description)
    click.echo(f"made {root}")
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        click.echo(f"  {file.relative_to(root)}")
    click.echo(f"Next: whet eval --skills {root} --benchmark {root}/tests/basic.eval.json")


_COLUMNS = ("id", "name", "version", "adapter", "tags")


@click.command("find", short_help="Find callable skills by words, tags and kind.")
@click.option("-q", "--query", default="", metavar="TEXT", help="Words in name, description or tags.")
@click.option("-t", "--tag", "tags", multiple=True, metavar="TAG", help="A tag that it must have; repeatable.")
@click.option("-a", "--adapter", type=click.Choice(["subprocess", "http", "mcp"]), help="How it is called.")
@click.option("--limit", type=click.IntRange(min=1), default=20, metavar="N", help="At most so many.")
@click.option(
    "--min-completion", type=click.FloatRange(0, 1), metavar="RATE", help="The least that its manifest tells of."
)
@click.option("--skills-dir", type=click.Path(path_type=Path), default="skills", metavar="DIR", help="Where to look.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def find_command(limit: int, skills_dir: Path, as_json: bool, **asked: Any) -> None:
    """List the skills below a folder that fit, the best first."""
    # Only now: "whet find --help" needs none of it.
    from whet.agents.callable_folders import search
    from whet.agents.callable_reading import load_skills

    if not skills_dir.exists():
        raise UsageError(f"{skills_dir}: there is no such folder", hint="name one with --skills-dir")
    loaded, problems = load_skills([skills_dir])
    found = search([each.skill for each in loaded], **asked)
    rows = [
        {
            "id": skill.id,
            "name": skill.name,
            "version": skill.version,
            "adapter": skill.adapter,
            "tags": list(skill.tags),
            "path": str(skill.root),
        }
        for skill in found[:limit]
    ]
    if as_json:
        click.echo(json.dumps({"total": len(found), "skills": rows}, indent=2, ensure_ascii=False))
    else:
        _print_table(rows, len(found))
    if problems:
        raise SuiteError(problems)


def _print_table(rows: list[dict[str, Any]], total: int) -> None:
    lines = [_COLUMNS, *((*map(str, list(row.values())[:4]), ", ".join(row["tags"])) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    for line in lines if rows else []:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    shown = "" if total <= len(rows) else f"; {total - len(rows)} more, see --limit"
    click.echo(f"{total} found{shown}" if total else "nothing was found")


@click.command("select", short_help="Choose the callable skills that did well enough.")
@click.option("--from", "source", type=FILE, required=True, metavar="PATH", help="A skill, or a folder of them.")
@click.option("--reports", type=FILE, required=True, metavar="FILE", help="The JSON reports of an evaluation.")
@click.option("--strategy", "strategy_file", type=FILE, metavar="FILE", help="What counts, as JSON, YAML or TOML.")
@click.option("--min-completion", type=click.FloatRange(0, 1), metavar="RATE", help="Overrides the strategy.")
@click.option("--top-k", type=click.IntRange(min=1), metavar="N", help="Overrides the strategy.")
@click.option("--output", type=FILE, metavar="FILE", help="Write the chosen skills as JSON.")
def select_command(
    source: Path,
    reports: Path,
    strategy_file: Path | None,
    min_completion: float | None,
    top_k: int | None,
    output: Path | None,
) -> int:
    """Choose skills by their reports. Exit code: 0 some were chosen, 1 none was."""
    # Only now: "whet select --help" needs none of it.
    from whet.agents.callable_folders import Strategy, select
    from whet.agents.callable_reading import find_skills
    from whet.report.completion import read_reports

    strategy = _read(strategy_file) if strategy_file else Strategy()
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
    click.echo(f"{len(chosen)} of {len(skills)} chosen")
    if output is not None:
        manifests = [json.loads((skill.root / "skill.json").read_text("utf-8")) for skill, _ in chosen]
        write_out(json.dumps(manifests, indent=2).encode() + b"\n", output)
    return 0 if chosen else 1


def _read(file: Path) -> Strategy:
    from whet.agents.callable_folders import read_strategy
    from whet.reading.document_files import read_plain
    from whet.reading.fields import Fields, Findings
    from whet.reading.text import shown

    try:
        document: Any = tomllib.loads(file.read_text("utf-8")) if file.suffix == ".toml" else read_plain(file)
    except (OSError, ValueError) as error:
        raise SuiteError([Problem(file=str(file), message=str(error))]) from error
    if not isinstance(document, dict):
        raise SuiteError([Problem(file=str(file), message=f"must be an object, not {shown(document)}")])
    findings = Findings(str(file))
    strategy = read_strategy(Fields(document, findings))
    # A key that is not read would leave somebody with a choice that they did not ask for.
    if findings.problems or findings.warnings:
        raise SuiteError([*findings.problems, *findings.warnings])
    return strategy


_EVALUATORS = ("exact", "contains", "regex", "json_schema", "llm_judge", "custom")
_FORMATS = ("json", "markdown", "html", "csv")
_WEIGHTS = ("completion", "speed", "reliability", "consistency")
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
@setting("trials", "--runs", help="Run every task so often.")
@click.option("--k", type=click.IntRange(min=1), metavar="N", help="Of pass@k and pass^k; the benchmark's own.")
@setting("max_parallel", "--concurrency", help="Calls at a time: 4.")
@setting("retries", help="Further attempts at calls without an answer.")
@setting("timeout_ms", "--timeout", help="Time limit of a call: 30000.")
@setting("max_cost_usd", help="Call nothing once so much is spent.")
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
@setting("sandbox", help="The boundary that skills run inside.")
@setting("reporters")
@click.option("--config", "config_file", type=FILE, metavar="FILE", help="The settings file; none is searched for.")
def eval_command(skills: tuple[Path, ...], more_skills: tuple[Path, ...], **given: Any) -> int:
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
    from whet.model.request import RunRequest, Selection, split_list
    from whet.plan.settle_eval import COMMAND, EvalRequest
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
        going_on=typed_for_resume(*_TOLD_AGAIN),
    )
    return evaluate(
        EvalRequest(
            run=run,
            skills=(*skills, *more_skills),
            benchmark=given["benchmark"],
            benchmarks_dir=given["benchmarks_dir"],
            tasks=given["tasks"],
            evaluator=given["evaluator"],
            check_schemas=given["check_schemas"],
            check_health=not given["no_health_check"],
            formats=_formats(given["formats"]),
            reports_dir=given["output_dir"],
            min_completion=least,
            k=given["k"],
            weights=_weights(given["weights"]),
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

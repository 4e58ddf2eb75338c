"""`whet eval` and `whet task`: call skills, and evaluate their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whet.cli.common import (
    AT_LEAST_1,
    CONFIG,
    EVAL_FORMATS,
    FILE,
    RESULTS_JSON,
    given_settings,
    setting,
    typed_again,
    typed_for_resume,
)
from whet.cli.grammar.candidates import complete_runs
from whet.cli.grammar.options import option
from whet.cli.grammar.quantities import min_completion
from whet.errors import UsageError
from whet.model.comparison import MOST_ADDED

_SKILLS = "skills"
_MANIFEST = "skill.json"
_REPORTS = "reports"
_EVALUATORS = ("exact", "contains", "regex", "json_schema", "llm_judge", "custom")
_WEIGHTS = ("completion", "speed", "reliability", "consistency")
_USUAL_MIN_COMPLETION = 0.7
# Options about the reports, which the record does not hold.
NOT_RECORDED = (
    *("verbose", "no_health_check", "k", "weights"),
    *("min_completion", "exit_on_fail", "formats", "reports_dir"),
)


@click.command("eval", short_help="Score callable skills on a benchmark.")
@option(
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
@option("--case", "cases", multiple=True, metavar="ID", help="Run only this task (repeatable, comma-separated).")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Run only tasks with this tag (repeatable).")
@option("--last-failed", is_flag=True, help="Run only what did not pass in the last run of this benchmark.")
@option(
    "--arm",
    "arms",
    multiple=True,
    metavar="NAME=SPEC",
    help="Compare this arm, such as new=skill:./v2,env:FAST=1; the first is the baseline (repeatable).",
)
@click.option("--evaluator", type=click.Choice(_EVALUATORS), help="The evaluator of tasks that name none.")
@setting("trials", help="Run every task N times.")
@click.option("--k", type=AT_LEAST_1, metavar="N", help="The k of pass@k and pass^k (default: the benchmark's).")
@setting("max_parallel", help="Make N calls at the same time (default: 4).")
@setting("retries", help="Retry a call without an answer up to N times.")
@setting("timeout_ms", help="Time limit of a call: 30s, 500ms or 2m; a bare number is ms (default: 30s).")
@setting("max_cost_usd", help="Make no call after spending this much.")
@click.option("--no-health-check", is_flag=True, help="Do not check the health of skills before calling them.")
@click.option("--check-schemas", is_flag=True, help="Validate inputs and answers against the schemas of the skills.")
@min_completion("Exit with 1 if a skill completes less.")
@click.option("--exit-on-fail", is_flag=True, help=f"Short for --min-completion {_USUAL_MIN_COMPLETION}.")
@click.option("--weights", multiple=True, metavar="PART=N", help=f"Weights of the composite: {', '.join(_WEIGHTS)}.")
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    help=f"Write reports in this format: {', '.join(EVAL_FORMATS)} (repeatable).",
)
@option(
    "--reports-dir",
    type=FILE,
    metavar="DIR",
    help=f"Write the reports to this folder (default: that of --output-dir, or {_REPORTS}).",
)
@setting("output_dir")
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=complete_runs,
    help="Make the calls that are missing from an earlier run.",
)
@click.option(
    "--add-trials",
    type=click.IntRange(1, MOST_ADDED),
    metavar="N",
    help="With --resume: run every task N more times in every arm.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and call nothing.")
@option("-v", "--verbose", is_flag=True, help="Show the input and the answer of each call.")
@setting("sandbox", help="The sandbox that skills run in.")
@setting("reporters")
@RESULTS_JSON
@CONFIG
def eval_command(skills: tuple[Path, ...], more_skills: tuple[Path, ...], **options: Any) -> int:
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
    more_skills, options["formats"] = _split_formats(more_skills, options["formats"])
    skills = tuple(
        _place_of(skill) for skill in _chosen_skills((*skills, *more_skills), all_skills=options["all_skills"])
    )
    _refuse_pairs(options)
    least = options["min_completion"]
    if least is None and options["exit_on_fail"]:
        least = _USUAL_MIN_COMPLETION
    from whet.callable.plan import COMMAND, EvalRequest
    from whet.callable.run import evaluate
    from whet.model.request import RunRequest, Selection, split_arms, split_list
    from whet.record.run_file import EvalFacts

    run = RunRequest(
        command=COMMAND,
        suite=None,
        flags=given_settings(options, but=("tags",)),
        config_file=options["config_file"],
        selection=Selection(cases=split_list(options["cases"]), tags=split_list(options["tags"])),
        last_failed=options["last_failed"],
        dry_run=options["dry_run"],
        resume=options["resume"],
        arms=split_arms(options["arms"]),
        add_trials=options["add_trials"],
        verbose=options["verbose"],
        again=typed_again(),
        resume_options=typed_for_resume(*NOT_RECORDED),
    )
    return evaluate(
        EvalRequest(
            run=run,
            asked=EvalFacts(
                skills=tuple(map(str, skills)),
                benchmark=options["benchmark"],
                tasks=None if options["tasks"] is None else str(options["tasks"]),
                evaluator=options["evaluator"],
                check_schemas=options["check_schemas"],
            ),
            benchmarks_dir=options["benchmarks_dir"],
            check_health=not options["no_health_check"],
            formats=_formats(options["formats"]),
            reports_dir=options["reports_dir"] or options["output_dir"] or Path(_REPORTS),
            min_completion=least,
            k=options["k"],
            weights=_weights(options["weights"]),
        )
    )


def _refuse_pairs(options: dict[str, Any]) -> None:
    """Refuse options that cannot be used together, and those that need another one."""
    if options["benchmark"] and options["tasks"]:
        raise UsageError("--benchmark and --tasks cannot be used together")
    if options["add_trials"] and options["resume"] is None:
        raise UsageError("--add-trials makes an earlier run longer", hint="name that run with --resume")


@click.command("task", short_help="Call a callable skill once and evaluate its answer.")
@click.argument("place", metavar="[SKILL]", type=FILE, required=False)
@option("--skill", type=FILE, metavar="PATH", help="The folder of the skill, if you do not name it before.")
@click.option("--input", "given_input", required=True, metavar="JSON", help="What the skill gets: a JSON object.")
@click.option("--exact", metavar="JSON", help="The answer must be this value.")
@click.option("--contains", multiple=True, metavar="TEXT", help="The answer must contain this text (repeatable).")
@click.option("--regex", multiple=True, metavar="PATTERN", help="The pattern must match in the answer (repeatable).")
@click.option("--schema", metavar="JSON", help="The answer must match this JSON Schema.")
@click.option("--judge", metavar="TEXT", help="A judge rates the answer by these criteria.")
@click.option("--custom", metavar="PATH", help="This grader decides: file.py:function, module:function or a program.")
@setting("trials", help="Call it N times.")
@setting("timeout_ms", help="Time limit of a call: 30s, 500ms or 2m; a bare number is ms (default: 30s).")
@click.option("--no-health-check", is_flag=True, help="Do not check the health of the skill before calling it.")
@setting("sandbox", help="The sandbox that the skill runs in.")
@setting("output_dir")
@setting("reporters")
@RESULTS_JSON
@CONFIG
def task_command(place: Path | None, skill: Path | None, **options: Any) -> int:
    """Call SKILL with an input that you type, and evaluate its answer: a benchmark of one task, without a file.

    \b
    Exit codes:
      0    the answer is as expected
      1    it is not
      2    nothing ran: correct what the error says
      3    the call could not be made
    """
    from whet.callable.plan import COMMAND, EvalRequest
    from whet.callable.run import evaluate
    from whet.model.callable import TYPED_TASK
    from whet.model.request import RunRequest, Selection
    from whet.record.run_file import EvalFacts

    if (place is None) == (skill is None):
        raise UsageError("which skill?" if place is None else "there are two skills", hint="name the folder of one")
    run = RunRequest(
        command=COMMAND,
        suite=None,
        flags=given_settings(options, but=("tags",)),
        config_file=options["config_file"],
        selection=Selection(),
        last_failed=False,
        dry_run=False,
        resume=None,
        verbose=True,
    )
    return evaluate(
        EvalRequest(
            run=run,
            asked=EvalFacts(
                skills=(str(_place_of(place or skill or Path())),), tasks=TYPED_TASK, task=_typed_task(options)
            ),
            check_health=not options["no_health_check"],
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


def _typed_task(options_by_name: dict[str, Any]) -> dict[str, Any]:
    """Return the task that the options of `whet task` describe; raises `UsageError` if they describe none, or two."""
    expectations = [name for name in _EXPECTING if options_by_name[name] not in (None, ())]
    options = ", ".join(f"--{name}" for name in _EXPECTING)
    if len(expectations) != 1:
        wrong = (
            "what is expected?"
            if not expectations
            else f"--{expectations[0]} and --{expectations[1]} cannot be used together"
        )
        raise UsageError(wrong, hint=f"use one of {options}")
    kind, place, is_json = _EXPECTING[expectations[0]]
    value = options_by_name[expectations[0]]
    if is_json:
        expectation = _json_option(expectations[0], value)
    elif isinstance(value, tuple):
        expectation = list(value)
    else:
        expectation = value
    return {
        "id": "task",
        "inputData": _json_option("input", options_by_name["given_input"]),
        "expectedOutput": {"type": kind, place: expectation},
    }


def _json_option(name: str, text: str) -> Any:
    from whet.reading.documents import DocumentError, load_json

    try:
        return load_json(text)
    except DocumentError as error:
        hint = "put a text in double quotes within single ones: '\"text\"'" if name == "exact" else None
        raise UsageError(f"--{name} {error}", hint=hint) from error


def _place_of(skill: Path) -> Path:
    """Return where *skill* is: at that path, or by its name among the skills of the project; refuses what is none."""
    if not skill.exists() and (Path(_SKILLS) / skill / _MANIFEST).is_file():
        return Path(_SKILLS) / skill
    if (skill / "SKILL.md").is_file() and not (skill / _MANIFEST).is_file():
        raise UsageError(
            f"{skill} is a skill for agents, and whet eval scores callable skills, which have a {_MANIFEST}",
            hint=f"whet run {skill}",
        )
    if skill.is_file() and skill.name != _MANIFEST and _is_suite(skill):
        raise UsageError(
            f"{skill} is a suite for agents, and whet eval scores callable skills", hint=f"whet run {skill}"
        )
    return skill


def _is_suite(file: Path) -> bool:
    from whet.suites.find import is_suite

    return is_suite(file)


def _chosen_skills(places: tuple[Path, ...], *, all_skills: bool) -> tuple[Path, ...]:
    """Return where to look for skills: at what you named, or with `--all` in their usual folder."""
    if all_skills and places:
        raise UsageError("--all is every skill: leave out the others", hint="or name them, without --all")
    return (Path(_SKILLS),) if all_skills else places


def _split_formats(paths: tuple[Path, ...], formats: tuple[str, ...]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Take formats out of *paths*: in `--format json markdown`, click reads the second one as a path."""
    more = tuple(str(path) for path in paths if formats and str(path) in EVAL_FORMATS and not path.exists())
    return tuple(path for path in paths if str(path) not in more), (*formats, *more)


def _weights(texts: tuple[str, ...]) -> dict[str, float]:
    """Parse weights such as `completion=0.6,speed=0.4`; the other parts keep theirs."""
    weights: dict[str, float] = {}
    for piece in (piece.strip() for value in texts for piece in value.split(",")):
        name, _, number = (part.strip() for part in piece.partition("="))
        if name not in _WEIGHTS:
            raise UsageError(f'--weights: the composite has no part "{name}"', hint=f"known: {', '.join(_WEIGHTS)}")
        try:
            weights[name] = float(number)
        except ValueError:
            raise UsageError(f'--weights: "{piece}" has no number', hint=f"such as {name}=0.5") from None
    return weights


def _formats(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the formats; each value may be a comma-separated list."""
    names = tuple(name.strip() for value in texts for name in value.split(","))
    for name in names:
        if name not in EVAL_FORMATS:
            raise UsageError(f'no report format is called "{name}"', hint=f"known: {', '.join(EVAL_FORMATS)}")
    return names or ("json", "markdown")

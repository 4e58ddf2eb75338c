"""`whet run`, `whet bench` and `whet audit`: run suites with agents, or with controls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from whet import exit_codes
from whet.cli.common import (
    CONFIG,
    FILE,
    JSON,
    given_settings,
    setting,
    typed_again,
    typed_for_resume,
)
from whet.cli.grammar.candidates import complete_cases
from whet.cli.grammar.options import option
from whet.cli.grammar.quantities import Duration
from whet.cli.run_options import MANNER, SELECTION, until_of
from whet.errors import NothingOutstanding, UsageError
from whet.model.comparison import Until
from whet.model.request import RunRequest, Selection, parse_shard, split_arms, split_list
from whet.model.suite import AS_WRITTEN, SuiteReading

if TYPE_CHECKING:
    pass

# How pytest joins the words of its -k.
_EXPRESSION = re.compile(r"\b(and|or|not)\b")


@click.command("run", short_help="Run suites, or the suites of a skill, and report the verdicts.")
@SELECTION
@setting("timeout_ms")
@setting("max_parallel")
@MANNER
def run_command(**options: Any) -> int:
    """Run the suites in PATH against the configured runners and report the verdicts.

    PATH is a suite, the folder of a skill or of suites, a pattern in quotes, or one case: suite.py::my-case.
    You can name several. Without PATH, whet runs the skill whose folder you are in, or the only suite below it.

    \b
    Exit codes:
      0    every trial went as expected
      1    some did not
      2    nothing ran: correct what the error says
      3    none failed, but some errored
      4    the run started, but could not be recorded
      130  interrupted
    \b
    If it compares arms that you defined, failures do not decide:
      0    every trial ran: "whet gate" says which arm is better
      3    some errored
    \b
    With --gate, the gate decides:
      0    better, or surely less than 5 points worse
      1    worse
      5    not known yet
    """
    return _run_command("run", options)


def _fetch(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return *paths*, with tasks of repositories and archives fetched."""
    if not any(":/" in str(path) for path in paths):
        return tuple(paths)
    from whet.packages.registries import local_paths

    return local_paths(paths)


@click.command("bench", short_help="Run suites as run does, one case at a time.")
@SELECTION
@setting(
    "timeout_ms",
    type=Duration("s"),
    other_names=(),
    help="Time limit of an attempt: 30s, 500ms or 2m; a bare number is seconds.",
)
@setting("max_parallel", help="Run at most N trials at the same time (default: 1).")
@MANNER
def bench_command(**options: Any) -> int:
    """Run the suites in PATH as "whet run" does, but one case at a time, and with time limits in seconds.

    \b
    Exit codes:
      0    every case passed
      1    some did not
      2    nothing ran: correct what the error says
      3    none failed, but some could not be tried
      4    the run started, but could not be recorded
      130  interrupted
    """
    if options["resume"] is None and options["max_parallel"] is None:
        options["max_parallel"] = 1
    return _run_command("bench", options)


def _run_command(command: str, options: dict[str, Any]) -> int:
    """Run what the options of `whet COMMAND` ask for, and return the exit code."""
    if not options["paths"] and options["resume"] is None:
        # Only here: most people name what they run.
        from whet.cli.grammar.targets import usual_paths

        options["paths"] = usual_paths()
    options["paths"] = _fetch(options["paths"])
    output: Path | None = options.pop("output")
    request = request_of(command, options)
    if output is not None:
        # Absolute, because you may resume the run from another folder.
        request = replace(request, more_reporters=(f"bench={output.absolute()}",))
    return _run(request, options["paths"])


def _run(request: RunRequest, paths: Sequence[Path]) -> int:
    """Run the suite that *paths* name, or all of them together."""
    # Imported here and below and not above: "whet run --help" and a mistyped option do not need it.
    if request.resume is not None:
        from whet.plan.resume import batch_to_resume

        batch = batch_to_resume(request)
    else:
        batch = None
    requests = batch.requests if batch else list(_requests(request, paths))
    if len(requests) > 1 and request.until is not None:
        raise UsageError(
            f"--until-decided decides about one suite, and these are {len(requests)}", hint="name one of them"
        )
    try:
        if len(requests) == 1 and batch is None:
            from whet.run.flow import run

            return run(requests[0])
        from whet.run.other.batch import run_batch

        return run_batch(requests, batch)
    except NothingOutstanding as done:
        click.echo(done.message)
        return exit_codes.DONE


def _requests(request: RunRequest, paths: Sequence[Path]) -> Iterator[RunRequest]:
    """Yield a request for each suite that *paths* stand for."""
    if request.resume is not None:
        yield request
        return
    other_paths: list[Path] = []
    for path in paths:
        requests = _requests_of_vally(request, path)
        if requests is None:
            other_paths.append(path)
        else:
            yield from requests
    if other_paths:
        yield from _usual_requests(request, other_paths)


def _requests_of_vally(request: RunRequest, path: Path) -> list[RunRequest] | None:
    """Return the requests of a file that names specs of Vally; None of any other."""
    if not str(path).partition("::")[0].endswith((".json", ".yaml", ".yml")):
        return None
    from whet.cli.grammar.vally_files import requests_of_vally

    return requests_of_vally(request, path)


def _usual_requests(request: RunRequest, paths: Sequence[Path]) -> Iterator[RunRequest]:
    """Yield a request for each suite that *paths* stand for."""
    if len(paths) == 1 and paths[0].is_file() and paths[0].name != "SKILL.md":
        yield replace(request, suite=paths[0])
        return
    from whet.cli.grammar.targets import find_targets, read_target, with_selection

    targets = [read_target(path, lambda: _output_dir(request)) for path in paths]
    suites, passed_over = find_targets(targets)
    for over in passed_over:
        if over.broken or request.verbose:
            click.echo(f"skipped: {over}", err=True)
    for suite, selection in suites:
        skill = request.skill or suite.skill
        yield with_selection(replace(request, suite=suite.path, skill=skill), selection)


def _output_dir(request: RunRequest) -> Path:
    from whet.plan.settings.load import load_here

    settings = load_here(request.flags, request.config_file)
    return settings.output_dir


@click.command("audit", short_help="Find cases that cannot tell good from bad, without a model.")
@click.argument("paths", metavar="[PATH]...", type=FILE, nargs=-1)
@option(
    "--case",
    "cases",
    multiple=True,
    metavar="ID",
    shell_complete=complete_cases,
    help="Audit only this case (repeatable).",
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Audit only cases with this tag (repeatable).")
@option("--skill", type=FILE, metavar="PATH", help="The skill that the suite is about: a folder, or an archive.")
@setting("timeout_ms")
@setting("max_parallel")
@setting("sandbox")
@setting("image")
@setting("keep_services")
@setting("allow_env")
@setting("output_dir", help="Find runs in this folder.")
@JSON
@CONFIG
def audit_command(*, as_json: bool, **options: Any) -> int:
    """Run the cases in PATH with agents that solve nothing, and with their solutions.

    PATH is a suite, a skill, or a folder of these.

    \b
    One does nothing, one says "Done, all tests pass.", one repeats the prompt.
    A case that one of them passes is vacuous; a case whose solution does not
    pass is broken. Recorded runs show which checks decide nothing.

    \b
    Exit codes:
      0    no case is vacuous, and every solution passes
      1    a case is vacuous, or a solution does not pass
      2    nothing ran: correct what the error says
      3    something errored, so a case could not be audited
      130  interrupted
    """
    from whet.cli.grammar.targets import find_named

    defaults = {"runners": (), "shard": None, "last_failed": False, "dry_run": False, "resume": None, "model": None}
    suites = find_named(_fetch(options.pop("paths")))
    request = request_of("audit", {**defaults, "verbose": False, "paths": (suites[0].path,), **options})
    requests = [replace(request, suite=suite.path, skill=request.skill or suite.skill) for suite in suites]
    # Imported here and not above, as in run_command.
    from whet.run.other.audit import audit

    return audit(requests, as_json=as_json)


def request_of(command: str, options: dict[str, Any]) -> RunRequest:
    """Return the request that the options of `whet COMMAND` make."""
    if not options["paths"] and options["resume"] is None:
        example = "suite.json" if command == "bench" else "suite.py"
        hint = f'name its file, such as "whet {command} {example}"; or write a first one: whet init'
        raise UsageError("no suite was given", hint=hint)
    if len(options["paths"]) > 1 and options["resume"] is not None:
        raise UsageError("--resume continues an earlier run, and takes no other suites", hint="leave the paths out")
    if options.get("add_trials") and options["resume"] is None:
        raise UsageError("--add-trials makes an earlier run longer", hint="name that run with --resume")
    model = options["model"]
    if model is not None and not model.strip():
        raise UsageError("--model: must not be empty")
    return RunRequest(
        suite=options["paths"][0] if len(options["paths"]) == 1 else None,
        flags=given_settings(options, but=("tags",)),
        config_file=options["config_file"],
        selection=Selection(
            cases=(*split_list(options["cases"]), *_patterns(options.get("parts", ()))),
            tags=split_list(options["tags"]),
            splits=tuple(dict.fromkeys(options.get("splits", ()))),
            runners=split_list(options["runners"]),
            shard=parse_shard(options["shard"]) if options["shard"] is not None else None,
        ),
        last_failed=options["last_failed"],
        changed=_changed(options),
        dry_run=options["dry_run"],
        resume=options["resume"],
        update_snapshots=options.get("update_snapshots", False),
        model=model,
        in_place=options.get("in_place", False),
        fail_fast=options.get("fail_fast", False),
        strict=options.get("strict", False),
        strict_judge=options.get("strict_judge", False),
        stop_early=_stop_early(options),
        verbose=options["verbose"],
        command=command,
        again=typed_again(),
        resume_options=typed_for_resume("verbose", "gate"),
        skill=options.get("skill"),
        reading=_reading(options),
        arms=split_arms(options.get("arms", ())),
        add_trials=options.get("add_trials"),
        until=_until(options),
        gate=_gate(options),
    )


def _reading(options: dict[str, Any]) -> SuiteReading:
    """Return what suites are read with."""
    texts = options.get("params")
    if not texts:
        return AS_WRITTEN
    from whet.cli.grammar.vally_files import read_params

    return read_params(texts)


def _patterns(parts: Sequence[str]) -> tuple[str, ...]:
    """Return a pattern of cases for each text of -k."""
    for part in parts:
        if _EXPRESSION.search(part):
            raise UsageError(
                f'-k takes a part of the id of a case, not an expression such as "{part}"',
                hint="for one or the other: -k ONE -k OTHER",
            )
    return tuple(f"*{escape(part)}*" for part in parts)


def _stop_early(options: dict[str, Any]) -> bool:
    """Return whether the first failure ends the run; refuses it where failures are what is measured."""
    if not options.get("stop_early"):
        return False
    if options["until_decided"] or any("=" in arm for arm in options["arms"]):
        raise UsageError("-x ends a run at its first failure, and a comparison counts failures", hint="leave out -x")
    return True


def _changed(options: dict[str, Any]) -> bool:
    """Return whether only what has changed is run; refuses it where all cases are needed."""
    if not options.get("changed"):
        return False
    if options["last_failed"]:
        raise UsageError("--changed and --last-failed select different cases", hint="leave one of them out")
    for name in ("gate", "until_decided"):
        if options.get(name):
            raise UsageError(
                f"--{name.replace('_', '-')} decides on all cases, and --changed may leave out most of them",
                hint="leave out --changed, or select by --case or --tag",
            )
    return True


def _gate(options: dict[str, Any]) -> bool:
    """Return whether a gate decides; refuses a part of the cases, on which none can."""
    if not options.get("gate"):
        return False
    if options["shard"] is not None:
        raise UsageError(
            "--gate decides on all cases together, and a shard has a part of them",
            hint="make one run of the shards with whet merge, and then: whet gate",
        )
    if options["last_failed"]:
        raise UsageError(
            "--gate cannot decide on the cases that failed last time: some of them failed by chance",
            hint="run all cases, or select by --case or --tag",
        )
    return True


def _until(options: dict[str, Any]) -> Until | None:
    """Return when the run stops by itself; refuses a part of the cases, on which nothing can be decided."""
    until = until_of(options)
    if until is None:
        return None
    if options["shard"] is not None:
        raise UsageError("--until-decided looks at all cases together, and a shard has a part of them")
    if options["last_failed"]:
        raise UsageError(
            "--until-decided cannot decide on the cases that failed last time: some of them failed by chance",
            hint="run all cases, or select by --case or --tag",
        )
    return until

"""`whet improve SKILL`, `whet improve split` and `whet improve status`."""

from __future__ import annotations

import os
import sys
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
    print_document,
    screen_of,
    setting,
    with_options,
)
from whet.cli.grammar.candidates import complete_runners
from whet.cli.grammar.options import option
from whet.cli.grammar.quantities import Number, Points
from whet.cli.improve.status import improve_runs, status_command
from whet.cli.improve.suite import split_command, suite_of
from whet.errors import UsageError
from whet.model.comparison import MOST_ROUNDS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from whet.improve.flow import ImproveOutcome, Watcher
    from whet.improve.plan import ImprovePlan
    from whet.improve.request import ImproveRequest
    from whet.record.improve.document import Phase
    from whet.record.improve.folder import ImproveFolder
    from whet.report.contract import Reporter
    from whet.report.screen import Screen

_MOST_CANDIDATES, _MOST_ROUNDS = 24, 8
# What may be said of a run that is gone on with.
_ON_RESUME = frozenset(
    (
        *("resume", "max_cost_usd", "apply", "force", "yes", "fail_without_winner"),
        *("as_json", "output_dir", "config_file"),
    )
)
# What `whet improve` does besides, by the first word after it.
_OTHERS = {"split": split_command, "status": status_command}


class _WithOthers(click.Command):
    """Improves a skill, unless the first word names another of its commands; a skill of such a name is ./split."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the command that *args* begin with."""
        if args and args[0] in _OTHERS:
            return _OTHERS[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the options, and the other commands."""
        from click.shell_completion import CompletionItem

        others = [
            CompletionItem(name, help=command.short_help)
            for name, command in _OTHERS.items()
            if name.startswith(incomplete)
        ]
        return [*others, *super().shell_complete(ctx, incomplete)]


_WHAT = with_options(
    (
        click.argument("skill", metavar="[SKILL]", type=FILE, required=False),
        option("--suite", type=FILE, metavar="PATH", help="Judge by this suite (default: the one in the skill)."),
        option(
            "--part",
            type=click.Choice(("description", "body", "all")),
            help="What may change (default: the description if every case is a trigger query, else the body).",
        ),
        option("--goal", type=click.Choice(("better", "cheaper")), default="better", help="What it is to become."),
        option(
            "--candidates",
            type=click.IntRange(1, _MOST_CANDIDATES),
            default=6,
            metavar="N",
            help="Make so many versions at once (default: 6).",
        ),
        option(
            "--rounds",
            type=click.IntRange(1, _MOST_ROUNDS),
            default=1,
            metavar="N",
            help="Go so many rounds; each starts from what the last one accepted (default: 1).",
        ),
        setting("max_cost_usd", help="Spend at most USD on all phases together; required where nobody can be asked."),
        option(
            "--candidate",
            "own_candidates",
            multiple=True,
            type=FILE,
            metavar="DIR",
            help="Race this version that you wrote, and propose none (repeatable).",
        ),
        option(
            "--propose-only",
            type=click.IntRange(1, _MOST_CANDIDATES),
            metavar="N",
            help="Write N candidates and stop.",
        ),
        option("--runner", metavar="ID", shell_complete=complete_runners, help="Test on this runner, or an agent."),
        option(
            "--proposer",
            metavar="ID",
            shell_complete=complete_runners,
            help="Let this runner write the candidates (default: the one under test).",
        ),
        option(
            "--accept",
            type=click.Choice(("like-these", "these")),
            help="Be better on other cases like these too, or on the held-out cases (default: like-these from 12 on).",
        ),
        option(
            "--no-regression",
            multiple=True,
            metavar="TAG",
            help="Accept nothing that makes a held-out case with this tag worse (repeatable).",
        ),
        option("--allow-scripts", is_flag=True, help="Accept new scripts, addresses and tools."),
        option("--strict-leak", is_flag=True, help="Refuse candidates that repeat 5 words of a case instead of 8."),
        option("--allow-self-judge", is_flag=True, help="Accept a judge that is the model under test."),
        option(
            "--effect",
            type=Number(0.1, 100),
            default=10,
            metavar="POINTS",
            help="Give up if a difference of POINTS would hardly show (default: 10).",
        ),
        option(
            "--max-rounds",
            type=click.IntRange(2, MOST_ROUNDS),
            metavar="N",
            help="Confirm by at most N trials of each held-out case (default: 10; with --goal cheaper 20).",
        ),
        option(
            "--margin",
            type=Points(0, 100, min_open=True),
            default=10,
            metavar="POINTS",
            help="With --goal cheaper: how much worse it may surely not be (default: 10).",
        ),
        option("--engine", type=click.Choice(("race", "gepa")), default="race", help="How candidates are found."),
        option("--seed", type=click.IntRange(0), metavar="N", help="Deal failures to candidates by this number."),
        option("--resume", metavar="RUN", shell_complete=improve_runs, help="Go on with an improve run."),
        option("--apply", is_flag=True, help="Write an accepted version into SKILL, whose files Git has to have."),
        option("--force", is_flag=True, help="With --apply: write over changes that Git does not have."),
        option("--yes", is_flag=True, help="Do not ask whether the price is right."),
        option("--dry-run", is_flag=True, help="Print the plan with its prices, and start nothing."),
        option("--fail-without-winner", is_flag=True, help="Exit with 1 if no version is better."),
        setting("timeout_ms"),
        setting("max_parallel"),
        setting("sandbox"),
        setting("image"),
        setting("allow_env"),
        setting("output_dir", help="Record beside this folder of runs."),
        JSON,
        CONFIG,
    )
)


@click.command("improve", cls=_WithOthers, short_help="Find a better version of a skill, or say that there is none.")
@_WHAT
def improve_command(*, as_json: bool, dry_run: bool, **options: Any) -> int:
    """Let an agent write versions of SKILL, race them, and accept one only if it holds up on held-out cases.

    SKILL is the folder of a skill with a suite (default: where you are). Practice cases show what goes wrong and choose
    one version; held-out cases decide about it. Nothing in SKILL changes without --apply, but for the file that keeps
    which cases are held out.

    \b
    Also:
      whet improve split SKILL    which cases are practice and held out
      whet improve status [RUN]   where a run stands
    \b
    Exit codes:
      0    a version is better, or none is (--fail-without-winner: 1)
      2    the cases cannot decide: correct what the error says
      3    the proposer, the provider or the machine failed; go on with --resume
      5    not known yet: the best version is neither confirmed nor refuted
      130  interrupted; go on with --resume
    """
    if options["resume"] is not None:
        _refuse_changes()
    request = _request(options)
    # Imported here and below and not above: --help does not need it.
    from whet.improve.flow import begin, carry_out, find_to_resume
    from whet.improve.plan import plan_improvement, require_money

    screen = screen_of(sys.stderr if as_json else sys.stdout)
    if request.resume is not None:
        folder = find_to_resume(request)
    else:
        plan = plan_improvement(replace(request, suite=suite_of(request.skill, request.suite)))
        _print_plan(plan, screen)
        if dry_run:
            return exit_codes.DONE
        can_ask = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
        require_money(plan.request, os.environ, can_ask=can_ask)
        if plan.request.max_cost_usd is None and not request.yes:
            click.confirm("Start?", abort=True)
        folder = begin(plan)
    outcome = carry_out(folder, request, _watcher(folder, screen))
    _print_outcome(outcome, screen, as_json=as_json)
    return outcome.code


def _refuse_changes() -> None:
    """Refuse to change what a run was asked for, when it is gone on with."""
    context = click.get_current_context()
    changes = [
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.name not in _ON_RESUME
        and context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    if "skill" in changes:
        raise UsageError("--resume goes on with an earlier run, and takes no SKILL", hint="leave one of them out")
    if changes:
        raise UsageError(
            f"a resumed run keeps its first options; it cannot change {', '.join(changes)}", hint="start a new run"
        )


def _request(options: dict[str, Any]) -> ImproveRequest:
    from whet.improve.request import ImproveRequest

    flags = given_settings(options, but=("max_cost_usd",))
    skill = options["skill"]
    if skill is None and options["resume"] is None:
        skill = _skill_here()
    return ImproveRequest(
        skill=skill,
        suite=options["suite"],
        runner=options["runner"],
        proposer=options["proposer"],
        config_file=options["config_file"],
        flags=flags,
        part=options["part"],
        goal=options["goal"],
        candidates=options["candidates"],
        rounds=options["rounds"],
        max_cost_usd=options["max_cost_usd"],
        accept=options["accept"],
        no_regression=tuple(options["no_regression"]),
        allow_scripts=options["allow_scripts"],
        strict_leak=options["strict_leak"],
        allow_self_judge=options["allow_self_judge"],
        effect=options["effect"] / 100,
        margin=options["margin"] / 100,
        max_rounds=options["max_rounds"],
        engine=options["engine"],
        own_candidates=tuple(folder.absolute() for folder in options["own_candidates"]),
        propose_only=options["propose_only"],
        seed=options["seed"],
        resume=options["resume"],
        apply=options["apply"],
        force=options["force"],
        yes=options["yes"],
        fail_without_winner=options["fail_without_winner"],
    )


def _skill_here() -> Path:
    if Path("SKILL.md").is_file():
        return Path()
    raise UsageError("no skill was given", hint="name its folder, such as: whet improve skills/my-skill")


def _print_plan(plan: ImprovePlan, screen: Screen) -> None:
    from whet.report.improve.quote import quote_lines

    for line in quote_lines(plan.quote, screen):
        screen.line(line)
    screen.line()


def _watcher(folder: ImproveFolder, screen: Screen) -> Watcher:
    from whet.improve.flow import Watcher
    from whet.report.improve.steps import ImproveProgress, PhaseReporter

    progress = ImproveProgress(screen)
    progress.skip(folder.read())

    def reporter(phase: Phase) -> Reporter:
        return PhaseReporter(phase, screen)

    return Watcher(see=progress, reporter=reporter)


def _print_outcome(outcome: ImproveOutcome, screen: Screen, *, as_json: bool) -> None:
    if as_json:
        print_document(outcome.document)
        return
    from whet.report.improve.ending import ending_lines

    screen.line()
    for line in ending_lines(outcome.document, outcome.folder.path, Path.cwd(), screen):
        screen.line(line)
    if outcome.is_applied:
        screen.line(f"  applied to {outcome.document.skill}")

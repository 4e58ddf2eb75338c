"""What each question about a recorded run needs: a plan with the judge of today, a context, and an end on a signal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from whet.gateway.gateways import require_routes
from whet.model.request import Settings
from whet.model.run import Plan
from whet.model.spending import Bill
from whet.plan.judge import check_judge
from whet.plan.resume import plan_regrading
from whet.plan.settings.load import load_settings, with_found_agent
from whet.plan.skill import bind_skill
from whet.reading.text import money
from whet.record.read.run import RecordedRun
from whet.run.boundary import require_boundary
from whet.run.context import RunContext, RunFolders, RunLink, make_graders, make_masker, make_run_context
from whet.run.judging._asking import Asking
from whet.run.pairing.asking import AskingPairs
from whet.run.schedule import watch_signals
from whet.run.scratch import new_scratch
from whet.run.start import keep_image_log, open_container_pool
from whet.sandbox.contract import Sandbox, choose_sandbox, require_network_off
from whet.sandbox.process.procfs import become_subreaper
from whet.suites.format import load_suite


class AskRequest(Struct, frozen=True, kw_only=True):
    """What every command says that asks a judge about a recorded run."""

    run: str = "latest"
    max_cost_usd: float | None = None
    seed: str | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    config_file: Path | None = None


def spent_limit(max_cost_usd: float | None) -> Callable[[Bill], str | None]:
    """Return what says of a bill why nothing more may be asked, if it has reached that limit."""

    def refusal(bill: Bill) -> str | None:
        cost_usd = bill.cost_usd or 0.0
        if max_cost_usd is None or cost_usd < max_cost_usd:
            return None
        return f"{money(cost_usd)} of at most {money(max_cost_usd)} is spent"

    return refusal


def plan_asking(record: RecordedRun, flags: Mapping[str, Any], config_file: Path | None) -> tuple[Settings, Plan]:
    """Return the settings and the plan by which the judge of today is asked about *record*, without its cache."""
    record.check_files()
    config_file = config_file or record.config_file
    settings = load_settings(record.suite, flags=flags, environ=os.environ, config_file=config_file)
    suite = load_suite(record.suite, record.asked.reading)
    settings = with_found_agent(settings, suite)
    # What was said before must not be said again.
    suite = bind_skill(suite, record.skill, settings)
    suite = replace(suite, judge={**suite.judge, "cache_dir": None})
    plan = plan_regrading(suite, settings, record)
    check_judge(plan, settings)
    return settings, plan


def asking_context(record: RecordedRun, settings: Settings, plan: Plan, stack: ExitStack) -> RunContext:
    """Make what asking needs; a sandbox only matters if an agent judges."""
    run_dir = record.run_dir
    sandbox = _sandbox(settings)
    become_subreaper()
    masker = make_masker(settings, plan)
    graders = make_graders(plan.suite, stack)
    scratch = stack.enter_context(new_scratch(run_dir))
    container_pool = None
    if sandbox.in_image:
        log = partial(keep_image_log, run_dir, masker)
        container_pool = open_container_pool(settings, run_dir, scratch, log, stack)
    return make_run_context(
        plan,
        settings,
        RunFolders(run_dir=run_dir, scratch=scratch),
        sandbox=sandbox,
        masker=masker,
        graders=graders,
        link=RunLink(),
        container_pool=container_pool,
        hidden_folders=(settings.output_dir, run_dir, scratch),
    )


def _sandbox(settings: Settings) -> Sandbox:
    runner = settings.judge_runner
    if runner is None:
        return choose_sandbox("local")[0]
    sandbox, note = choose_sandbox(settings.sandbox)
    require_boundary(settings.sandbox, sandbox, [runner])
    warnings = (note, *require_network_off(sandbox, [runner]), *require_routes([runner], os.environ, sandbox))
    sys.stderr.write("".join(f"warning: {warning}\n" for warning in warnings if warning))
    return sandbox


async def ask_with(context: RunContext, *askings: Asking | AskingPairs) -> None:
    """Ask all there is to ask; a signal ends it and loses no answer."""

    def interrupt() -> None:
        for asking in askings:
            asking.interrupt()

    try:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(watch_signals, scope, interrupt)
                for asking in askings:
                    await asking.ask_all()
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await context.release()

"""Try the judge of a recorded run: draw judged statements, ask the judge again in each probe, and keep what it said."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import anyio
from msgspec import Struct

from whet import exit_codes
from whet.decide.judging.draw import draw, seed_of
from whet.decide.judging.probes import PROBES, figures_of_probes, figures_of_swap, leaks_of, says_always
from whet.decide.judging.units import JudgedUnit
from whet.errors import UsageError
from whet.model.request import Settings
from whet.model.run import Plan
from whet.plan.settings.load import load_settings
from whet.reading.text import count
from whet.record import folder as folders
from whet.record.judging.runs import read_runs
from whet.record.judging.tries import JudgeTry, TrySpending, keep, place_of
from whet.record.read.run import RecordedRun
from whet.run.judging._asking import Asking
from whet.run.judging._asking_run import AskRequest, ask_with, asking_context, plan_asking, spent_limit
from whet.run.judging._swaps import SwapSample, asking_swaps, draw_swaps, tried_pairs
from whet.run.judging._targets import find_targets
from whet.run.pairing.asking import AskingPairs
from whet.run.schedule import single_errors
from whet.version import __version__

_EVAL = "eval"
_CONSTANT = {
    True: 'it said "pass" to everything: it may not look',
    False: 'it said "fail" to everything: it may not look',
}


class TryRequest(AskRequest, frozen=True, kw_only=True):
    """What `whet judge try` was asked to do."""

    n: int = 30
    max_leak: int = 0


class _Prepared(Struct, frozen=True, kw_only=True):
    """A run whose judge can be asked, and the sample that it is asked about."""

    record: RecordedRun
    settings: Settings
    plan: Plan
    seed: str
    judged: int
    sample: tuple[JudgedUnit, ...]
    swaps: SwapSample


def try_judge(request: TryRequest) -> tuple[JudgeTry, Path]:
    """Ask the judge of a run again; return what it said, and the file that keeps it."""
    prepared = _prepare(request)
    run_dir = prepared.record.run_dir
    targets, notes = find_targets(prepared.plan, prepared.sample, run_dir.name) if prepared.sample else ([], [])
    name = datetime.now(UTC).strftime("%Y%m%dT%H%M%S-%f")
    with ExitStack() as stack:
        stack.callback(os.close, folders.lock(run_dir))
        context = asking_context(prepared.record, prepared.settings, prepared.plan, stack)
        asking = Asking(
            context=context,
            record=prepared.record,
            targets=targets,
            folder=place_of(run_dir, name).with_suffix(""),
            refusal=spent_limit(request.max_cost_usd),
            is_limited=request.max_cost_usd is not None,
        )
        asking_pairs = asking_swaps(
            context,
            prepared.record,
            prepared.swaps,
            place_of(run_dir, name).with_suffix(""),
            lambda bill: spent_limit(request.max_cost_usd)(asking.bill + bill),
        )
        statements = f"{count(len(targets), 'statement')}, in {len(PROBES)} ways each"
        pairs = count(len(prepared.swaps.targets), "pair")
        sys.stderr.write(f"asking the judge about {statements}{f', and {pairs}' if prepared.swaps.targets else ''}\n")
        with single_errors():
            anyio.run(ask_with, context, asking, *([asking_pairs] if prepared.swaps.targets else []))
        outcome = _conclude(request, prepared, _Asked(asking, asking_pairs), name, notes)
        return outcome, keep(run_dir, outcome, context.masker.text)


class _Asked(NamedTuple):
    """What the judge said of statements, and of pairs of answers."""

    of_statements: Asking
    of_pairs: AskingPairs


def _prepare(request: TryRequest) -> _Prepared:
    """Find everything that is wrong before anything is asked."""
    flags, environ = request.flags, os.environ
    usual = load_settings(Path.cwd(), flags=flags, environ=environ, config_file=request.config_file)
    judged_runs = read_runs([request.run], usual.output_dir)
    if len(judged_runs.runs) > 1:
        names = ", ".join(run.run_dir.name for run in judged_runs.runs)
        raise UsageError(f"{request.run} is of several suites", hint=f"name one of its runs: {names}")
    (record,) = judged_runs.runs
    if record.asked.command == _EVAL:
        raise UsageError(
            f"{record.run_dir.name} is an evaluation of callable skills", hint="name a run of a suite: whet runs"
        )
    settings, plan = plan_asking(record, flags, request.config_file)
    seed = request.seed or seed_of([record.run_dir.name])
    swaps = draw_swaps(plan.suite, record, seed, request.n)
    if not swaps.targets and not judged_runs.units:
        if swaps.reason is not None:
            again = f"compare them again, and try that: whet judge pairs {record.run_dir.name}"
            raise UsageError(f"{record.run_dir.name} cannot be tried: {swaps.reason}", hint=again)
        judged_runs.refuse_unjudged()
    return _Prepared(
        record=record,
        swaps=swaps,
        settings=settings,
        plan=plan,
        seed=seed,
        judged=len(judged_runs.units),
        sample=tuple(entry.unit for entry in draw(judged_runs.units, request.n, seed)),
    )


def _conclude(request: TryRequest, prepared: _Prepared, answers: _Asked, name: str, notes: Sequence[str]) -> JudgeTry:
    asking, asking_pairs = answers
    units = asking.units()
    pairs = tuple(tried_pairs(prepared.swaps, asking_pairs))
    leaks = sum(1 for _ in leaks_of(units))
    has_verdict = any(answer.passed is not None for unit in units for answer in unit.answers)
    always = says_always(units) if has_verdict else None
    if asking.interrupted:
        code = exit_codes.INTERRUPTED
    elif not has_verdict and all(pair.problem is not None for pair in pairs):
        code = exit_codes.ERRORED
    else:
        code = exit_codes.FAILED if leaks > request.max_leak else exit_codes.DONE
    constant = () if always is None else (_CONSTANT[always],)
    reason = prepared.swaps.reason
    swap_note = () if reason is None else (f"swap: left out, because {reason}",)
    bill = asking.bill + asking_pairs.bill
    return JudgeTry(
        id=name,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        run=prepared.record.run_dir.name,
        suite=str(prepared.plan.suite.name),
        whet_version=__version__,
        seed=prepared.seed,
        judge=next((unit.judge for unit in prepared.sample), {}),
        judged=prepared.judged,
        units=len(prepared.sample),
        probes=(*figures_of_probes(units), *((figures_of_swap(pairs),) if pairs else ())),
        leaks=leaks,
        max_leak=request.max_leak,
        exit_code=code,
        spending=TrySpending(cost_usd=bill.cost_usd, unknown=bill.unknown),
        notes=(*notes, *(asking.notes() if prepared.sample else ()), *constant, *swap_note),
        stopped=asking.stopped or asking_pairs.stopped,
        asked=units,
        pairs=pairs,
    )

"""Ask a judge which of two recorded answers is better: a trial of each arm beside the same trial of the baseline."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from math import erfc, sqrt
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct, field
from msgspec.structs import asdict

from whet import exit_codes
from whet.decide.comparison import analyses_of
from whet.decide.judging.draw import seed_of
from whet.decide.judging.pairs import JudgedPair, figures_of_pairs
from whet.decide.sequential import alpha_of_each
from whet.errors import UsageError
from whet.grade.judge.identity import facts_of
from whet.grade.judge.pairs import USUAL_QUESTION
from whet.grade.judge_settings import JudgeSettings, judge_settings, with_usual_model
from whet.model.comparison import PairFigures
from whet.model.request import Settings
from whet.model.run import Plan
from whet.plan.judge import find_judge
from whet.plan.settings.load import load_settings
from whet.reading.text import count
from whet.record import folder as folders
from whet.record.batches import RecordedBatch, read_recorded
from whet.record.judging.tries import JudgePairs, TrySpending, keep
from whet.record.read.run import RecordedRun
from whet.run.judging._asking_pairs import AskingPairs, PairTarget
from whet.run.judging._asking_run import ask_with, asking_context, plan_asking
from whet.run.schedule import single_errors
from whet.version import __version__


class PairsRequest(Struct, frozen=True, kw_only=True):
    """What `whet judge pairs` was asked to do."""

    run: str = "latest"
    n: int | None = None
    question: str | None = None
    max_cost_usd: float | None = None
    seed: str | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    config_file: Path | None = None


class _PreparedPairs(Struct, frozen=True, kw_only=True):
    """A run whose answers can be compared, by which judge, and the pairs in the order in which they are asked."""

    record: RecordedRun
    settings: Settings
    plan: Plan
    judge: JudgeSettings
    seed: str
    targets: tuple[PairTarget, ...]
    looks: int
    level: float


def judge_pairs(request: PairsRequest) -> tuple[JudgePairs, Path]:
    """Ask about the pairs of a run; return what the judge said, and the file that keeps it."""
    prepared = _prepare(request)
    run_dir = prepared.record.run_dir
    with ExitStack() as stack:
        stack.callback(os.close, folders.lock(run_dir))
        context = asking_context(prepared.record, prepared.settings, prepared.plan, stack)
        asking = AskingPairs(
            judge=prepared.judge,
            record=prepared.record,
            targets=prepared.targets,
            questions=_questions(prepared.plan, request.question),
            prompts={case.id: case.prompt for case in prepared.plan.suite.cases},
            max_cost_usd=request.max_cost_usd,
        )
        sys.stderr.write(f"asking the judge about {count(len(prepared.targets), 'pair')}, in both orders\n")
        with single_errors():
            anyio.run(ask_with, context, asking)
        outcome = _conclude(request, prepared, asking)
        return outcome, keep(run_dir, outcome, context.masker.text)


def _prepare(request: PairsRequest) -> _PreparedPairs:
    """Find everything that is wrong before anything is asked."""
    usual = load_settings(Path.cwd(), flags=request.flags, environ=os.environ, config_file=request.config_file)
    recorded = read_recorded(request.run, usual.output_dir)
    if isinstance(recorded, RecordedBatch):
        names = ", ".join(run.run_dir.name for run in dict(recorded.runs).values())
        raise UsageError(f"{request.run} is of several suites", hint=f"name one of its runs: {names}")
    recorded.refuse_empty()
    arms = recorded.samples().names
    if len(arms) == 1:
        raise UsageError(
            f"{recorded.run_dir.name} has one arm, and a pair takes two", hint="run it with another: whet run --arm"
        )
    settings, plan = plan_asking(recorded, request.flags, request.config_file)
    judge = _judge_of(settings, plan)
    seed = request.seed or seed_of([recorded.run_dir.name])
    questions = _questions(plan, request.question)
    every = [target for target in _targets(recorded, arms, seed) if target.case in questions]
    if not every:
        raise UsageError(
            f"no trial of {recorded.run_dir.name} that is asked about has one of its baseline, {arms[0]}, beside it"
        )
    looks, level = _look(recorded, every)
    return _PreparedPairs(
        record=recorded,
        settings=settings,
        plan=plan,
        judge=judge,
        seed=seed,
        targets=tuple(_in_turns(every)[: request.n]),
        looks=looks,
        level=level,
    )


def _judge_of(settings: Settings, plan: Plan) -> JudgeSettings:
    judge = judge_settings(plan.suite.judge)
    if judge.runner is not None:
        raise UsageError(
            f'pairs are judged by a model, and [judge] names the runner "{judge.runner}"',
            hint="name a `model` in [judge], in a settings file for this command: --config FILE",
        )
    find_judge(settings, os.environ, by_agents=False)
    return with_usual_model(judge, os.environ)


def _questions(plan: Plan, question: str | None) -> dict[str, str]:
    """Return what is asked of each case: of those that say so alone, if any does and no other *question* is given."""
    cases = plan.suite.cases
    if question is not None:
        return {case.id: question for case in cases}
    asked = {case.id: case.pairwise.question or USUAL_QUESTION for case in cases if case.pairwise}
    return asked or {case.id: USUAL_QUESTION for case in cases}


def _targets(record: RecordedRun, arms: Sequence[str], seed: str) -> Iterator[PairTarget]:
    """Yield each trial with the same trial of the baseline: both began in the same round."""
    results = {
        (key.case, key.runner, key.arm, key.number): result
        for result in record.counting_results()
        for key in (result.key,)
    }
    runners = {arm: {runner for _, runner, own_arm, _ in results if own_arm == arm} for arm in arms}
    for (case, runner, arm, number), result in results.items():
        beside = results.get((case, _runner_beside(runner, runners[arm], runners[arms[0]]), arms[0], number))
        if arm != arms[0] and beside is not None:
            order = hashlib.sha256("\0".join((seed, case, runner, str(number), arm)).encode()).digest()
            yield PairTarget(candidate=result, baseline=beside, order=order)


def _runner_beside(runner: str, own: Collection[str], of_baseline: Collection[str]) -> str:
    """Return the runner of the trial to compare with: arms that differ by their runner have one each."""
    differ = len(own) == len(of_baseline) == 1
    return next(iter(of_baseline)) if differ else runner


def _in_turns(targets: Sequence[PairTarget]) -> list[PairTarget]:
    """Return the pairs by chance, and the cases in turn: what is cut off is the same of each case."""
    turns: dict[str, int] = {}
    order: list[tuple[int, bytes, PairTarget]] = []
    for target in sorted(targets, key=lambda entry: entry.order):
        turn = turns[target.case] = turns.get(target.case, 0) + 1
        order.append((turn, target.order, target))
    return [target for *_, target in sorted(order, key=lambda entry: entry[:2])]


def _look(record: RecordedRun, targets: Sequence[PairTarget]) -> tuple[int, float]:
    """Return how often the run was looked at, and the error that each comparison may make at this look."""
    comparisons = len({(target.candidate.key.arm, target.baseline.key.runner) for target in targets})
    looks, z_of_level = analyses_of(record.samples(), comparisons)
    return looks, erfc(z_of_level(alpha_of_each(comparisons)) / sqrt(2))


def _conclude(request: PairsRequest, prepared: _PreparedPairs, asking: AskingPairs) -> JudgePairs:
    pairs = asking.pairs()
    figures = figures_of_pairs(pairs, prepared.record.asked.weights, prepared.level, prepared.looks)
    facts = facts_of(prepared.judge, 1, threshold=0.0, majority=False)
    return JudgePairs(
        id=datetime.now(UTC).strftime("%Y%m%dT%H%M%S-%f"),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        run=prepared.record.run_dir.name,
        suite=str(prepared.plan.suite.name),
        whet_version=__version__,
        seed=prepared.seed,
        judge={name: value for name, value in asdict(facts).items() if name in ("provider", "model", "temperature")},
        question=request.question,
        planned=len(prepared.targets),
        figures=figures,
        exit_code=_exit_code(asking, pairs, figures),
        spending=TrySpending(cost_usd=asking.bill.cost_usd, unknown=asking.bill.unknown),
        notes=tuple(asking.notes()),
        stopped=asking.stopped,
        pairs=pairs,
    )


def _exit_code(asking: AskingPairs, pairs: Sequence[JudgedPair], figures: Sequence[PairFigures]) -> int:
    if asking.interrupted:
        return exit_codes.INTERRUPTED
    is_errored = not pairs or any(entry.verdict == "errored" for entry in figures)
    return exit_codes.ERRORED if is_errored else exit_codes.DONE

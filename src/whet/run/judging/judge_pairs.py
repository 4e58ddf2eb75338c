"""Ask a judge which of two recorded answers is better: of each arm and the baseline, or of an arm and a stored one."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import anyio
from msgspec import Struct

from whet.decide.judging.draw import seed_of
from whet.errors import UsageError
from whet.grade.judge_settings import JudgeSettings
from whet.model.request import Settings
from whet.model.run import Plan
from whet.plan.judge import judge_of_pairs
from whet.plan.settings.load import load_settings
from whet.reading.text import count
from whet.record import folder as folders
from whet.record.batches import RecordedBatch, read_recorded
from whet.record.judging.tries import JudgePairs, keep
from whet.record.read.run import RecordedRun
from whet.run.judging._asking_run import AskRequest, ask_with, asking_context, plan_asking, spent_limit
from whet.run.pairing.asking import AskingPairs
from whet.run.pairing.comparers import comparer_of
from whet.run.pairing.findings import PairFinding
from whet.run.pairing.targets import PairTargets, find_pairs, questions_of
from whet.run.schedule import single_errors


class PairsRequest(AskRequest, frozen=True, kw_only=True):
    """What `whet judge pairs` was asked to do."""

    n: int | None = None
    question: str | None = None


class _PreparedPairs(Struct, frozen=True, kw_only=True):
    """A run whose answers can be compared, by which judge, and the pairs in the order in which they are asked."""

    record: RecordedRun
    settings: Settings
    plan: Plan
    judge: JudgeSettings
    seed: str
    pairs: PairTargets


def judge_pairs(request: PairsRequest) -> tuple[JudgePairs, Path]:
    """Ask about the pairs of a run; return what the judge said, and the file that keeps it."""
    prepared = _prepare(request)
    run_dir, targets = prepared.record.run_dir, prepared.pairs.targets
    with ExitStack() as stack:
        stack.callback(os.close, folders.lock(run_dir))
        context = asking_context(prepared.record, prepared.settings, prepared.plan, stack)
        finding = PairFinding.begin(
            prepared.record, prepared.plan, prepared.judge, prepared.pairs, prepared.seed, request.question
        )
        asking = AskingPairs(
            comparer=comparer_of(context, prepared.record, prepared.judge, finding.folder),
            at_once=prepared.judge.max_parallel,
            record=prepared.record,
            targets=targets,
            prompts={case.id: case.prompt for case in prepared.plan.suite.cases},
            refusal=spent_limit(request.max_cost_usd),
            is_limited=request.max_cost_usd is not None,
            keep=lambda pairs: keep(run_dir, finding.so_far(pairs), context.masker.text),
        )
        sys.stderr.write(f"asking the judge about {count(len(targets), 'pair')}, in both orders\n")
        with single_errors():
            anyio.run(ask_with, context, asking)
        outcome = finding.of(asking)
        return outcome, keep(run_dir, outcome, context.masker.text)


def _prepare(request: PairsRequest) -> _PreparedPairs:
    """Find everything that is wrong before anything is asked."""
    usual = load_settings(Path.cwd(), flags=request.flags, environ=os.environ, config_file=request.config_file)
    recorded = read_recorded(request.run, usual.output_dir)
    if isinstance(recorded, RecordedBatch):
        names = ", ".join(run.run_dir.name for run in dict(recorded.runs).values())
        raise UsageError(f"{request.run} is of several suites", hint=f"name one of its runs: {names}")
    recorded.refuse_empty()
    settings, plan = plan_asking(recorded, request.flags, request.config_file)
    questions = questions_of(plan.suite.cases, request.question)
    arms = recorded.samples().names
    if len(arms) == 1 and not any(pairwise.reference for pairwise in questions.values()):
        raise UsageError(
            f"{recorded.run_dir.name} has one arm, and a pair takes two", hint="run it with another: whet run --arm"
        )
    judge = judge_of_pairs(settings, plan.suite.judge, os.environ)
    seed = request.seed or seed_of([recorded.run_dir.name])
    pairs = find_pairs(recorded, questions, seed, request.n)
    if pairs is None:
        raise UsageError(
            f"no trial of {recorded.run_dir.name} that is asked about has one of its baseline, {arms[0]}, beside it"
        )
    return _PreparedPairs(record=recorded, settings=settings, plan=plan, judge=judge, seed=seed, pairs=pairs)

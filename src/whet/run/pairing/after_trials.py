"""Ask about the pairs of a run that has just brought all of its trials to an end, if its cases say so."""

from __future__ import annotations

import os
from collections.abc import Iterator

import anyio.to_thread

from whet.decide.judging.draw import seed_of
from whet.decide.judging.pairs import JudgedPair
from whet.model.request import compares_answers
from whet.model.run import TrialKey
from whet.model.spending import Bill
from whet.plan.judge import judge_of_pairs
from whet.reading.text import count, one_line
from whet.record.judging.tries import JudgePairs, keep
from whet.record.read.run import read_trials
from whet.run.context import RunContext
from whet.run.pairing.asking import AskingPairs
from whet.run.pairing.comparers import comparer_of
from whet.run.pairing.findings import PairFinding
from whet.run.pairing.targets import find_pairs, questions_of
from whet.run.state import RunState

_LONGEST = 200


async def ask_about_pairs(state: RunState, context: RunContext) -> None:
    """Ask the judge about each pair that it has not been asked about; only a run that is whole has pairs."""
    if not compares_answers(state.plan):
        return
    if next(state.pending(), None) is not None:
        state.notice("no judge is asked about pairs before all trials have ended")
        return
    asking, finding = await anyio.to_thread.run_sync(_prepare, state, context)
    if asking is None or finding is None:
        return
    open_count = len(asking.targets)
    state.notice(f"asking the judge about {count(open_count, 'pair')} of answers, in both orders", "info")
    try:
        await asking.ask_all()
    except BaseException:
        # A signal: what was said is kept, and no figure is made of half of it.
        keep(context.run_dir, finding.so_far(asking.pairs()), context.masker.text)
        raise
    outcome = finding.of(asking)
    state.pairwise = outcome.figures
    keep(context.run_dir, outcome, context.masker.text)
    for message in _problems(outcome):
        state.notice(message)


def _prepare(state: RunState, context: RunContext) -> tuple[AskingPairs | None, PairFinding | None]:
    judge = judge_of_pairs(state.settings, state.plan.suite.judge, os.environ)
    record = read_trials(context.run_dir)
    seed = seed_of([context.run_id])
    pairs = find_pairs(record, questions_of(state.plan.suite.cases), seed)
    if pairs is None:
        return None, None
    finding = PairFinding.begin(record, state.plan, judge, pairs, seed)

    def charge(key: TrialKey, bill: Bill) -> None:
        state.spent.compare(key, bill.usage, unknown=bool(bill.unknown))

    def keep_some(answers: tuple[JudgedPair, ...]) -> None:
        keep(context.run_dir, finding.so_far(answers), context.masker.text)

    asking = AskingPairs(
        comparer=comparer_of(context, record, judge, finding.folder),
        at_once=judge.max_parallel,
        record=record,
        targets=pairs.targets,
        prompts={case.id: case.prompt for case in state.plan.suite.cases},
        earlier=finding.earlier(),
        refusal=lambda _: state.refusal(),
        charge=charge,
        is_limited=state.settings.max_cost_usd is not None,
        keep=keep_some,
    )
    return asking, finding


def _problems(outcome: JudgePairs) -> Iterator[str]:
    """Yield what went wrong with pairs, which no trial tells."""
    if outcome.stopped:
        yield f"pairs were left out: {one_line(outcome.stopped, _LONGEST)}"
        return
    problem = next((pair.problem for pair in outcome.pairs if pair.problem), None)
    if problem is not None:
        yield f"pairs were left out: {one_line(problem, _LONGEST)}"

"""Ask a judge again about pairs of answers that it has compared, in both orders: does another one win?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from whet.decide.judging.pairs import JudgedPair
from whet.decide.judging.probes import TriedPair
from whet.grade.judge.identity import facts_of_pairs
from whet.grade.judge_settings import judge_settings, with_usual_model
from whet.model.spending import Bill
from whet.model.suite import Pairwise, Suite
from whet.record.judging.tries import read_pairs
from whet.record.read.run import RecordedRun
from whet.run.context import RunContext
from whet.run.pairing.asking import AskingPairs, identity_of
from whet.run.pairing.comparers import comparer_of
from whet.run.pairing.targets import PairTarget, find_pairs

_OTHER_JUDGE = "another judge than that of the settings has compared the answers"
_CHANGED = "the answers, or the question about them, are not what the judge compared"


class SwapSample(Struct, frozen=True, kw_only=True):
    """Pairs that the judge has compared, as it is asked about them again, and what it said then."""

    targets: tuple[PairTarget, ...] = ()
    recorded: tuple[JudgedPair, ...] = ()
    # Why there is none, although the judge has compared some.
    reason: str | None = None


def asking_swaps(
    context: RunContext, record: RecordedRun, sample: SwapSample, folder: Path, refusal: Callable[[Bill], str | None]
) -> AskingPairs:
    """Return what asks about the pairs of *sample* in both orders; sessions of an agent are kept in *folder*."""
    judge = with_usual_model(judge_settings(context.suite.judge), os.environ)
    return AskingPairs(
        comparer=comparer_of(context, record, judge, folder),
        at_once=judge.max_parallel,
        record=record,
        targets=sample.targets,
        prompts={case.id: case.prompt for case in context.suite.cases},
        refusal=refusal,
    )


def draw_swaps(suite: Suite, record: RecordedRun, seed: str, n: int) -> SwapSample:
    """Return at most *n* pairs of the newest time that a judge compared answers of *record*."""
    finding = next((entry for entry in read_pairs(record.run_dir) if entry.figures), None)
    if finding is None:
        return SwapSample()
    judge = with_usual_model(judge_settings(suite.judge), os.environ)
    if facts_of_pairs(judge).judge_id != finding.judge_id:
        return SwapSample(reason=_OTHER_JUDGE)
    compared = {pair.identity: pair for pair in finding.pairs if pair.candidate_first is not None}
    references = {case.id: case.pairwise.reference for case in suite.cases if case.pairwise is not None}
    questions = {
        pair.case: Pairwise(question=pair.question, reference=references.get(pair.case) if pair.reference else None)
        for pair in compared.values()
    }
    pairs = find_pairs(record, questions, seed)
    drawn = [
        (target, compared[identity])
        for target in (pairs.targets if pairs else ())
        if (identity := identity_of(record, target)) in compared
    ][:n]
    if not drawn:
        return SwapSample(reason=_CHANGED)
    return SwapSample(targets=tuple(target for target, _ in drawn), recorded=tuple(pair for _, pair in drawn))


def tried_pairs(sample: SwapSample, asking: AskingPairs) -> Iterator[TriedPair]:
    """Yield each pair that was asked about again, with who won before and who wins now."""
    for number, before in enumerate(sample.recorded):
        answer = asking.answers.get(number)
        if answer is None or before.candidate_first is None:
            continue
        yield TriedPair(
            case=before.case,
            runner=before.runner,
            candidate=before.candidate,
            baseline=before.baseline,
            trial=before.trial,
            winner=before.candidate_first,
            again=answer.candidate_first,
            swapped=answer.baseline_first,
            problem=answer.problem,
        )

"""Ask a judge about pairs of answers, each in both orders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import anyio
from msgspec import Struct, field

from whet.decide.judging.pairs import JudgedPair, Winner
from whet.errors import JudgeFailed, JudgeRefused
from whet.grade.judge.client import JudgeClient
from whet.grade.judge.pairs import FORM, PairChoice, PairQuestion, Side, flags_of
from whet.grade.judge.rubrics import answer_text
from whet.grade.judge_settings import JudgeSettings, find_key, find_variable
from whet.grade.paying import charge_to
from whet.model.run import TrialResult
from whet.model.spending import Bill
from whet.reading.text import money
from whet.record.read.run import RecordedRun
from whet.run.judging._asking import NO_PRICE
from whet.run.other.regrade import changes_of

_NO_ANSWER = "{} has no answer: it was not graded"


class PairTarget(Struct, frozen=True, kw_only=True):
    """A trial of the candidate, and one of the baseline beside it; `order` is its place by chance."""

    candidate: TrialResult
    baseline: TrialResult
    order: bytes

    @property
    def case(self) -> str:
        """The case of both."""
        return self.candidate.key.case


class AskingPairs(Struct, kw_only=True, dict=True):
    """The pairs, what the judge said so far, and what that took."""

    judge: JudgeSettings
    record: RecordedRun
    targets: Sequence[PairTarget]
    # What is asked of each case.
    questions: Mapping[str, str]
    # What each case asks for.
    prompts: Mapping[str, str]
    max_cost_usd: float | None = None
    bill: Bill = field(default_factory=Bill)
    said: dict[int, JudgedPair] = field(default_factory=dict)
    stopped: str | None = None
    interrupted: bool = False

    def interrupt(self) -> None:
        """Note that a signal asked to end."""
        self.interrupted, self.stopped = True, "interrupted"

    def pairs(self) -> tuple[JudgedPair, ...]:
        """Return every pair that was asked about, in order."""
        return tuple(pair for _, pair in sorted(self.said.items()))

    def notes(self) -> Iterator[str]:
        """Yield what a reader must know."""
        if self.max_cost_usd is not None and self.bill.unknown:
            yield NO_PRICE

    async def ask_all(self) -> None:
        """Ask about every pair, some at a time."""
        variable = find_variable(self.judge, os.environ)
        client = JudgeClient(self.judge, find_key(self.judge, os.environ), variable=variable)
        room = anyio.CapacityLimiter(self.judge.max_parallel)
        try:
            async with anyio.create_task_group() as group:
                for number in range(len(self.targets)):
                    group.start_soon(self._ask_about, number, client, room)
        finally:
            with anyio.CancelScope(shield=True):
                await client.close()

    async def _ask_about(self, number: int, client: JudgeClient, room: anyio.CapacityLimiter) -> None:
        async with room:
            self._look_at_money()
            if self.stopped:
                return
            target = self.targets[number]
            answers = [self._answer(result) for result in (target.candidate, target.baseline)]
            candidate, baseline = answers
            if candidate is None or baseline is None:
                absent = target.candidate if candidate is None else target.baseline
                self.said[number] = _pair(target, problem=_NO_ANSWER.format(absent.key.arm))
                return
            question = PairQuestion(
                question=self.questions[target.case],
                first=candidate,
                second=baseline,
                given={"instruction": self.prompts.get(target.case, "")},
            )
            try:
                with charge_to(self._pay):
                    first, _ = await client.fill(question.prompt(), FORM)
                    second, _ = await client.fill(question.exchanged().prompt(), FORM)
            except JudgeRefused as error:
                self.stopped = error.message
            except JudgeFailed as error:
                self.said[number] = _pair(target, problem=error.message)
            else:
                self.said[number] = _judged(target, first, second, flags=(*flags_of(candidate), *flags_of(baseline)))

    def _answer(self, result: TrialResult) -> str | None:
        session = self.record.session(result)
        return None if session is None else answer_text(session, changes_of(self.record, result))

    def _look_at_money(self) -> None:
        cost_usd = self.bill.cost_usd or 0.0
        if self.max_cost_usd is not None and cost_usd >= self.max_cost_usd and self.stopped is None:
            self.stopped = f"{money(cost_usd)} of at most {money(self.max_cost_usd)} is spent"

    def _pay(self, bill: Bill) -> None:
        self.bill += bill


def _judged(target: PairTarget, first: PairChoice, second: PairChoice, *, flags: Sequence[str]) -> JudgedPair:
    return _pair(
        target,
        candidate_first=_winner(first.better, candidate="A"),
        baseline_first=_winner(second.better, candidate="B"),
        reasons=(first.rationale, second.rationale),
        flags=tuple(dict.fromkeys(flags)),
    )


def _winner(better: Side, *, candidate: Side) -> Winner:
    if better == "tie":
        return "tie"
    return "candidate" if better == candidate else "baseline"


def _pair(
    target: PairTarget,
    *,
    candidate_first: Winner | None = None,
    baseline_first: Winner | None = None,
    reasons: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
    problem: str | None = None,
) -> JudgedPair:
    key = target.candidate.key
    return JudgedPair(
        case=key.case,
        runner=target.baseline.key.runner,
        candidate=key.arm,
        baseline=target.baseline.key.arm,
        trial=key.number,
        candidate_first=candidate_first,
        baseline_first=baseline_first,
        reasons=reasons,
        flags=flags,
        problem=problem,
    )

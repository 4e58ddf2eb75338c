"""Ask a judge about pairs of answers, each in both orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio
from msgspec import Struct, field

from whet.decide.judging.pairs import JudgedPair, Winner
from whet.errors import JudgeFailed, JudgeRefused, StoreError
from whet.grade.judge.identity import answer_id, statement_id
from whet.grade.judge.pairs import PairChoice, PairQuestion, Side, flags_of
from whet.grade.judge.questions import Question
from whet.grade.judge.rubrics import answer_text
from whet.grade.paying import charge_to
from whet.model.run import TrialKey, TrialResult
from whet.model.spending import Bill
from whet.record.read.changes import changes_of
from whet.record.read.run import RecordedRun
from whet.run.pairing.comparers import Comparer
from whet.run.pairing.targets import PairTarget

NO_PRICE = "the cost of the judge is not known, so --max-cost has no effect"
_NO_ANSWER = "{} has no answer: it was not graded"
_NOT_ASKED = "it was not asked about"
# What was said is kept whenever it has grown by this part, so that little is lost with a process that is killed.
_KEPT_AGAIN = 0.1


class AskingPairs(Struct, kw_only=True, dict=True):
    """The pairs, what the judge said so far, and what that took."""

    comparer: Comparer
    # How many pairs are asked about at the same time.
    at_once: int
    record: RecordedRun
    targets: Sequence[PairTarget]
    # What each case asks for.
    prompts: Mapping[str, str]
    # What this judge said before, by what it was asked about: it is not asked again.
    earlier: Mapping[tuple[str, ...], JudgedPair] = field(default_factory=dict)
    # Says why nothing more may be asked, and takes the bill for each pair.
    refusal: Callable[[Bill], str | None] = lambda _: None
    charge: Callable[[TrialKey, Bill], object] = lambda *_: None
    # Whether somebody limits what may be spent.
    is_limited: bool = False
    # Keeps what was said so far.
    keep: Callable[[tuple[JudgedPair, ...]], object] = lambda _: None
    bill: Bill = field(default_factory=Bill)
    answers: dict[int, JudgedPair] = field(default_factory=dict)
    stopped: str | None = None
    interrupted: bool = False
    _saved: int = 0

    def interrupt(self) -> None:
        """Note that a signal asked to end."""
        self.interrupted, self.stopped = True, "interrupted"

    def pairs(self) -> tuple[JudgedPair, ...]:
        """Return every pair that was asked about, in order."""
        return tuple(pair for _, pair in sorted(self.answers.items()))

    def all_pairs(self) -> tuple[JudgedPair, ...]:
        """Return every pair that was to be asked about; one that was not has no winner."""
        return tuple(
            self.answers.get(number) or _pair(target, problem=self.stopped or _NOT_ASKED)
            for number, target in enumerate(self.targets)
        )

    def notes(self) -> Iterator[str]:
        """Yield what a reader must know."""
        if self.is_limited and self.bill.unknown:
            yield NO_PRICE

    async def ask_all(self) -> None:
        """Ask about every pair, some at a time."""
        room = anyio.CapacityLimiter(self.at_once)
        try:
            async with anyio.create_task_group() as group:
                for number in range(len(self.targets)):
                    group.start_soon(self._ask_about, number, room)
        finally:
            with anyio.CancelScope(shield=True):
                await self.comparer.close()

    async def _ask_about(self, number: int, room: anyio.CapacityLimiter) -> None:
        async with room:
            target = self.targets[number]
            pair = self._foreseen(target)
            if pair is None:
                self.stopped = self.stopped or self.refusal(self.bill)
                if self.stopped:
                    return
                pair = await self._compare(target)
            if pair is not None:
                self.answers[number] = pair
                self._keep_some()

    def _foreseen(self, target: PairTarget) -> JudgedPair | None:
        """Return what is known without asking: what was said before, or that there is no answer to compare."""
        for result in (target.candidate, target.baseline):
            if result is not None and _answer(self.record, result) is None:
                return _pair(target, problem=_NO_ANSWER.format(result.key.arm))
        view = _view_of(self.record, target)
        answer = self.earlier.get(view.identity)
        return None if answer is None else _pair(target, view, answer=answer)

    async def _compare(self, target: PairTarget) -> JudgedPair | None:
        """Return what the judge says of a pair in both orders; None if it refuses to be asked at all."""
        view = _view_of(self.record, target)
        question = PairQuestion(
            question=target.question,
            first=view.candidate,
            second=view.baseline,
            given={"instruction": self.prompts.get(target.case, "")},
        )

        def pay(bill: Bill) -> None:
            self.bill += bill
            self.charge(target.candidate.key, bill)

        try:
            with charge_to(pay):
                first = await self.comparer.choose(target, question)
                second = await self.comparer.choose(target, question.exchanged())
        except JudgeRefused as error:
            self.stopped = error.message
            return None
        except JudgeFailed as error:
            return _pair(target, view, problem=error.message)
        return _pair(target, view, answer=_judged(target, view, first, second))

    def _keep_some(self) -> None:
        if len(self.answers) >= self._saved * (1 + _KEPT_AGAIN) + 1:
            self._saved = len(self.answers)
            try:
                self.keep(self.pairs())
            except StoreError as error:
                self.stopped = error.message


def identity_of(record: RecordedRun, target: PairTarget) -> tuple[str, ...]:
    """Return what identifies the question about *target*, with both answers."""
    return _view_of(record, target).identity


def _view_of(record: RecordedRun, target: PairTarget) -> _PairView:
    candidate = _answer(record, target.candidate) or ""
    baseline = target.reference if target.baseline is None else _answer(record, target.baseline)
    return _PairView(target=target, candidate=candidate, baseline=baseline or "")


def _answer(record: RecordedRun, result: TrialResult) -> str | None:
    session = record.session(result)
    return None if session is None else answer_text(session, changes_of(record, result))


class _PairView(Struct, frozen=True, kw_only=True):
    """What the judge is shown of a pair, and what identifies that."""

    target: PairTarget
    candidate: str
    baseline: str

    @property
    def statement_id(self) -> str:
        target = self.target
        return statement_id(Question(name="", criteria=target.question, answer="", reference=target.reference))

    @property
    def answer_ids(self) -> tuple[str, ...]:
        sides = (self.candidate, self.baseline)
        return tuple(answer_id(Question(name="", criteria="", answer=answer)) for answer in sides)

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.target.case, self.statement_id, *self.answer_ids)


def _judged(target: PairTarget, view: _PairView, first: PairChoice, second: PairChoice) -> JudgedPair:
    return JudgedPair(
        case=target.case,
        runner=target.runner,
        candidate=target.candidate.key.arm,
        baseline=target.baseline_name,
        trial=target.candidate.key.number,
        candidate_first=_winner(first.better, candidate="A"),
        baseline_first=_winner(second.better, candidate="B"),
        reasons=(first.rationale, second.rationale),
        flags=tuple(dict.fromkeys((*flags_of(view.candidate), *flags_of(view.baseline)))),
    )


def _winner(better: Side, *, candidate: Side) -> Winner:
    if better == "tie":
        return "tie"
    return "candidate" if better == candidate else "baseline"


def _pair(
    target: PairTarget,
    view: _PairView | None = None,
    *,
    answer: JudgedPair | None = None,
    problem: str | None = None,
) -> JudgedPair:
    """Return what was *answer* says of *target*, or the *problem* instead."""
    key = target.candidate.key
    return JudgedPair(
        case=key.case,
        runner=target.runner,
        candidate=key.arm,
        baseline=target.baseline_name,
        trial=key.number,
        reference=target.baseline is None,
        question=target.question,
        statement_id=view.statement_id if view else "",
        answer_ids=view.answer_ids if view else (),
        candidate_first=answer.candidate_first if answer else None,
        baseline_first=answer.baseline_first if answer else None,
        reasons=answer.reasons if answer else (),
        flags=answer.flags if answer else (),
        problem=problem,
    )

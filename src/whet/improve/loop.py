"""The loop of improvement: rounds of proposing, racing and confirming, over a `Workbench`.

A round makes candidates at once, and races them on practice cases by successive halving: one trial of each case for
all of them, and two more for the best third. The best one goes on if it is ahead of fresh trials of the current
version. It alone meets held-out cases, at the share of the error that this confirm step may make. So the search may be
as greedy as it likes: the decision is one comparison on cases that nobody optimised against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from whet.decide.improve.accept import objections
from whet.decide.improve.race import FIRST_LEG, SECOND_LEG, Racer, RaceRule, survivors, winner
from whet.improve.contract import LoopRecord, Workbench
from whet.reading.text import count
from whet.record.improve.document import (
    CURRENT,
    CandidateRecord,
    ConfirmRecord,
    Fate,
    ImproveGoal,
    ImproveOptions,
    Outcome,
    Phase,
    PracticeScore,
    RoundRecord,
    SealedRecord,
)


class LoopEnd(Struct, frozen=True, kw_only=True):
    """What came of all rounds, and why."""

    outcome: Outcome
    reason: str
    rounds: tuple[RoundRecord, ...]
    sealed: SealedRecord | None = None


class Unrecorded:
    """A record that keeps nothing, for loops that nobody resumes."""

    def begin(self, phase: Phase, round_number: int | None = None) -> None:
        """Keep nothing."""

    def keep_baseline(self, score: PracticeScore) -> None:
        """Keep nothing."""

    def keep_round(self, phase: Phase, record: RoundRecord, *, ended: bool = True) -> None:
        """Keep nothing."""

    def keep_sealed(self, record: SealedRecord) -> None:
        """Keep nothing."""


def improve_in_rounds(
    bench: Workbench,
    options: ImproveOptions,
    *,
    start: str = "",
    record: LoopRecord | None = None,
    baseline: PracticeScore | None = None,
    rounds: Sequence[RoundRecord] = (),
    sealed: SealedRecord | None = None,
) -> LoopEnd:
    """Go through the rounds that *options* ask for, from the version with the digest *start*.

    *baseline*, *rounds* and *sealed* are what an interrupted loop has kept: it goes on after them. `EndedEarly` of the
    workbench passes through.
    """
    record = record or Unrecorded()
    # Who brings candidates needs not know what is wrong with the current version, and who only wants some runs nothing.
    if baseline is None and not options.own_candidates and not options.propose_only:
        record.begin("eval_current")
        record.keep_baseline(bench.measure_current())
    done_rounds: list[RoundRecord] = []
    for number in range(1, options.rounds + 1):
        earlier = rounds[number - 1] if number <= len(rounds) else RoundRecord(number=number, start=start)
        last_round = _RoundUnderWay(bench, options, record, earlier).finish()
        done_rounds.append(last_round)
        start = _digest(last_round, last_round.accepted) or start
        if last_round.confirm is not None and last_round.accepted is None and not _is_decided(last_round.confirm):
            # There is no money for another round either.
            break
    if options.propose_only:
        return _proposed(done_rounds)
    end = _end(done_rounds, options.goal)
    if end.outcome == "succeeded":
        record.begin("sealed")
        sealed = sealed or bench.seal()
        if sealed is not None:
            record.keep_sealed(sealed)
    return replace(end, sealed=sealed)


class _RoundUnderWay:
    """A round, which goes on after what `state` already has."""

    def __init__(self, bench: Workbench, options: ImproveOptions, record: LoopRecord, state: RoundRecord) -> None:
        self.bench = bench
        self.options = options
        self.record = record
        self.state = state

    def finish(self) -> RoundRecord:
        """Do what is left of the round, and return it."""
        if not self.state.candidates:
            self._generate()
        if any(candidate.fate == "proposed" for candidate in self.state.candidates):
            self._lint()
        if self.options.propose_only:
            return self.state
        if self.state.current is None and self._fit():
            self._race()
        if self.state.chosen is not None and self.state.accepted is None and not _is_decided(self.state.confirm):
            self._confirm(self.state.chosen)
        if self.state.accepted is not None:
            self.bench.accept(self.state.number, self.state.accepted)
        return self.state

    def _generate(self) -> None:
        self.record.begin("generating", self.state.number)
        self._keep("generating", candidates=tuple(self.bench.propose(self.state.number)))

    def _lint(self) -> None:
        self.record.begin("linting", self.state.number)
        fresh = [candidate for candidate in self.state.candidates if candidate.fate == "proposed"]
        linted_by_id = {candidate.id: candidate for candidate in self.bench.lint(self.state.number, fresh)}
        self._keep(
            "linting",
            candidates=tuple(linted_by_id.get(candidate.id, candidate) for candidate in self.state.candidates),
        )

    def _race(self) -> None:
        number, fit = self.state.number, self._fit()
        self.record.begin("racing", number)
        scores = self.bench.race(number, 1, (CURRENT, *(candidate.id for candidate in fit)), FIRST_LEG)
        survivor_ids = survivors(_racers(fit, scores), self._race_rule(scores))
        survivor_ids = survivor_ids[: self.bench.most_kept(number, len(survivor_ids))]
        final_scores = self.bench.race(number, 2, (CURRENT, *survivor_ids), SECOND_LEG)
        finalists = [candidate for candidate in fit if candidate.id in survivor_ids]
        best = winner(_racers(finalists, final_scores), self._race_rule(final_scores))
        scores = {**scores, **final_scores}
        self._keep(
            "racing",
            candidates=tuple(_raced(candidate, scores, best) for candidate in self.state.candidates),
            current=scores[CURRENT],
            chosen=best,
        )

    def _confirm(self, candidate_id: str) -> None:
        number = self.state.number
        self.record.begin("confirming", number)
        if self.state.step is None or self.state.error is None:
            step, error = self.bench.next_error(number)
            # Kept before anything is looked at: a kill must not give a second look at the same error.
            self._keep("confirming", ended=False, step=step, error=error)
        assert self.state.step is not None
        assert self.state.error is not None
        confirm = self.bench.confirm(number, candidate_id, self.state.step, self.state.error)
        confirm = replace(confirm, objections=_objections(confirm, self.options))
        is_accepted = not confirm.objections
        # Without the money to go on, nothing is decided yet.
        is_over = _is_decided(confirm) or is_accepted
        fate: Fate = "accepted" if is_accepted else "rejected"
        if not is_over:
            fate = "chosen"
        self._keep(
            "confirming",
            ended=is_over,
            confirm=confirm,
            accepted=candidate_id if is_accepted else None,
            candidates=tuple(
                replace(candidate, fate=fate) if candidate.id == candidate_id else candidate
                for candidate in self.state.candidates
            ),
        )

    def _race_rule(self, scores: Mapping[str, PracticeScore]) -> RaceRule:
        current = Racer(id=CURRENT, score=scores[CURRENT].score, cost_usd=scores[CURRENT].cost_usd)
        return RaceRule(current=current, goal=self.options.goal, margin=self.options.margin)

    def _fit(self) -> list[CandidateRecord]:
        return [candidate for candidate in self.state.candidates if candidate.fate == "fit"]

    def _keep(self, phase: Phase, *, ended: bool = True, **changes: object) -> None:
        self.state = replace(self.state, **changes)
        self.record.keep_round(phase, self.state, ended=ended)


def _racers(candidates: Sequence[CandidateRecord], scores: Mapping[str, PracticeScore]) -> list[Racer]:
    return [
        Racer(
            id=candidate.id,
            score=scores[candidate.id].score,
            cost_usd=scores[candidate.id].cost_usd,
            growth=candidate.token_growth,
            digest=candidate.digest,
        )
        for candidate in candidates
    ]


def _raced(candidate: CandidateRecord, scores: Mapping[str, PracticeScore], best: str | None) -> CandidateRecord:
    if candidate.id not in scores:
        return candidate
    fate: Fate = "chosen" if candidate.id == best else "raced"
    return replace(candidate, fate=fate, practice=scores[candidate.id])


def _objections(confirm: ConfirmRecord, options: ImproveOptions) -> tuple[str, ...]:
    return objections(
        confirm.verdict,
        rule=options.accept,
        goal=options.goal,
        like_these=confirm.like_these,
        cost_ratio=confirm.cost_ratio,
        regressed=confirm.regressed,
    )


def _is_refuted(confirm: ConfirmRecord) -> bool:
    """Return whether more trials would hardly make the version acceptable."""
    is_dearer = confirm.cost_ratio is not None and confirm.cost_ratio.low > 1
    return confirm.verdict == "worse" or bool(confirm.regressed) or is_dearer


def _is_decided(confirm: ConfirmRecord | None) -> bool:
    """Return whether a confirm step is over; one that ran out of money goes on when there is more."""
    return confirm is not None and confirm.stop != "money"


def _digest(record: RoundRecord, name: str | None) -> str | None:
    return next((candidate.digest for candidate in record.candidates if candidate.id == name), None)


def _proposed(rounds: Sequence[RoundRecord]) -> LoopEnd:
    fit = sum(candidate.fate == "fit" for record in rounds for candidate in record.candidates)
    total = sum(len(record.candidates) for record in rounds)
    reason = f"{fit} of {count(total, 'candidate')} can be raced; nothing was measured"
    return LoopEnd(outcome="proposed", reason=reason, rounds=tuple(rounds))


def _end(rounds: Sequence[RoundRecord], goal: ImproveGoal) -> LoopEnd:
    """Return what came of *rounds*: a version that holds up, none, or one that is neither confirmed nor refuted."""
    accepted_rounds = [record for record in rounds if record.accepted is not None]
    if accepted_rounds:
        last = accepted_rounds[-1]
        gain = "better" if goal == "better" else "cheaper and not worse"
        return LoopEnd(
            outcome="succeeded",
            reason=f"candidate {last.accepted} is {gain} on cases that nobody optimised against",
            rounds=tuple(rounds),
        )
    for record in reversed(rounds):
        if record.confirm is not None and not _is_refuted(record.confirm):
            reason = (
                f"candidate {record.chosen} is neither confirmed nor refuted: {'; '.join(record.confirm.objections)}"
            )
            return LoopEnd(outcome="undecided", reason=reason, rounds=tuple(rounds))
    return LoopEnd(outcome="no_winner", reason=_why_none(rounds[-1]), rounds=tuple(rounds))


def _why_none(record: RoundRecord) -> str:
    if record.confirm is not None:
        return f"candidate {record.chosen} does not hold up: {'; '.join(record.confirm.objections)}"
    if record.current is not None:
        return "no candidate is ahead of the current version on practice cases"
    return "no candidate could be raced"

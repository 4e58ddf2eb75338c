"""The loop of improvement over a small world in which every version passes a known share of its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from whet.improve.contract import EndedEarly
from whet.improve.loop import LoopEnd, improve_in_rounds
from whet.model.callable import Interval
from whet.model.comparison import Decision, Stop
from whet.record.improve.document import (
    CURRENT,
    CandidateRecord,
    ConfirmRecord,
    ImproveOptions,
    LintFinding,
    Phase,
    PracticeScore,
    RoundRecord,
    SealedRecord,
)

OPTIONS = ImproveOptions(
    part="body", goal="better", candidates=6, rounds=1, max_cost_usd=None, accept="these", max_rounds=10
)


class World(Struct):
    """Scores on practice cases and verdicts on held-out ones, by version; `asked` is all that the loop asked for."""

    practice: dict[str, float]
    verdicts: dict[str, Decision] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    stop: Stop = "decided"
    like_these: Interval | None = None
    regressed: tuple[str, ...] = ()
    has_sealed: bool = False
    # The question after which the world ends, as a kill would.
    dies_after: str | None = None
    most: int = 24
    steps: int = 0
    asked: list[str] = field(default_factory=list)

    def _ask(self, question: str) -> None:
        if self.dies_after is not None and self.asked and self.asked[-1] == self.dies_after:
            raise EndedEarly("interrupted", "killed")
        self.asked.append(question)

    def measure_current(self) -> PracticeScore:
        self._ask("measure")
        return PracticeScore(score=self.practice[CURRENT], trials=36)

    def propose(self, round_number: int) -> Sequence[CandidateRecord]:
        self._ask(f"propose {round_number}")
        names = [name for name in self.practice if name != CURRENT]
        return [CandidateRecord(id=name, digest=f"digest of {name}", fate="proposed") for name in names]

    def lint(self, round_number: int, candidates: Sequence[CandidateRecord]) -> Sequence[CandidateRecord]:
        self._ask(f"lint {round_number}")
        finding = LintFinding(rule="leak", message="repeats a prompt", told="repeats text of a case")
        return [
            replace(candidate, fate="refused", lint=(finding,))
            if candidate.id in self.refused
            else replace(candidate, fate="fit")
            for candidate in candidates
        ]

    def most_kept(self, _: int, candidates: int) -> int:
        return min(candidates, self.most)

    def race(self, round_number: int, leg: int, versions: Sequence[str], trials: int) -> Mapping[str, PracticeScore]:
        self._ask(f"race {round_number} leg {leg}, {trials} each: {' '.join(versions)}")
        return {name: PracticeScore(score=self.practice[name], trials=12 * trials) for name in versions}

    def next_error(self, round_number: int) -> tuple[int, float]:
        self._ask(f"count {round_number}")
        self.steps += 1
        return self.steps, 0.05 / 2**self.steps

    def confirm(self, round_number: int, candidate: str, step: int, error: float) -> ConfirmRecord:
        self._ask(f"confirm {round_number}: {candidate} at step {step}")
        verdict = self.verdicts.get(candidate, "inconclusive")
        return ConfirmRecord(
            step=step,
            error=error,
            verdict=verdict,
            difference=0.2,
            low=0.1,
            high=0.3,
            stop=self.stop,
            like_these=self.like_these,
            regressed=self.regressed,
        )

    def accept(self, round_number: int, candidate: str) -> None:
        self._ask(f"accept {round_number}: {candidate}")

    def seal(self) -> SealedRecord | None:
        self._ask("seal")
        if not self.has_sealed:
            return None
        return SealedRecord(before=0.5, after=0.7, difference=0.2, low=0.0, high=0.4, trials=40)


class Kept(Struct):
    """A record in memory."""

    phases: list[tuple[Phase, int | None]] = field(default_factory=list)
    baseline: PracticeScore | None = None
    rounds: dict[int, RoundRecord] = field(default_factory=dict)
    sealed: SealedRecord | None = None

    def begin(self, phase: Phase, round_number: int | None = None) -> None:
        self.phases.append((phase, round_number))

    def keep_baseline(self, score: PracticeScore) -> None:
        self.baseline = score

    def keep_round(self, phase: Phase, record: RoundRecord, *, ended: bool = True) -> None:
        self.rounds[record.number] = record

    def keep_sealed(self, record: SealedRecord) -> None:
        self.sealed = record

    def go_on(self, world: World, options: ImproveOptions = OPTIONS) -> LoopEnd:
        """Run the loop from what is kept."""
        return improve_in_rounds(
            world,
            options,
            start="digest of current",
            record=self,
            baseline=self.baseline,
            rounds=list(self.rounds.values()),
            sealed=self.sealed,
        )


SIX = {CURRENT: 0.5, "a": 0.4, "b": 0.8, "c": 0.6, "d": 0.5, "e": 0.3, "f": 0.2}


def test_the_best_third_goes_on_and_only_the_winner_meets_held_out_cases() -> None:
    world = World(practice=SIX, verdicts={"b": "better"})

    end = improve_in_rounds(world, OPTIONS)

    assert end.outcome == "succeeded"
    assert world.asked == [
        "measure",
        "propose 1",
        "lint 1",
        "race 1 leg 1, 1 each: current a b c d e f",
        "race 1 leg 2, 2 each: current b c",
        "count 1",
        "confirm 1: b at step 1",
        "accept 1: b",
        "seal",
    ]
    fates = {candidate.id: candidate.fate for candidate in end.rounds[0].candidates}
    assert fates == {"a": "raced", "b": "accepted", "c": "raced", "d": "raced", "e": "raced", "f": "raced"}


def test_nobody_is_confirmed_if_nobody_is_ahead_of_the_current_version() -> None:
    world = World(practice={CURRENT: 0.5, "a": 0.5, "b": 0.4})

    end = improve_in_rounds(world, OPTIONS)

    assert end.outcome == "no_winner"
    assert world.steps == 0
    assert end.rounds[0].chosen is None


@pytest.mark.parametrize(
    ("verdict", "like_these", "regressed", "outcome"),
    [
        ("worse", None, (), "no_winner"),
        ("inconclusive", None, (), "undecided"),
        ("better", Interval(value=0.2, low=-0.1, high=0.5), (), "undecided"),
        ("better", Interval(value=0.2, low=0.1, high=0.3), ("login",), "no_winner"),
        ("better", Interval(value=0.2, low=0.1, high=0.3), (), "succeeded"),
    ],
)
def test_what_held_out_cases_say_is_the_outcome(
    verdict: Decision, like_these: Interval | None, regressed: tuple[str, ...], outcome: str
) -> None:
    world = World(practice=SIX, verdicts={"b": verdict}, like_these=like_these, regressed=regressed)

    end = improve_in_rounds(world, replace(OPTIONS, accept="like-these"))

    assert end.outcome == outcome


def test_a_round_without_a_candidate_that_is_fit_ends_without_a_race() -> None:
    world = World(practice={CURRENT: 0.5, "a": 0.9}, refused=("a",))

    end = improve_in_rounds(world, OPTIONS)

    assert end.outcome == "no_winner"
    assert not [question for question in world.asked if question.startswith("race")]


def test_each_round_starts_from_what_the_last_one_accepted_and_counts_on() -> None:
    world = World(practice=SIX, verdicts={"b": "better"})

    end = improve_in_rounds(world, replace(OPTIONS, rounds=2), start="digest of current")

    assert [record.start for record in end.rounds] == ["digest of current", "digest of b"]
    assert [record.step for record in end.rounds] == [1, 2]


def test_own_candidates_need_no_baseline() -> None:
    world = World(practice={CURRENT: 0.5, "mine": 0.6}, verdicts={"mine": "better"})

    improve_in_rounds(world, replace(OPTIONS, own_candidates=("mine",)))

    assert "measure" not in world.asked


def test_proposing_only_measures_no_candidate() -> None:
    world = World(practice=SIX, refused=("a",))

    end = improve_in_rounds(world, replace(OPTIONS, propose_only=True))

    assert end.outcome == "proposed"
    assert world.asked[-1] == "lint 1"


def test_a_race_that_the_money_cuts_short_keeps_the_best() -> None:
    world = World(practice=SIX, verdicts={"b": "better"}, most=1)

    improve_in_rounds(world, OPTIONS)

    assert "race 1 leg 2, 2 each: current b" in world.asked


WHOLE = World(practice=SIX, verdicts={"b": "better"}, has_sealed=True)
improve_in_rounds(WHOLE, replace(OPTIONS, rounds=2))


@pytest.mark.parametrize("last", WHOLE.asked[:-1])
def test_a_loop_that_ends_after_any_question_goes_on_and_decides_the_same(last: str) -> None:
    options, kept = replace(OPTIONS, rounds=2), Kept()
    with pytest.raises(EndedEarly):
        kept.go_on(World(practice=SIX, verdicts={"b": "better"}, has_sealed=True, dies_after=last), options)
    counts = max([record.step or 0 for record in kept.rounds.values()], default=0)

    world = World(practice=SIX, verdicts={"b": "better"}, has_sealed=True, steps=counts)
    end = kept.go_on(world, options)

    undisturbed = Kept().go_on(World(practice=SIX, verdicts={"b": "better"}, has_sealed=True), options)
    assert end == undisturbed
    again = [question for question in world.asked if not question.startswith("accept")]
    done = WHOLE.asked[: WHOLE.asked.index(last) + 1]
    # The first leg of a race is asked for again, and a workbench has its results.
    assert not [question for question in again if question in done and "leg 1" not in question]


def test_a_confirm_step_that_ran_out_of_money_goes_on_at_the_same_error() -> None:
    kept = Kept()
    kept.go_on(World(practice=SIX, stop="money"))

    world = World(practice=SIX, verdicts={"b": "better"})
    end = kept.go_on(world)

    assert end.outcome == "succeeded"
    assert world.asked == ["confirm 1: b at step 1", "accept 1: b", "seal"]

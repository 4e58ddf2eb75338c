"""Comparisons: what trials of two arms say, and what was decided from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Literal

from whet.dataclass import dataclass
from whet.model.benchmark import Interval
from whet.model.skills import SkillLoads
from whet.reading.text import count

Decision = Literal["better", "not-worse", "worse", "inconclusive"]
# Why a run until decided ended; a look finds all but the end of the money.
Stop = Literal["decided", "hopeless", "rounds", "money"]
# What is measured beside the verdicts, and the unit that people read it in.
Amount = Literal["cost_usd", "seconds", "tokens", "steps"]
AMOUNTS: tuple[Amount, ...] = ("cost_usd", "seconds", "tokens", "steps")
# The most rounds that a run until decided looks after, and the most trials that are added to one at a time.
MOST_ROUNDS, MOST_ADDED = 100, 100_000
# No trial takes more of anything, and squares of sums of this are still numbers.
MOST_TAKEN = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What one trial says: `value` is from 0 to 1, or None if the trial errored; amounts are None if unknown.

    A `contaminated` trial errored because it found a skill that its arm should not have. `loads` says whether it met
    the skill of its arm; None if its arm has none.
    A `blameless` one errored for a reason that its agent and its checks have no part in, such as a provider that was
    down. `judged` stands for the answer that a model judged: equal for equal answers, and None if none did.
    """

    case: str
    value: float | None
    cost_usd: float | None = None
    seconds: float | None = None
    tokens: float | None = None
    steps: float | None = None
    contaminated: bool = False
    loads: SkillLoads | None = None
    blameless: bool = False
    judged: str | None = None
    # In which round it ran; None if that is not known.
    round: int | None = None
    # Whether all of its checks held; None if it errored, or if that is not known beside its value.
    held: bool | None = None

    @property
    def share(self) -> float | None:
        """How it counts in the share of trials that pass, whatever its score is."""
        return self.value if self.held is None else float(self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSamples:
    """The trials of one arm on one runner."""

    arm: str
    runner: str
    trials: tuple[Sampled, ...]

    @property
    def never_loaded(self) -> str | None:
        """A sentence if the arm has a skill, sessions can tell, and none of them loaded it."""
        known = (trial.loads for trial in self.trials if trial.loads is not None)
        return sum(known, SkillLoads(arm=self.arm, runner=self.runner)).warning


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSamples:
    """All that a comparison needs of a run; `arms` are in their order, the baseline first.

    `grown_from` are the rounds that were done each time the run was made longer, since somebody had looked at it then.
    A run until decided looked after each of its rounds, of which there were to be `rounds_planned` at most. Its trials
    are those of rounds that were complete.
    """

    name: str
    arms: tuple[ArmSamples, ...]
    weights: Mapping[str, float]
    # What each case asks and checks; an older whet did not say so.
    digests: Mapping[str, str] = field(default_factory=dict)
    grown_from: tuple[int, ...] = ()
    rounds_planned: int | None = None
    interleaved: bool = True
    # What makes it longer: `whet run` or `whet eval`.
    command: str = "run"
    # The share of verdicts that the judge has wrong; None if nobody has said.
    judge_error: float | None = None
    # The runs that the trials are of, and those whose failures selected their cases.
    runs: tuple[str, ...] = ()
    selected_from: tuple[str, ...] = ()
    # Arms that do not differ in anything, in groups.
    alike: tuple[tuple[str, ...], ...] = ()
    # The runs that these are of and of which trials are missing: itself, or one of two.
    unfinished: tuple[str, ...] = ()
    # What holds for every comparison of it, such as that it is not finished.
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arms."""
        return tuple(dict.fromkeys(each.arm for each in self.arms))

    @property
    def rounds(self) -> int:
        """The largest number of trials that a case has in an arm."""
        counts = Counter((each.arm, each.runner, trial.case) for each in self.arms for trial in each.trials)
        return max(counts.values(), default=0)

    def of_arm(self, name: str) -> dict[str, tuple[Sampled, ...]]:
        """Return the trials of an arm, by runner."""
        return {each.runner: each.trials for each in self.arms if each.arm == name}


def notes_on(*, voided: Iterable[str], missing: int, mistaken: Collection[tuple[str, str]] = ()) -> Iterator[str]:
    """Yield what every comparison of a run has to say: which cases are void, and how many trials are missing.

    *mistaken* has the case and the arm of each trial that failed by a mistake in a check.
    """
    if void := ", ".join(voided):
        yield f"void, so not compared: {void}"
    if missing > 0:
        yield f"the run is not finished: {count(missing, 'trial')} {'is' if missing == 1 else 'are'} missing"
    if mistaken:
        where = ", ".join(f"{case} in {arm}" for case, arm in sorted(set(mistaken)))
        yield f"{count(len(mistaken), 'trial')} failed by a mistake in a check, and not by the agent: {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChange:
    """One case in both arms: mean values, how many trials each is from, and whether it may be chance.

    An arm of which no trial counted has no value.
    """

    case: str
    baseline: float | None
    candidate: float | None
    baseline_trials: int
    candidate_trials: int
    weight: float
    may_be_chance: bool

    @property
    def value(self) -> float:
        """By how much the candidate is better, or worse."""
        return 0.0 if self.baseline is None or self.candidate is None else self.candidate - self.baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountChange:
    """What a trial takes in both arms, on average over cases, and how many times as much the candidate takes."""

    amount: Amount
    baseline: float
    candidate: float
    ratio: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Errored:
    """The trials that errored, and the difference if all of them had failed, or had passed.

    `blameless` are those of both that errored for a reason that neither their agent nor their checks have a part in.
    """

    baseline: int
    candidate: int
    if_failed: Interval
    if_passed: Interval
    # Whether leaving them out would have led to another decision.
    decisive: bool
    blameless: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What a judge has to do with a decision.

    `answers` of `verdicts` are distinct: the same answer gets the same verdict, so that only they count. `error` is the
    share of verdicts that are wrong, as far as somebody said. `favour` is the tipping point: by so much the judge would
    have to favour an arm for the decision not to hold; None if there is no decision.
    """

    verdicts: int
    answers: int
    error: float | None
    favour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two arms on one runner, and the decision; the interval covers both ways in which errored trials could have gone.

    `level` is that of the interval: 0.95, or more if several candidates or several looks share one error.
    """

    baseline: str
    candidate: str
    verdict: Decision
    difference: float
    low: float
    high: float
    margin: float
    level: float
    like_these: Interval | None
    baseline_rate: Interval
    candidate_rate: Interval
    cases: tuple[CaseChange, ...]
    amounts: tuple[AmountChange, ...]
    errored: Errored
    # The variance of a trial within its case, summed over both arms, and the trials that it is known from.
    spread: float
    trials: int
    # Whether trials count by scores between 0 and 1, so that rates are mean scores.
    scored: bool = False
    runner: str | None = None
    contaminated: int = 0
    # None if no trial was judged by a model.
    judging: Judging | None = None
    # How many times as far the limits reach because trials of a round went alike.
    stretch: float = 1.0
    looks: int = 1
    interleaved: bool = True
    # What a reader must know before relying on it, one sentence each.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """What a run until decided was asked: the effect that matters, and the most rounds.

    With a `margin`, "not worse by so much" is a decision too.
    """

    effect: float = 0.10
    rounds: int = 10
    margin: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One comparison after a round; `chance` is that of a decision by the last round, if the effect is real."""

    candidate: str
    runner: str
    difference: float
    low: float
    high: float
    verdict: Decision
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen after a round, and why the run stops there; None if it goes on."""

    round: int
    seen: tuple[Seen, ...]
    stop: Stop | None = None

"""Comparisons: what trials of two arms say, and what was decided from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from whet.model.callable import Interval
from whet.model.skills import SkillLoads
from whet.model.suite import PARTS, Part
from whet.reading.text import count

Decision = Literal["better", "not-worse", "worse", "inconclusive"]
# Why a run until decided ended; a look finds all but the end of the money.
Stop = Literal["decided", "hopeless", "rounds", "money"]
# What is measured beside the verdicts, and the unit that people read it in.
Amount = Literal["cost_usd", "seconds", "tokens", "steps"]
AMOUNTS: tuple[Amount, ...] = ("cost_usd", "seconds", "tokens", "steps")
# What a candidate may be for beside being better, and how far that has come: it must not be worse for it.
Goal = Literal["cheaper", "faster", "shorter"]
GOALS: tuple[Goal, ...] = ("cheaper", "faster", "shorter")
Progress = Literal["reached", "missed", "open"]
# How often all comparisons that answer one question may be wrong together, unless less is asked for.
USUAL_ERROR = 0.05
# The most rounds that a run until decided looks after, and the most trials that are added to one at a time.
MOST_ROUNDS, MOST_ADDED = 100, 100_000
# No trial takes more of anything, and squares of sums of this are still numbers.
MOST_TAKEN = 1e15


class Sampled(Struct, frozen=True, kw_only=True):
    """What one trial says: `value` is from 0 to 1, or None if the trial errored; amounts are None if unknown.

    A `contaminated` trial errored because it found a skill that its arm should not have. `loads` says whether it met
    the skill of its arm; None if its arm has none.
    A `blameless` one errored for a reason that its agent and its checks have no part in, such as a provider that was
    down. `judged` identifies the answer that a model judged: equal for equal answers, and None if none did.
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
    # Its value had the judge called everything true; None if nobody judged, or if it errored.
    unjudged: float | None = None

    @property
    def share(self) -> float | None:
        """How it counts in the share of trials that pass, whatever its score is."""
        return self.value if self.held is None else float(self.held)


def loads_of_side(name: str, trials: Iterable[Sampled]) -> tuple[SkillLoads, ...]:
    """Return how often the skill was loaded in *trials*, as one count for the side *name*; nothing if it has none."""
    loads = [trial.loads for trial in trials if trial.loads is not None]
    runners = dict.fromkeys(load.runner for load in loads)
    return (sum(loads, SkillLoads(arm=name, runner=", ".join(runners))),) if loads else ()


class ArmSamples(Struct, frozen=True, kw_only=True):
    """The trials of one arm on one runner."""

    arm: str
    runner: str
    trials: tuple[Sampled, ...]

    @property
    def never_loaded(self) -> str | None:
        """A sentence if the arm has a skill, sessions can tell, and none of them loaded it."""
        loads = (trial.loads for trial in self.trials if trial.loads is not None)
        return sum(loads, SkillLoads(arm=self.arm, runner=self.runner)).warning


class RunSamples(Struct, frozen=True, kw_only=True):
    """All that a comparison needs of a run; `arms` are in their order, the baseline first.

    `grown_from` are the rounds that were done each time the run was made longer, since somebody had looked at it then.
    A run until decided looked after each of its rounds, of which there were to be `rounds_planned` at most. Its trials
    are those of rounds that were complete.
    """

    name: str
    arms: tuple[ArmSamples, ...]
    weights: Mapping[str, float]
    # What each case asks and checks.
    digests: Mapping[str, str] = field(default_factory=dict)
    # The part of each case that has one, and the cases that were edited since they were held out.
    splits: Mapping[str, Part] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    grown_from: tuple[int, ...] = ()
    rounds_planned: int | None = None
    # What a run until decided may err by, as `Until` has it.
    error: float = USUAL_ERROR
    interleaved: bool = True
    # What makes it longer: `whet run` or `whet eval`.
    command: str = "run"
    # The share of answers that the judge is wrong about; None if no setting says it, so that a share is assumed.
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
        return tuple(dict.fromkeys(samples.arm for samples in self.arms))

    @property
    def cases(self) -> tuple[str, ...]:
        """The cases that have a trial."""
        return tuple(dict.fromkeys(trial.case for samples in self.arms for trial in samples.trials))

    @property
    def rounds(self) -> int:
        """The largest number of trials that a case has in an arm."""
        counts = Counter((samples.arm, samples.runner, trial.case) for samples in self.arms for trial in samples.trials)
        return max(counts.values(), default=0)

    def of_parts(self, parts: Collection[Part]) -> RunSamples:
        """Return the trials of the cases of these *parts*; all of them without any."""
        if not parts:
            return self
        arms = (
            replace(arm, trials=tuple(trial for trial in arm.trials if self.splits.get(trial.case) in parts))
            for arm in self.arms
        )
        return replace(self, arms=tuple(arms))

    def of_arm(self, name: str) -> dict[str, tuple[Sampled, ...]]:
        """Return the trials of an arm, by runner."""
        return {samples.runner: samples.trials for samples in self.arms if samples.arm == name}


def notes_on(
    *,
    voided: Iterable[str],
    missing: int,
    mistaken: Collection[tuple[str, str]] = (),
    selected_from: Sequence[str] = (),
) -> Iterator[str]:
    """Yield what every comparison of a run has to say: which cases are void, and how many trials are missing.

    *selected_from* are the runs whose failures selected its cases. *mistaken* has the case and the arm of each trial
    that failed by a mistake in a check.
    """
    if void := ", ".join(voided):
        yield f"void, so not compared: {void}"
    if missing > 0:
        yield f"the run is not finished: {count(missing, 'trial')} {'is' if missing == 1 else 'are'} missing"
    if selected_from:
        yield f"only what failed in {selected_from[0]} ran: the cases that it leaves out may have become worse"
    if mistaken:
        where = ", ".join(f"{case} in {arm}" for case, arm in sorted(set(mistaken)))
        yield f"{count(len(mistaken), 'trial')} failed by a mistake in a check, and not by the agent: {where}"


def count_parts(splits: Mapping[str, Part], cases: Iterable[str]) -> dict[Part, int]:
    """Return how many of *cases* are of each part."""
    counts = Counter(map(splits.get, cases))
    return {part: counts[part] for part in PARTS if counts[part]}


def merge_parts(splits: Mapping[str, Part], more: Mapping[str, Part]) -> dict[str, Part]:
    """Return the parts of the cases of two runs: what was practice in one of them is no longer held out."""
    return {case: min(more.get(case, part), part, key=PARTS.index) for case, part in {**more, **splits}.items()}


def notes_on_parts(samples: RunSamples, cases: Iterable[str]) -> Iterator[str]:
    """Yield what the parts of *cases*, which are compared, have to say about a decision on them."""
    cases = tuple(cases)
    counts = count_parts(samples.splits, cases)
    practice, total = counts.get(PARTS[0], 0), sum(counts.values())
    if practice:
        how_many = "the cases are" if practice == total else f"{practice} of {total} cases are"
        yield (
            f"{how_many} practice: what was changed until they pass looks better on them than it is; "
            "decide on --split held-out"
        )
    if edited := ", ".join(filter(samples.edited.__contains__, cases)):
        yield f"edited since they were held out: {edited}"


class CaseChange(Struct, frozen=True, kw_only=True):
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


class AmountChange(Struct, frozen=True, kw_only=True):
    """What a trial takes in both arms, on average over cases, and how many times as much the candidate takes."""

    amount: Amount
    baseline: float
    candidate: float
    ratio: Interval | None


class Aim(Struct, frozen=True, kw_only=True):
    """Whether a candidate takes less than its baseline and is not worse, which it is asked to be.

    `amount` is what it shall take less of; None if it is not known in both arms, and so has no `ratio`.
    """

    goal: Goal
    progress: Progress
    amount: Amount | None
    ratio: Interval | None


class Errored(Struct, frozen=True, kw_only=True):
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


class CountedDifference(Struct, frozen=True, kw_only=True):
    """The difference of judged statements as labels of people count it, beside what the judge says (`raw`).

    `missing` labels are needed before there is a value: five of each verdict in each arm. `baseline` and `candidate`
    are the corrected rates. `more` labels would decide if they say the same; None if it is decided, or if none would.
    """

    labels: int
    missing: int
    raw: float
    value: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    candidate: float | None = None
    more: int | None = None


# Whether people have checked the judge: there are labels that count, none, too few, or only of another judge.
JudgeCheck = Literal["counted", "too-few", "stale", "not-checked"]


class Judging(Struct, frozen=True, kw_only=True):
    """What a judge has to do with a decision.

    `answers` of `verdicts` are distinct: the same answer gets the same verdict, so that only they count. `error` is the
    share of answers that it is wrong about, as a setting says or, without one, as is `assumed`. `favour` is the
    tipping point: by so much the judge would have to favour an arm for the decision not to hold; None if there is no
    decision. `of_failures` is the same as a share of failures: it would have to pass so many more of those of the arm
    that it favours. `share` is the part of the difference that rests on judged statements.
    """

    verdicts: int
    answers: int
    error: float
    assumed: bool
    favour: float | None
    of_failures: float | None = None
    share: float | None = None
    check: JudgeCheck = "not-checked"
    counted: CountedDifference | None = None


PairsVerdict = Literal["better", "worse", "inconclusive", "errored"]


class PairFigures(Struct, frozen=True, kw_only=True):
    """What the pairs of two arms on one runner say together.

    `value` is wins less losses as a share of the pairs, with an interval, `p` that of the test over `deciding` cases:
    those in which one of the two won more often. `level` is what `p` has to be below at so many `looks`.
    With a `reference` the candidate is beside stored answers, and the baseline no arm.
    """

    candidate: str
    baseline: str
    runner: str
    reference: bool = False
    verdict: PairsVerdict
    reason: str
    pairs: int
    wins: int
    losses: int
    ties: int
    depend_on_order: int
    left_out: int
    cases: int
    deciding: int
    level: float
    looks: int
    p: float
    difference: Interval | None = None


class Comparison(Struct, frozen=True, kw_only=True):
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
    # How often the skill of each side was loaded, for sides that have one.
    loads: tuple[SkillLoads, ...] = ()
    # None if no trial was judged by a model.
    judging: Judging | None = None
    # What a judge said of pairs of answers, if it was asked at this look.
    pairs: PairFigures | None = None
    # How many times as far the limits reach because trials of a round went alike.
    stretch: float = 1.0
    looks: int = 1
    interleaved: bool = True
    # What a reader must know before relying on it, one sentence each.
    notes: tuple[str, ...] = ()
    # None if the candidate is only asked whether it is better, or worse.
    aim: Aim | None = None
    # How many of its cases are of each part, if the suite was split.
    splits: dict[Part, int] = field(default_factory=dict)


class Until(Struct, frozen=True, kw_only=True):
    """What a run until decided was asked: the effect that matters, and the most rounds.

    With a `margin`, "not worse by so much" is a decision too. With a `goal`, it is decided if the candidate reaches it
    and is not worse by the margin, or if it is worse or goes the other way. `error` is how often all comparisons of the
    run together may be wrong; it is less than usual if other runs answer the same question.
    """

    effect: float = 0.10
    rounds: int = 10
    margin: float | None = None
    goal: Goal | None = None
    error: float = USUAL_ERROR


class Seen(Struct, frozen=True, kw_only=True):
    """One comparison after a round; `chance` is the chance of a decision by the last round, if the effect is real."""

    candidate: str
    runner: str
    difference: float
    low: float
    high: float
    verdict: Decision
    chance: float
    # None if the run has no goal; the ratio also if it is not known, or without an end.
    progress: Progress | None = None
    ratio: Interval | None = None

    @property
    def is_open(self) -> bool:
        """Whether what was asked is not decided."""
        return self.verdict == "inconclusive" if self.progress is None else self.progress == "open"


class RoundAnalysis(Struct, frozen=True, kw_only=True):
    """What was seen after a round, and why the run stops there; None if it goes on."""

    round: int
    seen: tuple[Seen, ...]
    stop: Stop | None = None

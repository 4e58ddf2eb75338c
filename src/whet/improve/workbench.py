"""The workbench of real improve runs: each phase is an ordinary run of whet on the cases of its part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from whet.decide.comparison import comparisons_of
from whet.improve.contract import EndedEarly
from whet.improve.evidence import BASELINE, REUSED, reuse_baseline
from whet.improve.figures import confirm_record, practice_scores, until_of
from whet.improve.lint.candidate import lint_candidate
from whet.improve.money import (
    BASELINE_TRIALS,
    GENERATING_SHARE,
    SEALED_TRIALS,
    SEARCH_SHARE,
    TrialCounts,
    most_finalists,
    round_money,
)
from whet.improve.propose.propose import propose
from whet.improve.propose.task import PracticeRun, ProposalTask
from whet.improve.propose.versions import copy_skill
from whet.improve.runs import PhaseAsk, PhaseRun, RunsOfPhases, run_phase
from whet.improve.search.candidate import CandidateSearch, find_candidate
from whet.model.comparison import RunSamples, Sampled
from whet.model.suite import Suite
from whet.reading.text import money
from whet.record.improve.document import (
    CURRENT,
    CandidateRecord,
    ConfirmRecord,
    ImproveOptions,
    PracticeScore,
    RoundRecord,
    SealedRecord,
)
from whet.record.improve.folder import ImproveFolder
from whet.record.read.run import read_run

FIRST = "first"


class PhaseSpending(Struct):
    """What the phase under way has taken so far; whoever keeps the record reads it."""

    cost_usd: float = 0.0
    trials: int = 0
    run: str | None = None

    def start_anew(self) -> None:
        """Forget the last phase."""
        self.cost_usd, self.trials, self.run = 0.0, 0, None


class RunsWorkbench(Struct, kw_only=True):
    """Does the work of each phase by runs below the folder of the improve run."""

    folder: ImproveFolder
    suite: Suite
    options: ImproveOptions
    common: RunsOfPhases
    counts: TrialCounts
    # The name of the folder of the skill, which agents see.
    skill_name: str
    # What proposals start from, but for what differs from round to round.
    proposals: ProposalTask
    rounds: Callable[[], tuple[RoundRecord, ...]]
    # What shows in earlier runs what the skill does, if this run does not measure it.
    earlier_practice: Callable[[], Iterable[PracticeRun]]
    count_step: Callable[[], tuple[int, float]]
    # What earlier phases have spent.
    spent_usd: Callable[[], float]
    spending: PhaseSpending = field(default_factory=PhaseSpending)
    # The first legs of races, by round: their trials count in the second.
    first_legs: dict[int, RunSamples] = field(default_factory=dict)

    def current(self, round_number: int) -> Path:
        """Return the version that a round starts from: the last one that was accepted before it."""
        place = self.start_of(round_number)
        return place if round_number == 1 or place.exists() else self.current(round_number - 1)

    def start_of(self, round_number: int) -> Path:
        """Return where the version is kept that a round starts from, if the round before it accepted one."""
        return self.folder.start(round_number) / self.skill_name

    def measure_current(self) -> PracticeScore:
        """Return the score of the current version on practice cases."""
        ask = PhaseAsk(
            name=BASELINE,
            part="practice",
            versions={CURRENT: self.current(1)},
            trials=BASELINE_TRIALS,
            max_cost_usd=self._left(),
        )
        reused_run = reuse_baseline(self.common, ask) if self.folder.run_of(BASELINE) is None else None
        if reused_run is None:
            samples = self._run(ask).samples
        else:
            samples = read_run(reused_run).samples()
            self.spending.run = self.folder.place_of(reused_run)
        if self.options.part != "description":
            self._refuse_unseen_skill(samples)
        return _scores([samples])[CURRENT]

    def propose(self, round_number: int) -> Sequence[CandidateRecord]:
        """Make the candidates of a round, or take those that people brought."""
        round_usd = round_money(self._left(), self.options.rounds - round_number + 1)
        task = replace(
            self.proposals,
            skill=self.current(round_number),
            evidence=tuple(self._evidence(round_number)),
            number=round_number,
            place=self.folder.path / "proposals" / str(round_number),
            earlier=tuple(record for record in self.rounds() if record.number < round_number),
            money_left_usd=None if round_usd is None else GENERATING_SHARE * round_usd,
            reporter=self.common.listen(self._name(round_number, "proposals")),
        )
        if self.options.engine == "gepa":
            candidate = self._find(task, round_usd)
            self.spending.cost_usd += candidate.cost_usd or 0.0
            return (candidate,)
        proposed_round = propose(task)
        self.spending.cost_usd += proposed_round.cost_usd
        self.spending.run = None if proposed_round.run is None else self.folder.place_of(proposed_round.run)
        return proposed_round.candidates

    def _find(self, task: ProposalTask, round_usd: float | None) -> CandidateRecord:
        """Let an engine look for the candidate of a round."""
        search = CandidateSearch(
            task=task,
            run=lambda ask: self._run(replace(ask, max_cost_usd=self._left_in_phase())),
            trials=self.counts.search,
            most_usd=None if round_usd is None else SEARCH_SHARE * round_usd,
            spent_usd=lambda: self.spending.cost_usd,
        )
        return find_candidate(search)

    def _evidence(self, round_number: int) -> Iterator[PracticeRun]:
        """Yield the runs that show what the version does that the round starts from."""
        baseline = self.folder.run_of(BASELINE) or self.folder.run_of(REUSED)
        runs = [PracticeRun(folder=baseline)] if baseline is not None else list(self.earlier_practice())
        for record in self.rounds():
            legs = [self.folder.run_of(self._name(record.number, f"race-{leg}")) for leg in (1, 2)]
            folders = [leg for leg in legs if leg is not None and record.number < round_number]
            if record.accepted is not None:
                # Of what the version was before, nothing can be learnt any more.
                runs = []
            runs += [PracticeRun(folder=folder, arm=record.accepted or CURRENT) for folder in folders]
        yield from runs

    def lint(self, round_number: int, candidates: Sequence[CandidateRecord]) -> Sequence[CandidateRecord]:
        """Refuse candidates that repeat cases, grow, run or reach out."""
        return [self._linted(candidate, self.current(round_number)) for candidate in candidates]

    def _linted(self, candidate: CandidateRecord, current: Path) -> CandidateRecord:
        findings = lint_candidate(current, self.folder.candidate(candidate.id), self.suite, self.options)
        return replace(candidate, lint=findings, fate="refused" if findings else "fit")

    def most_kept(self, round_number: int, candidates: int) -> int:
        """Return how many of *candidates* there is the money for in the second leg."""
        per_trial = self.spending.cost_usd / self.spending.trials if self.spending.trials else None
        round_usd = round_money(self._left_in_phase(), self.options.rounds - round_number + 1)
        return most_finalists(self.counts, candidates, per_trial, round_usd)

    def race(self, round_number: int, leg: int, versions: Sequence[str], trials: int) -> Mapping[str, PracticeScore]:
        """Run a leg of the race; return the scores over all legs."""
        ask = PhaseAsk(
            name=self._name(round_number, f"race-{leg}"),
            part="practice",
            versions=self._places(round_number, versions),
            trials=trials,
            max_cost_usd=self._left_in_phase(),
        )
        run = self._run(ask)
        legs = [run.samples]
        if leg > 1 and (first_leg := self.first_legs.get(round_number)) is not None:
            legs.insert(0, first_leg)
        self.first_legs.setdefault(round_number, run.samples)
        return _scores(legs)

    def next_error(self, _: int) -> tuple[int, float]:
        """Count one more confirm step on this split."""
        return self.count_step()

    def confirm(self, round_number: int, candidate: str, step: int, error: float) -> ConfirmRecord:
        """Compare *candidate* with the current version on held-out cases until decided."""
        until = until_of(self.options, error)
        ask = PhaseAsk(
            name=self._name(round_number, "confirm"),
            part="held-out",
            versions=self._places(round_number, (CURRENT, candidate)),
            until=until,
            max_cost_usd=round_money(self._left(), self.options.rounds - round_number + 1),
        )
        run = self._run(ask, needs_all=False)
        return confirm_record(
            run.samples,
            until,
            candidate,
            step=step,
            stop=run.stop or "money",
            protected=self._protected(),
            run=self.folder.place_of(run.run_dir),
        )

    def accept(self, round_number: int, candidate: str) -> None:
        """Let the next round start from *candidate*."""
        place = self.start_of(round_number + 1)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            copy_skill(self.folder.candidate(candidate), place)

    def seal(self) -> SealedRecord | None:
        """Compare the last version with the first one on sealed cases."""
        if not self.counts.sealed:
            return None
        last = self.current(self.options.rounds + 1)
        ask = PhaseAsk(
            name="sealed",
            part="sealed",
            versions={FIRST: self.current(1), CURRENT: last},
            trials=SEALED_TRIALS,
            max_cost_usd=self._left(),
        )
        try:
            run = self._run(ask)
        except EndedEarly as end:
            if end.outcome != "undecided":
                raise
            # A version that was accepted stays so without the money for this.
            return None
        comparison = next(iter(comparisons_of(run.samples)), None)
        if comparison is None:
            return None
        return SealedRecord(
            before=comparison.baseline_rate.value,
            after=comparison.candidate_rate.value,
            difference=comparison.difference,
            low=comparison.low,
            high=comparison.high,
            trials=comparison.trials,
            run=self.folder.place_of(run.run_dir),
        )

    def _name(self, round_number: int, phase: str) -> str:
        return f"round-{round_number}-{phase}"

    def _places(self, round_number: int, versions: Iterable[str]) -> dict[str, Path]:
        return {
            name: self.current(round_number) if name == CURRENT else self.folder.candidate(name) for name in versions
        }

    def _left(self) -> float | None:
        """Return what the money of earlier phases leaves."""
        most = self.options.max_cost_usd
        return None if most is None else most - self.spent_usd()

    def _left_in_phase(self) -> float | None:
        """Return what the money of earlier phases leaves, and of what the phase under way has taken."""
        left = self._left()
        return None if left is None else left - self.spending.cost_usd

    def _run(self, ask: PhaseAsk, *, needs_all: bool = True) -> PhaseRun:
        """Carry out the run of a phase; raises `EndedEarly` if it did not come to its end."""
        if ask.max_cost_usd is not None and ask.max_cost_usd <= 0:
            raise self._short_of_money(ask.name)
        try:
            run = run_phase(self.common, ask)
        except KeyboardInterrupt:
            raise EndedEarly("interrupted", f"interrupted before {ask.name} began") from None
        self.spending.cost_usd += run.cost_usd or 0.0
        self.spending.trials += run.trials
        self.spending.run = self.folder.place_of(run.run_dir)
        if run.is_interrupted:
            raise EndedEarly("interrupted", "interrupted: everything that has ended is kept")
        is_cut = run.missing > 0 and (needs_all or run.stop is None)
        if is_cut and (needs_all or run.samples.rounds < _ROUNDS_TO_LOOK):
            raise self._short_of_money(ask.name)
        values = [trial.value for arm in run.samples.arms for trial in arm.trials]
        if all(value is None for value in values):
            why = run.errors[0] if run.errors else "no trial came to a verdict"
            raise EndedEarly("failed", f"every trial of {ask.name} errored: {why}")
        if run.crash is not None:
            raise EndedEarly(
                "refused",
                f"a check crashed in every trial of {ask.name}, whatever the version: {run.crash}",
                f"correct the check; whet view {run.run_dir} shows where",
            )
        return run

    def _short_of_money(self, name: str) -> EndedEarly:
        spent = money(self.spent_usd() + self.spending.cost_usd)
        return EndedEarly(
            "undecided",
            f"the money does not pay for {name}: {spent} of at most {money(self.options.max_cost_usd or 0.0)} is spent",
        )

    def _refuse_unseen_skill(self, samples: RunSamples) -> None:
        """Refuse to go on if agents that can tell never loaded the skill: no text of it would change anything."""
        warning = next((arm.never_loaded for arm in samples.arms if arm.never_loaded), None)
        if warning is not None:
            raise EndedEarly(
                "refused", warning, "improve what it is loaded by first: whet improve SKILL --part description"
            )

    def _protected(self) -> tuple[str, ...]:
        tags = set(self.options.no_regression)
        return tuple(case.id for case in self.suite.cases if tags & set(case.tags))


# A look at one trial a case says nothing of how trials of a case vary.
_ROUNDS_TO_LOOK = 2


def _scores(runs: Iterable[RunSamples]) -> dict[str, PracticeScore]:
    trials: dict[str, tuple[Sampled, ...]] = {}
    for samples in runs:
        for arm in samples.arms:
            trials[arm.arm] = (*trials.get(arm.arm, ()), *arm.trials)
    return practice_scores(trials)

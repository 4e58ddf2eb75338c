"""Let an engine look for the candidate of a round: whet runs practice cases and lets its own proposer make versions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import UsageError
from whet.improve.contract import EndedEarly
from whet.improve.lint.candidate import lint_candidate
from whet.improve.lint.version import token_growth
from whet.improve.propose.collect import LONGEST_DIFF
from whet.improve.propose.propose import propose
from whet.improve.propose.task import PracticeRun, ProposalTask
from whet.improve.propose.versions import version_diff, version_digest
from whet.improve.runs import PhaseAsk, PhaseRun
from whet.improve.search.port import PracticeTrials
from whet.reading.text import count, middle
from whet.record.improve.document import CURRENT, CandidateRecord
from whet.version import install_command
from whet.workspace.copy import remove_tree


def gepa_engine() -> ModuleType:
    """Import the engine gepa; raises `UsageError` if its library is not installed."""
    try:
        return import_module("whet.improve.search.engine_gepa")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "gepa":
            raise
        raise UsageError("--engine gepa needs GEPA, which is not installed", hint=install_command("improve")) from error


class CandidateSearch(Struct, kw_only=True):
    """Does what an engine asks for, by runs of practice cases and by the proposer."""

    task: ProposalTask
    # Runs a phase of this round by its name.
    run: Callable[[PhaseAsk], PhaseRun]
    # How many trials the search is to take, and what it may take of the money.
    trials: int
    most_usd: float | None
    # What the runs of the phase have taken so far, and what the proposer has.
    spent_usd: Callable[[], float]
    proposed_usd: float = 0.0
    # Whether the proposer has no money left.
    is_out: bool = False
    # The versions that were made, with what the proposer said of each, and its session.
    records: list[tuple[Path, CandidateRecord, Path]] = field(default_factory=list)

    def measure(self, place: int, version: Path, cases: Sequence[str]) -> PracticeTrials:
        """Run *version* once on each of *cases*."""
        ask = PhaseAsk(
            name=f"round-{self.task.number}-search-{place}",
            part="practice",
            cases=tuple(cases),
            versions={CURRENT: version},
            trials=1,
        )
        run = self.run(ask)
        trials = [trial for arm in run.samples.arms for trial in arm.trials]
        return PracticeTrials(
            scores={trial.case: trial.value for trial in trials if trial.value is not None},
            evidence=PracticeRun(folder=run.run_dir),
        )

    def vary(self, place: int, parent: Path, evidence: PracticeRun) -> Path | None:
        """Let the proposer change *parent*; None if that cannot be raced, for the lint or because it is a dud."""
        folder = self.task.place / "search" / str(place)
        task = replace(
            self.task,
            skill=parent,
            evidence=(evidence,),
            options=replace(self.task.options, candidates=1),
            seed=self.task.seed + place,
            place=folder,
            candidates=folder / "candidates",
            money_left_usd=None if self.most_usd is None else self.most_usd - self._total_usd,
        )
        try:
            proposed_round = propose(task)
        except EndedEarly as end:
            if end.outcome != "undecided":
                raise
            self.is_out = True
            return None
        [record] = proposed_round.candidates
        self.proposed_usd += proposed_round.cost_usd
        version = task.skill_of(record.id)
        self.records.append((version, record, task.session_of(record.id)))
        if record.fate != "proposed" or lint_candidate(self.task.skill, version, task.suite, task.options):
            return None
        return version

    def is_spent(self) -> bool:
        """Return whether the search has taken its share of the money."""
        return self.is_out or (self.most_usd is not None and self._total_usd >= self.most_usd)

    @property
    def _total_usd(self) -> float:
        return self.spent_usd() + self.proposed_usd


def find_candidate(search: CandidateSearch) -> CandidateRecord:
    """Search with the engine of the options, and return what it has found as the candidate of the round."""
    task = search.task
    best = gepa_engine().search(search, task.skill, task.practice, search.trials, task.seed + task.number)
    candidate, tries = task.ids[0], count(len(search.records), "version")
    record = CandidateRecord(id=candidate, digest="", fate="dud", cost_usd=search.proposed_usd or None)
    if best is None:
        return replace(record, reason=f"none of {tries} that GEPA tried does better on practice cases")
    made_record, session = next((made, place) for folder, made, place in search.records if folder == best)
    place = task.skill_of(candidate)
    for folder, target in ((best, place), (session, task.session_of(candidate))):
        remove_tree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        if folder.is_dir():
            shutil.copytree(folder, target, symlinks=True)
    return replace(
        record,
        digest=version_digest(place),
        fate="proposed",
        diff=middle(version_diff(task.skill, place), LONGEST_DIFF),
        token_growth=token_growth(task.skill, place),
        changes=f"GEPA tried {tries}. The last change:\n{made_record.changes}",
    )

"""What candidates are made from and for: the skill, the practice cases with what happened in them, and the limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from whet.model.suite import Case, Suite
from whet.record.improve.document import CURRENT, CandidateRecord, ImproveOptions, RoundRecord
from whet.report.contract import Reporter

SKILL_FOLDER, SESSION_FOLDER = "skill", "session"


class PracticeRun(Struct, frozen=True, kw_only=True):
    """A run whose trials in *arm* show what the skill of the round's start does; in any arm, if it has no such one."""

    folder: Path
    arm: str = CURRENT


class ProposedRound(Struct, frozen=True, kw_only=True):
    """The candidates of a round, and what they took: nothing, if people brought them."""

    candidates: tuple[CandidateRecord, ...]
    cost_usd: float = 0.0
    # The run of the proposer.
    run: Path | None = None


class ProposalTask(Struct, frozen=True, kw_only=True):
    """All that a round of proposals needs.

    Nothing of a case that is not in `practice` leaves this process: neither its text, nor how it went.
    """

    # The skill that the round starts from.
    skill: Path
    suite: Suite
    practice: tuple[str, ...]
    evidence: tuple[PracticeRun, ...] = ()
    options: ImproveOptions
    # The number of the round, from 1.
    number: int = 1
    seed: int = 0
    # Where candidates are kept: ID/skill and ID/session.
    candidates: Path
    # Where the run of the proposer is recorded, with what it was given; nothing else is in it.
    place: Path
    # The runner of the proposer, by its id, and the settings that the user gave.
    proposer: str | None = None
    config_file: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    # What earlier rounds tried.
    earlier: tuple[RoundRecord, ...] = ()
    # The most that the run of the proposer may cost, with what it has cost already.
    money_left_usd: float | None = None
    # What sees the events of that run.
    reporter: Reporter | None = None

    @property
    def practice_cases(self) -> tuple[Case, ...]:
        """The cases that a proposer may know."""
        return tuple(case for case in self.suite.cases if case.id in self.practice)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the candidates of this round."""
        return tuple(f"r{self.number}c{place}" for place in range(1, self.options.candidates + 1))

    def skill_of(self, candidate: str) -> Path:
        """Return the folder of a candidate's skill."""
        return self.candidates / candidate / SKILL_FOLDER

    def session_of(self, candidate: str) -> Path:
        """Return the folder of the session in which a candidate was made."""
        return self.candidates / candidate / SESSION_FOLDER

"""The grader of triggers: whether the skill was loaded, seen in a session or guessed by a judge, and says which."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from whet import wire
from whet.errors import GraderError
from whet.evals import TriggerQuery
from whet.grade.base import Evidence
from whet.grade.evals.judging import Judges
from whet.grade.evals.loading import loaded, loaded_among
from whet.grade.evals.routing import routing_task
from whet.grade.events import EventLog
from whet.model.grade import Grade
from whet.model.run import NO_AGENT
from whet.model.session import Session
from whet.model.suite import Case, Check, SkillUnderTest, Suite
from whet.workspace.skill_text import described

_YES = 5.0


class TriggerGrader:
    """By what an agent really did; where none was run, by the word of a language model."""

    informs = False

    def __init__(self, suite: Suite) -> None:
        self._skill = suite.skill
        self._judges = Judges(suite.judge)

    async def survey(self, case: Case, workspace: Path, store: Path, *, timeout_s: float) -> None:
        """Nothing: only the session counts."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Whether it was loaded, or was not, as the case expects."""
        if self._skill is None:
            raise GraderError("there is no skill under test", hint="name its folder with --skill")
        began = time.monotonic()
        case: TriggerQuery = check.params["case"]
        by_judge = evidence.session.agent == NO_AGENT
        triggered, told, proof = (
            await self._judged(case, evidence, self._skill) if by_judge else _seen(evidence, self._skill)
        )
        held = triggered == (case.expectation == "should_trigger")
        return Grade(
            check=check.label,
            value=float(held),
            passed=held,
            reason=f"{'by a judge' if by_judge else 'by running the agent'}: {told}",
            evidence=proof,
            duration_s=round(time.monotonic() - began, 6),
            weight=check.weight,
        )

    async def _judged(self, case: TriggerQuery, evidence: Evidence, skill: SkillUnderTest) -> tuple[bool, str, str]:
        judge = self._judges.ask(votes=case.runs)
        others = tuple(described(path) for path in evidence.case.skills)
        votes, flags = await judge.votes(routing_task(skill, others), case.query)
        yes = sum(vote.verdict.rating >= _YES for vote in votes)
        triggered = yes / len(votes) >= case.threshold
        said = f"{yes} of {len(votes)} votes say that {skill.name} would be loaded"
        reason = next((vote.verdict.rationale for vote in votes if (vote.verdict.rating >= _YES) == triggered), "")
        proof = wire.encode({"mode": "judge", "votes": votes, "flags": flags}).decode()
        return triggered, f"{said}: {reason}" if reason else said, proof

    async def grade_all(self, checks: Sequence[Check], evidence: Evidence) -> AsyncIterator[Grade]:
        """One after the other."""
        for check in checks:
            yield await self.grade(check, evidence)

    async def release(self) -> None:
        """Let go of connections."""
        await self._judges.release()

    def close(self) -> None:
        """Nothing is left by then."""


def _seen(evidence: Evidence, skill: SkillUnderTest) -> tuple[bool, str, str]:
    """What the session says."""
    session = Session.of(evidence.session, EventLog(evidence.events_path))
    detections = session.detected_skills
    found = loaded_among(detections, skill.names)
    others = sorted(name for name in loaded(detections) if name not in skill.names)
    told = f"{skill.name} was loaded: {found}" if found else f"{skill.name} was not loaded"
    if others:
        told += f"; loaded besides: {', '.join(others)}" if found else f"; loaded instead: {', '.join(others)}"
    proof = wire.encode({"mode": "agent", "agent": session.agent, "detected": detections}).decode()
    return found is not None, told, proof

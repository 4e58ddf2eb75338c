"""The grader of triggers: whether the skill was loaded, seen in a session or guessed by a judge, and says which."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

from whet.errors import GraderError
from whet.grade.grader import EventLog, Evidence
from whet.grade.rubrics import Judges
from whet.ground.workspaces import described
from whet.model import wire
from whet.model.benchmark import BenchmarkTask, Evaluator, Expected
from whet.model.eval_cases import TriggerQuery
from whet.model.grade import Grade
from whet.model.run import NO_AGENT
from whet.model.session import Session
from whet.model.skills import SkillDetection
from whet.model.suite import Case, Check, MadeSkill, SkillUnderTest, Suite

# Named in a command or spoken of is not loaded.
_LOADED = frozenset(("explicit", "strong", "medium"))


def loaded(detections: Iterable[SkillDetection]) -> dict[str, str]:
    """The skills that were loaded, each with the best evidence of it."""
    return {
        each.skill: f"{each.evidence[0].why} ({each.confidence})" for each in detections if each.confidence in _LOADED
    }


def loaded_among(detections: Iterable[SkillDetection], names: frozenset[str]) -> str | None:
    """The evidence that one of *names* was loaded; none where none was."""
    found = loaded(detections)
    return next((found[name] for name in found if name in names), None)


_CRITERIA = """What stands between the marker lines is a request that a user makes of an agent.
The agent has the skills that are listed below, and knows of each only its name and description.
An agent loads a skill where its description says that it is for requests like this one, and no other fits better.
Rate from 0 to 10 how sure it is that the agent would load the skill "{name}" for this request:
10 where it certainly would, 0 where it certainly would not."""


def routing_task(skill: SkillUnderTest, others: Sequence[MadeSkill]) -> BenchmarkTask:
    """The question, for a judge that is given the request as what it rates."""
    known = [(skill.name, skill.description), *((each.name, each.description) for each in others)]
    return BenchmarkTask(
        id=skill.name,
        description="",
        # By name, so that the place in the list gives nothing away.
        input={"skills": [{"name": name, "description": text} for name, text in sorted(known)]},
        expected=Expected(judge_prompt=_CRITERIA.format(name=skill.name)),
        evaluator=Evaluator(kind="llm_judge"),
    )


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

"""Grade whether a skill is loaded when it should be: from the session of an agent, or else by asking a judge."""

from __future__ import annotations

import time
from collections.abc import Sequence

from whet.errors import GraderError
from whet.grade.assertions import proof_of_loading
from whet.grade.evidence import EventLog, Evidence
from whet.grade.expect.looked import MOST_EVENTS
from whet.grade.judge import JudgingGrader, settled
from whet.grade.judge_questions import Question
from whet.ground.workspaces import described
from whet.model import wire
from whet.model.eval_cases import TriggerQuery
from whet.model.grade import Grade
from whet.model.run import NO_AGENT, Runner
from whet.model.session import Session
from whet.model.skills import was_loaded
from whet.model.suite import Check, MadeSkill, SkillUnderTest

_CRITERIA = """What stands between the marker lines is a request that a user makes of an agent.
The agent has the skills that are listed below, and knows of each only its name and description.
An agent loads a skill where its description says that it is for requests like this one, and no other fits better.
Rate from 0 to 10 how sure it is that the agent would load the skill "{name}" for this request:
10 where it certainly would, 0 where it certainly would not."""


def _question(skill: SkillUnderTest, others: Sequence[MadeSkill], query: str) -> Question:
    """Ask whether an agent with these skills would load *skill*; the request of the user is what the judge rates."""
    known = [(skill.name, skill.description), *((each.name, each.description) for each in others)]
    return Question(
        name=skill.name,
        criteria=_CRITERIA.format(name=skill.name),
        answer=query,
        # Sorted, so that the place in the list gives nothing away.
        given={"skills": [{"name": name, "description": text} for name, text in sorted(known)]},
    )


_YES = 5.0


class TriggerGrader(JudgingGrader):
    """Decides by what an agent did, or without an agent by asking a language model."""

    @classmethod
    def needs_judge(cls, check: Check, runner: Runner) -> bool:
        """Return whether there is no agent whose session could decide."""
        del check
        return runner.agent == NO_AGENT

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Return whether the skill was loaded, or was not, as the case expects."""
        skill = self.suite.skill
        if skill is None:
            raise GraderError("there is no skill under test", hint="name its folder with --skill")
        began = time.monotonic()
        case: TriggerQuery = check.params["case"]
        by_judge = evidence.session.agent == NO_AGENT
        events: tuple[int, ...] = ()
        if by_judge:
            triggered, text, proof = await self._judged(case, evidence, skill)
        else:
            triggered, text, proof, events = _seen(evidence, skill)
        held = triggered == (case.expectation == "should_trigger")
        return Grade(
            check=check.label,
            value=float(held),
            passed=held,
            reason=f"{'by a judge' if by_judge else 'by running the agent'}: {text}",
            evidence=proof,
            duration_s=round(time.monotonic() - began, 6),
            weight=check.weight,
            events=events,
        )

    async def _judged(self, case: TriggerQuery, evidence: Evidence, skill: SkillUnderTest) -> tuple[bool, str, str]:
        others = tuple(described(path) for path in evidence.case.skills)
        (given,) = await self.ask([_question(skill, others, case.query)], evidence, votes=case.runs)
        judged = settled(given)
        votes, flags = judged.votes, judged.flags
        yes = sum(vote.verdict.rating >= _YES for vote in votes)
        triggered = yes / len(votes) >= case.threshold
        said = f"{yes} of {len(votes)} votes say that {skill.name} would be loaded"
        reason = next((vote.verdict.rationale for vote in votes if (vote.verdict.rating >= _YES) == triggered), "")
        proof = wire.encode({"mode": "judge", "votes": votes, "flags": flags}).decode()
        return triggered, f"{said}: {reason}" if reason else said, proof


def _seen(evidence: Evidence, skill: SkillUnderTest) -> tuple[bool, str, str, tuple[int, ...]]:
    """Return what the session shows, and the events that show it."""
    session = Session.of(evidence.session, EventLog(evidence.events_path))
    detections = session.detected_skills
    found = proof_of_loading(detections, skill.names)
    others = sorted(each.skill for each in detections if was_loaded(each) and each.skill not in skill.names)
    text = f"{skill.name} was loaded: {found}" if found else f"{skill.name} was not loaded"
    if others:
        text += f"; loaded besides: {', '.join(others)}" if found else f"; loaded instead: {', '.join(others)}"
    proof = wire.encode({"mode": "agent", "agent": session.agent, "detected": detections}).decode()
    places = {piece.event for each in detections if was_loaded(each) for piece in each.evidence}
    return found is not None, text, proof, tuple(sorted(places))[:MOST_EVENTS]

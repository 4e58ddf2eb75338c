"""Grade whether a skill is loaded when it should be: from the session of an agent, or else by asking a judge."""

from __future__ import annotations

import time
from collections.abc import Sequence

from whet.checks.looked_at import MOST_EVENTS
from whet.errors import GraderError
from whet.grade.answers.assertions import proof_of_loading
from whet.grade.evidence import EventLog, Evidence
from whet.grade.judge.judge import JudgingGrader, require_judgement
from whet.grade.judge.questions import Question
from whet.model import codec
from whet.model.eval_cases import TriggerQuery
from whet.model.grade import Grade
from whet.model.run import NO_AGENT, Runner
from whet.model.session import Session
from whet.model.skills import was_loaded
from whet.model.suite import Check, MadeSkill, SkillUnderTest
from whet.workspace.make import described

_CRITERIA = """What stands between the marker lines is a request that a user makes of an agent.
The agent has the skills that are listed below, and knows of each only its name and description.
An agent loads a skill where its description says that it is for requests like this one, and no other fits better.
Rate from 0 to 10 how sure it is that the agent would load the skill "{name}" for this request:
10 where it certainly would, 0 where it certainly would not."""


def _question(skill: SkillUnderTest, other_skills: Sequence[MadeSkill], query: str) -> Question:
    """Ask whether an agent with these skills would load *skill*; the request of the user is what the judge rates."""
    skills = [
        (skill.name, skill.description),
        *((other_skill.name, other_skill.description) for other_skill in other_skills),
    ]
    return Question(
        name=skill.name,
        criteria=_CRITERIA.format(name=skill.name),
        answer=query,
        # Sorted, so that the place in the list gives nothing away.
        given={"skills": [{"name": name, "description": text} for name, text in sorted(skills)]},
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
        started_at = time.monotonic()
        case: TriggerQuery = check.params["case"]
        by_judge = evidence.session.agent == NO_AGENT
        events: tuple[int, ...] = ()
        if by_judge:
            is_loaded, text, proof = await self._ask_judge(case, evidence, skill)
        else:
            is_loaded, text, proof, events = _read_session(evidence, skill)
        is_expected = is_loaded == (case.expectation == "should_trigger")
        return Grade(
            check=check.label,
            value=float(is_expected),
            passed=is_expected,
            reason=f"{'by a judge' if by_judge else 'by running the agent'}: {text}",
            evidence=proof,
            duration_s=round(time.monotonic() - started_at, 6),
            weight=check.weight,
            events=events,
        )

    async def _ask_judge(self, case: TriggerQuery, evidence: Evidence, skill: SkillUnderTest) -> tuple[bool, str, str]:
        other_skills = tuple(described(path) for path in evidence.case.skills)
        (answer,) = await self.ask([_question(skill, other_skills, case.query)], evidence, votes=case.runs)
        judgement = require_judgement(answer)
        votes, flags = judgement.votes, judgement.flags
        yes = sum(vote.verdict.rating >= _YES for vote in votes)
        is_loaded = yes / len(votes) >= case.threshold
        tally = f"{yes} of {len(votes)} votes say that {skill.name} would be loaded"
        reason = next((vote.verdict.rationale for vote in votes if (vote.verdict.rating >= _YES) == is_loaded), "")
        proof = codec.encode({"mode": "judge", "votes": votes, "flags": flags}).decode()
        return is_loaded, f"{tally}: {reason}" if reason else tally, proof


def _read_session(evidence: Evidence, skill: SkillUnderTest) -> tuple[bool, str, str, tuple[int, ...]]:
    """Return what the session shows, and the events that show it."""
    session = Session.of(evidence.session, EventLog(evidence.events_path))
    detections = session.detected_skills
    loading = proof_of_loading(detections, skill.names)
    other_names = sorted(
        detection.skill for detection in detections if was_loaded(detection) and detection.skill not in skill.names
    )
    text = f"{skill.name} was loaded: {loading}" if loading else f"{skill.name} was not loaded"
    if other_names:
        text += (
            f"; loaded besides: {', '.join(other_names)}" if loading else f"; loaded instead: {', '.join(other_names)}"
        )
    proof = codec.encode({"mode": "agent", "agent": session.agent, "detected": detections}).decode()
    places = {piece.event for detection in detections if was_loaded(detection) for piece in detection.evidence}
    return loading is not None, text, proof, tuple(sorted(places))[:MOST_EVENTS]

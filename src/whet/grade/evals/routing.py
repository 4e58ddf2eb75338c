"""What a judge is asked about a trigger: would an agent that knows only names and descriptions load the skill."""

from __future__ import annotations

from collections.abc import Sequence

from whet.model.benchmark import BenchmarkTask, Evaluator, Expected
from whet.model.suite import MadeSkill, SkillUnderTest

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

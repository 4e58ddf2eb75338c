"""No agent at all: for cases whose checks are worth asking although nobody did anything."""

from __future__ import annotations

from whet.agents.base import NAMED_SKILLS, AgentCommand, AgentDefaults, Task, environment, named_skill, skill_copies


class NoAgent(AgentDefaults):
    """Ends at once, having said and done nothing."""

    takes_skills = "variable"

    def command(self, task: Task) -> AgentCommand:
        """The program that does nothing; it needs nothing either."""
        env = environment(task) | named_skill(task)
        copies = skill_copies(task, NAMED_SKILLS)
        return AgentCommand(argv=("true",), env=env, output="records", home_copies=copies, network=False)

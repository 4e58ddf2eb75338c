"""No agent at all: for cases whose checks are worth asking although nobody did anything."""

from __future__ import annotations

from whet.agents.base import AgentCommand, AgentDefaults, Task, environment


class NoAgent(AgentDefaults):
    """Ends at once, having said and done nothing."""

    def command(self, task: Task) -> AgentCommand:
        """The program that does nothing; it needs nothing either."""
        return AgentCommand(argv=("true",), env=environment(task), output="records", network=False)

"""Any program as an agent: the prompt on standard input, in `WHET_PROMPT` and for `{prompt}` in its arguments."""

from __future__ import annotations

from collections.abc import Iterable

from whet.agents.base import (
    NAMED_SKILLS,
    AgentCommand,
    AgentDefaults,
    Options,
    Task,
    environment,
    mounts,
    named_skill,
    skill_copies,
)
from whet.model.run import Runner
from whet.model.suite import Case

# The kernel takes no argument or variable longer than 128 KiB; the rest of the variable is its name.
_LONGEST_VARIABLE = 128 * 1024 - 64


class CommandAgent(AgentDefaults):
    """Starts what the runner's `command` and `args` say; `output = "events"` makes each line one of our events."""

    takes_skills = "variable"

    def command(self, task: Task) -> AgentCommand:
        """The program with its arguments; it sees the folders of the suite and of the settings."""
        options = Options(task.runner.options)
        argv = (options.text("command") or "", *options.texts("args"))
        folders = [task.suite_dir, *([task.settings_dir] if task.settings_dir else []), *mounts(task)]
        return AgentCommand(
            argv=tuple(part.replace("{prompt}", task.prompt) for part in argv),
            env=environment(task) | _facts(task) | named_skill(task),
            stdin=task.prompt.encode(),
            output="events" if options.text("output") == "events" else "text",
            readable=tuple(dict.fromkeys(folders)),
            home_copies=skill_copies(task, NAMED_SKILLS),
            network=options.flag("network", True),
        )

    def problems(self, runner: Runner, cases: Iterable[Case]) -> Iterable[str]:
        """A command agent needs a command."""
        del cases
        if not Options(runner.options).text("command"):
            yield "agent.command: is missing; say which program to start"


def _facts(task: Task) -> dict[str, str]:
    facts = {"WHET_CASE_ID": task.case, "WHET_RUNNER_ID": task.runner.id}
    if task.runner.model:
        facts["WHET_MODEL"] = task.runner.model
    if len(task.prompt.encode()) <= _LONGEST_VARIABLE:
        facts["WHET_PROMPT"] = task.prompt
    return facts

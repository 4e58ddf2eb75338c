"""Any program as an agent: the prompt on standard input, in `WHET_PROMPT` and for `{prompt}` in its arguments."""

from __future__ import annotations

from collections.abc import Iterable

from whet.agents.contract import (
    AgentCommand,
    AgentDefaults,
    Options,
    Task,
    environment,
    facts,
    mounts,
    named_paths,
    with_named_skills,
)
from whet.model.arm import DEFAULT
from whet.model.run import OfHost, Runner
from whet.model.suite import Case

# The kernel takes no argument or variable longer than 128 KiB; 64 bytes are left for the name of the variable.
_LONGEST_VARIABLE = 128 * 1024 - 64


class CommandAgent(AgentDefaults):
    """Starts what the runner's `command` and `args` say; `output = "events"` makes each line one of our events."""

    asks_nobody = False
    takes_skills = "variable"

    def command(self, task: Task) -> AgentCommand:
        """The program with its arguments; of the folder of the settings, it sees only what these name."""
        argv = (task.options.text("command") or "", *task.options.texts("args" if task.turn == 1 else "resume"))
        session = task.resume.session_id if task.resume else ""
        command = AgentCommand(
            argv=tuple(part.replace("{session}", session).replace("{prompt}", task.prompt) for part in argv),
            env=environment(task) | _facts(task),
            stdin=task.prompt.encode(),
            output="events" if task.options.text("output") == "events" else "text",
            trusted=False,
            readable=mounts(task),
            # Before the prompt is filled in: a prompt must not make anything visible.
            named=tuple(named_paths(argv[1:])),
            of_host=isinstance(task.runner.options.get("command"), OfHost),
            network=task.options.flag("network", True),
        )
        return with_named_skills(task, command)

    def continues(self, runner: Runner) -> bool:
        """Whether its arguments for the next prompts are known."""
        return "resume" in runner.options

    def problems(self, runner: Runner, cases: Iterable[Case]) -> Iterable[str]:
        """A command agent needs a command."""
        del cases
        if not Options(runner.options).text("command"):
            yield "agent.command: is missing; say which program to start"


def _facts(task: Task) -> dict[str, str]:
    variables = {**facts(task), "WHET_CASE_ID": task.case, "WHET_RUNNER_ID": task.runner.id}
    if task.arm != DEFAULT:
        variables["WHET_ARM"] = task.arm
    if task.runner.model:
        variables["WHET_MODEL"] = task.runner.model
    if len(task.prompt.encode()) <= _LONGEST_VARIABLE:
        variables["WHET_PROMPT"] = task.prompt
    return variables


class NoAgent(AgentDefaults):
    """Ends at once, and says and does nothing."""

    asks_nobody = False
    takes_skills = "variable"

    def command(self, task: Task) -> AgentCommand:
        """The program of an agent that does nothing, and so needs nothing."""
        nothing = AgentCommand(argv=("true",), env=environment(task) | facts(task), of_host=False, network=False)
        return with_named_skills(task, nothing)

    def continues(self, runner: Runner) -> bool:
        """Continue whatever the prompts are."""
        del runner
        return True

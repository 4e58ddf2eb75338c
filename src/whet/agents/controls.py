"""Controls and solutions: what runs in the place of an agent to show what a case is worth, without a model."""

from __future__ import annotations

from whet.agents.contract import AgentCommand, AgentDefaults, Task, environment, facts, with_named_skills
from whet.model.run import Runner
from whet.model.task import TaskSpec
from whet.sandbox.container.environment import from_host


class _Substitute(AgentDefaults):
    """Runs in the place of an agent, and does the same in every turn."""

    asks_nobody = False
    takes_skills = "variable"

    def continues(self, runner: Runner) -> bool:
        """Continue whatever the prompts are."""
        del runner
        return True


class ControlAgent(_Substitute):
    """Says what it says whatever it is asked, or repeats what it is asked, and does nothing."""

    def command(self, task: Task) -> AgentCommand:
        """The program that prints the answer."""
        said = (task.options.text("says") or "").replace("{prompt}", task.prompt)
        return with_named_skills(task, _printing(task, said))


class SolutionAgent(_Substitute):
    """Gives the answer that the author of a case knows, or runs the author's command in the workspace."""

    def command(self, task: Task) -> AgentCommand:
        """The author's command, which sees the folder of the suite, or the program that prints the answer."""
        if task.options.flag("folder", False) and task.spec is not None:
            return _solving(task, task.spec)
        run = task.options.text("run")
        if run is None:
            return with_named_skills(task, _printing(task, task.options.text("answer") or ""))
        command = AgentCommand(
            argv=("/bin/sh", "-c", run),
            env=environment(task) | facts(task) | {"WHET_SUITE_DIR": str(task.suite_dir), "WHET_CASE_ID": task.case},
            stdin=task.prompt.encode(),
            output="text",
            trusted=False,
            readable=(task.suite_dir,),
            of_host=False,
        )
        return with_named_skills(task, command)


def _solving(task: Task, spec: TaskSpec) -> AgentCommand:
    """Run the solution of the step that it is asked for; only its tests say whether it is one."""
    folders = {f"solutions/{number}": step.solution for number, step in enumerate(spec.steps) if step.solution}
    place = task.home / "solutions" / str(task.turn - 1)
    # As the harness that these tasks are written for: at /solution, and its exit code decides nothing.
    script = (
        'rm -rf /solution; ln -s "$0" /solution && chmod -R a+rx "$0" && /solution/solve.sh 2>&1'
        ' || echo "solve.sh ended with exit code $?"'
    )
    return AgentCommand(
        argv=("sh", "-c", script, str(place)),
        env=environment(task) | {"DEBIAN_FRONTEND": "noninteractive"} | from_host(spec.solution_env, task.environ),
        stdin=task.prompt.encode(),
        output="text",
        trusted=False,
        of_host=False,
        home_copies=folders,
    )


def _printing(task: Task, said: str) -> AgentCommand:
    return AgentCommand(
        argv=("cat",),
        env=environment(task),
        stdin=said.encode(),
        output="text",
        trusted=False,
        of_host=False,
        network=False,
    )

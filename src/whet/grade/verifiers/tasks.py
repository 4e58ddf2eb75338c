"""Grade tasks of Harbor's layout: in the container that the agent left, or in one of the verifier's own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec.structs import replace

from whet.checks.context import NotRecorded
from whet.errors import AttemptError, WorkspaceError
from whet.grade.contract import Grader
from whet.grade.evidence import Evidence
from whet.grade.verifiers._scripts import BadReward, ScriptResult, keep_logs, near_miss_note, read_reward, read_rewards
from whet.grade.verifiers.packages import add_notes, grade_reward, undecided
from whet.model.grade import Grade
from whet.model.suite import Check
from whet.model.task import TaskSpec, TaskStep, TaskVerifier
from whet.sandbox.container.environment import from_host
from whet.sandbox.container.task import LOGS, TaskContainer
from whet.workspace.copy import remove_tree

_SCRIPT = "/tests/test.sh"
_ARTIFACTS = str(LOGS / "artifacts")


class TaskGrader(Grader):
    """Lets the tests of a task decide, by the reward that they leave; without one nothing is decided."""

    informs = True

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Run the tests of one step; the grade is undecided if they leave no reward."""
        if evidence.container is None:
            raise NotRecorded("the container of the task, in which its tests look, was not recorded")
        started_at = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="whet-verify-", dir=evidence.shell.scratch))
        try:
            grade = await _StepVerification(evidence, evidence.container, folder).decide(_step(check, evidence))
        except (WorkspaceError, OSError) as error:
            grade = undecided("environment", str(error))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove_tree, folder)
        return replace(grade, check=check.label, duration_s=round(time.monotonic() - started_at, 6))


def _step(check: Check, evidence: Evidence) -> TaskStep:
    assert evidence.case.task is not None
    return evidence.case.task.steps[int(check.params["step"])]


class _StepVerification:
    """The verification of one step."""

    def __init__(self, evidence: Evidence, container: TaskContainer, folder: Path) -> None:
        self.evidence, self.container, self.folder = evidence, container, folder

    @property
    def task(self) -> TaskSpec:
        task = self.evidence.case.task
        assert task is not None
        return task

    async def decide(self, step: TaskStep) -> Grade:
        """Run the tests where they belong, and read the reward."""
        # If no agent was there, nothing has started it yet.
        await self.container.begin()
        async with self._container(step) as container:
            await anyio.to_thread.run_sync(container.forget, "verifier")
            if step.verifier.environment is None:
                await anyio.to_thread.run_sync(container.show_tests, step.verifier.tests)
            grade = await self._run(container, step)
            # The agent of the next step must not see them.
            await anyio.to_thread.run_sync(container.show_tests, ())
        return self._weigh(grade, step)

    @asynccontextmanager
    async def _container(self, step: TaskStep) -> AsyncIterator[TaskContainer]:
        """Yield the container that the tests run in."""
        verifier, environment = step.verifier, step.verifier.environment
        network = _network(self.task, verifier)
        if environment is None and network == self.container.network:
            yield self.container
            return
        image = self.container.verifier_images.get(step.name, "")
        verifier_container = await self.container.other(
            self.folder / "c", network=network, environment=environment, image=image
        )
        try:
            await verifier_container.begin()
            if environment is not None:
                await self._hand_over(verifier, verifier_container)
            yield verifier_container
        finally:
            await verifier_container.remove()

    async def _hand_over(self, verifier: TaskVerifier, verifier_container: TaskContainer) -> None:
        """Copy the artifacts of a task from the agent's container into the verifier's, to the same paths."""
        for hook in verifier.collect:
            exit_status, output = await self.container.execute(hook.command, timeout_s=hook.timeout_s, user=hook.user)
            if exit_status.exit_code != 0:
                self.evidence.keep("collect.log", output.decode(errors="replace"))
        for number, path in enumerate(dict.fromkeys((_ARTIFACTS, *verifier.artifacts))):
            copy = self.folder / "artifacts" / str(number) / Path(path).name
            if await self.container.take(path, copy):
                await verifier_container.put(copy.parent, str(Path(path).parent))

    async def _run(self, container: TaskContainer, step: TaskStep) -> Grade:
        verifier, logs = step.verifier, container.logs("verifier")
        env = from_host(verifier.env, os.environ)
        user = verifier.user or None
        try:
            exit_status, output_bytes = await container.execute(
                _SCRIPT, timeout_s=verifier.timeout_s, user=user, env=env
            )
        except AttemptError as error:
            return undecided("verifier", f"the verifier could not be run: {error.message}")
        output = ScriptResult(ended=exit_status, text=output_bytes.decode(errors="replace"))
        name = f"{step.name}-" if step.name else ""
        self.evidence.keep(f"{name}verifier.log", output.text)
        left_out = await anyio.to_thread.run_sync(keep_logs, logs, self.evidence)
        grade = add_notes(_grade_output(output, logs, verifier.timeout_s), left_out)
        self.container.goes_on = _reaches(step.least, logs)
        return grade

    def _weigh(self, grade: Grade, step: TaskStep) -> Grade:
        """Return the grade as it counts: of the strategy "final", only that of the last step that was taken."""
        last = step is self.task.steps[-1] or not self.container.goes_on
        if len(self.task.steps) == 1 or self.task.strategy == "mean" or last or grade.undecided:
            return grade
        return replace(grade, passed=True, weight=0.0, reason=f"{grade.reason}; only the last step counts")


def _network(task: TaskSpec, verifier: TaskVerifier) -> bool:
    if verifier.network is not None:
        return verifier.network
    return (verifier.environment or task.environment).network


def _grade_output(output: ScriptResult, logs: Path, limit_s: float) -> Grade:
    """Grade by the reward alone, whatever the exit code says."""
    if output.ended.timed_out:
        return undecided("verifier-timeout", f"the tests were still running after {limit_s:g} s", output.text)
    try:
        reward = read_reward(logs)
    except BadReward as error:
        return undecided("reward", f"the tests left a reward that cannot be read: {error}", output.text)
    if reward is not None:
        return grade_reward(reward, output)
    return undecided(
        "reward", f"the tests left no reward in /logs/verifier, and {output.how}{near_miss_note(logs)}", output.text
    )


def _reaches(least: Mapping[str, float], logs: Path) -> bool:
    try:
        rewards = read_rewards(logs)
    except BadReward:
        return not least
    return all(rewards.get(name, float("-inf")) >= value for name, value in least.items())

"""Grade tasks of Harbor's layout: in the container that the agent left, or in one of the verifier's own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from whet.errors import AttemptError, WorkspaceError
from whet.grade.context import NotRecorded
from whet.grade.evidence import Evidence
from whet.grade.grader import Grader
from whet.grade.packages import noted, rewarded, undecided
from whet.grade.verifier import BadReward, Output, keep_logs, near_misses, read_reward, read_rewards
from whet.ground.copying import remove_tree
from whet.ground.task_container import LOGS, TaskContainer
from whet.ground.task_environment import from_host
from whet.model.grade import Grade
from whet.model.suite import Check
from whet.model.task import TaskSpec, TaskStep, TaskVerifier

_SCRIPT = "/tests/test.sh"
_ARTIFACTS = str(LOGS / "artifacts")


class TaskGrader(Grader):
    """Lets the tests of a task decide, by the reward that they leave; without one nothing is decided."""

    informs = True

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Run the tests of one step; the grade is undecided if they leave no reward."""
        if evidence.house is None:
            raise NotRecorded("the container of the task, in which its tests look, was not recorded")
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="whet-verify-", dir=evidence.shell.scratch))
        try:
            given = await _Verification(evidence, evidence.house, folder).decide(_step(check, evidence))
        except (WorkspaceError, OSError) as error:
            given = undecided("environment", str(error))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove_tree, folder)
        return replace(given, check=check.label, duration_s=round(time.monotonic() - began, 6))


def _step(check: Check, evidence: Evidence) -> TaskStep:
    assert evidence.case.task is not None
    return evidence.case.task.steps[int(check.params["step"])]


class _Verification:
    """The verification of one step."""

    def __init__(self, evidence: Evidence, house: TaskContainer, folder: Path) -> None:
        self.evidence, self.house, self.folder = evidence, house, folder

    @property
    def task(self) -> TaskSpec:
        found = self.evidence.case.task
        assert found is not None
        return found

    async def decide(self, step: TaskStep) -> Grade:
        """Run the tests where they belong, and read the reward."""
        # If no agent was there, nothing has started it yet.
        await self.house.begin()
        async with self._container(step) as container:
            await anyio.to_thread.run_sync(container.forget, "verifier")
            if step.verifier.environment is None:
                await anyio.to_thread.run_sync(container.show_tests, step.verifier.tests)
            given = await self._run(container, step)
            # The agent of the next step must not see them.
            await anyio.to_thread.run_sync(container.show_tests, ())
        return self._weighed(given, step)

    @asynccontextmanager
    async def _container(self, step: TaskStep) -> AsyncIterator[TaskContainer]:
        """Yield the container that the tests run in."""
        verifier, environment = step.verifier, step.verifier.environment
        network = _network(self.task, verifier)
        if environment is None and network == self.house.network:
            yield self.house
            return
        image = self.house.verifier_images.get(step.name, "")
        other = await self.house.other(self.folder / "c", network=network, environment=environment, image=image)
        try:
            await other.begin()
            if environment is not None:
                await self._hand_over(verifier, other)
            yield other
        finally:
            await other.remove()

    async def _hand_over(self, verifier: TaskVerifier, other: TaskContainer) -> None:
        """Copy the artifacts of a task from the agent's container into the verifier's, to the same paths."""
        for hook in verifier.collect:
            ended, said = await self.house.execute(hook.command, timeout_s=hook.timeout_s, user=hook.user)
            if ended.exit_code != 0:
                self.evidence.keep("collect.log", said.decode(errors="replace"))
        for number, path in enumerate(dict.fromkeys((_ARTIFACTS, *verifier.artifacts))):
            held = self.folder / "artifacts" / str(number) / Path(path).name
            if await self.house.take(path, held):
                await other.put(held.parent, str(Path(path).parent))

    async def _run(self, container: TaskContainer, step: TaskStep) -> Grade:
        verifier, logs = step.verifier, container.logs("verifier")
        env = from_host(verifier.env, os.environ)
        user = verifier.user or None
        try:
            ended, said = await container.execute(_SCRIPT, timeout_s=verifier.timeout_s, user=user, env=env)
        except AttemptError as error:
            return undecided("verifier", f"the verifier could not be run: {error.message}")
        output = Output(ended=ended, text=said.decode(errors="replace"))
        name = f"{step.name}-" if step.name else ""
        self.evidence.keep(f"{name}verifier.log", output.text)
        left_out = await anyio.to_thread.run_sync(keep_logs, logs, self.evidence)
        given = noted(_judged(output, logs, verifier.timeout_s), left_out)
        self.house.goes_on = _reaches(step.least, logs)
        return given

    def _weighed(self, given: Grade, step: TaskStep) -> Grade:
        """Return the grade as it counts: of the strategy "final", only that of the last step that was taken."""
        last = step is self.task.steps[-1] or not self.house.goes_on
        if len(self.task.steps) == 1 or self.task.strategy == "mean" or last or given.undecided:
            return given
        return replace(given, passed=True, weight=0.0, reason=f"{given.reason}; only the last step counts")


def _network(task: TaskSpec, verifier: TaskVerifier) -> bool:
    if verifier.network is not None:
        return verifier.network
    return (verifier.environment or task.environment).network


def _judged(output: Output, logs: Path, limit_s: float) -> Grade:
    """Grade by the reward alone, whatever the exit code says."""
    if output.ended.timed_out:
        return undecided("verifier-timeout", f"the tests were still running after {limit_s:g} s", output.text)
    try:
        reward = read_reward(logs)
    except BadReward as error:
        return undecided("reward", f"the tests left a reward that cannot be read: {error}", output.text)
    if reward is not None:
        return rewarded(reward, output)
    misses = near_misses(logs)
    aside = f"; {', '.join(misses)} is not a reward file: name it reward.json or reward.txt" if misses else ""
    return undecided("reward", f"the tests left no reward in /logs/verifier, and {output.how}{aside}", output.text)


def _reaches(least: Mapping[str, float], logs: Path) -> bool:
    try:
        found = read_rewards(logs)
    except BadReward:
        return not least
    return all(found.get(name, float("-inf")) >= value for name, value in least.items())

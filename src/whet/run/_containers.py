"""The containers of a run: which image a trial starts from, built before its clock starts, and who removes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import AttemptError, UsageError
from whet.gateway.routes import network_of
from whet.model.request import Settings
from whet.model.run import Trial
from whet.model.task import ImageSpec, TaskSpec
from whet.plan.images import image_of
from whet.sandbox.container.environment import ceilings_of
from whet.sandbox.container.images import Images
from whet.sandbox.container.leftovers import Mark
from whet.sandbox.container.sandbox import ContainerSandbox
from whet.sandbox.container.task import TaskContainer, workdir_of
from whet.sandbox.contract import InImage, Sandbox
from whet.sandbox.engine import working_engine
from whet.workspace.make import make_home

_Key: TypeAlias = tuple[str, str, str]


def _key(trial: Trial) -> _Key:
    return trial.key.case, trial.key.runner, trial.key.arm


class ContainerPool(Struct):
    """What the containers of one run share."""

    settings: Settings
    run_id: str
    mark: Mark
    images: Images
    scratch: Path
    _workdirs: dict[str, str] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))
    # With `keep_warm`: the container of the next trial, the highest number that began, and what goes on aside.
    _spare: dict[_Key, tuple[TaskContainer, asyncio.Task[None]]] = field(default_factory=dict)
    _highest: dict[_Key, int] = field(default_factory=dict)
    _going: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    def of(cls, settings: Settings, run_dir: Path, scratch: Path, log: Callable[[str, str], None]) -> ContainerPool:
        """Find the engine, and leave the mark by which containers are found again; *log* keeps the output of builds."""
        engine = working_engine(settings.container)
        images = Images(engine, log)
        return cls(settings=settings, run_id=run_dir.name, mark=Mark(engine), images=images, scratch=scratch)

    def close(self) -> None:
        """Remove what is left."""
        self.mark.close()

    async def sandbox(self, trial: Trial, attempt: str) -> tuple[Sandbox, TaskContainer | None]:
        """Return the sandbox of an attempt, again if it is the container of a task; an image may have to be built."""
        case, runner = trial.execution.case, trial.execution.runner
        spec = image_of(self.settings, case, runner)
        if spec is None:
            raise UsageError(f"no image is named for {case.id}")
        place = await self._place(spec, attempt)
        if case.task is None:
            return ContainerSandbox(place), None
        network = case.task.agent_network and network_of(runner) != "model"
        container = await self._warm(trial, attempt) or await self._task(case.task, place, network=network)
        return container, container

    async def of_settings(self) -> ContainerSandbox:
        """Return the sandbox for programs that serve a whole run, in the image of the settings."""
        assert self.settings.image is not None
        try:
            return ContainerSandbox(await self._place(ImageSpec.of(self.settings.image, self.settings.install), "-"))
        except AttemptError as error:
            raise UsageError(error.message, hint=error.hint) from error

    async def _place(self, spec: ImageSpec, attempt: str) -> InImage:
        return InImage(
            engine=self.images.engine.program,
            image=await self.images.prepare(spec),
            owner=self.mark.owner,
            run=self.run_id,
            attempt=attempt,
            installs=spec.install is not None,
        )

    async def leave(self, container: TaskContainer) -> None:
        """Remove the container of a task at the end of its attempt; other containers end with their commands."""
        if self.settings.keep_warm:
            self._do(container.remove())
        else:
            await container.remove()

    def prepare_next(self, trial: Trial, container: TaskContainer, homes: tuple[Path, Path]) -> None:
        """Start the container of the next trial of a task, while this one is graded."""
        number = self._highest.get(_key(trial), 0) + 1
        if not self.settings.keep_warm or number > trial.execution.trials:
            return
        if _key(trial) in self._spare:
            return
        coming = replace(trial, key=replace(trial.key, number=number))
        attempt = f"{coming.key.folder}/1"
        spare = container.next(self.scratch / f"k{next(self._numbers)}", attempt, make_home(self.scratch))
        self._spare[_key(trial)] = (spare, self._do(spare.warm(homes)))

    async def _warm(self, trial: Trial, attempt: str) -> TaskContainer | None:
        """Return the container that was started for this attempt, if there is one that works."""
        self._highest[_key(trial)] = max(self._highest.get(_key(trial), 0), trial.key.number)
        spare, start = self._spare.pop(_key(trial), (None, None))
        if spare is None or start is None:
            return None
        try:
            await asyncio.shield(start)
        except AttemptError:
            attempt = ""
        if spare.place.attempt == attempt:
            return spare
        self._do(spare.remove())
        return None

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._going.add(task)
        return task

    async def finish(self) -> None:
        """Wait for containers that are being prepared or removed, and remove those that no trial took."""
        for spare, _ in self._spare.values():
            self._do(spare.remove())
        self._spare.clear()
        await asyncio.gather(*self._going, return_exceptions=True)

    async def _task(self, task: TaskSpec, place: InImage, *, network: bool) -> TaskContainer:
        """Return the container of a task, with the images of its separate verifiers built as well."""
        verifiers = {step.name: step.verifier.environment for step in task.steps if step.verifier.environment}
        images = {name: await self.images.prepare(environment.image) for name, environment in verifiers.items()}
        workdir = task.environment.workdir or self._workdirs.get(place.image)
        if workdir is None:
            workdir = self._workdirs[place.image] = await workdir_of(self.images.engine, place.image)
        return TaskContainer(
            place=place,
            environment=task.environment,
            folder=self.scratch / f"k{next(self._numbers)}",
            workdir=Path(workdir),
            network=network,
            keep_services=self.settings.keep_services,
            user=task.user,
            ceilings=ceilings_of(task.environment, self.settings.ceilings),
            verifier_images=images,
        )

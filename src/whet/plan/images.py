"""Which trials of a plan run in containers, and what each of them starts from."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from whet.errors import UsageError
from whet.model.request import Settings
from whet.model.run import Plan, Runner
from whet.model.suite import Case
from whet.model.task import ImageSpec, is_image_name

CONTAINER = "container"
_HINT = 'set run.image = "NAME", or "./DIR" with a Dockerfile; or give --image, or an image of the runner or the case'


def image_of(settings: Settings, case: Case, runner: Runner) -> ImageSpec | None:
    """Return what a container starts from: the case decides, then the runner, then the settings."""
    install = runner.options.get("install") or settings.install
    if case.task is not None:
        return replace(case.task.environment.image, install=install)
    if case.image is not None:
        return replace(case.image, install=case.image.install or install)
    image_name = runner.options.get("image") or settings.image
    return None if image_name is None else ImageSpec.of(str(image_name), install)


def needs_containers(plan: Plan, settings: Settings) -> bool:
    """Return whether any trial runs in a container."""
    return settings.sandbox == CONTAINER or any(execution.case.task for execution in plan.executions)


def sandbox_of(plan: Plan, settings: Settings) -> str:
    """Return the name of the sandbox of a run: of tasks that name their environment, containers."""
    if settings.sandbox == "auto" and all(execution.case.task for execution in plan.executions):
        return CONTAINER
    return settings.sandbox


def image_problems(plan: Plan, settings: Settings) -> Iterator[str]:
    """Yield a line if trials would run in containers of no image."""
    tasks = [execution.case.id for execution in plan.executions if execution.case.task]
    if tasks and settings.sandbox not in {"auto", CONTAINER}:
        yield f"run.sandbox: {tasks[0]} is a task with a container of its own; leave out {settings.sandbox}"
    if settings.sandbox != CONTAINER:
        return
    pairs = [(execution.case, execution.runner) for execution in plan.executions]
    lacking = dict.fromkeys(runner.id for case, runner in pairs if image_of(settings, case, runner) is None)
    if lacking:
        yield f"run.image: no image is named for {', '.join(lacking)}: {_HINT}"


def check_images(plan: Plan, settings: Settings) -> None:
    """Raise if a container would start from what cannot be an image, and name who asked for it."""
    if settings.sandbox != CONTAINER:
        return
    for case, runner in (
        (execution.case, execution.runner) for execution in plan.executions if execution.case.task is None
    ):
        spec = image_of(settings, case, runner)
        if spec is not None and (wrong := _wrong(spec)) is not None:
            hint = 'name an image, or give a folder with a Dockerfile as "./DIR"'
            raise UsageError(f"{_asker(settings, case, runner)}: {wrong}", hint=hint)


def _wrong(spec: ImageSpec) -> str | None:
    if spec.folder is not None:
        if not spec.folder.is_dir():
            return f"there is no folder {spec.folder}"
        return None if (spec.folder / "Dockerfile").is_file() else f"{spec.folder} has no Dockerfile"
    return None if is_image_name(spec.name or "") else f"{spec.name!r} is not the name of an image"


def _asker(settings: Settings, case: Case, runner: Runner) -> str:
    if case.image is not None:
        return f"image of case {case.id}"
    if runner.options.get("image"):
        return f"runners.{runner.id}.agent.image"
    origin = settings.origins["run.image"]
    return "--image" if origin.endswith("--image") else f"run.image ({origin})"

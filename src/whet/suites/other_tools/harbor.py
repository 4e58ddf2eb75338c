"""The Harbor format: a folder with a `task.toml`, or a folder of such folders, run where they lie.

A task that whet cannot run, such as one of several containers, is left out and named with the reason.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whet.errors import Problem, SuiteError
from whet.model.suite import Case, Check, Limits, Solution, Suite, WorkspaceSpec
from whet.model.task import (
    Collect,
    Healthcheck,
    ImageSpec,
    TaskEnvironment,
    TaskSpec,
    TaskStep,
    TaskVerifier,
    is_image_name,
)
from whet.reading.fields import Fields, Findings
from whet.reading.toml import TOML
from whet.suites.split.fields import foreign_part

TASK = "task.toml"
VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
USUAL_TIMEOUT_S = 600.0
# What agents get whose task says nothing: Harbor has no limit then.
_AGENT_TIMEOUT_S = 3600.0
_CONTEXT, _TESTS, _SOLUTION, _STEPS = "environment", "tests", "solution", "steps"
_SCRIPT, _SOLVE, _INSTRUCTION, _DOCKERFILE = "test.sh", "solve.sh", "instruction.md", "Dockerfile"
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
_CANARY = re.compile(r"\A\s*(?:<!--(?:(?!-->).)*-->|#[^\n]*)[ \t]*\n?", re.DOTALL)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_VARIABLE = re.compile(r"[^=\s\0]+")
# More is a mistake, and nothing that an engine or a clock takes.
_LONGEST_S, _MOST_CPUS, _MOST_MB = 1e8, 65536, 2**30
_IN_MB = {"": 1 / 1024**2, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


class UnfitTask(ValueError):
    """A task that whet cannot run, and why."""


class HarborFormat:
    """A folder with a task, or with tasks."""

    takes_folders = True

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* is a task, or a folder of tasks."""
        return path.is_dir() and bool(tasks_in(path))

    def lower(self, path: Path) -> Suite:
        """Read every task; those that cannot run are left out, and if none is left that is the error."""
        cases, problems, digest = [], [], hashlib.sha256()
        tasks = tasks_in(path)
        for task in tasks:
            findings = Findings(str(task / TASK), language=TOML)
            try:
                cases.append(read_task(task, Fields({}, findings, case=task.name)))
                if findings.problems:
                    cases.pop()
                    problems += [
                        _left_out(task, f"{problem.field}: {problem.message}") for problem in findings.problems
                    ]
                digest.update(_task_digest(task))
            except (ValueError, TypeError, KeyError, OSError, RecursionError) as error:
                problems.append(_left_out(task, str(error)))
            problems += findings.warnings
        if not cases:
            raise SuiteError(problems)
        case_ids = {case.id for case in cases}
        return Suite(
            name=path.name,
            cases=tuple(cases),
            source=path,
            digest=digest.hexdigest(),
            usual_timeout_s=_AGENT_TIMEOUT_S,
            workspace=WorkspaceSpec(),
            lost=tuple(problems),
            lost_cases=tuple(task.name for task in tasks if task.name not in case_ids),
            held_out=(path,),
        )


def _left_out(task: Path, why: str) -> Problem:
    return Problem(file=str(task / TASK), case=task.name, message=f"is left out: {why}")


def tasks_in(root: Path) -> list[Path]:
    """Find the tasks at *root*: one, a folder of them, or a project with them in `tasks`."""
    if (root / TASK).is_file():
        return [root]
    for place in (root, root / "tasks"):
        try:
            folders = sorted(Path(entry.path) for entry in os.scandir(place) if entry.is_dir())
        except OSError:
            continue
        if tasks := _tasks_of(folders):
            return tasks
    return []


def _tasks_of(folders: list[Path]) -> list[Path]:
    """Return which *folders* are tasks; beside tasks, one that cannot be looked into may be another, so it raises."""
    tasks: list[Path] = []
    access_error: OSError | None = None
    for folder in folders:
        try:
            if (folder / TASK).is_file():
                tasks.append(folder)
        except OSError as error:
            access_error = access_error or error
    if tasks and access_error:
        raise access_error
    return tasks


def _task_digest(task: Path) -> bytes:
    """Return a digest of a task: of what its agent is asked and graded by, and of the look of its environment."""
    digest = hashlib.sha256(task.name.encode())
    for place, folders, names in os.walk(task):
        folders.sort()
        inner = Path(place).relative_to(task)
        for name in sorted(names):
            path = Path(place, name)
            status = path.lstat()
            digest.update(f"{inner / name}\0{status.st_size}\0".encode())
            if inner.parts[:1] == (_CONTEXT,):
                # A file may be large; the image is built by its content.
                digest.update(str(status.st_mtime_ns).encode())
            elif path.is_symlink():
                digest.update(os.fsencode(path.readlink()))
            elif path.is_file():
                digest.update(path.read_bytes())
    return digest.digest()


def read_task(task: Path, top: Fields) -> Case:
    """Return the case of the task in *task*; raises `UnfitTask` if it cannot run."""
    _require_inside(task)
    try:
        top.values = tomllib.loads((task / TASK).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnfitTask(f"{TASK} cannot be read: {error}") from error
    version = str(top.values.get("schema_version", top.values.get("version", VERSIONS[-1])))
    if version not in VERSIONS:
        top.warn("", f"schema_version {version}: whet reads it as {VERSIONS[-1]}")
    environment, agent = top.table("environment"), top.table("agent")
    _refuse(task, environment)
    spec = TaskSpec(
        folder=task,
        environment=_environment(task / _CONTEXT, environment, top),
        steps=tuple(_steps(task, top)),
        user=_user(agent),
        network=_network(agent, default=None),
        strategy="final" if top.given("multi_step_reward_strategy") == "final" else "mean",
        solution_env=_env(top.table("solution")),
    )
    prompts = [instruction(task / _STEPS / step.name if step.name else task) for step in spec.steps]
    several = len(prompts) > 1
    split, source = foreign_part(top.table("metadata"))
    return Case(
        id=task.name,
        prompt=prompts[0],
        then=tuple(prompts[1:]),
        checks=tuple(
            Check(
                grader="task",
                params={"step": number},
                label=step.name or f"{_TESTS}/{_SCRIPT}",
                turn=number + 1 if several else None,
                soft=True,
            )
            for number, step in enumerate(spec.steps)
        ),
        tags=tags(top.table("task"), top.table("metadata")),
        limits=Limits(timeout_s=_agent_limit(top, agent)),
        needs_agent=False,
        scored=True,
        task=spec,
        workspace=WorkspaceSpec(),
        solution=Solution(folder=True) if any(step.solution for step in spec.steps) else None,
        split=split,
        source=source,
    )


def _require_inside(task: Path) -> None:
    """Raise for a link out of the folder of the tasks: what it leads to would reach agents, images and containers.

    Links further down are copied as links.
    """
    places = (task, *(task / _STEPS).glob("*"), *(task / _STEPS).glob("*/*"), task / _STEPS)
    parts = [entry for place in places for entry in (place, *_entries(place))]
    root = task.parent.resolve()
    for path in (*parts, task / _CONTEXT / _DOCKERFILE, task / _TESTS / _DOCKERFILE):
        if path.is_symlink() and path != task and not path.resolve().is_relative_to(root):
            raise UnfitTask(f"{path.relative_to(task)} is a link that leads out of {task.parent}")


def _entries(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder)]
    except (NotADirectoryError, FileNotFoundError):
        return []


def _agent_limit(top: Fields, agent: Fields) -> float | None:
    """Return the time of all steps together; None if one of them has no limit."""
    usual = agent.number("timeout_sec", above=0, most=_LONGEST_S)
    tables = [top.object(place, item).table("agent") for place, item in top.items("steps")]
    limits = [table.number("timeout_sec", above=0, most=_LONGEST_S) or usual for table in tables] or [usual]
    return None if None in limits else sum(limit for limit in limits if limit is not None)


def _refuse(task: Path, environment: Fields) -> None:
    """Raise for what containers here cannot do."""
    if not (task / _CONTEXT).is_dir():
        raise UnfitTask(f"it has no folder {_CONTEXT}")
    for name in _COMPOSE:
        if (task / _CONTEXT / name).is_file():
            raise UnfitTask(f"{_CONTEXT}/{name}: whet starts one container for a task, and no services beside it")
    if str(environment.given("os") or "linux").lower() != "linux":
        raise UnfitTask("it is made for Windows")
    for name in ("gpus", "tpu"):
        if environment.given(name):
            raise UnfitTask(f"environment.{name}: whet gives containers no accelerator")


def _environment(context: Path, fields: Fields, top: Fields) -> TaskEnvironment:
    build_s = fields.number("build_timeout_sec", above=0, most=_LONGEST_S) or USUAL_TIMEOUT_S
    image_name, workdir = fields.text("docker_image"), fields.text("workdir")
    if image_name is not None and not is_image_name(image_name):
        fields.problem("docker_image", f"{image_name!r} is not the name of an image")
    if workdir is not None and not workdir.startswith("/"):
        fields.problem("workdir", f"must be an absolute path, not {workdir!r}")
    if image_name is None and not (context / _DOCKERFILE).is_file():
        raise UnfitTask(f"{context.name} has no Dockerfile, and no docker_image is named")
    image = ImageSpec(name=image_name, folder=None if image_name else context.resolve(), build_timeout_s=build_s)
    for name, meaning in (("mcp_servers", "they are not started"), ("skills_dir", "name skills with the runner")):
        if fields.given(name):
            top.warn("", f"environment.{name}: {meaning}")
    return TaskEnvironment(
        image=image,
        workdir=workdir,
        env=_env(fields),
        network=bool(_network(fields, default=True)),
        cpus=fields.number("cpus", above=0, most=_MOST_CPUS),
        memory_mb=_megabytes(fields, "memory"),
        storage_mb=_megabytes(fields, "storage"),
        healthcheck=_healthcheck(fields),
    )


def _network(fields: Fields, *, default: bool | None) -> bool | None:
    mode = fields.text("network_mode")
    if mode is None:
        return fields.flag("allow_internet") if "allow_internet" in fields.values else default
    if mode == "allowlist":
        raise UnfitTask(f"{fields.path}.network_mode allowlist: whet cannot allow hosts one by one")
    if mode not in {"public", "no-network"}:
        fields.problem("network_mode", f'must be "public", "no-network" or "allowlist", not {mode}')
    return mode == "public"


def _megabytes(fields: Fields, name: str) -> int | None:
    """Read a size in MB; older tasks write it as text, such as 2G."""
    size_mb, old = fields.given(f"{name}_mb"), fields.given(name)
    if old is None:
        return None if size_mb is None else int(fields.number(f"{name}_mb", above=0, most=_MOST_MB) or 0) or None
    hit = _SIZE.fullmatch(str(old).strip())
    if hit is None:
        fields.problem(name, f'must be a size such as "2G", not {old!r}')
        return None
    size = int(min(float(hit[1]) * _IN_MB[hit[2].upper()], _MOST_MB + 1))
    if size > _MOST_MB:
        fields.problem(name, f"must be at most {_MOST_MB:,} MB, not {old}")
    if size_mb is not None and int(size_mb) != size:
        fields.problem(name, f"says {old}, and {name}_mb says {size_mb}")
    return size


def _healthcheck(fields: Fields) -> Healthcheck | None:
    if fields.given("healthcheck") is None:
        return None
    table = fields.table("healthcheck")
    usual = Healthcheck(command="")
    seconds = {
        f"{name}_s": table.number(f"{name}_sec", least=0, most=_LONGEST_S)
        for name in ("interval", "timeout", "start_period", "start_interval")
    }
    retries = table.whole("retries", least=1, most=10**6)
    return Healthcheck(
        command=table.text("command", required=True) or "",
        **{name: getattr(usual, name) if value is None else float(value) for name, value in seconds.items()},
        retries=usual.retries if retries is None else retries,
    )


def _steps(task: Path, top: Fields) -> Iterator[TaskStep]:
    """Yield the steps of a task; one without any is itself its only step."""
    entries = top.given("steps")
    if not entries:
        yield TaskStep(
            name="",
            verifier=_verifier(task, None, top.table("verifier"), top),
            solution=_folder(task, _SOLUTION, _SOLVE),
        )
        return
    for number, step in enumerate(top.object(place, item) for place, item in top.items("steps")):
        name = step.text("name", required=True) or f"step-{number + 1}"
        if "/" in name or name in {".", ".."}:
            raise UnfitTask(f"step {name!r} is not the name of a folder in {_STEPS}")
        place = task / _STEPS / name
        if not (place / _INSTRUCTION).is_file():
            raise UnfitTask(f"step {name} has no {_STEPS}/{name}/{_INSTRUCTION}")
        step_verifier = step.table("verifier")
        verifier_fields = Fields(
            {**top.table("verifier").values, **step_verifier.values}, top.findings, step_verifier.path, top.case
        )
        yield TaskStep(
            name=name,
            verifier=_verifier(task, place, verifier_fields, top, more=step.given("artifacts")),
            workdir=_folder(place, "workdir"),
            healthcheck=_healthcheck(step),
            solution=_folder(place, _SOLUTION, _SOLVE) or _folder(task, _SOLUTION, _SOLVE),
            least=_least(step),
        )


def _folder(place: Path, name: str, needed: str | None = None) -> Path | None:
    folder = place / name
    return folder if folder.is_dir() and (needed is None or (folder / needed).is_file()) else None


def _least(step: Fields) -> dict[str, float]:
    reward = step.given("min_reward")
    if reward is None:
        return {}
    return (
        {str(key): float(value) for key, value in reward.items()}
        if isinstance(reward, Mapping)
        else {"reward": float(reward)}
    )


def _verifier(task: Path, step: Path | None, fields: Fields, top: Fields, more: Any = None) -> TaskVerifier:
    environment_field = fields.given("environment")
    mode = fields.text("environment_mode") or ("separate" if environment_field is not None else "shared")
    if mode == "shared" and environment_field is not None:
        raise UnfitTask("verifier.environment is given, and environment_mode is shared")
    tests = tuple(
        folder for place in (task, step) if place is not None and (folder := _folder(place, _TESTS)) is not None
    )
    environment = None
    if mode == "separate":
        table = fields.table("environment") if environment_field is not None else top.table("environment")
        environment = _environment(tests[-1] if tests else task / _TESTS, table, top)
    elif not any((folder / _SCRIPT).is_file() for folder in tests):
        raise UnfitTask(f"it has no {_TESTS}/{_SCRIPT}")
    return TaskVerifier(
        tests=() if environment else tests,
        timeout_s=fields.number("timeout_sec", above=0, most=_LONGEST_S) or USUAL_TIMEOUT_S,
        env=_env(fields),
        user=_user(fields),
        network=_network(fields, default=None),
        environment=environment,
        artifacts=tuple(_artifacts(top.given("artifacts"), more)),
        collect=tuple(_collects(fields)),
    )


def _artifacts(*lists: Any) -> Iterator[str]:
    for item in (item for entries in lists for item in entries or ()):
        source = item.get("source") if isinstance(item, Mapping) else item
        if not isinstance(source, str) or not source.startswith("/"):
            raise UnfitTask(f"artifacts: {source!r} is not an absolute path")
        yield source


def _collects(fields: Fields) -> Iterator[Collect]:
    for hook in (fields.object(place, item) for place, item in fields.items("collect")):
        limit_s = hook.number("timeout_sec", above=0, most=_LONGEST_S) or Collect(command="").timeout_s
        yield Collect(command=hook.text("command", required=True) or "", timeout_s=limit_s, user=_user(hook))


def _user(fields: Fields) -> str | None:
    user = fields.given("user")
    return None if user is None else str(user)


def _env(fields: Fields) -> dict[str, str]:
    env = {name: str(value) for name, value in fields.table("env").values.items()}
    if wrong := next((name for name, value in env.items() if not _VARIABLE.fullmatch(name) or "\0" in value), None):
        fields.problem("env", f"{wrong!r} cannot be a variable")
    return env


def instruction(folder: Path) -> str:
    """Return the instruction without the canary at its beginning, which is meant for training filters."""
    if not (folder / _INSTRUCTION).is_file():
        raise UnfitTask(f"it has no {_INSTRUCTION}")
    text = (folder / _INSTRUCTION).read_text("utf-8", "replace")
    while (canary := _CANARY.match(text)) and "canary" in canary[0].lower():
        text = text[canary.end() :]
    return text.strip()


def tags(task: Fields, metadata: Fields) -> tuple[str, ...]:
    """Return the words that a task is filed under."""
    words = [*metadata.texts("tags"), *task.texts("keywords"), metadata.text("category"), metadata.text("difficulty")]
    return tuple(dict.fromkeys(word for word in words if word is not None))

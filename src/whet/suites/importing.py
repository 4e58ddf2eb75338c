"""Import Harbor tasks: their folders become the cases of an eval suite, and stay where they are as its packages."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.errors import PackageError, Problem, SuiteError, UsageError
from whet.ground.package_settings import kind_of, local_path
from whet.ground.packages import PATHS_HINT
from whet.model.eval_cases import DEFAULT_SKILL_PLACE, MOST_CASES, EvalCase, EvalSuite, ResourceHints, TaskPackage
from whet.reading.fields import Findings
from whet.suites.dockerfile import read_image
from whet.suites.eval_documents import read_manifest
from whet.suites.task_toml import BadTask, Imported, Losses, Lost, TaskFile, read_task_file, seen_from

_MOST_CASES = 100_000
# What a manifest should say of every task, and a suite need not.
_WANTED = ("task_id", "instruction", "verifier_ref")


def import_manifest(document: Any, path: Path, folder: Path) -> Imported:
    """Return the suite of the manifest *document*, read from *path*."""
    suite = read_manifest(document, most_cases=_MOST_CASES, findings=Findings(str(path)))
    cases = tuple(_moved(case, path.parent, folder) for case in suite.cases)
    return Imported(suite=replace(suite, cases=cases), lost=tuple(_unsaid(document["cases"])))


def _moved(case: EvalCase, base_dir: Path, folder: Path) -> EvalCase:
    """Return the case with its local package as seen from *folder*, where the suite will be."""
    assert isinstance(case, TaskPackage)
    try:
        if kind_of(case.environment_ref) != "local" or "://" in case.environment_ref:
            return case
        return replace(case, environment_ref=seen_from(local_path(case.environment_ref, base_dir), folder))
    except PackageError:
        return case


def _unsaid(cases: list[dict[str, Any]]) -> list[Lost]:
    """Fields that a manifest should give and this one leaves to their defaults."""
    return [
        Lost(task=str(case.get("task_id") or f"cases[{index}]"), what=f"the manifest does not say {name}")
        for index, case in enumerate(cases)
        for name in _WANTED
        if not case.get(name) and not (name == "task_id" and case.get("id"))
    ]


_CONTEXT, _VERIFIER, _SOLUTION = "environment", "tests/test.sh", "solution/solve.sh"
_CANARY = re.compile(r"\A\s*(?:<!--(?:(?!-->).)*-->|#[^\n]*)[ \t]*\n?", re.DOTALL)
# That of a verifier whose task says none, and of our agents.
_USUAL_TIMEOUT_S = 600.0


def import_tasks(tasks: Sequence[Path], name: str, folder: Path, *, oracle: bool) -> Imported:
    """Return the suite of *tasks*, to be written into *folder*."""
    cases: list[TaskPackage] = []
    lost: list[Lost] = []
    left_out: list[Lost] = []
    longest_s = 0.0
    for task in tasks:
        losses = Losses(task.resolve().name)
        try:
            task_file = read_task_file(task / "task.toml", losses)
            cases.append(_case(task, task_file, folder, losses, oracle=oracle))
        except (BadTask, OSError) as error:
            left_out.append(Lost(task=losses.task, what=str(error)))
            continue
        lost += losses.found
        longest_s = max(longest_s, task_file.agent_timeout_s or 0.0)
    if not cases:
        raise UsageError("no task could be imported:\n" + "\n".join(f"  {each.task}: {each.what}" for each in left_out))
    lost += _of_all(cases, longest_s)
    suite = EvalSuite(
        name=name, source_kind="imported", verifier_kind="deterministic", supports_no_skill=True, cases=tuple(cases)
    )
    return Imported(suite=suite, lost=tuple(lost), left_out=tuple(left_out))


def _of_all(cases: Sequence[TaskPackage], longest_s: float) -> list[Lost]:
    found = []
    if longest_s > _USUAL_TIMEOUT_S:
        said = f"the time limit of agents, which is up to {longest_s:g} s: run with --timeout-ms {longest_s * 1000:.0f}"
        found.append(Lost(task="", what=said))
    if len(cases) > MOST_CASES:
        found.append(Lost(task="", what=f"a service takes at most {MOST_CASES} cases, and there are {len(cases)}"))
    return found


def _case(task: Path, task_file: TaskFile, folder: Path, losses: Losses, *, oracle: bool) -> TaskPackage:
    _check_files(task, losses)
    image = read_image(task / _CONTEXT, task_file.workdir)
    for what in image.lost:
        losses.add(f"Dockerfile: {what}")
    paths = {path: _below_context(inner) for path, inner in image.paths.items()}
    solution = _SOLUTION if (task / _SOLUTION).is_file() else None
    if oracle and solution is None:
        losses.add("the solution: there is none")
    timeout_s = task_file.verifier_timeout_s or _USUAL_TIMEOUT_S
    return TaskPackage(
        task_id=losses.task,
        tags=task_file.tags,
        source=task_file.source,
        environment_ref=seen_from(task, folder),
        instruction=_instruction(task),
        verifier_ref=_VERIFIER,
        skill_bundle_ref=_skill_place(task, losses),
        oracle_ref=solution if oracle else None,
        resource_hints=ResourceHints(
            working_dir=_below_context(image.root),
            timeout_ms=timeout_s * 1000,
            env=image.env | task_file.env,
            network=task_file.network,
            more={PATHS_HINT: paths},
        ),
    )


def _check_files(task: Path, losses: Losses) -> None:
    if not (task / _VERIFIER).is_file():
        raise BadTask(f"it has no {_VERIFIER}")
    if not (task / _CONTEXT).is_dir():
        raise BadTask(f"it has no folder {_CONTEXT}")
    if not (task / "instruction.md").is_file():
        raise BadTask("it has no instruction.md")
    for name in ("docker-compose.yaml", "docker-compose.yml", "compose.yaml"):
        if (task / _CONTEXT / name).is_file():
            losses.add(f"{_CONTEXT}/{name}: no service of it is started")
    if (task / "trajectory.json").is_file():
        losses.add("trajectory.json: the agent begins without it")


def _instruction(task: Path) -> str:
    """Return the instruction without the canary at its beginning, which is meant for training filters."""
    text = (task / "instruction.md").read_text("utf-8", "replace")
    while (found := _CANARY.match(text)) and "canary" in found[0].lower():
        text = text[found.end() :]
    return text.strip()


def _skill_place(task: Path, losses: Losses) -> str:
    """Return where the task keeps its skill, which the run replaces by the one under test, or removes."""
    skills = sorted(file.parent.name for file in (task / _CONTEXT / "skills").glob("*/SKILL.md"))
    if not skills:
        return DEFAULT_SKILL_PLACE
    if len(skills) == 1:
        return f"{_CONTEXT}/skills/{skills[0]}"
    losses.add(
        f"its {len(skills)} skills in {_CONTEXT}/skills ({', '.join(skills)}): they are there in every variant, "
        "so that what a skill adds cannot be measured"
    )
    return DEFAULT_SKILL_PLACE


def _below_context(inner: str) -> str:
    return _CONTEXT if inner == "." else f"{_CONTEXT}/{inner}"


_TASK = "task.toml"
_LARGEST = 64 * 1024 * 1024


def import_path(path: Path, folder: Path, *, name: str | None = None, oracle: bool = False) -> Imported:
    """Import *path* into a suite in *folder*; with *oracle*, solutions run before verifiers."""
    if path.is_file() and path.name != _TASK:
        return import_manifest(_document(path), path, folder)
    root = path.parent if path.name == _TASK else path
    if not root.is_dir():
        raise UsageError(f"{path} does not exist")
    tasks = _tasks(root)
    if not tasks:
        raise UsageError(
            f"{root} holds no tasks", hint=f"a task is a folder with {_TASK}; name one, or a folder of them"
        )
    return import_tasks(tasks, name or root.resolve().name, folder, oracle=oracle)


def _tasks(root: Path) -> list[Path]:
    """Find the tasks at *path*: one, a folder of them, or a project with them in `tasks`."""
    if (root / _TASK).is_file():
        return [root]
    for place in (root, root / "tasks"):
        if found := sorted(file.parent for file in place.glob(f"*/{_TASK}") if file.is_file()):
            return found
    return []


def _document(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST:
            raise SuiteError([Problem(file=str(path), message="is too large for a manifest")])
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SuiteError([Problem(file=str(path), message=f"cannot be read as JSON: {error}")]) from error

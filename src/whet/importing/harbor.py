"""Folders of Harbor tasks as the cases of an eval suite; the folders stay where they are, and are the packages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from whet.errors import UsageError
from whet.evals import MOST_CASES, EvalSuite, ResourceHints, TaskPackage
from whet.evals.kinds import DEFAULT_SKILL_PLACE
from whet.importing.base import Imported, Losses, Lost, seen_from
from whet.importing.dockerfile import read_image
from whet.importing.task_toml import BadTask, TaskFile, read_task_file
from whet.packages.spec import PATHS_HINT

_CONTEXT, _VERIFIER, _SOLUTION = "environment", "tests/test.sh", "solution/solve.sh"
_CANARY = re.compile(r"\A\s*(?:<!--(?:(?!-->).)*-->|#[^\n]*)[ \t]*\n?", re.DOTALL)
# That of a verifier whose task says none, and of our agents.
_USUAL_TIMEOUT_S = 600.0


def import_tasks(tasks: Sequence[Path], name: str, folder: Path, *, oracle: bool) -> Imported:
    """The suite of *tasks*, to be written into *folder*."""
    cases: list[TaskPackage] = []
    lost: list[Lost] = []
    left_out: list[Lost] = []
    longest_s = 0.0
    for task in tasks:
        losses = Losses(task.resolve().name)
        try:
            told = read_task_file(task / "task.toml", losses)
            cases.append(_case(task, told, folder, losses, oracle=oracle))
        except (BadTask, OSError) as error:
            left_out.append(Lost(task=losses.task, what=str(error)))
            continue
        lost += losses.found
        longest_s = max(longest_s, told.agent_timeout_s or 0.0)
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


def _case(task: Path, told: TaskFile, folder: Path, losses: Losses, *, oracle: bool) -> TaskPackage:
    _check_files(task, losses)
    image = read_image(task / _CONTEXT, told.workdir)
    for what in image.lost:
        losses.add(f"Dockerfile: {what}")
    paths = {path: _below_context(inner) for path, inner in image.paths.items()}
    solution = _SOLUTION if (task / _SOLUTION).is_file() else None
    if oracle and solution is None:
        losses.add("the solution: there is none")
    timeout_s = told.verifier_timeout_s or _USUAL_TIMEOUT_S
    return TaskPackage(
        task_id=losses.task,
        tags=told.tags,
        source=told.source,
        environment_ref=seen_from(task, folder),
        instruction=_instruction(task),
        verifier_ref=_VERIFIER,
        skill_bundle_ref=_skill_place(task, losses),
        oracle_ref=solution if oracle else None,
        resource_hints=ResourceHints(
            working_dir=_below_context(image.root),
            timeout_ms=timeout_s * 1000,
            env=image.env | told.env,
            network=told.network,
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
    """The instruction without the canary at its beginning, which is for whoever trains models."""
    text = (task / "instruction.md").read_text("utf-8", "replace")
    while (found := _CANARY.match(text)) and "canary" in found[0].lower():
        text = text[found.end() :]
    return text.strip()


def _skill_place(task: Path, losses: Losses) -> str:
    """Where the task keeps its skill, which the run replaces by the one under test, or takes away."""
    skills = sorted(file.parent.name for file in (task / _CONTEXT / "skills").glob("*/SKILL.md"))
    if not skills:
        return DEFAULT_SKILL_PLACE
    if len(skills) == 1:
        return f"{_CONTEXT}/skills/{skills[0]}"
    losses.add(
        f"its {len(skills)} skills in {_CONTEXT}/skills ({', '.join(skills)}): they are there in every variant, "
        "so that what a skill adds cannot be told"
    )
    return DEFAULT_SKILL_PLACE


def _below_context(inner: str) -> str:
    return _CONTEXT if inner == "." else f"{_CONTEXT}/{inner}"

"""Import Harbor tasks: their folders become the cases of an eval suite, and stay where they are as its packages.

A task is a folder with a `task.toml`, versions 1.0 to 1.4; what a case cannot say is collected and reported.
"""

from __future__ import annotations

import os
import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import PackageError, Problem, SuiteError, UsageError
from whet.ground.package_settings import kind_of, local_path
from whet.ground.packages import PATHS_HINT, path_problem
from whet.model.eval_cases import DEFAULT_SKILL_PLACE, MOST_CASES, EvalCase, EvalSuite, ResourceHints, TaskPackage
from whet.reading.document_files import read_plain
from whet.reading.documents import DocumentError
from whet.reading.fields import Fields, Findings
from whet.reading.settings_files import TOML
from whet.suites.dockerfile import read_image
from whet.suites.eval_documents import read_manifest
from whet.suites.harbor import TASK, VERSIONS, instruction, tags, tasks_in

_MOST_CASES = 100_000
# Fields that every task of a manifest should have, and a case of a suite need not have.
_WANTED = ("task_id", "instruction", "verifier_ref")
_CONTEXT, _VERIFIER, _SOLUTION = "environment", "tests/test.sh", "solution/solve.sh"
# The time limit of a verifier whose task has none, and of our agents.
_USUAL_TIMEOUT_S = 600.0
_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The suite, what it lacks, and the tasks that could not become cases at all with the reason.

    The case of each problem is the name of its task; one without a case concerns all tasks.
    """

    suite: EvalSuite
    lost: tuple[Problem, ...] = ()
    left_out: tuple[Problem, ...] = ()


class BadTask(ValueError):
    """A task that cannot become a case."""


def import_path(path: Path, folder: Path, *, name: str | None = None, oracle: bool = False) -> Imported:
    """Import *path* into a suite in *folder*; with *oracle*, solutions run before verifiers."""
    if path.is_file() and path.name != TASK:
        return import_manifest(_document(path), path, folder)
    root = path.parent if path.name == TASK else path
    if not root.is_dir():
        raise UsageError(f"{path} does not exist")
    tasks = tasks_in(root)
    if not tasks:
        raise UsageError(
            f"{root} holds no tasks", hint=f"a task is a folder with {TASK}; name one, or a folder of them"
        )
    return import_tasks(tasks, name or root.resolve().name, folder, oracle=oracle)


def _document(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST:
            raise SuiteError([Problem(file=str(path), message="is too large for a manifest")])
        return read_plain(path)
    except DocumentError as error:
        raise SuiteError([error.problem(path)]) from error


def import_tasks(tasks: Sequence[Path], name: str, folder: Path, *, oracle: bool) -> Imported:
    """Return the suite of *tasks*, to be written into *folder*."""
    cases: list[TaskPackage] = []
    lost: list[Problem] = []
    left_out: list[Problem] = []
    longest_s = 0.0
    for task in tasks:
        findings, identifier = Findings(language=TOML), task.resolve().name
        try:
            given = _sections(task / TASK, Fields({}, findings, case=identifier))
            cases.append(_case(task, identifier, given, folder, oracle=oracle))
        except (BadTask, OSError) as error:
            left_out.append(Problem(file="", case=identifier, message=str(error)))
            continue
        longest_s = max(longest_s, given["agent"].number("timeout_sec", above=0) or 0.0)
        wrong = (f"{problem.field}: {problem.message}; it is left out" for problem in findings.problems)
        lost += [*findings.warnings, *(Problem(file="", case=identifier, message=message) for message in wrong)]
    if not cases:
        raise UsageError("\n  ".join(("no task could be imported:", *map(str, left_out))))
    lost += (Problem(file="", message=message) for message in _lost_of_all(cases, longest_s))
    suite = EvalSuite(
        name=name, source_kind="imported", verifier_kind="deterministic", supports_no_skill=True, cases=tuple(cases)
    )
    return Imported(suite=suite, lost=tuple(lost), left_out=tuple(left_out))


def _lost_of_all(cases: Sequence[TaskPackage], longest_s: float) -> Iterator[str]:
    if longest_s > _USUAL_TIMEOUT_S:
        yield f"the time limit of agents, which is up to {longest_s:g} s: run with --timeout-ms {longest_s * 1000:.0f}"
    if len(cases) > MOST_CASES:
        yield f"a service takes at most {MOST_CASES} cases, and there are {len(cases)}"


def _case(task: Path, name: str, given: Mapping[str, Fields], folder: Path, *, oracle: bool) -> TaskPackage:
    top, environment, verifier = given[""], given["environment"], given["verifier"]
    _check_files(task, top)
    image = read_image(task / _CONTEXT, _workdir(environment, top))
    for what in image.lost:
        top.warn("", f"Dockerfile: {what}")
    paths = {path: _below_context(inner) for path, inner in image.paths.items()}
    solution = _SOLUTION if (task / _SOLUTION).is_file() else None
    if oracle and solution is None:
        top.warn("", "the solution: there is none")
    timeout_s = verifier.number("timeout_sec", above=0) or _USUAL_TIMEOUT_S
    return TaskPackage(
        task_id=name,
        tags=tags(given["task"], given["metadata"]),
        source=top.text("source") or given["task"].text("name"),
        environment_ref=seen_from(task, folder),
        instruction=instruction(task),
        verifier_ref=_VERIFIER,
        skill_bundle_ref=_skill_place(task, top),
        oracle_ref=solution if oracle else None,
        resource_hints=ResourceHints(
            working_dir=_below_context(image.root),
            timeout_ms=timeout_s * 1000,
            env=image.env | _env(environment, top) | _env(verifier, top),
            network=_network(environment, top),
            more={PATHS_HINT: paths},
        ),
    )


def _check_files(task: Path, top: Fields) -> None:
    if not (task / _VERIFIER).is_file():
        raise BadTask(f"it has no {_VERIFIER}")
    if not (task / _CONTEXT).is_dir():
        raise BadTask(f"it has no folder {_CONTEXT}")
    if not (task / "instruction.md").is_file():
        raise BadTask("it has no instruction.md")
    for name in ("docker-compose.yaml", "docker-compose.yml", "compose.yaml"):
        if (task / _CONTEXT / name).is_file():
            top.warn("", f"{_CONTEXT}/{name}: no service of it is started")
    if (task / "trajectory.json").is_file():
        top.warn("", "trajectory.json: the agent starts without it")


def _skill_place(task: Path, top: Fields) -> str:
    """Return where the task keeps its skill, which the run replaces by the one under test, or removes."""
    skills = sorted(file.parent.name for file in (task / _CONTEXT / "skills").glob("*/SKILL.md"))
    if not skills:
        return DEFAULT_SKILL_PLACE
    if len(skills) == 1:
        return f"{_CONTEXT}/skills/{skills[0]}"
    top.warn(
        "",
        f"its {len(skills)} skills in {_CONTEXT}/skills ({', '.join(skills)}): they are there in every arm, "
        "so that what a skill adds cannot be measured",
    )
    return DEFAULT_SKILL_PLACE


def _below_context(inner: str) -> str:
    return _CONTEXT if inner == "." else f"{_CONTEXT}/{inner}"


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


def _unsaid(cases: list[dict[str, Any]]) -> list[Problem]:
    """Return the fields that a manifest should give and this one leaves to their defaults."""
    return [
        Problem(
            file="",
            case=str(case.get("task_id") or f"cases[{index}]"),
            message=f"the manifest does not say {name}",
        )
        for index, case in enumerate(cases)
        for name in _WANTED
        if not case.get(name) and not (name == "task_id" and case.get("id"))
    ]


def seen_from(path: Path, folder: Path) -> str:
    """Return *path* as a suite in *folder* refers to it."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


_FROM_HOST = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)
# Keys of task.toml that a case has no word for, and what leaving them out means.
_LOST = {
    "artifacts": "only what the verifier writes into its logs is kept",
    "agent.user": "the agent runs as you",
    "agent.network_mode": "the runner says whether its agent has a network",
    "verifier.network_mode": "the verifier has the network of the environment",
    "verifier.user": "the verifier runs as you",
    "verifier.collect": "its commands are not run",
    "environment.docker_image": "programs are those of this machine",
    "environment.gpus": "no GPU is reserved",
    "environment.gpu_types": "no GPU is reserved",
    "environment.tpu": "no TPU is reserved",
    "environment.cpus": "set defaults.max_cpus",
    "environment.memory_mb": "set defaults.max_memory_mb",
    "environment.memory": "set defaults.max_memory_mb",
    "environment.storage_mb": "the disk is not limited",
    "environment.storage": "the disk is not limited",
    "environment.healthcheck": "it is not run",
    "environment.mcp_servers": "they are not started",
    "environment.skills_dir": "name the skill under test with --skill",
    "solution.env": "the solution gets the variables of the verifier",
}
_SECTIONS = ("task", "metadata", "agent", "verifier", "environment", "solution")
_NETWORKS = {"public": True, "no-network": False}


def _sections(path: Path, top: Fields) -> dict[str, Fields]:
    """Return the tables of the task file at *path*, and with an empty name all of it; notes what a case cannot say."""
    try:
        top.values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadTask(f"{path.name} cannot be read: {error}") from error
    sections = {"": top, **{name: top.table(name) for name in _SECTIONS}}
    _refuse(top, sections["verifier"], sections["environment"])
    version = str(top.values.get("schema_version", top.values.get("version", VERSIONS[-1])))
    if version not in VERSIONS:
        top.warn("", f"schema_version {version}: whet reads it as {VERSIONS[-1]}")
    for place, meaning in _LOST.items():
        section, _, key = place.rpartition(".")
        if sections[section].given(key):
            top.warn("", f"{place}: {meaning}")
    return sections


def _refuse(top: Fields, verifier: Fields, environment: Fields) -> None:
    if top.given("steps"):
        raise BadTask("it has several steps, and a case has one")
    if str(environment.given("os") or "linux").lower() != "linux":
        raise BadTask("it is made for Windows")
    if verifier.given("environment_mode") == "separate" or "environment" in verifier.values:
        raise BadTask("its verifier needs a container of its own (environment_mode separate)")


def _network(environment: Fields, top: Fields) -> bool:
    mode = environment.text("network_mode")
    if mode is None and "allow_internet" in environment.values:
        return environment.flag("allow_internet")
    if mode is None:
        top.warn("", "the network: the task does not say, so its verifier has none; resource_hints.network gives it")
        return False
    if mode not in _NETWORKS:
        top.warn("", f"environment.network_mode {mode}: hosts are not allowed one by one, its verifier has no network")
        return False
    return _NETWORKS[mode]


def _workdir(environment: Fields, top: Fields) -> str | None:
    given = environment.text("workdir")
    if given is not None and (problem := path_problem(given)):
        top.warn("", f"environment.workdir {given}: {problem}")
        return None
    return given and posixpath.normpath(given)


def _env(section: Fields, top: Fields) -> dict[str, str]:
    """Return the variables with a value; one that comes from the user's machine is not written into a suite."""
    found: dict[str, str] = {}
    for name, value in section.table("env").values.items():
        match = _FROM_HOST.fullmatch(str(value))
        if match is None:
            found[name] = str(value)
        elif match[2] is not None:
            found[name] = match[2]
        else:
            top.warn("", f"variable {name}: it would come from your environment ({match[1]}), which scripts do not see")
    return found

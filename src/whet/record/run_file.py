"""run.json: what a run was asked to do, written when it begins and read back by everything that comes later."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import msgspec

from whet.dataclass import dataclass
from whet.errors import StoreError
from whet.model import wire
from whet.model.benchmark import EvaluatorKind
from whet.model.request import RunRequest, Selection
from whet.model.run import Execution, Plan
from whet.record.folder import PRIVATE, RUN_FILE, write_atomically, writing

# What run.json says of a journal whose every line has a hash.
_CHAINED = "chained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The words that a run was started with, and the folder that its paths start from."""

    cwd: str | None = None
    again: tuple[str, ...] = ()
    going_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalAsked:
    """What only `whet eval` is asked: which skills on which tasks; in run.json, all paths are absolute."""

    skills: tuple[str, ...] = ()
    benchmark: str | None = None
    tasks: str | None = None
    evaluator: EvaluatorKind | None = None
    check_schemas: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingShown:
    """A setting that was in force; without its value if that looks secret."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """What run.json says; what an older whet did not write has its default."""

    suite_path: str | None = None
    suite_digest: str | None = None
    fingerprint: str | None = None
    config_file: str | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    settings: tuple[SettingShown, ...] = ()
    typed: Typed = field(default_factory=Typed)
    update_snapshots: bool = False
    model: str | None = None
    in_place: bool = False
    fail_fast: bool = False
    strict: bool = False
    skill: str | None = None
    skill_digest: str | None = None
    more_reporters: tuple[str, ...] = ()
    workspace: dict[str, Any] | None = None
    trials: int | None = None
    # The hash of the list of what agents started from.
    sources: str | None = None
    # Only of a regraded run, and of one of `whet eval`.
    regraded_from: str | None = None
    command: str | None = None
    eval: EvalAsked | None = None

    def setting(self, key: str) -> str | None:
        """Return the text of the setting that was in force for the dotted *key*."""
        return next((row.value for row in self.settings if row.key == key), None)


def read_run_file(folder: Path) -> RunFile:
    """Read what the run in *folder* was asked; raises `StoreError`."""
    path = folder / RUN_FILE
    try:
        return wire.decode(path.read_bytes(), RunFile)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    except wire.WireError as error:
        raise StoreError(f"{path} is not the record of a run: {error.message}") from error


def write_run_file(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write what was asked."""
    with writing(folder / RUN_FILE):
        write_atomically(folder / RUN_FILE, wire.encode_pretty({**facts, "journal": _CHAINED}), mode=PRIVATE)


def is_chained(run_file: Path) -> bool:
    """Return whether each line of the run's journal has a hash; an older whet wrote none."""
    try:
        facts = msgspec.json.decode(run_file.read_bytes())
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return False
    return isinstance(facts, dict) and facts.get("journal") == _CHAINED


def run_facts(
    request: RunRequest, described: Iterable[tuple[str, str, str]], plan: Plan, *, version: str
) -> dict[str, Any]:
    """Return what goes into run.json; *described* are the settings in force, without values that look secret."""
    return {
        "schema": "whet/run/1",
        "whet_version": version,
        "suite": plan.suite.name,
        "suite_path": str(plan.suite.source),
        "suite_digest": plan.suite.digest,
        "fingerprint": fingerprint(plan),
        "config_file": str(request.config_file.resolve()) if request.config_file else None,
        "flags": {name: _plain(value) for name, value in request.flags.items()},
        "selection": _selection_facts(request, plan),
        "settings": [{"key": key, "value": value, "origin": origin} for key, value, origin in described],
        "typed": {"cwd": str(Path.cwd()), "again": request.again, "going_on": request.going_on},
        "update_snapshots": request.update_snapshots,
        "model": request.model,
        "in_place": request.in_place,
        "fail_fast": request.fail_fast,
        "strict": request.strict,
        "skill": str(request.skill.resolve()) if request.skill else None,
        "skill_digest": plan.suite.skill.digest if plan.suite.skill else None,
        "more_reporters": list(request.more_reporters),
        "workspace": _workspace_facts(plan),
        "trials": plan.trial_count,
        "plan": [
            f"{execution.case.id}@{execution.runner.id}/{execution.variant} x{execution.trials}"
            for execution in plan.executions
        ],
    }


def fingerprint(plan: Plan) -> str:
    """Return a digest of everything in a plan that results depend on."""
    facts = [_execution_facts(execution) for execution in plan.executions]
    shared = [plan.retries, plan.check_timeout_s, plan.command_timeout_s, plan.fail_fast, plan.strict]
    return hashlib.sha256(wire.encode([facts, *shared])).hexdigest()


def _execution_facts(execution: Execution) -> list[Any]:
    runner = execution.runner
    return [
        execution.case.id,
        [
            runner.id,
            runner.agent,
            runner.model,
            sorted((key, repr(value)) for key, value in runner.options.items()),
            runner.skills,
        ],
        execution.variant,
        execution.limits,
        execution.workspace,
        execution.trials,
    ]


def _workspace_facts(plan: Plan) -> dict[str, Any]:
    """Return what workspaces begin as, which is the same for every execution."""
    spec = plan.executions[0].workspace
    template = str(spec.template_dir) if spec.template_dir else None
    bootstrapped = spec.bootstrap is not None or any(item.case.bootstrap for item in plan.executions)
    cwd = str(spec.cwd) if spec.cwd else None
    return {"mode": spec.mode, "cwd": cwd, "template_dir": template, "bootstrap": bootstrapped}


def _selection_facts(request: RunRequest, plan: Plan) -> dict[str, Any]:
    selection = request.selection
    # What failed last time is settled now: by the time of a resume, the last run is this one.
    only = sorted({(item.case.id, item.runner.id, item.variant) for item in plan.executions})
    return {
        "cases": selection.cases,
        "tags": selection.tags,
        "runners": selection.runners,
        "variants": selection.variants,
        "shard": None if request.last_failed else selection.shard,
        "only": only if request.last_failed else None,
    }


def _plain(value: Any) -> Any:
    return str(value.resolve()) if isinstance(value, Path) else value

"""What a run was asked, as its record keeps it, so that it can be gone on with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.errors import StoreError, UsageError
from whet.model import wire
from whet.model.request import RunRequest, Selection, Settings
from whet.model.run import Execution, Plan
from whet.record.folder import read_run_file
from whet.record.sources import refuse_changed_sources, sources_of
from whet.record.verifying import check_journal

_PATHS = ("cwd", "output_dir")
# What may be different the second time, because it changes no result.
_FREE = ("reporters", "max_parallel", "schedule", "output_dir", "max_cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An earlier run and the request that it answers."""

    run_dir: Path
    request: RunRequest
    fingerprint: str
    suite_digest: str
    skill_digest: str | None = None
    # The hash of what agents started from; none in the record of an older whet.
    sources: str | None = None

    @staticmethod
    def facts(
        request: RunRequest, described: Iterable[tuple[str, str, str]], plan: Plan, *, version: str
    ) -> dict[str, Any]:
        """What goes into run.json; *described* are the settings in force, without values that look secret."""
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

    def check(self, plan: Plan, settings: Settings) -> None:
        """Refuse to go on where the results would mix two different things."""
        if plan.suite.digest != self.suite_digest:
            raise UsageError(
                f"{plan.suite.source} has changed since {self.run_dir.name} began; its results would mix two suites",
                hint="start a new run",
            )
        if (plan.suite.skill.digest if plan.suite.skill else None) != self.skill_digest:
            raise UsageError(
                f"the skill has changed since {self.run_dir.name} began; its results would mix two skills",
                hint="start a new run",
            )
        if fingerprint(plan) != self.fingerprint:
            raise UsageError(
                f"the settings have changed since {self.run_dir.name} began; its results would mix two plans",
                hint="start a new run, or undo the change (run.json of that run says what they were)",
            )
        if self.sources is not None:
            now = sources_of(plan, settings, self.request.more_reporters)
            refuse_changed_sources(self.run_dir, self.sources, now)


def recorded(run_dir: Path, request: RunRequest) -> Recorded:
    """The run in *run_dir*, if its record is whole, with what *request* may change of it."""
    check_journal(run_dir)
    facts = read_run_file(run_dir)
    if facts.get("regraded_from"):
        raise UsageError(
            f"{run_dir.name} has no agent to go on with: it regrades {facts['regraded_from']}",
            hint=f"whet regrade {facts['regraded_from']}",
        )
    _refuse_other_command(facts, request, run_dir.name)
    try:
        flags = _flags(facts)
        suite = Path(facts["suite_path"])
        selection = _selection(facts["selection"])
        config_file = Path(facts["config_file"]) if facts["config_file"] else None
        print_, digest = str(facts["fingerprint"]), str(facts["suite_digest"])
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{run_dir}: run.json is not the record of a run: {error!r}") from error
    if request.suite is not None and request.suite.resolve() != suite:
        raise UsageError(f"that run is of {suite}, not of {request.suite}", hint="leave the suite out")
    _refuse_other(request, flags)
    again = replace(
        request,
        **_typed_before(facts),
        update_snapshots=request.update_snapshots or bool(facts.get("update_snapshots")),
        model=facts.get("model"),
        in_place=bool(facts.get("in_place")),
        fail_fast=bool(facts.get("fail_fast")),
        strict=bool(facts.get("strict")),
        more_reporters=request.more_reporters or tuple(map(str, facts.get("more_reporters") or ())),
        suite=suite,
        flags=_freed(flags, request.flags),
        config_file=config_file,
        selection=selection,
        last_failed=False,
        skill=Path(facts["skill"]) if facts.get("skill") else None,
    )
    return Recorded(
        run_dir=run_dir,
        request=again,
        fingerprint=print_,
        suite_digest=digest,
        skill_digest=facts.get("skill_digest"),
        sources=facts.get("sources"),
    )


def _typed_before(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed for the run in *facts*; from another folder its paths would lead elsewhere."""
    typed = facts.get("typed") or {}
    if typed.get("cwd") != str(Path.cwd()):
        return {"again": (), "going_on": ()}
    return {name: tuple(map(str, typed[name])) for name in ("again", "going_on")}


def _flags(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: Path(value) if name in _PATHS else value for name, value in facts["flags"].items()}


def _freed(flags: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {**flags, **{name: value for name, value in given.items() if name in _FREE}}


def _refuse_other_command(facts: Mapping[str, Any], request: RunRequest, run: str) -> None:
    evaluation = facts.get("command") == "eval"
    if evaluation == (request.command == "eval"):
        return
    if evaluation:
        raise UsageError(f"{run} is an evaluation of skills", hint=f"whet eval --resume {run}")
    raise UsageError(f"{run} is not an evaluation of callable skills", hint=f"whet run --resume {run}")


def _refuse_other(request: RunRequest, flags: Mapping[str, Any]) -> None:
    changed = [name for name, value in request.flags.items() if name not in _FREE and flags.get(name) != value]
    if request.selection != Selection() or request.last_failed:
        changed.append("selection")
    kept = ("model", "in_place", "fail_fast", "strict", "skill")
    changed += [name for name in kept if getattr(request, name)]
    if changed:
        raise UsageError(
            f"a resumed run does what it was asked the first time; it cannot change {', '.join(changed)}",
            hint="start a new run",
        )


def fingerprint(plan: Plan) -> str:
    """A digest of everything in a plan that results depend on."""
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
    """What workspaces begin as, which is the same for every execution."""
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


def _selection(facts: Mapping[str, Any]) -> Selection:
    return Selection(
        cases=tuple(facts["cases"]),
        tags=tuple(facts["tags"]),
        runners=tuple(facts["runners"]),
        variants=tuple(facts.get("variants", ())),
        shard=tuple(facts["shard"]) if facts["shard"] else None,
        only=frozenset((case, runner, variant) for case, runner, variant in facts["only"]) if facts["only"] else None,
    )


def _plain(value: Any) -> Any:
    return str(value.resolve()) if isinstance(value, Path) else value

"""Resume an earlier run: take over what it was asked, and refuse whatever would mix two different things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.model.request import RunRequest, Selection, Settings
from whet.model.run import Plan
from whet.plan.settings_table import GIVEN
from whet.record.recorded_run import RecordedRun
from whet.record.run_file import RunFile, fingerprint
from whet.record.sources import refuse_changed_sources, sources_of

_NEW_RUN = "start a new run"


@dataclass(frozen=True, slots=True)
class Resumed:
    """An earlier run to go on with, and the request that both answer."""

    run: RecordedRun
    request: RunRequest

    @property
    def run_dir(self) -> Path:
        """The folder of the run."""
        return self.run.run_dir

    def lengthened(self, plan: Plan) -> Plan:
        """Return *plan* with the trials that were added to the run before, and those that are added now."""
        more = self.request.add_trials or 0
        added = self.run.added + more
        now = (self.run.rounds,) if more else ()
        longer = tuple(replace(each, trials=each.trials + added) for each in plan.executions)
        return replace(plan, executions=longer, added=added, grown_from=(*self.run.grown_from, *now))

    def check(self, plan: Plan, settings: Settings) -> None:
        """Refuse to go on if the results would mix two different things."""
        asked, name = self.run.asked, self.run_dir.name
        if plan.suite.digest != asked.suite_digest:
            raise UsageError(
                f"{plan.suite.source} has changed since {name} began; its results would mix two suites", hint=_NEW_RUN
            )
        if (plan.suite.skill.digest if plan.suite.skill else None) != asked.skill_digest:
            raise UsageError(
                f"the skill has changed since {name} began; its results would mix two skills", hint=_NEW_RUN
            )
        if fingerprint(plan) != asked.fingerprint:
            raise UsageError(
                f"the settings have changed since {name} began; its results would mix two plans",
                hint="start a new run, or undo the change (run.json of that run says what they were)",
            )
        if asked.sources is not None:
            now = sources_of(plan, settings, self.request.more_reporters)
            refuse_changed_sources(self.run_dir, asked.sources, now)


def resume(run: RecordedRun, request: RunRequest) -> Resumed:
    """Go on with *run*, with what *request* may change of it."""
    asked, name = run.asked, run.run_dir.name
    if asked.regraded_from:
        raise UsageError(
            f"{name} has no agent to go on with: it regrades {asked.regraded_from}",
            hint=f"whet regrade {asked.regraded_from}",
        )
    _refuse_other_command(asked, request, name)
    if request.suite is not None and request.suite.resolve() != run.suite:
        raise UsageError(f"that run is of {run.suite}, not of {request.suite}", hint="leave the suite out")
    if changed := _changed_flags(asked, request.flags) + _asked_again(request, asked):
        raise UsageError(
            f"a resumed run does what it was asked the first time; it cannot change {', '.join(changed)}",
            hint=_NEW_RUN,
        )
    free = {flag: value for flag, value in request.flags.items() if _is_free(flag)}
    again = replace(
        request,
        **_typed_before(asked),
        update_snapshots=request.update_snapshots or asked.update_snapshots,
        model=asked.model,
        in_place=asked.in_place,
        fail_fast=asked.fail_fast,
        strict=asked.strict,
        more_reporters=request.more_reporters or asked.more_reporters,
        suite=run.suite,
        flags=_flags(asked) | free,
        config_file=run.config_file,
        selection=asked.selection,
        last_failed=False,
        skill=run.skill,
        arms=asked.arms,
    )
    return Resumed(run, again)


def _refuse_other_command(asked: RunFile, request: RunRequest, name: str) -> None:
    evaluation = asked.command == "eval"
    if evaluation == (request.command == "eval"):
        return
    if evaluation:
        raise UsageError(f"{name} is an evaluation of skills", hint=f"whet eval --resume {name}")
    raise UsageError(f"{name} is not an evaluation of callable skills", hint=f"whet run --resume {name}")


def _typed_before(asked: RunFile) -> dict[str, Any]:
    """Return what was typed for a run; from another folder its paths would lead elsewhere."""
    if asked.typed.cwd != str(Path.cwd()):
        return {"again": (), "going_on": ()}
    return {"again": asked.typed.again, "going_on": asked.typed.going_on}


def _flags(asked: RunFile) -> dict[str, Any]:
    paths = {name for name, (_, row) in GIVEN.items() if row.place == "path"}
    return {name: Path(value) if name in paths else value for name, value in asked.flags.items()}


def _is_free(name: str) -> bool:
    return GIVEN[name][1].free


def _changed_flags(asked: RunFile, given: Mapping[str, Any]) -> list[str]:
    before = _flags(asked)
    return [name for name, value in given.items() if not _is_free(name) and before.get(name) != value]


def _asked_again(request: RunRequest, asked: RunFile) -> list[str]:
    """Return what of *request* is not a flag and cannot be asked of a run that has begun."""
    selecting = request.selection != Selection() or request.last_failed
    kept = ("model", "in_place", "fail_fast", "strict", "skill")
    arms = ["arms"] if request.arms and request.arms != asked.arms else []
    return [*(["selection"] if selecting else []), *arms, *(name for name in kept if getattr(request, name))]

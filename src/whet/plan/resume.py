"""Plan from an earlier run: resume it, run what failed again, or regrade it, and never mix two different things."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import UsageError
from whet.model.arm import Arm, baseline_of
from whet.model.request import RunRequest, Selection, Settings
from whet.model.run import Execution, Plan, Runner, in_arm
from whet.model.suite import AS_WRITTEN, SKILL, Suite, WorkspaceSpec
from whet.plan.settings.load import load_here, load_settings
from whet.plan.settings.table import GIVEN
from whet.record.batches import find_batch, read_batch
from whet.record.folder import find_run_folder
from whet.record.read.run import RecordedRun, ResumableRun, newest_run, read_resumable
from whet.record.run_file import RunFile, fingerprint
from whet.record.sources import refuse_changed_sources, sources_of

_NEW_RUN = "start a new run"


class EarlierRun(Struct, frozen=True):
    """An earlier run to resume, and the request that both answer."""

    run: ResumableRun
    request: RunRequest

    @property
    def run_dir(self) -> Path:
        """The folder of the run."""
        return self.run.run_dir

    def lengthened(self, plan: Plan) -> Plan:
        """Return *plan* with the trials that were added to the run before, and those that are added now."""
        more = self.request.add_trials or 0
        before = self.run.journal.rounds
        total_added = before.added + more
        now = (before.last,) if more else ()
        longer = tuple(replace(execution, trials=execution.trials + total_added) for execution in plan.executions)
        return replace(
            plan,
            executions=longer,
            added=total_added,
            grown_from=(*before.grown_from, *now),
            voided=self.run.asked.voided,
        )

    def check(self, plan: Plan, settings: Settings) -> None:
        """Refuse to resume if the results would mix two different things."""
        run_file, name = self.run.asked, self.run_dir.name
        if plan.suite.digest != run_file.suite_digest:
            raise UsageError(
                f"{plan.suite.source} has changed since {name} began; its results would mix two suites", hint=_NEW_RUN
            )
        if (plan.suite.skill.digest if plan.suite.skill else None) != run_file.skill_digest:
            raise UsageError(
                f"the skill has changed since {name} began; its results would mix two skills", hint=_NEW_RUN
            )
        if fingerprint(plan) != run_file.fingerprint:
            raise UsageError(
                f"the settings have changed since {name} began; its results would mix two plans",
                hint="start a new run, or undo the change (run.json of that run says what they were)",
            )
        if run_file.sources is not None:
            now = sources_of(plan, settings, self.request.more_reporters)
            refuse_changed_sources(self.run_dir, run_file.sources, now)


def find_earlier(name: str, request: RunRequest) -> EarlierRun:
    """Find the run *name*, and go on with it."""
    start = request.suite or Path.cwd()
    settings = load_settings(start, flags=request.flags, environ=os.environ, config_file=request.config_file)
    return _resume(read_resumable(find_run_folder(name, settings.output_dir)), request)


def _resume(run: ResumableRun, request: RunRequest) -> EarlierRun:
    """Go on with *run*, with what *request* may change of it."""
    run_file, name = run.asked, run.run_dir.name
    if run_file.regraded_from:
        raise UsageError(
            f"{name} cannot be resumed: it regrades {run_file.regraded_from}",
            hint=f"whet regrade {run_file.regraded_from}",
        )
    _refuse_other_command(run_file, request, name)
    if request.suite is not None and request.suite.resolve() != run.suite:
        raise UsageError(f"that run is of {run.suite}, not of {request.suite}", hint="leave the suite out")
    if changed_options := _changed_flags(run_file, request.flags) + _changed_request(request, run_file):
        raise UsageError(
            f"a resumed run keeps its first options; it cannot change {', '.join(changed_options)}",
            hint=_NEW_RUN,
        )
    if run_file.until is not None and request.add_trials:
        raise UsageError(
            f"{name} looked after each of its rounds, and trials that were not planned would be further looks",
            hint="start a new run with a larger --max-rounds",
        )
    free = {flag: value for flag, value in request.flags.items() if _is_free(flag)}
    again = replace(
        request,
        **_typed_before(run_file),
        update_snapshots=request.update_snapshots or run_file.update_snapshots,
        model=run_file.model,
        in_place=run_file.in_place,
        reading=run_file.reading,
        fail_fast=run_file.fail_fast,
        strict=run_file.strict,
        more_reporters=request.more_reporters or run_file.more_reporters,
        suite=run.suite,
        flags=_flags(run_file) | free,
        config_file=run.config_file,
        selection=run_file.selection,
        last_failed=False,
        changed=False,
        skill=run.skill,
        arms=run_file.arms,
        until=run_file.until,
    )
    return EarlierRun(run, again)


def _refuse_other_command(run_file: RunFile, request: RunRequest, name: str) -> None:
    evaluation = run_file.command == "eval"
    if evaluation == (request.command == "eval"):
        return
    if evaluation:
        raise UsageError(f"{name} is an evaluation of skills", hint=f"whet eval --resume {name}")
    raise UsageError(f"{name} is not an evaluation of callable skills", hint=f"whet run --resume {name}")


def _typed_before(run_file: RunFile) -> dict[str, Any]:
    """Return what was typed for a run; from another folder its paths would lead elsewhere."""
    if run_file.typed.cwd != str(Path.cwd()):
        return {"again": (), "resume_options": ()}
    return {"again": run_file.typed.again, "resume_options": run_file.typed.going_on}


def _flags(run_file: RunFile) -> dict[str, Any]:
    paths = {name for name, (_, row) in GIVEN.items() if row.place == "path"}
    return {name: Path(value) if name in paths else value for name, value in run_file.flags.items()}


def _is_free(name: str) -> bool:
    return GIVEN[name][1].free


def _changed_flags(run_file: RunFile, flags: Mapping[str, Any]) -> list[str]:
    before = _flags(run_file)
    return [name for name, value in flags.items() if not _is_free(name) and before.get(name) != value]


def _changed_request(request: RunRequest, run_file: RunFile) -> list[str]:
    """Return what of *request* is not a flag and cannot be asked of a run that has begun."""
    selecting = request.selection != Selection() or request.last_failed or request.changed
    fixed_fields = ("model", "in_place", "fail_fast", "strict", "skill")
    repeatable_fields = {"arms": "arms", "until": "--until-decided", "reading": "--param"}
    different_options = [
        word
        for name, word in repeatable_fields.items()
        if getattr(request, name) not in ((), None, AS_WRITTEN, getattr(run_file, name))
    ]
    return [
        *(["selection"] if selecting else []),
        *different_options,
        *(name for name in fixed_fields if getattr(request, name)),
    ]


class ResumedBatch(Struct, frozen=True):
    """Several runs to resume: the folder that names them, and a request for each."""

    folder: Path
    requests: list[RunRequest]


def batch_to_resume(request: RunRequest) -> ResumedBatch | None:
    """Return the runs that *request* resumes, if it names several."""
    assert request.resume is not None
    settings = load_here(request.flags, request.config_file)
    folder = find_batch(request.resume, settings.output_dir)
    if folder is None:
        return None
    return ResumedBatch(folder, [replace(request, suite=None, resume=str(run)) for _, run in read_batch(folder)])


def as_last_time(request: RunRequest, settings: Settings, suite: Path) -> tuple[RunRequest, Settings]:
    """Return *request* for what failed in the newest run of *suite*, with its skill and arms, and its settings."""
    last = newest_run(settings.output_dir, suite.resolve())
    request = replace(
        request,
        selection=replace(request.selection, only=last.failed_executions()),
        selected_from=last.selected_again(),
        skill=request.skill or last.skill,
        reading=last.asked.reading if request.reading == AS_WRITTEN else request.reading,
        arms=request.arms or last.asked.arms,
    )
    if request.config_file is not None or last.config_file is None:
        return request, settings
    # The same settings as then: with other runners, the failures would be others.
    request = replace(request, config_file=last.config_file)
    return request, load_settings(suite, flags=request.flags, environ=os.environ, config_file=last.config_file)


def plan_regrading(suite: Suite, settings: Settings, record: RecordedRun) -> Plan:
    """Plan one execution for each that was recorded and whose case still exists, in the order of the suite."""
    trials: dict[tuple[str, str, str], int] = {}
    for case_id, runner, arm, number in record.results:
        trials[case_id, runner, arm] = max(number, trials.get((case_id, runner, arm), 0))
    runners = {runner: _runner(runner, settings, record) for _, runner, _ in trials}
    names = tuple(dict.fromkeys(arm for _, _, arm in trials))
    baseline = record.asked.baseline or baseline_of(names)
    arms = {
        name: Arm(name=name, skill=suite.skill if name == SKILL else None, defined=record.asked.compares)
        for name in names
    }
    beside = {case for case, _, arm in trials if arm != baseline}
    cases = {case.id: case for case in suite.cases}
    executions: list[Execution] = []
    for (case_id, runner, arm), count in trials.items():
        if case_id not in cases:
            continue
        case = cases[case_id]
        execution = Execution(
            case=case,
            runner=runners[runner],
            arm=arm,
            limits=case.limits,
            # No agent runs, and the workspace is the recorded one. A package is needed for its verifier.
            workspace=case.workspace or WorkspaceSpec(),
            trials=count,
            baseline=arm == baseline and case_id in beside,
        )
        executions.append(in_arm(suite, execution, arms[arm]))
    places = {case_id: place for place, case_id in enumerate(cases)}
    executions.sort(key=lambda execution: places[execution.case.id])
    if not executions:
        raise UsageError(
            f"{suite.source} has none of the cases of {record.run_dir.name}",
            hint="name the suite that was run with --suite",
        )
    return Plan(
        suite=suite,
        executions=tuple(executions),
        schedule="parallel",
        max_parallel=settings.max_parallel,
        retries=0,
        check_timeout_s=settings.check_timeout_s,
        command_timeout_s=settings.command_timeout_s,
        arms=tuple(arms.values()),
        baseline=baseline,
        until=record.asked.until,
        watermarks=record.asked.watermarks,
        # Other checks may tell good from bad.
        voided=record.asked.voided if suite.digest == record.asked.suite_digest else {},
    )


def notices(suite: Suite, record: RecordedRun) -> Iterator[str]:
    """Yield which cases of the suite were not recorded, and which recorded ones are no longer in the suite."""
    cases = [case.id for case in suite.cases]
    recorded_cases = list(dict.fromkeys(case for case, *_ in record.results))
    missing_cases = [case for case in recorded_cases if case not in cases]
    fresh = [case for case in cases if case not in recorded_cases]
    if missing_cases:
        yield f"no longer in the suite, so left out: {', '.join(missing_cases)}"
    if fresh:
        yield f"not in the recorded run, so not regraded: {', '.join(fresh)}"


def _runner(name: str, settings: Settings, record: RecordedRun) -> Runner:
    """Return the runner as it is configured, or else as it was recorded."""
    current_runner = next((runner for runner in settings.runners if runner.id == name), None)
    session = next((record.session(item) for item in record.results.values() if item.key.runner == name), None)
    if current_runner is not None and (session is None or session.agent == current_runner.agent):
        return current_runner
    if session is None:
        return Runner(id=name, agent="unknown")
    return Runner(id=name, agent=session.agent, model=session.model)

"""The whole flow: load, plan, execute, observe, grade, record, report. The only place that wires parts together."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio

from whet import plugins
from whet.config import Settings, load_settings
from whet.engine.ground import SharedGround
from whet.engine.interrupt import interruptible, undisturbed, watch_signals
from whet.engine.open_files import fit_open_files
from whet.engine.parts import Parts, trial_folder
from whet.engine.record import UNHELD
from whet.engine.schedule import run_all
from whet.engine.scratch import clear_scratch, new_scratch
from whet.engine.trial import run_trial
from whet.engine.unpack import Unpacked
from whet.errors import ConfigError, StoreError, WhetError
from whet.formats.base import load_suite
from whet.grade.base import Grader
from whet.grade.python import PythonGrader
from whet.mask import Masker, secret_values
from whet.model.event import Notice, RunEnded, RunEvent, RunStarted, SessionSeen, TrialEnded, TrialStarted
from whet.model.run import Plan, RunInfo, Trial, TrialResult
from whet.model.snapshot import SnapshotOutcome
from whet.model.suite import Suite
from whet.plan import RunRequest, describe_plan, make_plan, mount_problems, template_problems
from whet.report.base import Reporters
from whet.report.choose import make_reporters
from whet.sandbox.base import Sandbox
from whet.sandbox.ceilings import weaknesses
from whet.sandbox.choose import choose_sandbox
from whet.sandbox.reaper import become_subreaper
from whet.store import folder as folders
from whet.store.history import last_failed, newest_run, settings_of
from whet.store.journal import Journal
from whet.store.request import Recorded, recorded
from whet.store.results import JournalResults, write_results
from whet.store.snapshots import SnapshotFile, compare_all, snapshot_rule
from whet.version import __version__
from whet.workspace import Workspaces, private_mounts, remove_tree

PASSED, FAILED, ERRORED, INTERRUPTED = 0, 1, 3, 130
_UNUSED = "no case or runner has that name; delete the entry from the snapshot file, or rename it to the new name"
# How a trial comes to its result: by running an agent, by calling a skill, or from a record.
Trying: TypeAlias = Callable[[Parts, SharedGround, Trial], Awaitable[TrialResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Concluded:
    """What a run comes to beyond its verdicts: an exit code, and what people should know."""

    code: int
    notices: tuple[str, ...] = ()


def _nothing(parts: Parts) -> AbstractAsyncContextManager[object]:
    del parts
    return nullcontext()


def _by_verdicts(results: JournalResults) -> Concluded:
    """Some failed, some errored, or neither."""
    counts = results.counts
    if counts["failed"] or counts["unexpected-passed"] or results.exceeded:
        return Concluded(code=FAILED)
    return Concluded(code=PASSED if results.passed else ERRORED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """How a run is gone about: how a trial is tried, what is there `around` all of them, what they come to."""

    trying: Trying
    around: Callable[[Parts], AbstractAsyncContextManager[object]] = _nothing
    conclude: Callable[[RunInfo, JournalResults], Concluded] = lambda _, results: _by_verdicts(results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A run that is settled and not yet begun; `facts` are kept in run.json besides the usual."""

    request: RunRequest
    suite: Suite
    settings: Settings
    plan: Plan
    earlier: Recorded | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


@dataclass(slots=True)
class _Run:
    """A run under way: where its record lies, and who listens."""

    info: RunInfo
    plan: Plan
    journal: Journal
    reporters: Reporters
    began: float
    interrupted: bool = False
    # The most that the run may cost, and whether somebody was told that it did.
    max_cost_usd: float | None = None
    stopped: bool = False
    # The runners that tell no cost although there is a budget, once somebody was told.
    unheld: set[str] = field(default_factory=set)

    def emit(self, event: RunEvent) -> None:
        """Tell everybody; the journal first, so that nothing is shown that could be lost."""
        if isinstance(event, TrialEnded):
            self.journal.append(event.result)
        self.reporters(event)
        if isinstance(event, TrialEnded):
            self._tell_unheld(event)

    def _tell_unheld(self, event: TrialEnded) -> None:
        """Say once for each runner that a budget was not held."""
        runner = event.trial.key.runner
        if runner not in self.unheld and any(note.startswith(UNHELD) for note in event.result.notes):
            self.unheld.add(runner)
            told = f"{runner} tells no cost: no budget of its cases is held"
            self.emit(Notice(level="warning", message=told))

    def interrupt(self) -> None:
        """Somebody wants it to end."""
        self.interrupted = True

    def afford(self) -> bool:
        """Whether another trial may be started; the first time that it may not, everybody is told."""
        spent = self.journal.usage.cost_usd
        if self.max_cost_usd is None or spent is None or spent < self.max_cost_usd:
            return True
        if not self.stopped:
            self.stopped = True
            told = f"${spent:.4f} of at most ${self.max_cost_usd:g} are spent: no further trial is started"
            self.emit(Notice(level="warning", message=told))
        return False

    def pending(self) -> Iterator[Trial]:
        """The trials that have not ended yet."""
        return (trial for trial in self.plan.trials() if self.journal.entry(trial.key) is None)


def run(request: RunRequest) -> int:
    """Carry out *request*; the exit code."""
    earlier = _earlier(request)
    if earlier is not None:
        request = earlier.request
    planned = _planned(request, earlier)
    if request.dry_run:
        sys.stdout.write("".join(f"{line}\n" for line in describe_plan(planned.plan)))
        return PASSED
    return carry_out(planned, Approach(trying=run_trial))


@interruptible()
def carry_out(planned: Planned, approach: Approach) -> int:
    """Begin the run, bring every trial to its result, record and report; the exit code."""
    request, settings, earlier = planned.request, planned.settings, planned.earlier
    plan, fewer = fit_open_files(planned.plan)
    snapshots = _snapshots(settings, request)
    if any(execution.workspace.template_dir for execution in plan.executions):
        # Before there are reporters: one that is not ours has a thread.
        private_mounts()
    with ExitStack() as stack:
        reporters = stack.enter_context(
            make_reporters(
                (*settings.reporters, *request.more_reporters),
                base=Path.cwd(),
                stdout=sys.stdout,
                stderr=sys.stderr,
                environ=os.environ,
                protected=[path for path in (plan.suite.source, settings.file) if path],
            )
        )
        sandbox, note = choose_sandbox(settings.sandbox)
        masker = make_masker(settings, plan)
        run_dir = _open_record(planned, masker)
        become_subreaper()
        # What a check starts shall be told by it too, should we be killed and somebody resume.
        os.environ["WHET_RUN"] = run_dir.name
        # Before lock and journal are open: what checks run in must neither hold the one nor write into the other.
        graders = _graders(planned.suite, stack)
        stack.callback(os.close, folders.lock(run_dir))
        journal = Journal(run_dir / folders.JOURNAL_FILE)
        stack.callback(journal.close)
        if earlier is not None:
            clear_scratch(run_dir)
        scratch = stack.enter_context(new_scratch(run_dir))
        info = _info(planned, run_dir, sandbox.name)
        under_way = _Run(info, plan, journal, reporters, time.monotonic(), max_cost_usd=settings.max_cost_usd)
        parts = _parts(under_way, settings, scratch, sandbox=sandbox, graders=graders, masker=masker)
        if request.verbose:
            parts = replace(parts, listen=lambda trial, event: under_way.emit(SessionSeen(trial=trial, event=event)))
        under_way.emit(RunStarted(info=info, plan=plan, done=len(journal)))
        for message in (note, fewer, weaknesses(settings.ceilings), *planned.notices):
            if message:
                under_way.emit(Notice(level="warning", message=message))
        with single_errors():
            anyio.run(_execute, under_way, parts, approach, earlier is not None)
        with undisturbed():
            outcomes = _compare(under_way, settings, snapshots)
            return _finish(under_way, approach, outcomes)


def _snapshots(settings: Settings, request: RunRequest) -> SnapshotFile | None:
    """The snapshots that this run is held to; a file that cannot be read is found before anything starts."""
    default_dir = settings.file.parent if settings.file else Path.cwd()
    rule = snapshot_rule(
        settings.snapshots, default_dir=default_dir, update=request.update_snapshots, environ=os.environ
    )
    return SnapshotFile(rule) if rule else None


def _compare(under_way: _Run, settings: Settings, file: SnapshotFile | None) -> dict[str, SnapshotOutcome]:
    """Hold the run to its snapshots, and tell of each that is new, does not hold, or belongs to nobody."""
    if file is None:
        return {}
    outcomes = compare_all(file, JournalResults(under_way.plan, under_way.journal, 0.0))
    for key, outcome in outcomes.items():
        if outcome.status != "held":
            level: Literal["info", "warning"] = "info" if outcome.verdict is None else "warning"
            under_way.emit(Notice(level=level, message=f"snapshot {outcome.status}: {key}: {outcome.message}"))
    for key in file.unused(under_way.plan, frozenset(runner.id for runner in settings.runners)):
        under_way.emit(Notice(level="warning", message=f"snapshot unused: {key}: {_UNUSED}"))
    try:
        file.save()
    except StoreError as error:
        under_way.emit(Notice(level="warning", message=error.message))
        return outcomes | {key: replace(outcome, status="missing") for key, outcome in outcomes.items() if outcome.new}
    return outcomes


@contextmanager
def single_errors() -> Iterator[None]:
    """An error of ours that comes out of a task group alone again, as whoever prints it expects it."""
    try:
        yield
    except BaseExceptionGroup as group:
        found: BaseException = group.subgroup(WhetError) or group
        while isinstance(found, BaseExceptionGroup) and len(found.exceptions) > 0:
            found = found.exceptions[0]
        raise found from None


def _earlier(request: RunRequest) -> Recorded | None:
    """What an earlier run was asked, where this one goes on with it."""
    if request.resume is None:
        return None
    start = request.suite or Path.cwd()
    settings = load_settings(start, flags=request.flags, environ=os.environ, config_file=request.config_file)
    return recorded(folders.find_run_folder(request.resume, settings.output_dir), request)


def _planned(request: RunRequest, earlier: Recorded | None) -> Planned:
    """Load and plan: everything that can be wrong is found here, before anything starts."""
    assert request.suite is not None
    path = request.suite
    settings = load_settings(path, flags=request.flags, environ=os.environ, config_file=request.config_file)
    selection = request.selection
    if request.last_failed:
        last = newest_run(settings.output_dir, path.resolve())
        selection = replace(selection, only=last_failed(last))
        if request.config_file is None and (named := settings_of(last)):
            # Under the same settings as then: other runners would be another question.
            request = replace(request, config_file=named)
            settings = load_settings(path, flags=request.flags, environ=os.environ, config_file=named)
    suite = load_suite(path)
    plan = make_plan(
        suite, settings, selection, model=request.model, in_place=request.in_place, fail_fast=request.fail_fast
    )
    _check_agents(plan, settings)
    notices = tuple(map(str, suite.warnings))
    return Planned(request=request, suite=suite, settings=settings, plan=plan, earlier=earlier, notices=notices)


def _check_agents(plan: Plan, settings: Settings) -> None:
    problems = [*mount_problems("run.mounts", settings.mounts), *template_problems(plan, settings)]
    cases = tuple({execution.case.id: execution.case for execution in plan.executions}.values())
    for runner in {execution.runner.id: execution.runner for execution in plan.executions}.values():
        agent = plugins.find("agents", runner.agent)()
        problems += (f"runners.{runner.id}.{problem}" for problem in agent.problems(runner, cases))
        problems += (
            f"runners.{runner.id}.skills: {skill} is not a skill: it has no SKILL.md"
            for skill in runner.skills
            if not (skill / "SKILL.md").is_file()
        )
        problems += mount_problems(f"runners.{runner.id}.agent.mounts", runner.options.get("mounts") or ())
        if runner.skills and runner.options.get("inherit_home"):
            problems.append(f"runners.{runner.id}.skills: cannot be placed in an inherited home; leave one of them out")
    if problems:
        where = settings.file.name if settings.file else "settings"
        raise ConfigError("\n".join(f"{where}: {problem}" for problem in problems))


def make_masker(settings: Settings, plan: Plan) -> Masker:
    """Knows the values of secrets: ours, and those of runners, cases and bootstrap commands."""
    runners = (dict(runner.options.get("env") or {}) for runner in settings.runners)
    bootstraps = (execution.workspace.bootstrap for execution in plan.executions[:1])
    # A suite gives most of its cases the same variables.
    cases = {tuple(sorted(execution.case.env.items())) for execution in plan.executions if execution.case.env}
    given = (*runners, *map(dict, cases), *(item.env for item in bootstraps if item))
    return Masker(secret_values(dict(os.environ), *given))


def _open_record(planned: Planned, masker: Masker) -> Path:
    """The run folder: a fresh one, or the one to go on with."""
    settings, plan, earlier = planned.settings, planned.plan, planned.earlier
    if earlier is not None:
        earlier.check(plan, settings)
        return earlier.run_dir
    run_dir = folders.create_run_folder(settings.output_dir)
    facts = Recorded.facts(planned.request, settings, plan, version=__version__)
    folders.write_run_file(run_dir, masker.tree({**facts, **planned.facts}))
    folders.point_latest(run_dir)
    return run_dir


def _info(planned: Planned, run_dir: Path, sandbox: str) -> RunInfo:
    suite = planned.suite
    return RunInfo(
        run_id=run_dir.name,
        run_dir=run_dir,
        suite=suite.name,
        suite_path=suite.source,
        started_at=_now(),
        sandbox=sandbox,
        version=__version__,
        command=planned.request.command,
        ceilings=planned.settings.ceilings,
    )


def _graders(suite: Suite, stack: ExitStack) -> dict[str, Grader]:
    graders: dict[str, Grader] = {}
    for name in sorted({check.grader for case in suite.cases for check in case.checks}):
        graders[name] = plugins.find("graders", name)(suite)
        stack.callback(graders[name].close)
    return graders


def _parts(
    under_way: _Run, settings: Settings, scratch: Path, *, sandbox: Sandbox, graders: dict[str, Grader], masker: Masker
) -> Parts:
    python = graders.get("python")
    return Parts(
        plan=under_way.plan,
        run_id=under_way.info.run_id,
        run_dir=under_way.info.run_dir,
        scratch=scratch,
        unpacked=Unpacked(scratch, sandbox),
        sandbox=sandbox,
        workspaces=Workspaces(scratch, own=(settings.output_dir, under_way.info.run_dir, scratch)),
        graders=graders,
        classifier=python if isinstance(python, PythonGrader) else None,
        masker=masker,
        environ=dict(os.environ),
        settings_dir=settings.file.parent if settings.file else None,
        mounts=settings.mounts,
        hidden=(settings.output_dir, scratch),
        max_output_bytes=settings.max_output_bytes,
        ceilings=settings.ceilings,
    )


async def _execute(under_way: _Run, parts: Parts, approach: Approach, resumed: bool) -> None:
    """Try every trial that is missing; a signal ends all of them and loses none that ended."""
    shared = SharedGround()

    async def work(trial: Trial) -> None:
        if not under_way.afford():
            return
        if resumed:
            _clear_remains(parts, trial)
        under_way.emit(TrialStarted(trial=trial))
        under_way.emit(TrialEnded(trial=trial, result=await approach.trying(parts, shared, trial)))

    try:
        # Outside of what a signal cancels, so that it can be let go of in peace.
        async with approach.around(parts), anyio.create_task_group() as group:
            with anyio.CancelScope() as trials:
                group.start_soon(watch_signals, trials, under_way.interrupt)
                await run_all(under_way.plan, under_way.pending(), work)
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await parts.sandbox.close()
        parts.workspaces.close()


def _clear_remains(parts: Parts, trial: Trial) -> None:
    """What a trial that never ended left in the record; it starts anew."""
    for part in ("trials", "workspaces"):
        remove_tree(parts.run_dir / part / trial_folder(trial.key))


def _finish(under_way: _Run, approach: Approach, outcomes: dict[str, SnapshotOutcome]) -> int:
    """Write the results, tell everybody, and say it in an exit code."""
    under_way.journal.check()
    results = JournalResults(under_way.plan, under_way.journal, time.monotonic() - under_way.began, outcomes)
    write_results(under_way.info, results, interrupted=under_way.interrupted, ended_at=_now())
    concluded = approach.conclude(under_way.info, results)
    for message in concluded.notices:
        under_way.emit(Notice(level="info", message=message))
    under_way.emit(RunEnded(info=under_way.info, results=results, interrupted=under_way.interrupted))
    return INTERRUPTED if under_way.interrupted else concluded.code


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

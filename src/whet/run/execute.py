"""Execute, observe, grade, record, report: a settled run is carried out. The only place that wires parts together."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread

from whet.dataclass import dataclass
from whet.errors import RecordUnwritten, StoreError, WhetError
from whet.grade.grader import Releasing
from whet.ground.ceilings import weaknesses
from whet.ground.copying import remove_tree
from whet.ground.descent import become_subreaper
from whet.ground.mounts import private_mounts
from whet.ground.sandbox import Sandbox, choose_sandbox
from whet.ground.secrets import Masker
from whet.ground.wardens import wardens
from whet.model.benchmark import Evaluated
from whet.model.event import Notice, RunEnded, RunStarted, SessionSeen, TrialEnded, TrialStarted
from whet.model.request import RunRequest, Settings
from whet.model.run import Plan, RunInfo, SnapshotOutcome, Trial, TrialResult
from whet.model.session import Usage
from whet.plan.settings_text import describe
from whet.plan.settle import Planned
from whet.reading.text import path_for_people
from whet.record import folder as folders
from whet.record.journal import FREE_SPACE, Journal, Spent
from whet.record.request import Recorded
from whet.record.results import JournalResults, write_results
from whet.record.sealing import Sealing, shared_hashes
from whet.record.snapshots import SnapshotFile, SnapshotKey, compare_all, snapshot_rule
from whet.record.sources import sources_of, write_sources
from whet.report.choose import make_reporters
from whet.report.evaluation import resume_command
from whet.report.reporter import Reporters
from whet.run.ground import SharedGround, keep_shared
from whet.run.parts import Parts, make_graders, make_masker, make_parts, trial_folder
from whet.run.run_state import UnderWay, fit_open_files, interruptible, run_all, undisturbed, watch_signals
from whet.run.scratch import clear_scratch, new_scratch, starts_nothing
from whet.version import __version__

_UNUSED = "no case or runner has that name; delete the entry from the snapshot file, or rename it to the new name"


def find_snapshots(settings: Settings, request: RunRequest) -> SnapshotFile | None:
    """The snapshots that this run is held to; a file that cannot be read is found before anything starts."""
    default_dir = settings.file.parent if settings.file else Path.cwd()
    rule = snapshot_rule(
        settings.snapshots, default_dir=default_dir, update=request.update_snapshots, environ=os.environ
    )
    return SnapshotFile(rule) if rule else None


def hold_to_snapshots(
    under_way: UnderWay, settings: Settings, file: SnapshotFile | None
) -> dict[SnapshotKey, SnapshotOutcome]:
    """Hold the run to its snapshots, and tell of each that is new, does not hold, or belongs to nobody."""
    if file is None:
        return {}
    outcomes = compare_all(file, JournalResults(under_way.plan, under_way.journal, 0.0))
    for outcome in outcomes.values():
        if outcome.status != "held":
            level: Literal["info", "warning"] = "info" if outcome.verdict is None else "warning"
            under_way.emit(Notice(level=level, message=f"snapshot {outcome.status}: {outcome.key}: {outcome.message}"))
    for key in file.unused(under_way.plan, frozenset(runner.id for runner in settings.runners)):
        under_way.emit(Notice(level="warning", message=f"snapshot unused: {key}: {_UNUSED}"))
    try:
        file.save()
    except StoreError as error:
        under_way.emit(Notice(level="warning", message=error.message))
        return outcomes | {key: replace(outcome, status="missing") for key, outcome in outcomes.items() if outcome.new}
    return outcomes


PASSED, FAILED, ERRORED, INTERRUPTED = 0, 1, 3, 130
# As for what cannot be printed: nothing is wrong with the run, but whoever waits for the file waits in vain.
NOT_WRITTEN = 74
# What a shell reports of any program that wrote to a closed pipe.
READER_GONE = 141
# How a trial comes to its result: by running an agent, by calling a skill, or from a record.
Trying: TypeAlias = Callable[[Parts, SharedGround, Trial], Awaitable[TrialResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Concluded:
    """What a run comes to beyond its verdicts: an exit code, and what people should know."""

    code: int
    notices: tuple[str, ...] = ()
    evaluated: Evaluated | None = None


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
    """How a run is gone about: how a trial is tried, what is there `around` all of them, what they come to.

    `ready` is asked before there is a record, and gives what a person should know.
    `beside` is what a trial took beside its own session, such as a judge, for whoever limits what a run may cost.
    `starts_agents` has what they run below started early.
    """

    trying: Trying
    ready: Callable[[Sandbox, Masker], tuple[str, ...]] = lambda _, __: ()
    around: Callable[[Parts], AbstractAsyncContextManager[object]] = _nothing
    conclude: Callable[[RunInfo, JournalResults], Concluded] = lambda _, results: _by_verdicts(results)
    beside: Callable[[TrialResult], Usage] | None = None
    starts_agents: bool = False


@interruptible()
def carry_out(planned: Planned, approach: Approach) -> int:
    """Begin the run, bring every trial to its result, record and report; the exit code."""
    request, settings, earlier = planned.request, planned.settings, planned.earlier
    plan, fewer = fit_open_files(planned.plan)
    snapshots = find_snapshots(settings, request)
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
        with single_errors():
            notices = approach.ready(sandbox, masker)
        with _project_alone(plan, request):
            # Before there is a record: a project that is in use is left alone.
            run_dir = _open_record(planned, masker)
        become_subreaper()
        # Before lock and journal are open: what checks run in must neither hold the one nor write into the other.
        graders = make_graders(planned.suite, stack)
        if approach.starts_agents:
            # Already here: it takes as long to start as all that follows until the first agent does.
            wardens.start()
        stack.enter_context(_project_alone(plan, request))
        stack.callback(os.close, folders.lock(run_dir))
        journal = Journal(run_dir / folders.JOURNAL_FILE)
        stack.callback(journal.close)
        if earlier is not None:
            clear_scratch(run_dir)
        scratch = stack.enter_context(new_scratch(run_dir))
        info = _info(planned, run_dir, sandbox.name)
        under_way = UnderWay(
            info,
            plan,
            journal,
            Spent(run_dir / folders.SPENT_FILE),
            reporters,
            time.monotonic(),
            max_cost_usd=settings.max_cost_usd,
            beside=approach.beside,
        )
        parts = make_parts(under_way, settings, scratch, sandbox=sandbox, graders=graders, masker=masker)
        if request.verbose:
            parts = replace(parts, listen=lambda trial, event: under_way.emit(SessionSeen(trial=trial, event=event)))
        warned = (note, fewer, starts_nothing(scratch), weaknesses(settings.ceilings))
        _announce(under_way, (*warned, *settings.notices, *planned.notices, *notices))
        stack.enter_context(_saying_how_to_go_on(info, planned))
        with single_errors():
            anyio.run(_execute, under_way, parts, approach, earlier is not None)
        with undisturbed():
            outcomes = hold_to_snapshots(under_way, settings, snapshots)
            code = _finish(under_way, approach, outcomes)
        return _shown_code(code, reporters)


def _shown_code(code: int, reporters: Reporters) -> int:
    """The exit code; of a good run that nobody could read of, that."""
    if code != PASSED:
        return code
    return NOT_WRITTEN if reporters.unwritten else READER_GONE if reporters.unread else PASSED


def _announce(under_way: UnderWay, warnings: Iterable[str | None]) -> None:
    """Show what begins, and what a person should know about it."""
    journal = under_way.journal
    done = sum(journal.is_done(key) for key in journal)
    under_way.emit(RunStarted(info=under_way.info, plan=under_way.plan, done=done))
    torn = f"the last line of the journal was cut off and is dropped ({journal.torn} bytes)" if journal.torn else None
    for message in (torn, *warnings):
        if message:
            under_way.emit(Notice(level="warning", message=message))


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


@contextmanager
def _saying_how_to_go_on(info: RunInfo, planned: Planned) -> Iterator[None]:
    """Add to the hint of a record that cannot be written what to type once it can be."""
    try:
        yield
    except RecordUnwritten as error:
        regraded = planned.facts.get("regraded_from")
        command = resume_command(info, path_for_people(info.run_dir, Path.cwd()))
        error.hint = f"{error.hint}, and go on with: {f'whet regrade {regraded}' if regraded else command}"
        raise


def _project_alone(plan: Plan, request: RunRequest) -> AbstractContextManager[None]:
    """Where trials work in the project itself, no other run does."""
    project = plan.executions[0].workspace.cwd
    if not request.in_place or project is None:
        return nullcontext()
    return folders.alone_in(project, "it works in place there: wait until it has ended, or leave out --in-place")


def _open_record(planned: Planned, masker: Masker) -> Path:
    """The run folder: a fresh one, or the one to go on with."""
    settings, plan, earlier = planned.settings, planned.plan, planned.earlier
    if earlier is not None:
        earlier.check(plan, settings)
        return earlier.run_dir
    run_dir = folders.create_run_folder(settings.output_dir)
    facts = Recorded.facts(planned.request, describe(settings), plan, version=__version__)
    with folders.writing(run_dir):
        digest = write_sources(run_dir, sources_of(plan, settings, planned.request.more_reporters))
    folders.write_run_file(run_dir, masker.tree({**facts, **planned.facts, "sources": digest}))
    folders.point_latest(run_dir)
    return run_dir


def _info(planned: Planned, run_dir: Path, sandbox: str) -> RunInfo:
    suite, settings = planned.suite, planned.settings
    return RunInfo(
        run_id=run_dir.name,
        run_dir=run_dir,
        suite=suite.name,
        suite_path=suite.source,
        started_at=_now(),
        sandbox=sandbox,
        version=__version__,
        command=planned.request.command,
        again=planned.request.again,
        going_on=planned.request.going_on,
        ceilings=settings.ceilings,
        settings_files=tuple(file for file in (settings.file, settings.user_file) if file),
        searched_to=None if settings.file else settings.searched_to,
    )


async def _execute(under_way: UnderWay, parts: Parts, approach: Approach, resumed: bool) -> None:
    """Try every trial that is missing; a signal ends all of them and loses none that ended."""
    shared = SharedGround()

    async def work(trial: Trial) -> None:
        if not under_way.afford():
            return
        if resumed:
            _clear_remains(parts, trial)
        under_way.emit(TrialStarted(trial=trial))
        result = await approach.trying(parts, shared, trial)
        shared.went_wrong |= not result.passed
        under_way.emit(TrialEnded(trial=trial, result=result), await _sealed(parts.run_dir, result))

    try:
        # Outside of what a signal cancels, so that it can be let go of in peace.
        async with approach.around(parts), anyio.create_task_group() as group:
            with anyio.CancelScope() as trials:
                group.start_soon(watch_signals, trials, under_way.interrupt)
                await run_all(under_way.plan, under_way.pending(), work)
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            for grader in parts.graders.values():
                if isinstance(grader, Releasing):
                    await grader.release()
            await parts.sandbox.close()
            for message in await keep_shared(parts, shared):
                under_way.emit(Notice(level="info", message=message))
        parts.workspaces.close()


async def _sealed(run_dir: Path, result: TrialResult) -> dict[str, str]:
    """The hashes of the files that a trial left in the record."""
    try:
        sealing = Sealing(run_dir, result)
        if sealing.light:
            files = sealing.hashes()
        else:
            # A trial that has ended is recorded, also where a signal comes meanwhile.
            with anyio.CancelScope(shield=True):
                files = await anyio.to_thread.run_sync(sealing.hashes)
    except OSError as error:
        raise RecordUnwritten(f"what {result.key} left cannot be recorded: {error}", hint=FREE_SPACE) from error
    return files


def _clear_remains(parts: Parts, trial: Trial) -> None:
    """What a trial that never ended left in the record; it starts anew."""
    for part in ("trials", "workspaces"):
        remove_tree(parts.run_dir / part / trial_folder(trial.key))


def _shared_hashes(under_way: UnderWay) -> dict[str, str]:
    """The hashes of what no trial has to itself; workspaces of trials are in the journal."""
    if under_way.plan.executions[0].workspace.mode != "shared":
        return {}
    try:
        return shared_hashes(under_way.info.run_dir)
    except OSError as error:
        raise RecordUnwritten(f"the shared workspace cannot be recorded: {error}", hint=FREE_SPACE) from error


def _finish(under_way: UnderWay, approach: Approach, outcomes: dict[SnapshotKey, SnapshotOutcome]) -> int:
    """Write the results, tell everybody, and say it in an exit code."""
    under_way.journal.check(whole=True)
    # Results name the last line, so it must not be lost after them.
    under_way.journal.sync()
    results = JournalResults(
        under_way.plan,
        under_way.journal,
        time.monotonic() - under_way.began,
        outcomes,
        cut_short=under_way.spent.usage,
        workspaces=_shared_hashes(under_way),
    )
    write_results(under_way.info, results, interrupted=under_way.interrupted, ended_at=_now())
    concluded = approach.conclude(under_way.info, results)
    for message in concluded.notices:
        under_way.emit(Notice(level="info", message=message))
    under_way.emit(
        RunEnded(
            info=under_way.info,
            results=results,
            interrupted=under_way.interrupted,
            evaluated=concluded.evaluated,
        )
    )
    return INTERRUPTED if under_way.interrupted else concluded.code


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

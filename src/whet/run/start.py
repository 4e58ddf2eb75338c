"""Start a run: choose reporters and sandbox, open the record, make what trials need, and say what begins."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import RecordUnwritten
from whet.model.events import Event
from whet.model.request import RunRequest, Settings
from whet.model.run import Plan, RunInfo, Trial
from whet.model.run_events import RunStarted, SessionSeen
from whet.plan.images import needs_containers, sandbox_of
from whet.plan.load import PlannedRun, notices_on_cost
from whet.plan.measured import measure
from whet.plan.plan import pieces
from whet.plan.settings.load import describe
from whet.reading.text import path_for_people
from whet.record import folder as folders
from whet.record.contents.keep import keep_contents
from whet.record.journal.journal import Journal, SpendingFile
from whet.record.run_file import ShardFacts, run_facts, shard_facts, write_run_file
from whet.record.snapshots import SnapshotFile, snapshot_rule
from whet.record.sources import sources_of, write_sources
from whet.report.choose import make_reporters
from whet.report.contract import Reporters
from whet.report.digest import resume_command
from whet.run.boundary import require_boundary, started_by
from whet.run.context import RunContext, RunFolders, RunLink, make_graders, make_masker, make_run_context
from whet.run.schedule import single_errors
from whet.run.scratch import clear_scratch, new_scratch, starts_nothing
from whet.run.state import RunState, now
from whet.sandbox.container.leftovers import remove_abandoned
from whet.sandbox.contract import Sandbox, choose_sandbox
from whet.sandbox.engine import unenforced_limits
from whet.sandbox.limits import weaknesses
from whet.sandbox.process.pool import supervisors
from whet.sandbox.process.procfs import become_subreaper
from whet.secrets import Masker
from whet.version import __version__
from whet.workspace.mounts import private_mounts

if TYPE_CHECKING:
    from whet.decide.until import InterimAnalysis
    from whet.run._containers import ContainerPool

# The files that whet itself holds open, and the most that a trial does: pipes, transcripts, a worker, folders.
_OWN_FILES = 32
_FILES_PER_TRIAL = 16


class ReadyRun(Struct, frozen=True, kw_only=True):
    """A run that nothing keeps from beginning, as far as can be known without beginning it."""

    planned: PlannedRun
    # With as many trials at a time as the system allows.
    plan: Plan
    sandbox: Sandbox
    masker: Masker
    snapshots: SnapshotFile | None
    # Whether any trial runs in a container.
    contained: bool
    warnings: tuple[str, ...]


def ready_run(
    planned_run: PlannedRun, ready: Callable[[Sandbox, Masker], tuple[str, ...]], *, starts_agents: bool
) -> ReadyRun:
    """Look at everything that may refuse the run; of several runs, all are looked at before one has a record."""
    settings = planned_run.settings
    plan, fewer = fit_open_files(planned_run.plan)
    snapshots = _find_snapshots(settings, planned_run.request)
    # Before there are reporters: one of a third party has a thread.
    private_mounts()
    sandbox, note = choose_sandbox(sandbox_of(plan, settings))
    require_boundary(settings.sandbox, sandbox, started_by(plan, settings.judge_runner, runners=starts_agents))
    masker = make_masker(settings, plan)
    with single_errors():
        doubts = ready(sandbox, masker)
    if planned_run.earlier is not None:
        planned_run.earlier.check(planned_run.plan, settings)
    contained = needs_containers(plan, settings)
    weak = unenforced_limits(settings.container) if contained else weaknesses(settings.ceilings)
    warnings = (note, fewer, weak, *settings.notices, *planned_run.notices, *doubts)
    return ReadyRun(
        planned=planned_run,
        plan=plan,
        sandbox=sandbox,
        masker=masker,
        snapshots=snapshots,
        contained=contained,
        warnings=tuple(warning for warning in warnings if warning),
    )


@contextmanager
def start_run(
    ready: ReadyRun, listen: Callable[[Path], Reporters] | None = None, beside: list[RunState] | None = None
) -> Iterator[tuple[RunState, RunContext]]:
    """Begin the run, or the one to resume; everything that it opens is closed in the end.

    A run of several gives *listen*, which makes what its events go to from its folder, and *beside*, to which it is
    added: the runs in it share a budget.
    """
    planned_run, plan, masker = ready.planned, ready.plan, ready.masker
    request, settings, is_resume = planned_run.request, planned_run.settings, planned_run.earlier is not None
    with ExitStack() as stack:
        # Before there is a record: what cannot be written is said first.
        reporters = Reporters((), stderr=sys.stderr) if listen else stack.enter_context(open_reporters(planned_run))
        with _alone(planned_run):
            # A project that another run works in gets no record.
            run_dir = _open_record(planned_run, masker)
        become_subreaper()
        # Before lock and journal are open: the processes of checks must not inherit them.
        graders = make_graders(planned_run.suite, stack)
        stack.enter_context(_alone(planned_run))
        stack.callback(os.close, folders.lock(run_dir))
        journal = Journal(
            run_dir / folders.JOURNAL_FILE, planned_run.earlier.run.journal if planned_run.earlier else None
        )
        stack.callback(journal.close)
        if request.add_trials:
            journal.grow(request.add_trials)
        if is_resume:
            clear_scratch(run_dir)
        scratch = stack.enter_context(new_scratch(run_dir))
        state = RunState(
            info=_info(planned_run, run_dir, ready.sandbox.name),
            plan=plan,
            settings=settings,
            journal=journal,
            spent=SpendingFile(run_dir / folders.SPENT_FILE),
            reporters=listen(run_dir) if listen else reporters,
            snapshots=ready.snapshots,
            resumed=is_resume,
            stop_early=request.stop_early,
            interim_analysis=_open_interim_analysis(plan, journal),
            beside=[] if beside is None else beside,
        )
        context = make_run_context(
            plan,
            settings,
            RunFolders(run_dir=run_dir, scratch=scratch),
            sandbox=ready.sandbox,
            masker=masker,
            graders=graders,
            link=_link(state, verbose=request.verbose),
            container_pool=_open_pool_if_needed(ready, run_dir, scratch, stack),
        )
        # Of several runs, the cost of all is said once.
        cost = () if listen else notices_on_cost(planned_run, plan)
        # Containers also of a run without any: an earlier one may have been killed.
        _announce(state, (*cost, starts_nothing(scratch), *remove_abandoned(), *ready.warnings))
        # Of several runs, all of them are resumed together.
        with nullcontext() if listen else hint_how_to_resume(state.info, planned_run):
            yield state, context


def _open_pool_if_needed(ready: ReadyRun, run_dir: Path, scratch: Path, stack: ExitStack) -> ContainerPool | None:
    if not ready.contained:
        return None
    log = partial(keep_image_log, run_dir, ready.masker)
    return open_container_pool(ready.planned.settings, run_dir, scratch, log, stack)


def open_container_pool(
    settings: Settings, run_dir: Path, scratch: Path, log: Callable[[str, str], None], stack: ExitStack
) -> ContainerPool:
    """Return what containers need, until *stack* closes; *log* keeps how an image was built."""
    # Only here: most runs have none.
    from whet.run._containers import ContainerPool

    container_pool = ContainerPool.of(settings, run_dir, scratch, log)
    stack.callback(container_pool.close)
    return container_pool


def keep_image_log(run_dir: Path, masker: Masker, name: str, text: str) -> None:
    """Write how the image *name* was built into the record, without secrets."""
    folder = run_dir / "images"
    folder.mkdir(exist_ok=True)
    masker.write(folder / f"{name}.log", text)


def fit_open_files(plan: Plan) -> tuple[Plan, str | None]:
    """Return the plan with as many trials at a time as the limit of open files allows, and a warning if that is fewer.

    Raises the limit no further than needed: agents inherit it, and some close every descriptor that it allows.
    """
    at_once = min(plan.max_parallel, plan.trial_count)
    files_needed = _OWN_FILES + _FILES_PER_TRIAL * at_once
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files_needed:
        return plan, None
    if hard == resource.RLIM_INFINITY or hard >= files_needed:
        supervisors.allow_files(files_needed, hard)
        return plan, None
    supervisors.allow_files(hard, hard)
    fits = max(1, (hard - _OWN_FILES) // _FILES_PER_TRIAL)
    warning = f"{fits} at a time instead of {at_once}: no more than {hard} files may be open (ulimit -Hn)"
    return replace(plan, max_parallel=fits), warning


def _find_snapshots(settings: Settings, request: RunRequest) -> SnapshotFile | None:
    """Read the snapshots to compare with; a file that cannot be read is found before anything starts."""
    if settings.snapshots is None and not request.update_snapshots:
        return None
    default_dir = settings.file.parent if settings.file else Path.cwd()
    rule = snapshot_rule(
        settings.snapshots, default_dir=default_dir, update=request.update_snapshots, environ=os.environ
    )
    return SnapshotFile(rule) if rule else None


def open_reporters(planned_run: PlannedRun) -> AbstractContextManager[Reporters]:
    """Make the reporters that the settings and the request name."""
    plan, settings = planned_run.plan, planned_run.settings
    return make_reporters(
        (*settings.reporters, *planned_run.request.more_reporters),
        base=Path.cwd(),
        stdout=sys.stdout,
        stderr=sys.stderr,
        environ=os.environ,
        protected=[path for path in (plan.suite.source, settings.file) if path],
    )


@contextmanager
def _alone(planned_run: PlannedRun) -> Iterator[None]:
    """Keep other runs out of the project, if trials work in it itself, and out of the folder that cassettes go to."""
    project, recordings = planned_run.plan.executions[0].workspace.cwd, planned_run.settings.recording_folder
    with ExitStack() as stack:
        if planned_run.request.in_place and project is not None:
            why = "it works in place there: wait until it has ended, or leave out --in-place"
            stack.enter_context(folders.alone_in(project, why))
        if recordings is not None and recordings.is_dir():
            why = "it records cassettes there: wait until it has ended, or record to another folder"
            stack.enter_context(folders.alone_in(recordings, why))
        yield


def _open_record(planned_run: PlannedRun, masker: Masker) -> Path:
    """Make a run folder, or find the one to continue."""
    settings, plan, earlier = planned_run.settings, planned_run.plan, planned_run.earlier
    if earlier is not None:
        return earlier.run_dir
    setting_rows, shard = describe(settings), _shard(planned_run)
    run_dir = folders.create_run_folder(settings.output_dir)
    sources = sources_of(plan, settings, planned_run.request.more_reporters)
    with folders.writing(run_dir):
        run_file = replace(
            run_facts(planned_run.request, setting_rows, plan, version=__version__),
            measured=measure(plan, settings, sources),
            sources=write_sources(run_dir, sources),
            contents=keep_contents(run_dir, plan, sources, masker.text),
            shard=shard,
        )
    write_run_file(run_dir, planned_run.origin.added_to(run_file), masker.tree)
    folders.point_latest(run_dir)
    return run_dir


def _shard(planned_run: PlannedRun) -> ShardFacts | None:
    plan, settings = planned_run.plan, planned_run.settings
    if not plan.whole:
        return None
    places = (settings.file.parent if settings.file else None, plan.suite.source.parent, Path.cwd(), Path.home())
    dealt = len(pieces(plan.whole, together=plan.baseline is not None))
    return shard_facts(planned_run.request, plan, dealt, (place.resolve() for place in places if place))


def _info(planned_run: PlannedRun, run_dir: Path, sandbox: str) -> RunInfo:
    suite, settings = planned_run.suite, planned_run.settings
    return RunInfo(
        run_id=run_dir.name,
        run_dir=run_dir,
        suite=suite.name,
        suite_path=suite.source,
        started_at=now(),
        sandbox=sandbox,
        version=__version__,
        command=planned_run.request.command,
        again=planned_run.request.again,
        resume_options=planned_run.request.resume_options,
        ceilings=settings.ceilings,
        settings_files=tuple(file for file in (settings.file, settings.user_file) if file),
        searched_to=None if settings.file else settings.searched_to,
        cluster=planned_run.cluster,
    )


def _open_interim_analysis(plan: Plan, journal: Journal) -> InterimAnalysis | None:
    """Return what looks after each round of a run until decided; a regraded run has no rounds."""
    if plan.until is None or plan.seed is None:
        return None
    from whet.decide.until import InterimAnalysis  # most runs compare nothing

    entries = (entry for key in journal if (entry := journal.entry(key)) is not None and entry.done)
    return InterimAnalysis(plan, plan.until, map(journal.read, entries))


def _link(state: RunState, *, verbose: bool) -> RunLink:
    def show(trial: Trial, event: Event) -> None:
        state.emit(SessionSeen(trial=trial, event=event))

    return RunLink(
        refusal=state.refusal,
        notice=state.notice,
        cut_short=state.spent.add,
        listen=show if verbose else None,
        under_way=state.under_way,
    )


def _announce(state: RunState, warnings: Iterable[str | None]) -> None:
    """Show what begins, and the warnings."""
    journal = state.journal
    state.emit(RunStarted(info=state.info, plan=state.plan, done=journal.done))
    torn = f"the last line of the journal was cut off and is dropped ({journal.torn} bytes)" if journal.torn else None
    for message in (torn, *warnings):
        if message:
            state.notice(message)


@contextmanager
def hint_how_to_resume(info: RunInfo, planned_run: PlannedRun) -> Iterator[None]:
    """Add the command that resumes the run to the hint of a record that cannot be written."""
    try:
        yield
    except RecordUnwritten as error:
        original_run = planned_run.origin.regraded_from
        command = resume_command(info, path_for_people(info.run_dir, Path.cwd()))
        error.hint = f"{error.hint}, and continue with: {f'whet regrade {original_run}' if original_run else command}"
        raise

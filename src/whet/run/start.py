"""Start a run: choose reporters and sandbox, open the record, make what trials need, and say what begins."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from whet.dataclass import dataclass
from whet.errors import RecordUnwritten
from whet.ground.ceilings import weaknesses
from whet.ground.descent import become_subreaper
from whet.ground.engine import unheld_limits
from whet.ground.marks import remove_abandoned
from whet.ground.mounts import private_mounts
from whet.ground.sandbox import Sandbox, choose_sandbox
from whet.ground.secrets import Masker
from whet.ground.wardens import wardens
from whet.model.event import RunStarted, SessionSeen
from whet.model.request import RunRequest, Settings
from whet.model.run import Plan, RunInfo, Trial
from whet.model.seen import Event
from whet.plan.images import needs_containers, sandbox_of
from whet.plan.plan import pieces
from whet.plan.settings import describe
from whet.plan.settle import Planned, notices_on_cost
from whet.reading.text import path_for_people
from whet.record import folder as folders
from whet.record.journal import Journal, Spent
from whet.record.run_file import ShardFacts, run_facts, shard_facts, write_run_file
from whet.record.snapshots import SnapshotFile, snapshot_rule
from whet.record.sources import sources_of, write_sources
from whet.report.choose import make_reporters
from whet.report.digest import resume_command
from whet.report.reporter import Reporters
from whet.run.boundary import hold_boundary, started_by
from whet.run.cassettes import recorded_to
from whet.run.execute import single_errors
from whet.run.parts import AttemptParts, RunParts, make_graders, make_masker, make_run_parts
from whet.run.run_state import RunState, now
from whet.run.scratch import clear_scratch, new_scratch, starts_nothing
from whet.version import __version__

if TYPE_CHECKING:
    from whet.grade.until import Looking
    from whet.run.housing import Housing

# The files that whet itself holds open, and the most that a trial does: pipes, transcripts, a worker, folders.
_OWN_FILES = 32
_FILES_PER_TRIAL = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyRun:
    """A run that nothing keeps from beginning, as far as can be known without beginning it."""

    planned: Planned
    # With as many trials at a time as the system allows.
    plan: Plan
    sandbox: Sandbox
    masker: Masker
    snapshots: SnapshotFile | None
    warnings: tuple[str, ...]


def ready_run(
    planned: Planned, ready: Callable[[Sandbox, Masker], tuple[str, ...]], *, starts_agents: bool
) -> ReadyRun:
    """Look at everything that may refuse the run; of several runs, all are looked at before one has a record."""
    settings = planned.settings
    plan, fewer = fit_open_files(planned.plan)
    snapshots = _find_snapshots(settings, planned.request)
    # Before there are reporters: one of a third party has a thread.
    private_mounts()
    sandbox, note = choose_sandbox(sandbox_of(plan, settings))
    hold_boundary(settings.sandbox, sandbox, started_by(plan, settings.judge_runner, runners=starts_agents))
    masker = make_masker(settings, plan)
    with single_errors():
        doubts = ready(sandbox, masker)
    if planned.earlier is not None:
        planned.earlier.check(planned.plan, settings)
    inside = needs_containers(plan, settings)
    weak = unheld_limits(settings.container) if inside else weaknesses(settings.ceilings)
    warnings = (note, fewer, weak, *settings.notices, *planned.notices, *doubts)
    return ReadyRun(
        planned=planned,
        plan=plan,
        sandbox=sandbox,
        masker=masker,
        snapshots=snapshots,
        warnings=tuple(each for each in warnings if each),
    )


@contextmanager
def start_run(
    readied: ReadyRun,
    listen: Callable[[Path], Reporters] | None = None,
) -> Iterator[tuple[RunState, RunParts]]:
    """Begin the run, or the one to resume; everything that it opens is closed in the end.

    A run of several gives *listen*, which makes what its events go to from its folder.
    """
    planned, plan, masker = readied.planned, readied.plan, readied.masker
    request, settings, resumed = planned.request, planned.settings, planned.earlier is not None
    with ExitStack() as stack:
        # Before there is a record: what cannot be written is said first.
        reporters = Reporters((), stderr=sys.stderr) if listen else stack.enter_context(open_reporters(planned))
        with _alone(planned):
            # A project that another run works in gets no record.
            run_dir = _open_record(planned, masker)
        become_subreaper()
        # Before lock and journal are open: the processes of checks must not inherit them.
        graders = make_graders(planned.suite, stack)
        stack.enter_context(_alone(planned))
        stack.callback(os.close, folders.lock(run_dir))
        journal = Journal(run_dir / folders.JOURNAL_FILE, planned.earlier.run.journal if planned.earlier else None)
        stack.callback(journal.close)
        if request.add_trials:
            journal.grow(request.add_trials)
        if resumed:
            clear_scratch(run_dir)
        scratch = stack.enter_context(new_scratch(run_dir))
        state = RunState(
            info=_info(planned, run_dir, readied.sandbox.name),
            plan=plan,
            settings=settings,
            journal=journal,
            spent=Spent(run_dir / folders.SPENT_FILE),
            reporters=listen(run_dir) if listen else reporters,
            snapshots=readied.snapshots,
            resumed=resumed,
        )
        parts = with_containers(make_run_parts(state, scratch, readied.sandbox, graders, masker), settings, stack)
        state.under_way = lambda: parts.gateways.under_way_usd
        state.looking = _looking(plan, journal)
        if request.verbose:
            parts = replace(parts, listen=_show_sessions(state))
        # Of several runs, the cost of all is said once.
        cost = () if listen else notices_on_cost(planned, plan)
        # Containers also of a run without any: an earlier one may have been killed.
        _announce(state, (*cost, starts_nothing(scratch), *remove_abandoned(), *readied.warnings))
        # Of several runs, all of them are resumed together.
        with nullcontext() if listen else hint_how_to_resume(state.info, planned):
            yield state, parts


def with_containers(parts: RunParts, settings: Settings, stack: ExitStack) -> RunParts:
    """Return *parts* with what containers need, if a trial runs in one."""
    if not needs_containers(parts.plan, settings):
        return parts
    return replace(parts, housing=open_housing(parts, settings, stack))


def open_housing(parts: AttemptParts, settings: Settings, stack: ExitStack) -> Housing:
    """Return what containers need, until *stack* closes."""
    # Only here: most runs have none.
    from whet.run.housing import Housing  # noqa: PLC0415

    housing = Housing.of(settings, parts.run_dir, parts.scratch, parts.keep_text)
    stack.callback(housing.close)
    return housing


def fit_open_files(plan: Plan) -> tuple[Plan, str | None]:
    """Return the plan with as many trials at a time as the limit of open files allows, and a warning if that is fewer.

    Raises the limit no further than needed: agents inherit it, and some close every descriptor that it allows.
    """
    at_once = min(plan.max_parallel, plan.trial_count)
    needed = _OWN_FILES + _FILES_PER_TRIAL * at_once
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return plan, None
    if hard == resource.RLIM_INFINITY or hard >= needed:
        wardens.allow_files(needed, hard)
        return plan, None
    wardens.allow_files(hard, hard)
    fits = max(1, (hard - _OWN_FILES) // _FILES_PER_TRIAL)
    warning = f"{fits} at a time instead of {at_once}: no more than {hard} files may be open (ulimit -Hn)"
    return replace(plan, max_parallel=fits), warning


def _find_snapshots(settings: Settings, request: RunRequest) -> SnapshotFile | None:
    """Read the snapshots to compare with; a file that cannot be read is found before anything starts."""
    default_dir = settings.file.parent if settings.file else Path.cwd()
    rule = snapshot_rule(
        settings.snapshots, default_dir=default_dir, update=request.update_snapshots, environ=os.environ
    )
    return SnapshotFile(rule) if rule else None


def open_reporters(planned: Planned) -> AbstractContextManager[Reporters]:
    """Make the reporters that the settings and the request name."""
    plan, settings = planned.plan, planned.settings
    return make_reporters(
        (*settings.reporters, *planned.request.more_reporters),
        base=Path.cwd(),
        stdout=sys.stdout,
        stderr=sys.stderr,
        environ=os.environ,
        protected=[path for path in (plan.suite.source, settings.file) if path],
    )


@contextmanager
def _alone(planned: Planned) -> Iterator[None]:
    """Keep other runs out of the project, if trials work in it itself, and out of the folder that cassettes go to."""
    project, tapes = planned.plan.executions[0].workspace.cwd, recorded_to(planned.settings)
    with ExitStack() as stack:
        if planned.request.in_place and project is not None:
            why = "it works in place there: wait until it has ended, or leave out --in-place"
            stack.enter_context(folders.alone_in(project, why))
        if tapes is not None and tapes.is_dir():
            why = "it records cassettes there: wait until it has ended, or record to another folder"
            stack.enter_context(folders.alone_in(tapes, why))
        yield


def _open_record(planned: Planned, masker: Masker) -> Path:
    """Make a run folder, or find the one to continue."""
    settings, plan, earlier = planned.settings, planned.plan, planned.earlier
    if earlier is not None:
        return earlier.run_dir
    run_dir = folders.create_run_folder(settings.output_dir)
    with folders.writing(run_dir):
        kept = {
            "sources": write_sources(run_dir, sources_of(plan, settings, planned.request.more_reporters)),
            "skills": _keep_skills(run_dir, plan, masker),
            "shard": _shard(planned),
        }
    asked = run_facts(planned.request, describe(settings), plan, version=__version__, **kept, **planned.facts)
    write_run_file(run_dir, asked, masker.tree)
    folders.point_latest(run_dir)
    return run_dir


def _shard(planned: Planned) -> ShardFacts | None:
    plan, settings = planned.plan, planned.settings
    if not plan.whole:
        return None
    places = (settings.file.parent if settings.file else None, plan.suite.source.parent, Path.cwd(), Path.home())
    dealt = len(pieces(plan.whole, together=plan.baseline is not None))
    return shard_facts(planned.request, plan, dealt, (place.resolve() for place in places if place))


def _keep_skills(run_dir: Path, plan: Plan, masker: Masker) -> str | None:
    if all(arm.skill is None for arm in plan.arms):
        return None
    from whet.record.kept_skills import keep_skills  # noqa: PLC0415 - many runs have no skill

    return keep_skills(run_dir, plan, masker.text)


def _info(planned: Planned, run_dir: Path, sandbox: str) -> RunInfo:
    suite, settings = planned.suite, planned.settings
    return RunInfo(
        run_id=run_dir.name,
        run_dir=run_dir,
        suite=suite.name,
        suite_path=suite.source,
        started_at=now(),
        sandbox=sandbox,
        version=__version__,
        command=planned.request.command,
        again=planned.request.again,
        going_on=planned.request.going_on,
        ceilings=settings.ceilings,
        settings_files=tuple(file for file in (settings.file, settings.user_file) if file),
        searched_to=None if settings.file else settings.searched_to,
        cluster=planned.cluster,
    )


def _looking(plan: Plan, journal: Journal) -> Looking | None:
    """Return what looks after each round of a run until decided; a regraded run has no rounds."""
    if plan.until is None or plan.seed is None:
        return None
    from whet.grade.until import Looking  # noqa: PLC0415 - most runs compare nothing

    entries = (entry for key in journal if (entry := journal.entry(key)) is not None and entry.done)
    return Looking(plan, plan.until, map(journal.read, entries))


def _show_sessions(state: RunState) -> Callable[[Trial, Event], None]:
    return lambda trial, event: state.emit(SessionSeen(trial=trial, event=event))


def _announce(state: RunState, warnings: Iterable[str | None]) -> None:
    """Show what begins, and the warnings."""
    journal = state.journal
    state.emit(RunStarted(info=state.info, plan=state.plan, done=journal.done))
    torn = f"the last line of the journal was cut off and is dropped ({journal.torn} bytes)" if journal.torn else None
    for message in (torn, *warnings):
        if message:
            state.notice(message)


@contextmanager
def hint_how_to_resume(info: RunInfo, planned: Planned) -> Iterator[None]:
    """Add the command that resumes the run to the hint of a record that cannot be written."""
    try:
        yield
    except RecordUnwritten as error:
        regraded = planned.facts.get("regraded_from")
        command = resume_command(info, path_for_people(info.run_dir, Path.cwd()))
        error.hint = f"{error.hint}, and continue with: {f'whet regrade {regraded}' if regraded else command}"
        raise

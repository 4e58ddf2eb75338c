"""Start a run: choose reporters and sandbox, open the record, make what trials need, and say what begins."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from whet.errors import RecordUnwritten
from whet.ground.ceilings import weaknesses
from whet.ground.descent import become_subreaper
from whet.ground.mounts import private_mounts
from whet.ground.sandbox import Sandbox, choose_sandbox
from whet.ground.secrets import Masker
from whet.ground.wardens import wardens
from whet.model.event import RunStarted, SessionSeen
from whet.model.request import RunRequest, Settings
from whet.model.run import Plan, RunInfo, Trial, TrialResult
from whet.model.seen import Event
from whet.model.session import Usage
from whet.plan.settings import describe
from whet.plan.settle import Planned
from whet.reading.text import path_for_people
from whet.record import folder as folders
from whet.record.journal import Journal, Spent
from whet.record.run_file import run_facts, write_run_file
from whet.record.snapshots import SnapshotFile, snapshot_rule
from whet.record.sources import sources_of, write_sources
from whet.report.choose import make_reporters
from whet.report.digest import resume_command
from whet.report.reporter import Reporters
from whet.run.execute import single_errors
from whet.run.parts import RunParts, make_graders, make_masker, make_run_parts
from whet.run.run_state import RunState, now
from whet.run.scratch import clear_scratch, new_scratch, starts_nothing
from whet.version import __version__

# The files that whet itself holds open, and the most that a trial does: pipes, transcripts, a worker, folders.
_OWN_FILES = 32
_FILES_PER_TRIAL = 16


@contextmanager
def start_run(
    planned: Planned,
    ready: Callable[[Sandbox, Masker], tuple[str, ...]],
    extra_usage: Callable[[TrialResult], Usage] | None,
) -> Iterator[tuple[RunState, RunParts]]:
    """Begin the run, or the one to resume; everything that it opens is closed in the end."""
    request, settings, resumed = planned.request, planned.settings, planned.earlier is not None
    plan, fewer = _fit_open_files(planned.plan)
    snapshots = _find_snapshots(settings, request)
    # Before there are reporters: one of a third party has a thread.
    private_mounts()
    with ExitStack() as stack:
        reporters = stack.enter_context(_make_reporters(plan, settings, request))
        sandbox, note = choose_sandbox(settings.sandbox)
        masker = make_masker(settings, plan)
        with single_errors():
            notices = ready(sandbox, masker)
        with _alone_in_project(plan, request):
            # A project that another run works in gets no record.
            run_dir = _open_record(planned, masker)
        become_subreaper()
        # Before lock and journal are open: the processes of checks must not inherit them.
        graders = make_graders(planned.suite, stack)
        stack.enter_context(_alone_in_project(plan, request))
        stack.callback(os.close, folders.lock(run_dir))
        journal = Journal(run_dir / folders.JOURNAL_FILE)
        stack.callback(journal.close)
        if request.add_trials:
            journal.grow(request.add_trials)
        if resumed:
            clear_scratch(run_dir)
        scratch = stack.enter_context(new_scratch(run_dir))
        state = RunState(
            info=_info(planned, run_dir, sandbox.name),
            plan=plan,
            settings=settings,
            journal=journal,
            spent=Spent(run_dir / folders.SPENT_FILE),
            reporters=reporters,
            snapshots=snapshots,
            resumed=resumed,
            extra_usage=extra_usage,
        )
        parts = make_run_parts(state, scratch, sandbox=sandbox, graders=graders, masker=masker)
        if request.verbose:
            parts = replace(parts, listen=_show_sessions(state))
        warnings = (note, fewer, starts_nothing(scratch), weaknesses(settings.ceilings))
        _announce(state, (*warnings, *settings.notices, *planned.notices, *notices))
        with _hint_how_to_resume(state.info, planned):
            yield state, parts


def _fit_open_files(plan: Plan) -> tuple[Plan, str | None]:
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


def _make_reporters(plan: Plan, settings: Settings, request: RunRequest) -> AbstractContextManager[Reporters]:
    return make_reporters(
        (*settings.reporters, *request.more_reporters),
        base=Path.cwd(),
        stdout=sys.stdout,
        stderr=sys.stderr,
        environ=os.environ,
        protected=[path for path in (plan.suite.source, settings.file) if path],
    )


def _alone_in_project(plan: Plan, request: RunRequest) -> AbstractContextManager[None]:
    """If trials work in the project itself, keep other runs out of it."""
    project = plan.executions[0].workspace.cwd
    if not request.in_place or project is None:
        return nullcontext()
    return folders.alone_in(project, "it works in place there: wait until it has ended, or leave out --in-place")


def _open_record(planned: Planned, masker: Masker) -> Path:
    """Make a run folder, or find the one to continue."""
    settings, plan, earlier = planned.settings, planned.plan, planned.earlier
    if earlier is not None:
        earlier.check(plan, settings)
        return earlier.run_dir
    run_dir = folders.create_run_folder(settings.output_dir)
    with folders.writing(run_dir):
        digest = write_sources(run_dir, sources_of(plan, settings, planned.request.more_reporters))
    asked = run_facts(planned.request, describe(settings), plan, version=__version__, sources=digest, **planned.facts)
    write_run_file(run_dir, asked, masker.tree)
    folders.point_latest(run_dir)
    return run_dir


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
    )


def _show_sessions(state: RunState) -> Callable[[Trial, Event], None]:
    return lambda trial, event: state.emit(SessionSeen(trial=trial, event=event))


def _announce(state: RunState, warnings: Iterable[str | None]) -> None:
    """Show what begins, and the warnings."""
    journal = state.journal
    done = sum(journal.is_done(key) for key in journal)
    state.emit(RunStarted(info=state.info, plan=state.plan, done=done))
    torn = f"the last line of the journal was cut off and is dropped ({journal.torn} bytes)" if journal.torn else None
    for message in (torn, *warnings):
        if message:
            state.notice(message)


@contextmanager
def _hint_how_to_resume(info: RunInfo, planned: Planned) -> Iterator[None]:
    """Add the command that resumes the run to the hint of a record that cannot be written."""
    try:
        yield
    except RecordUnwritten as error:
        regraded = planned.facts.get("regraded_from")
        command = resume_command(info, path_for_people(info.run_dir, Path.cwd()))
        error.hint = f"{error.hint}, and go on with: {f'whet regrade {regraded}' if regraded else command}"
        raise

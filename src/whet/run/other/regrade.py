"""Regrade a recorded run: restore what each trial left, ask its checks again, and show which verdicts changed."""

from __future__ import annotations

import os
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from whet.agents.replay.player import lay
from whet.checks.context import Gaps, NotRecorded
from whet.errors import AttemptError, WorkspaceError
from whet.grade.evidence import Evidence
from whet.model.grade import STATUSES, Changes, Failure, FailureClass
from whet.model.request import RunRequest, Selection, Settings
from whet.model.run import Trial, TrialResult, turn_folder
from whet.model.session import SessionSummary, TurnSummary, Usage, session_until
from whet.plan.load import PlannedRun, check_who_judges
from whet.plan.resume import notices, plan_regrading
from whet.plan.settings.load import load_settings, with_found_agent
from whet.plan.skill import bind_skill
from whet.reading.text import one_line
from whet.record.file_hashes import WORKSPACE_FILE
from whet.record.folder import find_run_folder
from whet.record.read.changes import known_changes, read_recorded_changes
from whet.record.read.run import RecordedRun, read_run
from whet.record.run_file import RunOrigin
from whet.report.screen import Screen
from whet.run.attempt.grading import continues_after, evidence_of, grade
from whet.run.attempt.record import AttemptRecord
from whet.run.attempt.trial import classify_failure, result_of
from whet.run.context import RunContext
from whet.run.flow import RunKind, after_trials, perform
from whet.suites.format import load_suite
from whet.workspace.changes import RecordedChanges, read_folders
from whet.workspace.copy import copy_tree, remove_tree
from whet.workspace.mask_files import mask_files

_WIDEST = 100
_UNKNOWN_CHANGES = "the run was made before changed files were recorded"
_UNSEEN_TURN = "it was not recorded after this turn, which had no check"
_BEGAN_AS_PACKAGE = "it started as a package, and is kept only if a trial does not go as expected"
# Files of the earlier checks, which those of the new checks replace.
_OF_CHECKS = ("grades.json", "check.log", "explain.json", WORKSPACE_FILE)
_TERMINAL = "terminal"


def regrade(reference: str, *, suite: Path | None, flags: Mapping[str, Any], config_file: Path | None) -> int:
    """Regrade the run that *reference* names, by *suite* or by its own suite as it is now; return the exit code."""
    current_settings = load_settings(suite or Path.cwd(), flags=flags, environ=os.environ, config_file=config_file)
    record = read_run(find_run_folder(reference, current_settings.output_dir))
    record.refuse_empty()
    record.check_files()
    path = suite or record.suite
    config_file = config_file or record.config_file
    settings = load_settings(path, flags=flags, environ=os.environ, config_file=config_file)
    planned_run = _plan_regrading(
        record,
        path,
        settings,
        RunRequest(
            suite=path,
            flags=flags,
            config_file=config_file,
            selection=Selection(),
            last_failed=False,
            dry_run=False,
            resume=None,
        ),
    )
    regrading = Regrading(record)
    code = perform(planned_run, RunKind(run_trial=regrading, starts_agents=False, after=after_trials(planned_run)))
    stream = _stream(settings)
    lines = describe_changes(record.run_dir.name, regrading.seen)
    stream.write(Screen(stream, os.environ).text(lines))
    return code


def _plan_regrading(record: RecordedRun, path: Path, settings: Settings, request: RunRequest) -> PlannedRun:
    original_suite = load_suite(path, record.asked.reading)
    # Without settings the agent that was found has judged.
    settings = with_found_agent(settings, original_suite)
    suite = bind_skill(original_suite, record.skill, settings)
    plan = plan_regrading(suite, settings, record)
    planned_run = PlannedRun(
        request=request,
        suite=suite,
        settings=settings,
        plan=plan,
        origin=RunOrigin(regraded_from=record.run_dir.name, first=record.asked),
        notices=tuple(notices(suite, record)),
    )
    return check_who_judges(planned_run)


def _stream(settings: Settings) -> TextIO:
    """Return stdout, unless a reporter writes a document there."""
    documents = [name for name in settings.reporters if name != _TERMINAL and "=" not in name]
    return sys.stderr if documents else sys.stdout


class Regrading(Struct):
    """Runs trials from a record; remembers each result with what it was before."""

    record: RecordedRun
    seen: list[tuple[TrialResult, TrialResult]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def __call__(self, context: RunContext, trial: Trial) -> TrialResult:
        """Return the result of one trial."""
        old = self.record.result(trial.key)
        if old is None:
            return _never_ended(trial, self.record)
        await anyio.to_thread.run_sync(_copy_record, self.record, old, context.run_dir)
        session = self.record.session(old)
        if session is None:
            new = replace(_unpaid(old), key=trial.key)
        else:
            workspace = context.scratch / f"r{next(self._numbers)}"
            new = await _regrade_attempt(context, trial, _LastAttempt(self.record, old, session), workspace)
        self.seen.append((old, new))
        return new


def _unpaid(old: TrialResult) -> TrialResult:
    """Return a recorded result as it is in another run, which paid for nothing of it."""
    attempts = (
        replace(attempt, unpaid_usage=attempt.usage, user_usage=Usage(), judge_usage=Usage(), unpriced=())
        for attempt in old.attempts
    )
    return replace(old, attempts=tuple(attempts))


class _LastAttempt(Struct, frozen=True):
    record: RecordedRun
    result: TrialResult
    session: SessionSummary

    @property
    def attempt(self) -> int:
        """The number of the attempt that decided."""
        return self.result.attempts[-1].number if self.result.attempts else 1


async def _regrade_attempt(context: RunContext, trial: Trial, earlier: _LastAttempt, workspace: Path) -> TrialResult:
    old = earlier.result
    record = AttemptRecord(runner=trial.key.runner, number=earlier.attempt, artifact_dir=old.artifact_dir)
    record.started_at, record.duration_s = old.started_at, old.duration_s
    record.session, record.usage, record.steps = earlier.session, old.usage, old.steps
    record.detected_skills = old.detected_skills
    record.skill_shown, record.skill_loaded = old.skill_shown, old.skill_loaded
    record.skills_listed, record.other_skills = old.skills_listed, old.other_skills
    record.skill_wanted, record.skill_unwanted = old.skill_wanted, old.skill_unwanted
    # The session was paid for by the run that recorded it.
    record.unpaid_usage = old.usage
    try:
        await _check(context, trial, earlier, record, workspace)
    except AttemptError as error:
        record.fail(context, error)
    finally:
        await anyio.to_thread.run_sync(remove_tree, workspace)
    new = await classify_failure(context, trial, result_of(context, trial, [record]))
    attempts = _unpaid(old).attempts[:-1] + tuple(
        replace(attempt, duration_s=old.attempts[-1].duration_s if old.attempts else attempt.duration_s)
        for attempt in new.attempts
    )
    return replace(new, attempts=attempts, changed_files=old.changed_files, notes=(*old.notes, *new.notes))


async def _check(
    context: RunContext, trial: Trial, earlier: _LastAttempt, record: AttemptRecord, workspace: Path
) -> None:
    """Ask the graders, check by check; those of a turn about what there was after it."""
    case, turns = trial.execution.case, earlier.session.turns
    # What there was after the last turn is what there was at the end.
    for turn in turns[: len(case.then)]:
        if not await _check_turn(context, trial, earlier, record, workspace, turn):
            return
    record.session = earlier.session
    if case.user is None and len(turns or ("one",)) <= len(case.then):
        raise NotRecorded(f"it ended after turn {len(turns) or 1} of {len(case.then) + 1}, so the rest is not known")
    gaps, record.changes = await anyio.to_thread.run_sync(restore_workspace, earlier.record, earlier.result, workspace)
    if trial.execution.workspace.package is not None and earlier.result.workspace_dir is None:
        gaps = replace(gaps, workspace=_BEGAN_AS_PACKAGE)
    try:
        evidence = await _evidence(context, trial, record, workspace, gaps)
        await grade(context, trial, record, evidence)
    except AttemptError as error:
        record.fail(context, error)
    if not record.passed and gaps.workspace is None:
        record.workspace_dir = f"workspaces/{trial.key.folder}/{record.number}"
        record.notes += await anyio.to_thread.run_sync(
            _keep, context, workspace, context.run_dir / record.workspace_dir
        )


async def _check_turn(
    context: RunContext,
    trial: Trial,
    earlier: _LastAttempt,
    record: AttemptRecord,
    workspace: Path,
    turn: TurnSummary,
) -> bool:
    """Ask the graders of one turn; return whether the conversation goes on."""
    checks = [check for check in trial.execution.case.checks if check.turn == turn.number]
    if not checks:
        return True
    record.session = session_until(earlier.session, turn.number)
    folder = f"{earlier.result.artifact_dir}/{turn_folder(turn.number)}".rstrip("/")
    then = replace(earlier.result, artifact_dir=folder, workspace_dir=None, changed_files=turn.changed_files or 0)
    place = workspace.with_name(f"{workspace.name}-{turn.number}")
    try:
        gaps, record.changes = await anyio.to_thread.run_sync(restore_workspace, earlier.record, then, place)
        if turn.changed_files is None:
            gaps = replace(gaps, workspace=_UNSEEN_TURN, changes=_UNSEEN_TURN)
        await grade(context, trial, record, await _evidence(context, trial, record, place, gaps), checks)
    finally:
        await anyio.to_thread.run_sync(remove_tree, place)
    return continues_after(checks, record.grades)


async def _evidence(context: RunContext, trial: Trial, record: AttemptRecord, workspace: Path, gaps: Gaps) -> Evidence:
    evidence = await evidence_of(context, trial, record, workspace)
    return replace(evidence, gaps=gaps, folders=read_folders(evidence.artifact_dir))


def _copy_record(record: RecordedRun, old: TrialResult, run_dir: Path) -> None:
    """Copy what was recorded of a trial, so that the new run folder does not need the old one."""
    has_session = record.session(old) is not None
    _copy(record.run_dir, run_dir, f"trials/{old.key.folder}")
    for attempt in old.attempts:
        if attempt.workspace_dir and not (has_session and attempt is old.attempts[-1]):
            _copy(record.run_dir, run_dir, attempt.workspace_dir)
    if has_session:
        for name in _OF_CHECKS:
            (run_dir / old.artifact_dir / name).unlink(missing_ok=True)
        for log in (run_dir / old.artifact_dir).glob("turns/*/check.log"):
            log.unlink()


def _copy(source: Path, destination: Path, folder: str) -> None:
    if (source / folder).is_dir():
        (destination / folder).mkdir(parents=True, exist_ok=True)
        copy_tree(source / folder, destination / folder, force=True)


def _keep(context: RunContext, workspace: Path, destination: Path) -> list[str]:
    destination.mkdir(parents=True)
    copy_tree(workspace, destination, force=True)
    return mask_files(context.masker, destination) if context.masker else []


def _never_ended(trial: Trial, record: RecordedRun) -> TrialResult:
    failure = Failure(
        phase="start",
        code="not-recorded",
        cause="infrastructure",
        message=f"{record.run_dir.name} was interrupted before this trial ended",
    )
    return TrialResult(
        key=trial.key,
        status="errored",
        score=None,
        duration_s=0.0,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        artifact_dir=f"trials/{trial.key.folder}/1",
        failure=failure,
        failure_class=FailureClass(id="not-recorded", label="Not recorded"),
    )


def restore_workspace(record: RecordedRun, result: TrialResult, into: Path) -> tuple[Gaps, Changes]:
    """Restore the workspace of a trial in the new folder *into*; return what is missing of it, and what had changed."""
    into.mkdir()
    artifacts = record.run_dir / result.artifact_dir
    change_record = known_changes(artifacts, result)
    changes = read_recorded_changes(artifacts, change_record)
    unknown = None if change_record is not None else _UNKNOWN_CHANGES
    workspace_copy = record.run_dir / result.workspace_dir if result.workspace_dir else None
    if workspace_copy is not None and workspace_copy.is_dir():
        copy_tree(workspace_copy, into, force=True)
        return Gaps(changes=unknown), changes
    reason = next(_reasons(record, result, change_record), None)
    template = _template(record)
    if reason is None and template is not None:
        copy_tree(template, into)
    _restore_changes(artifacts, into)
    return Gaps(workspace=reason, changes=unknown, paths=change_record.kept if change_record else ()), changes


def _reasons(record: RecordedRun, result: TrialResult, change_record: RecordedChanges | None) -> Iterator[str]:
    """Yield the reasons why the workspace cannot be restored as it was."""
    if record.asked.workspace is None:
        yield "the run does not say what its workspaces started from"
        return
    if record.asked.workspace.get("mode") == "shared":
        yield "it was shared between trials"
    if record.asked.workspace.get("bootstrap"):
        yield "what its bootstrap command wrote is not known"
    template = _template(record)
    if template is not None and not _untouched_since(template, result.started_at):
        yield f"its template {template} has changed since, or is gone"
    if change_record is None:
        yield _UNKNOWN_CHANGES
        return
    yield from (f"{path}: {reason}" for path, reason in change_record.missing.items())
    if change_record.git:
        yield "its .git folder is never recorded"


def _template(record: RecordedRun) -> Path | None:
    template_name = record.asked.workspace.get("template_dir") if record.asked.workspace else None
    return Path(template_name) if isinstance(template_name, str) else None


def _untouched_since(folder: Path, moment: str) -> bool:
    """Return whether nothing in *folder* changed since; a copy of it counts as changed, because its times are new."""
    since_ns = int(datetime.fromisoformat(moment).timestamp() * 1e9)
    if not folder.is_dir():
        return False
    for place, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            status = os.lstat(f"{place}/{name}")
            if max(status.st_mtime_ns, status.st_ctime_ns) >= since_ns:
                return False
    return True


def _restore_changes(artifacts: Path, into: Path) -> None:
    try:
        lay(artifacts, into)
    except (OSError, ValueError, tarfile.TarError) as error:
        raise WorkspaceError(f"the recorded changes in {artifacts} cannot be restored: {error}") from error


def describe_changes(run_id: str, result_pairs: Iterable[tuple[TrialResult, TrialResult]]) -> list[str]:
    """Return a line of totals, a line for each verdict that changed, and the counts before and after."""
    pairs = sorted(result_pairs, key=lambda pair: str(pair[0].key))
    changed_pairs = [(old, new) for old, new in pairs if old.status != new.status]
    trials = "verdict" if len(pairs) == 1 else "verdicts"
    lines = ["", f"regraded {run_id}: {len(changed_pairs) or 'none'} of {len(pairs)} {trials} changed"]
    if changed_pairs:
        lines += ["", *_table(changed_pairs)]
    before, after = (_counts(pair[side].status for pair in pairs) for side in (0, 1))
    return [*lines, "", f"  before  {before}", f"  after   {after}"]


def _table(changed_pairs: list[tuple[TrialResult, TrialResult]]) -> list[str]:
    names = [_name(new) for _, new in changed_pairs]
    moves = [f"{old.status} -> {new.status}" for old, new in changed_pairs]
    name_width, move_width = max(map(len, names)), max(map(len, moves))
    return [
        f"  {name.ljust(name_width)}  {move.ljust(move_width)}  {_reason(new)}".rstrip()
        for name, move, (_, new) in zip(names, moves, changed_pairs, strict=True)
    ]


def _name(result: TrialResult) -> str:
    key = result.key
    arm = "" if key.arm == "default" else f"/{key.arm}"
    return f"{key.case} @ {key.runner}{arm} #{key.number}"


def _reason(result: TrialResult) -> str:
    return one_line(result.failure.message, _WIDEST) if result.failure else ""


def _counts(statuses: Iterable[str]) -> str:
    counts_by_status = Counter(statuses)
    return ", ".join(f"{counts_by_status[status]} {status}" for status in STATUSES if counts_by_status[status])

"""Regrade a recorded run: restore what each trial left, ask its checks again, and show which verdicts changed."""

from __future__ import annotations

import os
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import anyio.to_thread

from whet.agents.replay_player import lay
from whet.dataclass import dataclass
from whet.errors import AttemptError, WorkspaceError
from whet.grade.context import Gaps, NotRecorded
from whet.grade.evidence import Evidence, RecordedEvidence
from whet.ground.changes import RecordedChanges, read_changes, read_folders
from whet.ground.copying import copy_tree, remove_tree
from whet.ground.masking import mask_files
from whet.model.grade import STATUSES, Changes, Failure, FailureClass
from whet.model.request import RunRequest, Selection, Settings
from whet.model.run import Trial, TrialResult, turn_folder
from whet.model.session import SessionSummary, TurnSummary, Usage, session_until
from whet.plan.resume import notices, plan_regrading
from whet.plan.settings import load_settings
from whet.plan.settle import Planned
from whet.plan.skill import bind_skill
from whet.reading.files import read_file
from whet.reading.text import one_line
from whet.record.folder import find_run_folder
from whet.record.recorded_run import RecordedRun, read_run
from whet.record.sealing import WORKSPACE_FILE
from whet.run.attempt_record import AttemptRecord
from whet.run.flow import Approach, perform
from whet.run.grading import evidence_of, goes_on, grade
from whet.run.homes import trial_folder
from whet.run.parts import RunParts
from whet.run.trial import classified, result_of
from whet.suites.format import load_suite

_WIDEST = 100
_UNKNOWN_CHANGES = "the run was made before changed files were recorded"
_UNSEEN_TURN = "it was not recorded after this turn, which had no check"
_DIFF_FILE = "diff.patch"
_BEGAN_AS_PACKAGE = "it started as a package, and is kept only if a trial does not go as expected"
# Files of the earlier checks, which those of the new checks replace.
_OF_CHECKS = ("grades.json", "check.log", "explain.json", WORKSPACE_FILE)
_TERMINAL = "terminal"


def regrade(reference: str, *, suite: Path | None, flags: Mapping[str, Any], config_file: Path | None) -> int:
    """Regrade the run that *reference* names, by *suite* or by its own suite as it is now; return the exit code."""
    here = load_settings(suite or Path.cwd(), flags=flags, environ=os.environ, config_file=config_file)
    record = read_run(find_run_folder(reference, here.output_dir))
    record.refuse_empty()
    record.check_files()
    path = suite or record.suite
    config_file = config_file or record.config_file
    settings = load_settings(path, flags=flags, environ=os.environ, config_file=config_file)
    planned = _planned(
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
    code = perform(planned, Approach(run_trial=regrading, starts_agents=False))
    stream = _stream(settings)
    stream.write("".join(f"{line}\n" for line in describe_changes(record.run_dir.name, regrading.seen)))
    return code


def _planned(record: RecordedRun, path: Path, settings: Settings, request: RunRequest) -> Planned:
    suite = bind_skill(load_suite(path), record.skill, settings)
    return Planned(
        request=request,
        suite=suite,
        settings=settings,
        plan=plan_regrading(suite, settings, record),
        facts={
            "regraded_from": record.run_dir.name,
            "workspace": record.asked.workspace,
            "selected_from": record.asked.selected_from,
        },
        notices=tuple(notices(suite, record)),
    )


def _stream(settings: Settings) -> TextIO:
    """Return stdout, unless a reporter writes a document there."""
    documents = [name for name in settings.reporters if name != _TERMINAL and "=" not in name]
    return sys.stderr if documents else sys.stdout


@dataclass(slots=True)
class Regrading:
    """Runs trials from a record; remembers each result with what it was before."""

    record: RecordedRun
    seen: list[tuple[TrialResult, TrialResult]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def __call__(self, parts: RunParts, trial: Trial) -> TrialResult:
        """Return the result of one trial."""
        old = self.record.result(trial.key)
        if old is None:
            return _never_ended(trial, self.record)
        await anyio.to_thread.run_sync(_copy_record, self.record, old, parts.run_dir)
        session = self.record.session(old)
        if session is None:
            new = replace(_unpaid(old), key=trial.key)
        else:
            ground = parts.scratch / f"r{next(self._numbers)}"
            new = await _regraded(parts, trial, _Earlier(self.record, old, session), ground)
        self.seen.append((old, new))
        return new


def _unpaid(old: TrialResult) -> TrialResult:
    """Return a recorded result as it is in another run, which paid for nothing of it."""
    attempts = (
        replace(each, unpaid_usage=each.usage, user_usage=Usage(), judge_usage=Usage(), unpriced=())
        for each in old.attempts
    )
    return replace(old, attempts=tuple(attempts))


@dataclass(frozen=True, slots=True)
class _Earlier:
    record: RecordedRun
    result: TrialResult
    session: SessionSummary

    @property
    def attempt(self) -> int:
        """The number of the attempt that decided."""
        return self.result.attempts[-1].number if self.result.attempts else 1


async def _regraded(parts: RunParts, trial: Trial, earlier: _Earlier, ground: Path) -> TrialResult:
    old = earlier.result
    record = AttemptRecord(runner=trial.key.runner, number=earlier.attempt, artifact_dir=old.artifact_dir)
    record.started_at, record.duration_s = old.started_at, old.duration_s
    record.session, record.usage, record.steps = earlier.session, old.usage, old.steps
    record.detected_skills = old.detected_skills
    record.skill_shown, record.skill_loaded = old.skill_shown, old.skill_loaded
    record.skill_unwanted, record.skills_listed = old.skill_unwanted, old.skills_listed
    # The session was paid for by the run that recorded it.
    record.unpaid_usage = old.usage
    try:
        await _check(parts, trial, earlier, record, ground)
    except AttemptError as error:
        record.fail(parts, error)
    finally:
        await anyio.to_thread.run_sync(remove_tree, ground)
    new = await classified(parts, trial, result_of(trial, [record]))
    attempts = _unpaid(old).attempts[:-1] + tuple(
        replace(attempt, duration_s=old.attempts[-1].duration_s if old.attempts else attempt.duration_s)
        for attempt in new.attempts
    )
    return replace(new, attempts=attempts, changed_files=old.changed_files, notes=(*old.notes, *new.notes))


async def _check(parts: RunParts, trial: Trial, earlier: _Earlier, record: AttemptRecord, ground: Path) -> None:
    """Ask the graders, check by check; those of a turn about what there was after it."""
    case, turns = trial.execution.case, earlier.session.turns
    # What there was after the last turn is what there was at the end.
    for turn in turns[: len(case.then)]:
        if not await _check_turn(parts, trial, earlier, record, ground, turn):
            return
    record.session = earlier.session
    if case.user is None and len(turns or ("one",)) <= len(case.then):
        raise NotRecorded(f"it ended after turn {len(turns) or 1} of {len(case.then) + 1}, so the rest is not known")
    gaps, record.changes = await anyio.to_thread.run_sync(restore_workspace, earlier.record, earlier.result, ground)
    if trial.execution.workspace.package is not None and earlier.result.workspace_dir is None:
        gaps = replace(gaps, workspace=_BEGAN_AS_PACKAGE)
    try:
        evidence = await _evidence(parts, trial, record, ground, gaps)
        await grade(parts, trial, record, evidence)
    except AttemptError as error:
        record.fail(parts, error)
    if not record.passed and gaps.workspace is None:
        record.workspace_dir = f"workspaces/{trial_folder(trial.key)}/{record.number}"
        record.notes += await anyio.to_thread.run_sync(_keep, parts, ground, parts.run_dir / record.workspace_dir)


async def _check_turn(
    parts: RunParts, trial: Trial, earlier: _Earlier, record: AttemptRecord, ground: Path, turn: TurnSummary
) -> bool:
    """Ask the graders of one turn; return whether the conversation goes on."""
    checks = [check for check in trial.execution.case.checks if check.turn == turn.number]
    if not checks:
        return True
    record.session = session_until(earlier.session, turn.number)
    folder = f"{earlier.result.artifact_dir}/{turn_folder(turn.number)}".rstrip("/")
    then = replace(earlier.result, artifact_dir=folder, workspace_dir=None, changed_files=turn.changed_files or 0)
    place = ground.with_name(f"{ground.name}-{turn.number}")
    try:
        gaps, record.changes = await anyio.to_thread.run_sync(restore_workspace, earlier.record, then, place)
        if turn.changed_files is None:
            gaps = replace(gaps, workspace=_UNSEEN_TURN, changes=_UNSEEN_TURN)
        await grade(parts, trial, record, await _evidence(parts, trial, record, place, gaps), checks)
    finally:
        await anyio.to_thread.run_sync(remove_tree, place)
    return goes_on(checks, record.grades)


async def _evidence(parts: RunParts, trial: Trial, record: AttemptRecord, workspace: Path, gaps: Gaps) -> Evidence:
    whole = await evidence_of(parts, trial, record, workspace)
    known = {item.name: getattr(whole, item.name) for item in fields(whole)}
    return RecordedEvidence(**known, gaps=gaps, folders=read_folders(whole.artifact_dir))


def _copy_record(record: RecordedRun, old: TrialResult, run_dir: Path) -> None:
    """Copy what was recorded of a trial, so that the new run folder does not need the old one."""
    regraded = record.session(old) is not None
    _copy(record.run_dir, run_dir, f"trials/{trial_folder(old.key)}")
    for attempt in old.attempts:
        if attempt.workspace_dir and not (regraded and attempt is old.attempts[-1]):
            _copy(record.run_dir, run_dir, attempt.workspace_dir)
    if regraded:
        for name in _OF_CHECKS:
            (run_dir / old.artifact_dir / name).unlink(missing_ok=True)
        for log in (run_dir / old.artifact_dir).glob("turns/*/check.log"):
            log.unlink()


def _copy(source: Path, destination: Path, folder: str) -> None:
    if (source / folder).is_dir():
        (destination / folder).mkdir(parents=True, exist_ok=True)
        copy_tree(source / folder, destination / folder, force=True)


def _keep(parts: RunParts, ground: Path, destination: Path) -> list[str]:
    destination.mkdir(parents=True)
    copy_tree(ground, destination, force=True)
    return mask_files(parts.masker, destination) if parts.masker else []


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
        artifact_dir=f"trials/{trial_folder(trial.key)}/1",
        failure=failure,
        failure_class=FailureClass(id="not-recorded", label="Not recorded"),
    )


def restore_workspace(record: RecordedRun, result: TrialResult, into: Path) -> tuple[Gaps, Changes]:
    """Restore the workspace of a trial in the new folder *into*; return what is missing of it, and what had changed."""
    into.mkdir()
    artifacts = record.run_dir / result.artifact_dir
    recorded = _known_changes(artifacts, result)
    changes = _changes(artifacts, recorded)
    unknown = None if recorded is not None else _UNKNOWN_CHANGES
    kept = record.run_dir / result.workspace_dir if result.workspace_dir else None
    if kept is not None and kept.is_dir():
        copy_tree(kept, into, force=True)
        return Gaps(changes=unknown), changes
    reason = next(_reasons(record, result, recorded), None)
    template = _template(record)
    if reason is None and template is not None:
        copy_tree(template, into)
    _restore_changes(artifacts, into)
    return Gaps(workspace=reason, changes=unknown, paths=recorded.kept if recorded else ()), changes


def _known_changes(artifacts: Path, result: TrialResult) -> RecordedChanges | None:
    found = read_changes(artifacts)
    listed = 0 if found is None else len(found.created) + len(found.modified) + len(found.deleted)
    return found if listed == result.changed_files else None


def _changes(artifacts: Path, recorded: RecordedChanges | None) -> Changes:
    if recorded is None:
        return Changes()
    diff = artifacts / _DIFF_FILE
    return Changes(
        created=recorded.created,
        modified=recorded.modified,
        deleted=recorded.deleted,
        diff=read_file(diff).decode("utf-8", "replace") if diff.is_file() else "",
    )


def _reasons(record: RecordedRun, result: TrialResult, recorded: RecordedChanges | None) -> Iterator[str]:
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
    if recorded is None:
        yield _UNKNOWN_CHANGES
        return
    yield from (f"{path}: {reason}" for path, reason in recorded.missing.items())
    if recorded.git:
        yield "its .git folder is never recorded"


def _template(record: RecordedRun) -> Path | None:
    named = record.asked.workspace.get("template_dir") if record.asked.workspace else None
    return Path(named) if isinstance(named, str) else None


def _untouched_since(folder: Path, moment: str) -> bool:
    """Return whether nothing in *folder* changed since; a copy of it counts as changed, because its times are new."""
    since_ns = int(datetime.fromisoformat(moment).timestamp() * 1e9)
    if not folder.is_dir():
        return False
    for place, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            found = os.lstat(f"{place}/{name}")
            if max(found.st_mtime_ns, found.st_ctime_ns) >= since_ns:
                return False
    return True


def _restore_changes(artifacts: Path, into: Path) -> None:
    try:
        lay(artifacts, into)
    except (OSError, ValueError, tarfile.TarError) as error:
        raise WorkspaceError(f"the recorded changes in {artifacts} cannot be restored: {error}") from error


def describe_changes(run_id: str, seen: Iterable[tuple[TrialResult, TrialResult]]) -> list[str]:
    """Return a line of totals, a line for each verdict that changed, and the counts before and after."""
    pairs = sorted(seen, key=lambda pair: str(pair[0].key))
    changed = [(old, new) for old, new in pairs if old.status != new.status]
    trials = "verdict" if len(pairs) == 1 else "verdicts"
    lines = ["", f"regraded {run_id}: {len(changed) or 'none'} of {len(pairs)} {trials} changed"]
    if changed:
        lines += ["", *_table(changed)]
    before, after = (_counts(pair[side].status for pair in pairs) for side in (0, 1))
    return [*lines, "", f"  before  {before}", f"  after   {after}"]


def _table(changed: list[tuple[TrialResult, TrialResult]]) -> list[str]:
    names = [_name(new) for _, new in changed]
    moves = [f"{old.status} -> {new.status}" for old, new in changed]
    name_width, move_width = max(map(len, names)), max(map(len, moves))
    return [
        f"  {name.ljust(name_width)}  {move.ljust(move_width)}  {_reason(new)}".rstrip()
        for name, move, (_, new) in zip(names, moves, changed, strict=True)
    ]


def _name(result: TrialResult) -> str:
    key = result.key
    arm = "" if key.arm == "default" else f"/{key.arm}"
    return f"{key.case} @ {key.runner}{arm} #{key.number}"


def _reason(result: TrialResult) -> str:
    return one_line(result.failure.message, _WIDEST) if result.failure else ""


def _counts(statuses: Iterable[str]) -> str:
    found = Counter(statuses)
    return ", ".join(f"{found[status]} {status}" for status in STATUSES if found[status])

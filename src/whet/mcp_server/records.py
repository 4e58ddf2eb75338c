"""The tools `failures` and `trial`: read the record of a run of any origin, and show a bounded part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from whet.errors import UsageError
from whet.mcp_server.answers import CheckOutcome, FailuresAnswer, FailureSummary, Omissions, TrialAnswer
from whet.mcp_server.project import ServedProject
from whet.model.codec import WireError, decode_event
from whet.model.grade import AS_EXPECTED
from whet.model.run import TrialKey
from whet.reading.text import clean, count, listed, one_line, shorten, shown
from whet.record.document import WrittenTrial
from whet.record.read.rows import RowKey, TrialRow
from whet.report.finding import describe, message_of
from whet.view.documents import ShownAttempt
from whet.view.run import RunView
from whet.view.trial import TrialViews, open_events

_LONGEST_REASON = 600
_STEPS, _LONGEST_STEP, _MOST_EVENTS = 40, 300, 5000
_LONGEST_EVENT = 1 << 20
_CHECKS, _PATHS, _LONGEST_PATH = 50, 50, 300
_LONGEST_TEXT, _LONGEST_DIFF, _LONGEST_STDERR = 4000, 6000, 2000


def failures_of(project: ServedProject, *, run: str, limit: int, offset: int) -> FailuresAnswer:
    """Return the trials of a run that did not go as expected, from place *offset* on."""
    view = RunView(project.single_run(run, project.settings()))
    rows = [view.rows.rows[key] for key in TrialViews(view).keys]
    failures = [row for row in rows if row.status not in AS_EXPECTED]
    page = failures[offset : offset + limit]
    remaining = len(failures) - offset - len(page)
    more = f"{count(remaining, 'more failure')}; call failures with offset={offset + len(page)}"
    return FailuresAnswer(
        run=view.id,
        status=view.status,
        counts=view.head.counts,
        total=len(failures),
        by_class=dict(Counter(_class(row) for row in failures).most_common(50)),
        failures=[_summary(row, view, project) for row in page],
        problem=view.problem,
        left_out=[more] if remaining > 0 else [],
    )


def _summary(row: TrialRow, view: RunView, project: ServedProject) -> FailureSummary:
    return FailureSummary(
        trial=trial_id(row.key, view),
        status=row.status,
        failure_class=_class(row),
        reason=_foreign(message_of(row)),
        record=project.shown(view.run_dir / row.artifact_dir) if row.artifact_dir else None,
    )


def _foreign(text: str) -> str:
    """Return a reason without what moves a cursor or cannot be seen."""
    return shorten(clean(text), _LONGEST_REASON)


def _class(row: TrialRow) -> str:
    """Return the failure class of a trial, or else the code of what happened."""
    if row.failure_class is not None:
        return one_line(row.failure_class.id, 100)
    return one_line(row.failure.code, 100) if row.failure is not None else "check"


def trial_id(key: RowKey, view: RunView) -> str:
    """Return the name of a trial as failures have it."""
    suite = view.asked.suite or "suite"
    return str(TrialKey(suite=suite, case=key.case, runner=key.runner, arm=key.arm, number=key.number))


def one_trial(project: ServedProject, *, run: str, trial: str) -> TrialAnswer:
    """Return what is known of one trial."""
    view = RunView(project.single_run(run, project.settings()))
    trials = TrialViews(view)
    key = _find(trial, trials, view)
    document = trials.document(key)
    if document is None or document.trial is None:
        problem = (document.problem if document else None) or "its record cannot be read"
        raise UsageError(f"{trial}: {problem}", hint=f"whet verify {project.shown(view.run_dir)}")
    attempt = next((entry for entry in document.attempts if entry.dir == document.trial.artifact_dir), None)
    shown_attempt = attempt or ShownAttempt(number=1, dir=document.trial.artifact_dir)
    problems = (document.problem, shown_attempt.problem, view.problem)
    return _answer(
        document.trial,
        shown_attempt,
        run=view.id,
        name=trial_id(key, view),
        prompt=document.case.prompt,
        steps=list(_steps(view, shown_attempt.dir)),
        record=project.shown(view.run_dir / document.trial.artifact_dir),
        problem="; ".join(problem for problem in problems if problem) or None,
    )


def _answer(
    result: WrittenTrial,
    attempt: ShownAttempt,
    *,
    run: str,
    name: str,
    prompt: str | None,
    steps: list[str],
    record: str,
    problem: str | None,
) -> TrialAnswer:
    omissions = Omissions()
    checks = [
        CheckOutcome(check=one_line(grade.check), passed=grade.passed, reason=_foreign(grade.reason))
        for grade in result.grades
    ]
    folder = f"read the files in {record}"
    if attempt.diff_cut:
        omissions.sentences.append(f"diff: cut; {folder}")
    return TrialAnswer(
        run=run,
        trial=name,
        status=result.status,
        reason="" if result.passed else omissions.text(message_of(result), _LONGEST_TEXT, "reason", folder),
        checks=omissions.first(checks, _CHECKS, "checks", folder),
        prompt=None if prompt is None else omissions.text(prompt, _LONGEST_TEXT, "prompt", folder),
        final_answer=omissions.text(attempt.final_output, _LONGEST_TEXT, "final_answer", folder),
        steps=omissions.last(steps, _STEPS, "steps", f"read {record}/events.jsonl"),
        created=_paths(attempt.changes.created, "created", omissions, folder),
        modified=_paths(attempt.changes.modified, "modified", omissions, folder),
        deleted=_paths(attempt.changes.deleted, "deleted", omissions, folder),
        diff=omissions.text(attempt.diff, _LONGEST_DIFF, "diff", folder),
        stderr=omissions.text(attempt.stderr, _LONGEST_STDERR, "stderr", folder),
        seconds=result.duration_s,
        cost_usd=result.cost_usd,
        attempts=max(1, len(result.attempts)),
        record=record,
        problem=problem,
        left_out=omissions.sentences,
    )


def _paths(paths: Sequence[str], what: str, omissions: Omissions, remedy: str) -> list[str]:
    return [one_line(path, _LONGEST_PATH) for path in omissions.first(paths, _PATHS, what, remedy)]


def _find(trial: str, trials: TrialViews, view: RunView) -> RowKey:
    """Return the trial that *trial* names: in full, or without its suite, or by a case that ran once."""
    names = {trial_id(key, view): key for key in trials.keys}
    short_names = {name.partition("::")[2]: key for name, key in names.items()}
    for candidates in (names, short_names):
        if trial in candidates:
            return candidates[trial]
    of_case = [key for key in trials.keys if key.case == trial]
    if len(of_case) == 1:
        return of_case[0]
    near = [trial_id(key, view) for key in of_case] or list(names)
    hint = f"name one of {listed(near)}" if near else "none of its trials has ended"
    raise UsageError(f"{shown(trial)} is not one trial of {view.id}", hint=hint)


def _steps(view: RunView, folder: str) -> Iterator[str]:
    """Yield what the agent did, one line for each event that says something."""
    file = open_events(view, folder)
    if file is None:
        return
    with file:
        for line in islice(iter(lambda: file.readline(_LONGEST_EVENT), b""), _MOST_EVENTS):
            try:
                text = describe(decode_event(line))
            except WireError:
                # What its agent printed itself, or half a line.
                continue
            if text:
                yield one_line(text, _LONGEST_STEP)

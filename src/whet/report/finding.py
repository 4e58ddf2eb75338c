"""What is said of one trial: its name, its failure class, and the short facts of one that did not go as expected."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from whet.grade.base import QUESTIONS_FILE
from whet.model.event import ExecutionSummary, Results
from whet.model.grade import Status
from whet.model.naming import STATE_FILE
from whet.model.run import RunInfo, TrialKey, TrialResult
from whet.report.remains import last_printed, last_seen, notes_of
from whet.report.text import excerpt, one_line, path_for_people

# Where a workspace was while its agent was running, such as /tmp/whet-1a2b3c/w7: another place for every attempt.
_LIVE_PLACE = re.compile(r"/whet-\w+/\w+")

# Of what a check printed.
PRINTED_LINES = 5

ShownStatus = Status | Literal["not-run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A trial that did not go as expected: all that is shown of it, already harmless."""

    key: str
    status: Status
    message: tuple[str, ...]
    where: str | None
    artifacts: str
    workspace: str | None
    cause: str | None
    attempts: int
    # What to type to put its questions to its agent, where both are there.
    ask: str | None
    # What else a person should know of it, the last that its check printed, and what its agent did last.
    notes: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    seen: str | None = None


def execution_name(case: str, variant: str) -> str:
    """A case, with its variant where there is one to tell apart."""
    return one_line(case if variant == "default" else f"{case} / {variant}", 120)


def trial_name(key: TrialKey, *, trials: int | None = None) -> str:
    """A trial as people say it: `case @ runner #2`; the number is left off where there is only one."""
    number = "" if trials == 1 else f" #{key.number}"
    return f"{execution_name(key.case, key.variant)} @ {one_line(key.runner, 80)}{number}"


def class_of(result: TrialResult) -> tuple[str, str]:
    """The id and title of the group that a failed trial belongs to."""
    if result.failure_class is not None:
        return result.failure_class.id, one_line(result.failure_class.title, 120)
    if result.status == "unexpected-passed":
        return "unexpected-passed", "Unexpected pass"
    if result.failure is not None:
        return result.failure.code, one_line(result.failure.code, 120)
    return "check", "Check not met"


def finding_of(result: TrialResult, info: RunInfo, cwd: Path) -> Finding:
    """The short facts of a trial that did not go as expected."""
    failure = result.failure
    location = failure.location if failure else None
    workspace = result.workspace_dir
    folder = info.run_dir / result.artifact_dir
    return Finding(
        key=one_line(str(result.key), 300),
        status=result.status,
        message=excerpt(message_of(result)),
        where=f"{path_for_people(Path(location.file), cwd)}:{location.line}" if location else None,
        artifacts=path_for_people(folder, cwd),
        workspace=path_for_people(info.run_dir / workspace, cwd) if workspace else None,
        cause=one_line(f"{failure.cause}, while in phase {failure.phase}", 120) if failure else None,
        attempts=len(result.attempts),
        ask=_ask(folder, cwd),
        notes=notes_of(result),
        printed=last_printed(folder, PRINTED_LINES),
        seen=last_seen(result, folder),
    )


def snapshot_finding(summary: ExecutionSummary, results: Results, info: RunInfo, cwd: Path) -> Finding | None:
    """What is to be said of an execution whose usage snapshot does not hold; none where it does."""
    outcome = summary.snapshot
    if outcome is None or outcome.verdict is None:
        return None
    first = next(iter(results.trials(summary.execution)))
    return Finding(
        key=one_line(outcome.key, 300),
        status=outcome.verdict,
        message=(one_line(f"snapshot {outcome.status}: {outcome.message}", 500),),
        where=None,
        artifacts=path_for_people(info.run_dir / first.artifact_dir, cwd),
        workspace=None,
        cause="its usage snapshot",
        attempts=1,
        ask=None,
    )


def _ask(folder: Path, cwd: Path) -> str | None:
    askable = all((folder / name).is_file() for name in (QUESTIONS_FILE, STATE_FILE))
    return f"whet explain {shlex.quote(path_for_people(folder, cwd))}" if askable else None


def likeness(result: TrialResult, finding: Finding) -> str:
    """What *finding* says without the names of its own trial; two that are alike in this say the same."""
    text = "\n".join(finding.message)
    for own in (str(result.key), result.artifact_dir, result.workspace_dir):
        text = text.replace(own, "") if own else text
    text = re.sub(rf"(?<![\w-]){re.escape(result.key.runner)}(?![\w-])", "", text)
    return "\n".join((_LIVE_PLACE.sub("", text), finding.cause or "", finding.status))


def message_of(result: TrialResult) -> str:
    """Why a trial did not go as expected, in whoever's words are known."""
    if result.failure is not None and result.failure.message.strip():
        return result.failure.message
    unmet = "\n".join(_unmet(result))
    if unmet:
        return unmet
    if result.status == "unexpected-passed":
        return "It passed, and the case is declared to fail: if that is good news, take expected_fail away."
    return result.failure.code if result.failure else "No check says why."


def _unmet(result: TrialResult) -> Iterator[str]:
    for grade in result.grades:
        if not grade.passed:
            yield f"{grade.check}: {grade.reason}" if grade.reason else f"{grade.check}: not met"

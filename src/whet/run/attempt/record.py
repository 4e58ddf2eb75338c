"""What is known of an attempt, and the one place where its errors become data."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from msgspec import Struct, field

from whet.errors import AttemptError, DiskFailed
from whet.model.grade import Changes, Failure, FailureClass, Grade, Location
from whet.model.run import Trial
from whet.model.session import SessionSummary, Usage
from whet.model.skills import SkillDetection
from whet.model.spending import Bill
from whet.run.attempt.home import Resumable
from whet.run.context import RunContext
from whet.secrets import Masker
from whet.workspace.protected import WorkspaceSurvey

# A disk that is full or broken.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_GO_ON = "when the disk works again, --resume runs this trial again"


class AttemptRecord(Struct):
    """What is known of an attempt so far; filled step by step, so that a failure keeps all that came before it."""

    runner: str
    number: int
    artifact_dir: str
    began: float = field(default_factory=time.monotonic)
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    duration_s: float = 0.0
    session: SessionSummary | None = None
    # A session that did not end well.
    unfinished: SessionSummary | None = None
    usage: Usage = field(default_factory=Usage)
    # The part of it that no provider was asked for.
    unpaid_usage: Usage = field(default_factory=Usage)
    # Whether a part of its cost is unknown.
    unpriced: bool = False
    # What the model that played the user of a conversation took, and what the judge did.
    users: Bill = field(default_factory=Bill)
    judge: Bill = field(default_factory=Bill)
    steps: int = 0
    # How often its model was asked through the gateway.
    requests: int = 0
    detected_skills: tuple[SkillDetection, ...] = ()
    # The skills that the agent says it offers to its model, and whether anything shows the skill of the arm.
    offered_skills: tuple[str, ...] = ()
    skill_shown: bool | None = None
    # Whether it would be seen that the agent loads a skill, and whether it loaded that of the arm; None is not known.
    tells_loads: bool = False
    skill_loaded: bool | None = None
    # Whether the case asks not to load it, or to load it, and whether the agent lists the skills that it offers.
    skill_unwanted: bool = False
    skill_wanted: bool = False
    # The other skills that it loaded.
    other_skills: tuple[str, ...] = ()
    skills_listed: bool = False
    # Whether what the agent says may take the trial out of the rate.
    trusted: bool = True
    changes: Changes = field(default_factory=Changes)
    grades: list[Grade] = field(default_factory=list)
    failure: Failure | None = None
    failure_class: FailureClass | None = None
    retry: bool = True
    workspace_dir: str | None = None
    resumable: Resumable | None = None
    surveyed: WorkspaceSurvey | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def paid_usage(self) -> Usage:
        """What providers were asked for, also in the place of a user and of a judge."""
        return self.usage - self.unpaid_usage + self.users.usage + self.judge.usage

    def pay_user(self, bill: Bill) -> None:
        """Take the bill of the model that plays the user."""
        self.users += bill

    def pay_judge(self, bill: Bill) -> None:
        """Take the bill of the judge."""
        self.judge += bill

    @property
    def vacuous(self) -> bool:
        """Whether every check held before the agent began."""
        return self.surveyed is not None and self.surveyed.vacuous

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return self.failure is None and all(grade.passed for grade in self.grades)

    def masked_notes(self, masker: Masker) -> list[str]:
        """Return the notes as they are kept; what graders and agents wrote may be in them."""
        return [masker.text(note) for note in self.notes]

    def fail(self, context: RunContext, error: AttemptError) -> None:
        """Turn an error into the failure of this attempt."""
        disk = _is_of_the_disk(error)
        location, traceback = getattr(error, "location", None), getattr(error, "traceback", None)
        hints = [error.hint, _GO_ON if disk else None]
        message = "\n".join((error.message, *(hint for hint in hints if hint)))
        self.failure = Failure(
            phase=error.phase,
            code=DiskFailed.code if disk else error.code,
            cause=error.cause,
            message=context.masker.text(message),
            location=location if isinstance(location, Location) else None,
            traceback=None if traceback is None else context.masker.text(traceback),
        )
        failure_class, kind = getattr(error, "failure_class", None), DiskFailed if disk else error
        self.failure_class = mask_class(
            context.masker, failure_class or FailureClass(id=kind.class_id, label=kind.class_label)
        )
        self.retry = error.retry


def mask_class(masker: Masker, failure_class: FailureClass) -> FailureClass:
    """Return the class without secrets: a check may make its id and its label from anything."""
    label = None if failure_class.label is None else masker.text(failure_class.label)
    return FailureClass(id=masker.text(failure_class.id), label=label)


@contextmanager
def recording(context: RunContext, trial: Trial, number: int) -> Iterator[AttemptRecord]:
    """Begin the record of one attempt; an error of the attempt becomes data in it."""
    folder = f"trials/{trial.key.folder}/{number}"
    record = AttemptRecord(runner=trial.key.runner, number=number, artifact_dir=folder)
    try:
        yield record
    except AttemptError as error:
        record.fail(context, error)
    except Exception as error:  # noqa: BLE001 - the engine's one catch-all: no trial may end the run
        record.fail(context, _internal(error))
    except BaseException:
        # A signal ends it without a result, and what it used was paid for.
        context.link.cut_short(trial.key, record.paid_usage)
        raise
    record.duration_s = time.monotonic() - record.began


def _internal(error: Exception) -> AttemptError:
    """Wrap an unexpected error: a full disk, or a fault of whet."""
    if isinstance(error, OSError):
        unkept = AttemptError(f"the record of this trial could not be kept: {error}")
        unkept.__cause__ = error
        return unkept
    return AttemptError(f"{type(error).__name__}: {error}", hint="this is a fault of whet; please report it")


def _is_of_the_disk(error: AttemptError) -> bool:
    """Return whether a disk kept whet itself from its work; what it does to an agent's program is the agent's."""
    reason = error.__cause__
    return error.cause == "infrastructure" and isinstance(reason, OSError) and reason.errno in _OF_THE_DISK

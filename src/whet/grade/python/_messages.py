"""What whet asks a worker about a check, and what the worker answers.

Apart from the code that runs checks, because whet needs only this of it.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from whet.checks.context import Gaps, Shell
from whet.model.grade import Changes, ExplainQuestion, FailureClass, Location
from whet.model.run import TrialResult
from whet.model.session import SessionSummary


class CheckRequest(Struct, frozen=True, kw_only=True, tag="check"):
    """Ask for one of a case's checks, by its place among them."""

    case: str
    check: int
    arm: str
    session: SessionSummary
    events_path: str | None
    workspace: str
    changes: Changes
    shell: Shell
    gaps: Gaps
    timeout_s: float


class ClassifyRequest(Struct, frozen=True, kw_only=True, tag="classify"):
    """Ask a case what class a failure belongs to."""

    case: str
    result: TrialResult


REQUESTS: Any = CheckRequest | ClassifyRequest
# A mistake is a crash that is surely the author's doing; broken is what we could not do for the check.
Outcome = Literal["passed", "assertion", "crash", "mistake", "broken", "not-recorded"]


class CheckAnswer(Struct, frozen=True, kw_only=True):
    """The result of a check, or of a classifying function."""

    outcome: Outcome
    message: str = ""
    location: Location | None = None
    traceback: str | None = None
    failure_class: FailureClass | None = None
    questions: tuple[ExplainQuestion, ...] = ()
    printed: str = ""
    duration_s: float = 0.0
    # The places of the events that its expectations looked at.
    events: tuple[int, ...] = ()

"""The contract of a grader, and the evidence that it looks at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from whet.grade.shell import Shell
from whet.model.changes import Changes
from whet.model.grade import Grade
from whet.model.session import SessionSummary
from whet.model.suite import Case, Check, Suite
from whet.packages.prepare import Prepared
from whet.workspace.baseline import Baseline

# Where questions for the agent are kept, beside the other evidence.
QUESTIONS_FILE = "explain.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a grader may look at; `keep` puts a text beside it, under a file name, without secrets.

    `baseline` is what was surveyed before the agent started, `command_timeout_s` the limit of each command of a claim;
    `skill` is the folder of the one under test, in the variant that has it.
    """

    case: Case
    session: SessionSummary
    events_path: Path | None
    workspace: Path
    changes: Changes
    artifact_dir: Path
    shell: Shell
    keep: Callable[[str, str], None]
    timeout_s: float
    baseline: Baseline | None = None
    # The package that the workspace began as, where it did.
    prepared: Prepared | None = None
    command_timeout_s: float = 300.0
    variant: str = "default"
    skill: Path | None = None


class Grader(Protocol):
    """Decides one kind of check; made once per run, before the event loop starts."""

    # Whether its decisions are worth knowing also where the agent came to no good end; they cannot change the verdict.
    informs: bool

    def __init__(self, suite: Suite) -> None: ...

    async def survey(self, case: Case, workspace: Path, store: Path, *, timeout_s: float) -> Baseline | None:
        """What its checks need to know of a workspace before the agent starts; copies go to the folder *store*."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """The decision; a `GraderError` where there is none."""

    def grade_all(self, checks: Sequence[Check], evidence: Evidence) -> AsyncIterator[Grade]:
        """The decisions on *checks*, one after the other; for graders that are quicker with several at once."""

    def close(self) -> None:
        """Let go of what it holds."""


@runtime_checkable
class Releasing(Protocol):
    """A grader that holds what must be let go of in the event loop, such as connections."""

    async def release(self) -> None:
        """Let go of it; called once, when no check is asked any more."""

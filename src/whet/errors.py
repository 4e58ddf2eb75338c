"""Every exception that whet raises, as one tree.

WhetError
├── UsageError                you can fix it: printed without a traceback, exit code 2
│   ├── ConfigError           settings are wrong
│   ├── SuiteError            a suite is wrong; holds all of its problems
│   ├── UnknownName           nothing has this name
│   ├── NothingSelected       nothing of a suite is left to run
│   ├── PathRefused           the system refuses access to a path
│   └── PluginError           an extension cannot be loaded
├── AttemptError              ends one attempt, never the run; recorded as a `Failure`
│   ├── WorkspaceError        the workspace could not be prepared
│   │   └── BootstrapFailed · DiskFailed · WorkspaceSpoiled · PackageError: PackageUnreachable
│   ├── SandboxError          the sandbox could not be set up
│   ├── Contaminated          a session without the skill found it
│   ├── AgentError            the agent did not finish its session
│   │   ├── AgentNotFound · AgentNotStarted · AgentCrashed · AgentTimedOut
│   │   ├── StepLimitReached · BudgetSpent · RunBudgetSpent · OutputTooLarge · CeilingReached
│   │   ├── SessionUnfinished · SessionUnreadable · ContextExhausted · PromptTooLong
│   │   ├── SkillFailed · SkillUnreachable · CassetteMissed
│   │   └── ProviderFailed: ModelRejected · KeyRefused · ProviderUnreachable
│   └── GraderError           a check did not decide
│       ├── CheckCrashed · CheckMistaken · CheckTimedOut · CheckerDied
│       └── Undecidable · Vacuous · JudgeFailed: NoVerdict · JudgeRefused
└── StoreError                the record of a run cannot be read or written
    ├── RecordChanged         something else than whet changed the record
    └── RecordLost            a run started and cannot be recorded: exit code 4
        └── RecordUnwritten   the disk is full or broken; you can resume the run
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

Cause = Literal["agent", "suite", "provider", "infrastructure", "cancelled"]
Phase = Literal["workspace", "bootstrap", "start", "agent", "observe", "check"]


class WhetError(Exception):
    """The base class of all errors that whet expects; the message says what is wrong, the hint what to do."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(WhetError):
    """An error that you can fix."""

    code = "usage"


class ClaimError(UsageError):
    """Text that is not a claim: what is wrong with it, and the nearest claim that would be right."""

    code = "claim"


class ConfigError(UsageError):
    """One or several settings are wrong."""

    code = "config"


def harmless(text: str) -> str:
    """Return *text* with escapes for all that could change a terminal, such as colours; line breaks stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


# Help and many an error are shown without msgspec, which takes longer to import than both.
class Problem(NamedTuple):
    """One thing that is wrong in a suite, and where."""

    file: str
    message: str
    case: str | None = None
    field: str | None = None
    hint: str | None = None
    # The rule that found it, if it has a name.
    rule: str | None = None

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.file, self.case, self.field) if part)
        rule = f" [{self.rule}]" if self.rule else ""
        return harmless(f"{where}: {self.message}{rule}" if where else f"{self.message}{rule}")


class SuiteError(UsageError):
    """A suite cannot run; holds all of its problems and warnings."""

    code = "suite"

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Problem] = ()) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)


class UnknownName(UsageError):
    """Nothing has this name; the hint names the nearest that exists.

    `kind` says what `names` would be, and `known` those that exist, if a part of a suite was selected by them.
    """

    code = "name"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        kind: str = "",
        names: Sequence[str] = (),
        known: Sequence[str] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.names = tuple(names)
        self.known = tuple(known)


class NothingSelected(UsageError):
    """Nothing of a suite is left to run; of several suites, the others may have something."""

    code = "selection"


class NothingOutstanding(NothingSelected):
    """All that was asked for has been run as it is now, which is no mistake."""

    def __init__(self, message: str, cases: int = 0, failed: int = 0) -> None:
        super().__init__(message)
        self.cases = cases
        self.failed = failed


class PathRefused(UsageError):
    """The system refuses access to a path: it has no permission, its disk is read-only, or it is too long."""

    code = "path"

    def __init__(self, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {reason}", hint=hint)
        self.path = path
        self.reason = reason


class PluginError(UsageError):
    """An extension cannot be loaded."""

    code = "plugin"


class AttemptError(WhetError):
    """Ends one attempt.

    `cause` decides the verdict: the trial fails if it is the agent, and is errored otherwise.
    `retry` says whether another attempt could end differently. The class of the failure has an id and a label.
    A subclass inherits what it does not say. One with a label has its code as the id of its class.
    """

    code = "attempt"
    phase: ClassVar[Phase] = "agent"
    cause: ClassVar[Cause] = "infrastructure"
    retry: ClassVar[bool] = True
    class_id: ClassVar[str] = "infrastructure"
    class_label: ClassVar[str] = "Infrastructure"

    def __init_subclass__(
        cls,
        code: str | None = None,
        label: str | None = None,
        class_id: str | None = None,
        phase: Phase | None = None,
        cause: Cause | None = None,
        retry: bool | None = None,
    ) -> None:
        super().__init_subclass__()
        given = {
            "code": code,
            "class_label": label,
            "class_id": class_id or (code if label else None),
            "phase": phase,
            "cause": cause,
            "retry": retry,
        }
        for name, value in given.items():
            if value is not None:
                setattr(cls, name, value)


class WorkspaceError(AttemptError, code="workspace", label="Workspace", phase="workspace"):
    """The workspace could not be prepared."""


class BootstrapFailed(
    WorkspaceError,
    code="bootstrap",
    label="Workspace bootstrap",
    class_id="workspace-bootstrap",
    phase="bootstrap",
    cause="suite",
):
    """The bootstrap command of the suite failed."""


class FixtureMissing(WorkspaceError, code="fixture", label="Missing fixture", cause="suite", retry=False):
    """A file that a case puts into its workspace is not there, or is not one that it may use."""


class DiskFailed(WorkspaceError, code="disk", label="Disk"):
    """A disk is full or broken, so whet could not do its part: the trial is errored."""


class WorkspaceSpoiled(
    WorkspaceError, code="workspace-spoiled", label="Workspace spoiled", phase="observe", cause="agent"
):
    """The agent left its workspace in a state that whet cannot read."""


class PackageError(WorkspaceError, code="package", label="Package", cause="suite", retry=False):
    """A package cannot be used: it is not an archive, is unsafe to unpack, or lacks a file that its case names."""


class PackageUnreachable(
    PackageError, code="package-unreachable", label="Package unreachable", cause="infrastructure", retry=True
):
    """A package could not be fetched."""


class ImageError(WorkspaceError, code="image", label="Image", cause="suite", retry=False):
    """The image of a container could not be built."""


class ImageMissing(ImageError, code="image-missing", label="Image missing", cause="infrastructure"):
    """An image is not on this machine, and could not be fetched."""


class EnvironmentFailed(WorkspaceError, code="environment", label="Environment", cause="suite"):
    """The container of a task did not become ready."""


class SandboxError(AttemptError, code="sandbox", label="Sandbox", phase="start"):
    """The sandbox of a process could not be set up."""


class NodeLost(AttemptError, code="node-lost", label="Node lost", phase="start"):
    """The node of a cluster that an attempt ran on is gone, or the process of it that ran the attempt."""


class Contaminated(
    AttemptError, code="contaminated", label="Contaminated", phase="observe", cause="suite", retry=False
):
    """A session that should run without the skill found it, so it cannot be compared."""


class AgentError(AttemptError, code="agent", label="Runner crash", class_id="runner-crash", cause="agent"):
    """The agent did not finish its session."""


class AgentNotFound(
    AgentError, code="agent-not-found", label="Agent not found", phase="start", cause="infrastructure", retry=False
):
    """The program of the agent does not exist."""


class AgentNotStarted(
    AgentError, code="agent-not-started", label="Agent not started", phase="start", cause="infrastructure", retry=False
):
    """The program of the agent exists, but the system refuses to start it."""


class AgentCrashed(AgentError, code="agent-crashed"):
    """The program ended with an exit code other than 0, or by a signal."""


class AgentTimedOut(AgentError, code="timeout", label="Timeout"):
    """The program was still running at its time limit."""


class StepLimitReached(AgentError, code="max-steps", label="Max steps exceeded"):
    """The agent started more rounds of the model than it may."""


class BudgetSpent(AgentError, code="budget", label="Budget spent"):
    """The agent spent more than its budget: of dollars, or else of tokens or requests."""


class MoneySpent(BudgetSpent):
    """The agent has spent its dollars, and not another of its budgets."""


class RunBudgetSpent(AgentError, code="max-cost", label="Budget of the run spent", cause="cancelled", retry=False):
    """The money of the whole run was spent while the agent was working; a resumed run tries this trial again."""


class OutputTooLarge(AgentError, code="output-limit", label="Output limit exceeded"):
    """The program printed more than its limit."""


class CeilingReached(AgentError, code="ceiling", label="Ceiling reached"):
    """The program exceeded its limit of memory, processes or CPUs, which ended it."""


class SessionUnfinished(AgentError, code="unfinished", label="Session unfinished"):
    """The program ended with exit code 0, but its session has no answer."""


class SessionLost(AgentError, code="session-lost", label="Session lost"):
    """The agent did not go on with the session that it was in."""


class SessionUnreadable(AgentError, code="normalization", label="Report normalization", phase="observe"):
    """The output of the agent is not a session. The agent fails, because it decides what it prints."""


class ContextExhausted(AgentError, code="context-exhausted", label="Context exhausted"):
    """The session outgrew the context of its model, and the agent could not continue."""


class PromptTooLong(AgentError, code="prompt-too-long", label="Prompt too long", cause="suite", retry=False):
    """The prompt does not fit into the context of the model, so no agent could start."""


class SkillFailed(AgentError, code="skill-failed", label="Skill failure"):
    """A callable skill answered with an error, or not with an answer."""


class SkillUnreachable(
    AgentError, code="skill-unreachable", label="Skill unreachable", phase="start", cause="infrastructure"
):
    """A callable skill cannot be reached."""


class ProviderFailed(AgentError, code="provider", label="Provider failure", cause="provider"):
    """The provider of the model failed, and the agent could not recover."""


class ModelRejected(ProviderFailed, code="model-rejected", label="Rejected model", retry=False):
    """The provider does not know the model or refuses it, so no trial of this runner can work."""


class KeyRefused(ProviderFailed, code="key-refused", label="Key refused", retry=False):
    """The provider refuses the key or the login of a runner; a resumed run tries its trials again."""


class ProviderUnreachable(ProviderFailed, code="provider-unreachable", label="Provider unreachable", retry=False):
    """No provider answered for a runner, at any time of this run; a resumed run tries its trials again."""


class CassetteMissed(AgentError, code="cassette", label="Not on the cassette", cause="suite", retry=False):
    """The agent asked its model something that its cassette has no answer to."""


class UserFailed(AttemptError, code="user", label="User model", cause="provider"):
    """The model that plays the user of a conversation did not answer, which says nothing about the agent."""


class UserRefused(UserFailed, code="user-refused", label="Key of the user model refused", retry=False):
    """The provider refuses the key of the model that plays the user, so no conversation with it can work."""


class GraderError(AttemptError, code="grader", label="Grader", phase="check", cause="suite", retry=False):
    """A check did not decide; of one that raised, with the place, the traceback and the class of the failure."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        location: object = None,
        traceback: str | None = None,
        failure_class: object = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.location = location
        self.traceback = traceback
        self.failure_class = failure_class


class CheckCrashed(GraderError, code="check-crash", label="Check crash", cause="agent", retry=True):
    """A check raised something else than an assertion; the case fails as if an expectation did not hold."""


class CheckMistaken(GraderError, code="check-mistake", label="Mistake in the check"):
    """A check raised something that can only be a mistake in the check; another attempt would change nothing."""


class CheckTimedOut(GraderError, code="check-timeout", label="Check timeout"):
    """A check did not end in time."""


class CheckerDied(GraderError, code="checker-died", label="Checker died"):
    """The process that ran a check died."""


class Undecidable(GraderError, code="undecidable", label="Undecidable", cause="agent", retry=True):
    """What the agent left keeps a check from deciding, although it decides on an untouched workspace."""


class Vacuous(GraderError, code="vacuous", label="Vacuous case"):
    """Every expectation of a case held before its agent started, so running it would show nothing."""


class JudgeFailed(GraderError, code="judge", label="Judge", cause="provider"):
    """The judge gave no verdict, even when it was asked again."""


class JudgeBroken(JudgeFailed, code="judge-broken", cause="infrastructure"):
    """The agent that judges could not be run."""


class NoVerdict(JudgeFailed):
    """The judge answered without a verdict, perhaps because of what it was shown."""


class JudgeRefused(JudgeFailed, code="judge-refused", label="Key of the judge refused"):
    """The provider refuses the key of the judge, or does not answer, so no case with a judge can be decided."""


class StoreError(WhetError):
    """The record of a run cannot be read or written."""

    code = "store"


class RecordChanged(StoreError):
    """Something else than whet changed the record of a run."""

    code = "changed"


class RecordLost(StoreError):
    """A run started, and its results cannot be recorded."""

    code = "record"


class RecordUnwritten(RecordLost):
    """The record is intact, but no more can be written to it; the hint says how to resume the run."""

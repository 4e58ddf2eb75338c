"""Every exception that whet raises, as one tree.

WhetError
├── UsageError                you can fix it: printed without a traceback, exit code 2
│   ├── ConfigError           settings are wrong
│   ├── SuiteError            a suite is wrong; holds all of its problems
│   ├── UnknownName           nothing has this name
│   ├── PathRefused           the system refuses access to a path
│   └── PluginError           an extension cannot be loaded
├── AttemptError              ends one attempt, never the run; recorded as a `Failure`
│   ├── WorkspaceError        the workspace could not be prepared
│   │   └── BootstrapFailed · DiskFailed · WorkspaceSpoiled · PackageError: PackageUnreachable
│   ├── SandboxError          the sandbox could not be set up
│   ├── Contaminated          a session without the skill found it
│   ├── AgentError            the agent did not finish its session
│   │   ├── AgentNotFound · AgentNotStarted · AgentCrashed · AgentTimedOut
│   │   ├── StepLimitReached · BudgetSpent · OutputTooLarge · CeilingReached
│   │   ├── SessionUnfinished · SessionUnreadable · ContextExhausted · PromptTooLong
│   │   ├── SkillFailed · SkillUnreachable
│   │   └── ProviderFailed: ModelRejected
│   └── GraderError           a check did not decide
│       ├── CheckCrashed · CheckMistaken · CheckTimedOut · CheckerDied
│       └── Undecidable · Vacuous · JudgeFailed: NoVerdict
└── StoreError                the record of a run cannot be read or written
    ├── RecordChanged         something else than whet changed the record
    └── RecordLost            a run started and cannot be recorded: exit code 4
        └── RecordUnwritten   the disk is full or broken; you can resume the run
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

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


class ConfigError(UsageError):
    """One or several settings are wrong."""

    code = "config"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a suite, and where."""

    file: str
    message: str
    case: str | None = None
    field: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.file, self.case, self.field) if part)
        return f"{where}: {self.message}" if where else self.message


class SuiteError(UsageError):
    """A suite cannot run; holds all of its problems and warnings."""

    code = "suite"

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Problem] = ()) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)


class UnknownName(UsageError):
    """Nothing has this name; the hint names the nearest that exists."""

    code = "name"


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
    `retry` says whether another attempt could end differently.
    """

    code = "attempt"
    phase: ClassVar[Phase] = "agent"
    cause: ClassVar[Cause] = "infrastructure"
    retry: ClassVar[bool] = True
    class_id: ClassVar[str] = "infrastructure"
    class_label: ClassVar[str] = "Infrastructure"


class WorkspaceError(AttemptError):
    """The workspace could not be prepared."""

    code = "workspace"
    phase: ClassVar[Phase] = "workspace"
    class_id = "workspace"
    class_label = "Workspace"


class BootstrapFailed(WorkspaceError):
    """The bootstrap command of the suite failed."""

    code = "bootstrap"
    phase: ClassVar[Phase] = "bootstrap"
    cause: ClassVar[Cause] = "suite"
    class_id = "workspace-bootstrap"
    class_label = "Workspace bootstrap"


class DiskFailed(WorkspaceError):
    """A disk is full or broken, so whet could not do its part: the trial is errored."""

    code = "disk"
    class_id = "disk"
    class_label = "Disk"


class WorkspaceSpoiled(WorkspaceError):
    """The agent left its workspace in a state that whet cannot read."""

    code = "workspace-spoiled"
    phase: ClassVar[Phase] = "observe"
    cause: ClassVar[Cause] = "agent"
    class_id = "workspace-spoiled"
    class_label = "Workspace spoiled"


class PackageError(WorkspaceError):
    """A package cannot be used: it is not an archive, is unsafe to unpack, or lacks a file that its case names."""

    code = "package"
    cause: ClassVar[Cause] = "suite"
    retry = False
    class_id = "package"
    class_label = "Package"


class PackageUnreachable(PackageError):
    """A package could not be fetched."""

    code = "package-unreachable"
    cause: ClassVar[Cause] = "infrastructure"
    retry = True
    class_id = "package-unreachable"
    class_label = "Package unreachable"


class SandboxError(AttemptError):
    """The sandbox of a process could not be set up."""

    code = "sandbox"
    phase: ClassVar[Phase] = "start"
    class_id = "sandbox"
    class_label = "Sandbox"


class Contaminated(AttemptError):
    """A session that should run without the skill found it, so it cannot be compared."""

    code = "contaminated"
    phase: ClassVar[Phase] = "observe"
    cause: ClassVar[Cause] = "suite"
    retry = False
    class_id = "contaminated"
    class_label = "Contaminated"


class AgentError(AttemptError):
    """The agent did not finish its session."""

    code = "agent"
    cause: ClassVar[Cause] = "agent"
    class_id = "runner-crash"
    class_label = "Runner crash"


class AgentNotFound(AgentError):
    """The program of the agent does not exist."""

    code = "agent-not-found"
    phase: ClassVar[Phase] = "start"
    cause: ClassVar[Cause] = "infrastructure"
    retry = False
    class_id = "agent-not-found"
    class_label = "Agent not found"


class AgentNotStarted(AgentError):
    """The program of the agent exists, but the system refuses to start it."""

    code = "agent-not-started"
    phase: ClassVar[Phase] = "start"
    cause: ClassVar[Cause] = "infrastructure"
    retry = False
    class_id = "agent-not-started"
    class_label = "Agent not started"


class AgentCrashed(AgentError):
    """The program ended with an exit code other than 0, or by a signal."""

    code = "agent-crashed"


class AgentTimedOut(AgentError):
    """The program was still running at its time limit."""

    code = "timeout"
    class_id = "timeout"
    class_label = "Timeout"


class StepLimitReached(AgentError):
    """The agent started more rounds of the model than it may."""

    code = "max-steps"
    class_id = "max-steps"
    class_label = "Max steps exceeded"


class BudgetSpent(AgentError):
    """The agent spent more than its budget."""

    code = "budget"
    class_id = "budget"
    class_label = "Budget spent"


class OutputTooLarge(AgentError):
    """The program printed more than its limit."""

    code = "output-limit"
    class_id = "output-limit"
    class_label = "Output limit exceeded"


class CeilingReached(AgentError):
    """The program exceeded its limit of memory, processes or CPUs, which ended it."""

    code = "ceiling"
    class_id = "ceiling"
    class_label = "Ceiling reached"


class SessionUnfinished(AgentError):
    """The program ended with exit code 0, but its session has no answer."""

    code = "unfinished"
    class_id = "unfinished"
    class_label = "Session unfinished"


class SessionUnreadable(AgentError):
    """The output of the agent is not a session. The agent fails, because it decides what it prints."""

    code = "normalization"
    phase: ClassVar[Phase] = "observe"
    class_id = "normalization"
    class_label = "Report normalization"


class ContextExhausted(AgentError):
    """The session outgrew the context of its model, and the agent could not continue."""

    code = "context-exhausted"
    class_id = "context-exhausted"
    class_label = "Context exhausted"


class PromptTooLong(AgentError):
    """The prompt does not fit into the context of the model, so no agent could start."""

    code = "prompt-too-long"
    cause: ClassVar[Cause] = "suite"
    retry = False
    class_id = "prompt-too-long"
    class_label = "Prompt too long"


class SkillFailed(AgentError):
    """A callable skill answered with an error, or not with an answer."""

    code = "skill-failed"
    class_id = "skill-failed"
    class_label = "Skill failure"


class SkillUnreachable(AgentError):
    """A callable skill cannot be reached."""

    code = "skill-unreachable"
    phase: ClassVar[Phase] = "start"
    cause: ClassVar[Cause] = "infrastructure"
    class_id = "skill-unreachable"
    class_label = "Skill unreachable"


class ProviderFailed(AgentError):
    """The provider of the model failed, and the agent could not recover."""

    code = "provider"
    cause: ClassVar[Cause] = "provider"
    class_id = "provider"
    class_label = "Provider failure"


class ModelRejected(ProviderFailed):
    """The provider does not know the model or refuses it, so no trial of this runner can work."""

    code = "model-rejected"
    retry = False
    class_id = "model-rejected"
    class_label = "Rejected model"


class GraderError(AttemptError):
    """A check did not decide."""

    code = "grader"
    phase: ClassVar[Phase] = "check"
    cause: ClassVar[Cause] = "suite"
    retry = False
    class_id = "grader"
    class_label = "Grader"


class CheckCrashed(GraderError):
    """A check raised something else than an assertion; the case fails as if an expectation did not hold."""

    code = "check-crash"
    cause: ClassVar[Cause] = "agent"
    retry = True
    class_id = "check-crash"
    class_label = "Check crash"


class CheckMistaken(GraderError):
    """A check raised something that can only be a mistake in the check; another attempt would change nothing."""

    code = "check-mistake"
    class_id = "check-mistake"
    class_label = "Mistake in the check"


class CheckTimedOut(GraderError):
    """A check did not end in time."""

    code = "check-timeout"
    class_id = "check-timeout"
    class_label = "Check timeout"


class CheckerDied(GraderError):
    """The process that ran a check died."""

    code = "checker-died"
    class_id = "checker-died"
    class_label = "Checker died"


class Undecidable(GraderError):
    """What the agent left keeps a check from deciding, although it decides on an untouched workspace."""

    code = "undecidable"
    cause: ClassVar[Cause] = "agent"
    retry = True
    class_id = "undecidable"
    class_label = "Undecidable"


class Vacuous(GraderError):
    """Every expectation of a case held before its agent started, so running it would show nothing."""

    code = "vacuous"
    class_id = "vacuous"
    class_label = "Vacuous case"


class JudgeFailed(GraderError):
    """The judge gave no verdict, even when it was asked again."""

    code = "judge"
    cause: ClassVar[Cause] = "provider"
    class_id = "judge"
    class_label = "Judge"


class NoVerdict(JudgeFailed):
    """The judge answered without a verdict, perhaps because of what it was shown."""


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

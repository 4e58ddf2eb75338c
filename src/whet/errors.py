"""Every exception that whet raises, as one tree.

WhetError
├── UsageError                the person can fix it: printed without traceback, exit 2
│   ├── ConfigError           a setting, named by its dotted path
│   ├── SuiteError            a suite file, with all of its problems at once
│   ├── UnknownName           a name that nothing answers to, with the nearest one that does
│   ├── PathRefused           a path on which the system refuses what was asked
│   └── PluginError           an extension that cannot be loaded
├── AttemptError              ends one attempt, never the run; becomes `Failure` data in the engine
│   ├── WorkspaceError        the folder could not be made ready
│   │   └── BootstrapFailed · DiskFailed · WorkspaceSpoiled · PackageError: PackageUnreachable
│   ├── SandboxError          the boundary could not be set up
│   ├── Contaminated          a session without the skill came upon it
│   ├── AgentError            the agent did not come to a good end
│   │   ├── AgentNotFound · AgentNotStarted · AgentCrashed · AgentTimedOut
│   │   ├── StepLimitReached · BudgetSpent · OutputTooLarge · CeilingReached
│   │   ├── SessionUnfinished · SessionUnreadable · ContextExhausted · PromptTooLong
│   │   ├── SkillFailed · SkillUnreachable
│   │   └── ProviderFailed: ModelRejected
│   └── GraderError           a check gave no decision
│       └── CheckCrashed · CheckMistaken · CheckTimedOut · CheckerDied · Undecidable · JudgeFailed: NoVerdict
└── StoreError                the record of a run cannot be read or written
    ├── RecordChanged         what was recorded does not fit together any more
    └── RecordLost            of a run that had begun: exit 4
        └── RecordUnwritten   its disk takes nothing: the run can be gone on with
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

Cause = Literal["agent", "suite", "provider", "infrastructure", "cancelled"]
Phase = Literal["workspace", "bootstrap", "start", "agent", "observe", "check"]


class WhetError(Exception):
    """The root: whatever derives from it was foreseen and says what to do."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(WhetError):
    """The person can fix it."""

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
    """A suite cannot be run; holds every problem that was found, and what looks like one."""

    code = "suite"

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Problem] = ()) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)


class UnknownName(UsageError):
    """A name that nothing answers to."""

    code = "name"


class PathRefused(UsageError):
    """A path on which the system refuses what was asked: it is closed, on a read-only disk, or too long."""

    code = "path"

    def __init__(self, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {reason}", hint=hint)
        self.path = path
        self.reason = reason


class PluginError(UsageError):
    """An extension that cannot be loaded."""

    code = "plugin"


class StoreError(WhetError):
    """The record of a run cannot be read or written."""

    code = "store"


class RecordChanged(StoreError):
    """A record was changed by something else than whet."""

    code = "changed"


class RecordLost(StoreError):
    """A run had begun, and what became of it cannot be kept."""

    code = "record"


class RecordUnwritten(RecordLost):
    """What is there is whole and more cannot be written; whoever knows the run adds how to go on with it."""


class AttemptError(WhetError):
    """Ends one attempt.

    `cause` decides whether the trial counts: what the agent did fails it, anything else makes it errored.
    `retry` says whether another attempt could end differently.
    """

    code = "attempt"
    phase: ClassVar[Phase] = "agent"
    cause: ClassVar[Cause] = "infrastructure"
    retry: ClassVar[bool] = True
    class_id: ClassVar[str] = "infrastructure"
    class_label: ClassVar[str] = "Infrastructure"


class WorkspaceError(AttemptError):
    """The folder could not be made ready."""

    code = "workspace"
    phase: ClassVar[Phase] = "workspace"
    class_id = "workspace"
    class_label = "Workspace"


class DiskFailed(WorkspaceError):
    """A disk is full or broken, so that whet could not do its part: the trial counts as not done."""

    code = "disk"
    class_id = "disk"
    class_label = "Disk"


class BootstrapFailed(WorkspaceError):
    """The author's bootstrap command did not succeed."""

    code = "bootstrap"
    phase: ClassVar[Phase] = "bootstrap"
    cause: ClassVar[Cause] = "suite"
    class_id = "workspace-bootstrap"
    class_label = "Workspace bootstrap"


class Contaminated(AttemptError):
    """A session that should have been without the skill came upon it, and so says nothing about being without."""

    code = "contaminated"
    phase: ClassVar[Phase] = "observe"
    cause: ClassVar[Cause] = "suite"
    retry = False
    class_id = "contaminated"
    class_label = "Contaminated"


class PackageError(WorkspaceError):
    """A package cannot be used: it is not an archive, is unsafe to unpack, or lacks what its case names."""

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


class WorkspaceSpoiled(WorkspaceError):
    """The agent left its workspace so that it cannot be looked at, which it could be before."""

    code = "workspace-spoiled"
    phase: ClassVar[Phase] = "observe"
    cause: ClassVar[Cause] = "agent"
    class_id = "workspace-spoiled"
    class_label = "Workspace spoiled"


class SandboxError(AttemptError):
    """The boundary inside which a process should run could not be set up."""

    code = "sandbox"
    phase: ClassVar[Phase] = "start"
    class_id = "sandbox"
    class_label = "Sandbox"


class AgentError(AttemptError):
    """The agent did not come to a good end."""

    code = "agent"
    cause: ClassVar[Cause] = "agent"
    class_id = "runner-crash"
    class_label = "Runner crash"


class AgentNotFound(AgentError):
    """The program is not there."""

    code = "agent-not-found"
    phase: ClassVar[Phase] = "start"
    cause: ClassVar[Cause] = "infrastructure"
    retry = False
    class_id = "agent-not-found"
    class_label = "Agent not found"


class AgentNotStarted(AgentError):
    """The program is there and the system refused to start it."""

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
    """The agent began one model round more than it was allowed."""

    code = "max-steps"
    class_id = "max-steps"
    class_label = "Max steps exceeded"


class BudgetSpent(AgentError):
    """The agent spent more money than it was given."""

    code = "budget"
    class_id = "budget"
    class_label = "Budget spent"


class OutputTooLarge(AgentError):
    """The program printed more than is kept."""

    code = "output-limit"
    class_id = "output-limit"
    class_label = "Output limit exceeded"


class CeilingReached(AgentError):
    """The program took more of the machine than it was allowed, and that ended it."""

    code = "ceiling"
    class_id = "ceiling"
    class_label = "Ceiling reached"


class SessionUnfinished(AgentError):
    """The program ended well and its session did not: it never came to an answer."""

    code = "unfinished"
    class_id = "unfinished"
    class_label = "Session unfinished"


class ProviderFailed(AgentError):
    """Whoever serves the model did not, and the agent could not overcome it."""

    code = "provider"
    cause: ClassVar[Cause] = "provider"
    class_id = "provider"
    class_label = "Provider failure"


class ContextExhausted(AgentError):
    """The session grew beyond what its model can take in, and the agent found no way on."""

    code = "context-exhausted"
    class_id = "context-exhausted"
    class_label = "Context exhausted"


class PromptTooLong(AgentError):
    """What the agent was asked does not fit into its model: no agent could have begun."""

    code = "prompt-too-long"
    cause: ClassVar[Cause] = "suite"
    retry = False
    class_id = "prompt-too-long"
    class_label = "Prompt too long"


class ModelRejected(ProviderFailed):
    """The provider does not know the model, or does not give it; no other trial of the runner can fare better."""

    code = "model-rejected"
    retry = False
    class_id = "model-rejected"
    class_label = "Rejected model"


class SessionUnreadable(AgentError):
    """What the agent printed cannot be read as a session; it chose to print events, so what it prints is its doing."""

    code = "normalization"
    phase: ClassVar[Phase] = "observe"
    class_id = "normalization"
    class_label = "Report normalization"


class SkillFailed(AgentError):
    """A callable skill answered with an error, or with nothing that is an answer."""

    code = "skill-failed"
    class_id = "skill-failed"
    class_label = "Skill failure"


class SkillUnreachable(AgentError):
    """Nobody answers where a callable skill should be."""

    code = "skill-unreachable"
    phase: ClassVar[Phase] = "start"
    cause: ClassVar[Cause] = "infrastructure"
    class_id = "skill-unreachable"
    class_label = "Skill unreachable"


class GraderError(AttemptError):
    """A check gave no decision."""

    code = "grader"
    phase: ClassVar[Phase] = "check"
    cause: ClassVar[Cause] = "suite"
    retry = False
    class_id = "grader"
    class_label = "Grader"


class Vacuous(GraderError):
    """All that a case expects held before its agent began, so that running it would show nothing."""

    code = "vacuous"
    class_id = "vacuous"
    class_label = "Vacuous case"


class CheckCrashed(GraderError):
    """A check raised something that is no assertion: the case fails as by any other expectation."""

    code = "check-crash"
    cause: ClassVar[Cause] = "agent"
    retry = True
    class_id = "check-crash"
    class_label = "Check crash"


class CheckMistaken(GraderError):
    """A check raised what is surely its author's mistake: the case fails, and trying again would change nothing."""

    code = "check-mistake"
    class_id = "check-mistake"
    class_label = "Mistake in the check"


class Undecidable(GraderError):
    """What the agent left keeps a check from deciding that decides without it."""

    code = "undecidable"
    cause: ClassVar[Cause] = "agent"
    retry = True
    class_id = "undecidable"
    class_label = "Undecidable"


class CheckTimedOut(GraderError):
    """A check did not come back in time."""

    code = "check-timeout"
    class_id = "check-timeout"
    class_label = "Check timeout"


class CheckerDied(GraderError):
    """The process that ran a check ended under it."""

    code = "checker-died"
    class_id = "checker-died"
    class_label = "Checker died"


class JudgeFailed(GraderError):
    """The language model that should judge an answer gave no verdict, also when it was asked again."""

    code = "judge"
    cause: ClassVar[Cause] = "provider"
    class_id = "judge"
    class_label = "Judge"


class NoVerdict(JudgeFailed):
    """The language model answered, and gave no verdict: what it was shown may be the reason."""

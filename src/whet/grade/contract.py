"""The contract of a grader: derive from `Grader`, define `grade`, and name the class in the group `whet.graders`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from whet import plugins
from whet.errors import CheckerDied, CheckTimedOut, PluginError
from whet.grade.evidence import Evidence
from whet.model import codec
from whet.model.grade import FailureClass, Grade
from whet.model.run import Runner, TrialResult
from whet.model.suite import Case, Check, Suite
from whet.sandbox.process.workers import Serve, Watch, WorkerDied, WorkerHung, Workers

if TYPE_CHECKING:
    from whet.workspace.protected import WorkspaceSurvey

Answer = TypeVar("Answer")


class Grader(ABC):
    """Decides one kind of check.

    A run makes each grader that its suite names once, before the event loop starts. Only `grade` has no default.
    Derive from `WorkerGrader` if a decision may hang or end its process, and from `JudgingGrader`, in
    `whet.grade.judge.judge`, if a language model decides.
    """

    # Whether its grades are useful even if the agent failed; they never change that verdict.
    informs: ClassVar[bool] = False

    def __init__(self, suite: Suite) -> None:
        self.suite = suite

    @classmethod
    def needs_judge(cls, check: Check, runner: Runner) -> bool:
        """Return whether a language model decides *check* if *runner* runs; without a key the run does not start."""
        del check, runner
        return False

    async def survey(self, case: Case, workspace: Path, store: Path, *, timeout_s: float) -> WorkspaceSurvey | None:
        """Look at a workspace before the agent starts; `evidence.surveyed` is the result.

        Copies of files go to the folder *store*, which the agent cannot reach.
        """
        del case, workspace, store, timeout_s
        return None

    @abstractmethod
    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Decide *check*; raises `GraderError` if that is not possible."""

    async def grade_all(self, checks: Sequence[Check], evidence: Evidence) -> AsyncIterator[Grade]:
        """Decide *checks*, in order; override it if several at once are faster."""
        for check in checks:
            yield await self.grade(check, evidence)

    async def classify(self, case: Case, result: TrialResult, *, timeout_s: float) -> FailureClass | None:
        """Return the class of a failure, if the grader knows a better one; raises `GraderError`."""
        del case, result, timeout_s
        return None

    def warm_up(self) -> None:  # noqa: B027 - most graders have nothing to start
        """Start what takes long to start, while the first agent works."""

    async def release(self) -> None:  # noqa: B027 - most graders have nothing to release
        """Close what belongs to the event loop, such as connections, after the last check."""

    def close(self) -> None:  # noqa: B027 - most graders have nothing to close
        """Close everything else, after the event loop has ended."""


class WorkerGrader(Grader):
    """Decides in worker processes, which are forked right after the suite was loaded and may hang, die or print.

    *serve* answers a request inside a worker, and *watch* says whether a worker can take another request.
    *prepare* is called once, in the process that workers are forked from, while whet goes on.
    """

    def __init__(
        self, suite: Suite, serve: Serve, watch: Watch | None = None, prepare: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(suite)
        self._workers = Workers.fork(serve, watch or (lambda: lambda: True), prepare)

    async def ask(
        self, request: Any, answer: type[Answer], *, timeout_s: float, what: str, hint: str | None = None
    ) -> Answer:
        """Send *request* to a worker; raises `CheckTimedOut` or `CheckerDied` with *what* as the subject."""
        try:
            reply = await self._workers.call(codec.encode_exact(request), timeout_s=timeout_s)
        except WorkerHung:
            raise CheckTimedOut(f"{what} did not end within {timeout_s:g} s", hint=hint) from None
        except WorkerDied:
            raise CheckerDied(f"{what} ended its process") from None
        try:
            return codec.decode_exact(reply, answer)
        except codec.WireError:
            raise CheckerDied(f"{what} spoiled its own process") from None

    def warm_up(self) -> None:
        """Fork a worker before the first check asks for one."""
        self._workers.warm_up()

    def close(self) -> None:
        """End the workers."""
        self._workers.close()


def grader_class(name: str) -> type[Grader]:
    """Return the grader called *name*, without making it."""
    grader = plugins.find("graders", name)
    if not (isinstance(grader, type) and issubclass(grader, Grader)):
        raise PluginError(f'grader "{name}" is not a class that derives from whet.grade.contract.Grader')
    if inspect.isabstract(grader):
        missing = ", ".join(sorted(grader.__abstractmethods__))
        raise PluginError(f'grader "{name}" ({grader.__module__}:{grader.__qualname__}) does not define {missing}')
    return grader

"""Grade with the author's Python functions; each runs in a worker, so it may raise, hang, exit or print."""

from __future__ import annotations

import builtins
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from whet.checks.context import Gaps, NotRecorded
from whet.errors import CheckCrashed, CheckMistaken, GraderError
from whet.grade.contract import WorkerGrader
from whet.grade.evidence import QUESTIONS_FILE, Evidence
from whet.grade.python._messages import CheckAnswer, CheckRequest, ClassifyRequest
from whet.model import codec
from whet.model.grade import FailureClass, Grade
from whet.model.run import TrialResult, turn_folder
from whet.model.suite import Case, Check, Suite

if TYPE_CHECKING:
    from whet.grade.python._checker import Checker
    from whet.sandbox.process.workers import PrintedOutput

_LIMITS = (
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_AS,
    resource.RLIMIT_CPU,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NPROC,
)
_CONTAINERS = frozenset((list, dict, set, bytearray))


def watch(folder: Path) -> Callable[[], bool]:
    """Look at the process now, and return a function that says whether it is still the same."""
    modules = _modules(folder)
    before = _snapshot(modules)
    return lambda: _snapshot(modules) == before


def _modules(folder: Path) -> list[ModuleType]:
    """Return the author's own modules, and those that they imported by name."""
    author_modules = [module for module in list(sys.modules.values()) if _lies_in(module, folder)]
    imports = [value for module in author_modules for value in vars(module).values() if isinstance(value, ModuleType)]
    return list({id(module): module for module in (builtins, *author_modules, *imports)}.values())


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.startswith(f"{folder}/") and "site-packages" not in file


def _snapshot(modules: list[ModuleType]) -> tuple[Any, ...]:
    mask = os.umask(0)
    os.umask(mask)
    return (
        mask,
        _cwd(),
        # As bytes: it would make texts of them, each time and one by one.
        dict(getattr(os.environ, "_data", os.environ)),
        threading.active_count(),
        signal.getitimer(signal.ITIMER_REAL),
        tuple(signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)),
        tuple(resource.getrlimit(limit) for limit in _LIMITS),
        list(sys.path),
        [_shape(vars(module)) for module in modules],
    )


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a text is all that is compared
    except OSError:
        return ""


def _shape(names: Mapping[str, Any]) -> tuple[list[str], list[int], list[int]]:
    """Return the names of a module, which objects they are and, of those that can grow, how large."""
    sizes = [len(value) for value in names.values() if type(value) in _CONTAINERS]
    return list(names), list(map(id, names.values())), sizes


_EVIDENCE_KEPT = 2000
_TIME_HINT = "check_timeout_ms in the table [defaults] allows it more"


def _crash_error(answer: CheckAnswer) -> GraderError:
    """Return the error for a check that raised, with its place."""
    kinds: dict[str, type[GraderError]] = {"crash": CheckCrashed, "mistake": CheckMistaken, "broken": GraderError}
    return kinds[answer.outcome](
        answer.message, location=answer.location, traceback=answer.traceback, failure_class=answer.failure_class
    )


class PythonGrader(WorkerGrader):
    """Runs checks in workers that have the suite loaded."""

    def __init__(self, suite: Suite) -> None:
        @cache
        def checker() -> Checker:
            # Only here: workers import it, while the agent works.
            from whet.grade.python._checker import load_checker

            return load_checker(suite)

        def serve(request: bytes, output: PrintedOutput) -> bytes:
            return checker().serve(request, output)

        super().__init__(suite, serve, partial(watch, suite.source.parent), prepare=checker)

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Run the check; what it prints is kept with the other evidence."""
        request = CheckRequest(
            case=evidence.case.id,
            check=evidence.case.checks.index(check),
            arm=evidence.arm,
            session=evidence.session,
            events_path=str(evidence.events_path) if evidence.events_path else None,
            workspace=str(evidence.workspace),
            changes=evidence.changes,
            shell=evidence.shell,
            gaps=evidence.gaps or Gaps(),
            timeout_s=evidence.timeout_s,
        )
        answer = await self.ask(request, CheckAnswer, timeout_s=evidence.timeout_s, what="the check", hint=_TIME_HINT)
        if answer.printed:
            evidence.keep(f"{turn_folder(check.turn)}check.log", answer.printed)
        if answer.questions:
            evidence.keep(QUESTIONS_FILE, codec.encode_pretty({"questions": answer.questions}).decode())
        if answer.outcome == "not-recorded":
            raise NotRecorded(answer.message)
        if answer.outcome not in ("passed", "assertion"):
            raise _crash_error(answer)
        return Grade(
            check=check.label,
            value=float(answer.outcome == "passed"),
            passed=answer.outcome == "passed",
            reason=answer.message,
            evidence=answer.printed[:_EVIDENCE_KEPT] or None,
            location=answer.location,
            failure_class=answer.failure_class,
            duration_s=answer.duration_s,
            weight=check.weight,
            events=answer.events,
        )

    async def classify(self, case: Case, result: TrialResult, *, timeout_s: float) -> FailureClass | None:
        """Return what the author's `classify_failure` says; raises `GraderError` if it fails."""
        if case.classify is None:
            return None
        request = ClassifyRequest(case=case.id, result=result)
        answer = await self.ask(request, CheckAnswer, timeout_s=timeout_s, what="classify_failure")
        if answer.outcome != "passed":
            where = f" ({answer.location.file}:{answer.location.line})" if answer.location else ""
            raise GraderError(f"classify_failure raised {answer.message}{where}")
        return answer.failure_class

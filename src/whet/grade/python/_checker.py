"""Run the functions of a suite's author inside a worker, and turn whatever they do into an answer.

Every exception is caught here, because an exception of the author's code is a result.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import time
import traceback
from collections.abc import Callable
from functools import partial
from itertools import dropwhile
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whet.checks.asserts.explain import text_of
from whet.checks.asserts.imports import enter, home_of
from whet.checks.asserts.rewrite import rewrite_helpers
from whet.checks.collect import SoftThenCrashed, collecting
from whet.checks.context import CheckContext, list_gaps
from whet.checks.looked_at import collect_references
from whet.checks.message import questions_of
from whet.errors import AttemptError
from whet.grade.evidence import EventLog
from whet.grade.python._messages import REQUESTS, CheckAnswer, CheckRequest, ClassifyRequest, Outcome
from whet.grade.python._mistakes import (
    describe_values,
    finish,
    is_mistake,
    notice_unawaited,
    traceback_of,
    unawaited_error,
)
from whet.model import codec
from whet.model.grade import FailureClass, Location
from whet.model.session import Session
from whet.model.suite import Suite
from whet.reading.text import bounded
from whet.sandbox.process.workers import PrintedOutput

_OURS = f"{Path(__file__).parents[2]}/"
# An async check is run to its end by these.
_RUNNING = f"{Path(asyncio.__file__).parent}/"
_MOST_FRAMES = 12


def traceback_text(error: BaseException) -> str | None:
    """Return the traceback of *error* and of what led to it; none if all of it happened in whet."""
    report = traceback.TracebackException(type(error), error, traceback_of(error), compact=True)
    chain = list(_chain(report))
    for link in chain:
        link.stack[:] = _own_frames(link.stack)
    return "".join(report.format()) if any(link.stack for link in chain) else None


def _chain(report: traceback.TracebackException) -> list[traceback.TracebackException]:
    """Return *report*, and all that it came from or holds."""
    waiting, reports = [report], []
    while waiting:
        current = waiting.pop()
        reports.append(current)
        inner = (current.__cause__, current.__context__, *(current.exceptions or ()))
        waiting += [cause for cause in inner if cause is not None]
    return reports


def _own_frames(stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """Return the frames from the author's first line on, also those of libraries, but none of whet."""
    author_frames = dropwhile(lambda frame: frame.filename.startswith((_OURS, _RUNNING)), stack)
    return [frame for frame in author_frames if not frame.filename.startswith(_OURS)][-_MOST_FRAMES:]


_LONGEST_MESSAGE = 16_384


def load_checker(suite: Suite) -> Checker:
    """Make the checker of *suite*; helper modules that checks import from now on explain their asserts too."""
    if suite.source.suffix == ".py":
        rewrite_helpers(home_of(suite.source))
    return Checker(suite)


class Checker:
    """Serves requests for one suite."""

    def __init__(self, suite: Suite) -> None:
        enter(home_of(suite.source))
        self._cases = {case.id: case for case in suite.cases}
        self._folder = str(suite.source.parent)
        # What the agent wrote, perhaps among the author's files.
        self._agent_paths: frozenset[str] = frozenset()

    def serve(self, request: bytes, output: PrintedOutput) -> bytes:
        """Answer one request."""
        started_at = time.monotonic()
        message = codec.decode_exact(request, REQUESTS)
        answer = self._check(message) if isinstance(message, CheckRequest) else self._classify(message)
        return codec.encode_exact(
            replace(answer, printed=output.text(), duration_s=round(time.monotonic() - started_at, 6))
        )

    def _check(self, request: CheckRequest) -> CheckAnswer:
        events = EventLog(Path(request.events_path) if request.events_path else None, len(request.session.turns))
        session = Session.of(request.session, events)
        workspace = Path(request.workspace)
        run = partial(request.shell.run, workspace)
        ctx = CheckContext(session, workspace, request.changes, run, request.gaps, request.arm, request.timeout_s)
        function: Callable[..., Any] = self._cases[request.case].checks[request.check].params["function"]
        paths = (*request.changes.created, *request.changes.modified)
        self._agent_paths = frozenset(str(workspace / path) for path in paths)
        with collect_references() as observation:
            answer = self._call(lambda: _call_check(function, session, ctx))
        # Even if the check caught the error and went on: it decided without the evidence.
        missing = list_gaps(ctx)
        if missing:
            return CheckAnswer(outcome="not-recorded", message=missing[0])
        return replace(answer, events=observation.events(session))

    def _classify(self, request: ClassifyRequest) -> CheckAnswer:
        classify = self._cases[request.case].classify
        assert classify is not None
        classes: list[FailureClass | None] = []
        answer = self._call(lambda: classes.append(_as_class(_value(classify(request.result)))))
        return replace(answer, failure_class=classes[0]) if classes else answer

    def _call(self, call: Callable[[], object]) -> CheckAnswer:
        try:
            with notice_unawaited() as coroutines, collecting():
                call()
        except AssertionError as error:
            return self._answer_failure("assertion", error, _assertion_text(error))
        except SoftThenCrashed as error:
            return self._answer_crash(error, error.crash, text_of(error))
        except BaseException as error:  # noqa: BLE001 - see the top of this file; SystemExit is one of them
            return self._answer_crash(error, error, f"{type(error).__name__}: {text_of(error)}".rstrip(": "))
        trouble = unawaited_error(coroutines)
        return self._answer_crash(trouble, trouble, str(trouble)) if trouble else CheckAnswer(outcome="passed")

    def _answer_crash(self, error: BaseException, crash: BaseException, message: str) -> CheckAnswer:
        """Answer for an exception that is not an assertion: a mistake of the author's, or the values that led to it."""
        if issubclass(type(crash), AttemptError):
            return self._answer_failure("broken", error, message)
        if is_mistake(crash, self._is_own):
            return self._answer_failure("mistake", error, message)
        return self._answer_failure("crash", error, message + describe_values(crash, self._is_own))

    def _is_own(self, file: str) -> bool:
        return file.startswith(f"{self._folder}/") and "site-packages" not in file and file not in self._agent_paths

    def _answer_failure(self, outcome: Outcome, error: BaseException, message: str) -> CheckAnswer:
        """Answer for *error*; if reading it raises, by its class and its place alone."""
        place = self._innermost(error)
        try:
            trace = traceback_text(error)
            location, failure_class = getattr(error, "location", None), getattr(error, "failure_class", None)
            return CheckAnswer(
                outcome=outcome,
                message=bounded(message, _LONGEST_MESSAGE),
                location=location if isinstance(location, Location) else place,
                traceback=None if trace is None else bounded(trace, _LONGEST_MESSAGE),
                failure_class=failure_class if isinstance(failure_class, FailureClass) else None,
                questions=questions_of(error),
            )
        except BaseException:  # noqa: BLE001 - its attributes are an author's code too
            name = type(error).__name__
            text = message if name in message else f"{name}: {message}"
            return CheckAnswer(outcome=outcome, message=bounded(text, _LONGEST_MESSAGE), location=place)

    def _innermost(self, error: BaseException) -> Location | None:
        """Return the innermost line of the author's own files."""
        frames = traceback.extract_tb(traceback_of(error))
        author_frames = [frame for frame in frames if self._is_own(frame.filename)]
        return Location(file=author_frames[-1].filename, line=author_frames[-1].lineno or 0) if author_frames else None


def _call_check(function: Callable[..., Any], session: Session, ctx: CheckContext) -> None:
    """Call a check with as many arguments as it takes, and await an async one."""
    result = _value(function(*_arguments(function, session, ctx)))
    if isinstance(result, bool):
        raise TypeError(f"the check returned {result}, which decides nothing: assert it, or use expect.ok(...)")


def _value(result: Any) -> Any:
    """Return the value of an author's function, which may be async."""
    value = asyncio.run(finish(result)) if inspect.isawaitable(result) else result
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        kind = type(value).__name__.replace("_", " ")
        raise TypeError(f"it returned {'an' if kind[0] in 'aeiou' else 'a'} {kind}, which nothing would run")
    return value


def _arguments(function: Callable[..., Any], session: Session, ctx: CheckContext) -> tuple[Any, ...]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return session, ctx
    if any(item.kind is inspect.Parameter.VAR_POSITIONAL for item in parameters):
        return session, ctx
    names = [item.name for item in parameters if item.kind is not inspect.Parameter.VAR_KEYWORD]
    # A check that takes one thing and calls it ctx means the context.
    return (ctx,) if names == ["ctx"] else (session, ctx)[: len(names)]


def _as_class(value: Any) -> FailureClass | None:
    match value:
        case None | FailureClass(id=str(), label=None | str()):
            return value
        case str() if value.strip():
            return FailureClass(id=value)
        case {"id": str(identifier), **rest}:
            return FailureClass(id=identifier, label=str(rest["label"]) if rest.get("label") else None)
        case _:
            raise TypeError(f"it returned a {type(value).__name__}; return a FailureClass, the id of one, or None")


def _assertion_text(error: AssertionError) -> str:
    """Return the author's message, or else the assertion itself."""
    message = text_of(error)
    if message:
        return (
            message
            if type(error) is AssertionError or not message.startswith("(")
            else f"{type(error).__name__}: {message}"
        )
    frames = traceback.extract_tb(traceback_of(error))
    if not frames:
        return "assertion failed"
    last = frames[-1]
    lines = (linecache.getline(last.filename, number) for number in range(last.lineno or 1, (last.end_lineno or 1) + 1))
    source = " ".join(line.strip() for line in lines)
    return f"assertion failed: {source}" if source else "assertion failed"

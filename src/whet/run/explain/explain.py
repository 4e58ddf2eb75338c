"""Explain an attempt: ask its agent one question after the other, and keep each answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path
from typing import Any

import anyio

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.ground.descent import become_subreaper
from whet.ground.sandbox import Sandbox, choose_sandbox, hold_network
from whet.model.grade import Asked
from whet.model.request import Settings
from whet.model.run import Execution, Plan
from whet.model.session import SessionSummary
from whet.model.spending import Bill, Spending
from whet.model.suite import Suite
from whet.plan.images import CONTAINER
from whet.plan.settings import load_settings
from whet.reading.text import clean, count, duration, one_line, path_for_people
from whet.record import folder as folders
from whet.record.journal import Spent
from whet.report.spent import spending_text
from whet.run.boundary import hold_boundary
from whet.run.execute import single_errors, watch_signals
from whet.run.explain_questions import (
    EXPLANATIONS_FILE,
    Explanation,
    Explanations,
    Interview,
    make_scratch,
    questions_for,
    read_explanations,
    write_explanations,
)
from whet.run.explain_subject import Subject, doubts, execution_of, find_runner, find_subject, session_of, state_of
from whet.run.gateways import hold_routes
from whet.run.parts import AttemptParts, make_attempt_parts
from whet.run.run_state import ERRORED, FAILED, INTERRUPTED, PASSED
from whet.run.scratch import clear_scratch
from whet.run.start import open_housing
from whet.suites.harbor import tasks_in

_WIDEST = 160
# The options of the run that hold for questions as well.
_KEPT_FLAGS = ("sandbox", "image", "timeout_ms", "max_steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRequest:
    """What `whet explain` was asked to do; `typed` questions replace those that checks left."""

    folder: Path
    typed: tuple[str, ...] = ()
    rerun: bool = False
    flags: Mapping[str, Any] = field(default_factory=dict)
    config_file: Path | None = None


def explain(request: ExplainRequest) -> int:
    """Ask the agent of the attempt what it has not answered before; return the exit code."""
    subject = find_subject(request.folder)
    questions = questions_for(subject.folder, request.typed)
    session = session_of(subject)
    kept = read_explanations(subject.folder, _none_yet(subject, session))
    spent = Spent(subject.record.run_dir / folders.SPENT_FILE)
    asking = _Asking(subject, questions, kept, request.rerun, spent)
    with ExitStack() as stack:
        interview = _prepare(request, asking, session, stack) if asking.pending else None
        _say([headline(subject, asking.kept, len(questions))])
        with single_errors():
            anyio.run(_ask_pending, interview, asking)
    return asking.finish()


def _none_yet(subject: Subject, session: SessionSummary) -> Explanations:
    return Explanations(
        trial=str(subject.result.key),
        attempt=subject.attempt.number,
        runner=session.runner,
        agent=session.agent,
        session_id=session.session_id,
    )


@dataclass(slots=True)
class _Asking:
    """The questions, the answers that are kept, and the new ones."""

    subject: Subject
    questions: tuple[Asked, ...]
    kept: Explanations
    rerun: bool
    spent: Spent
    fresh: list[Explanation] = field(default_factory=list)
    shown: int = 0
    interrupted: bool = False
    # The most that the run and its questions may cost together.
    max_cost_usd: float | None = None

    @property
    def refusal(self) -> str | None:
        """Why no more may be asked, if the money is spent."""
        most = self.max_cost_usd
        if most is None:
            return None
        results = (line.result for line in self.subject.record.lines)
        spending = sum((result.spending for result in results), self.spent.spending)
        spent = spending.cost_usd or 0.0
        return f"${spent:.6g} of at most ${most:g} is spent ({spending_text(spending)})" if spent >= most else None

    @property
    def pending(self) -> list[Asked]:
        """The questions without an answer."""
        return [asked for asked in self.questions if self.earlier(asked) is None]

    def earlier(self, asked: Asked) -> Explanation | None:
        """Return the earlier answer, unless `rerun` asks again."""
        return None if self.rerun else self.kept.answer(asked.question)

    def take(self, given: Explanation) -> None:
        """Keep an answer at once, so that nothing can lose it."""
        self.kept = self.kept.adding(given)
        write_explanations(self.subject.folder, self.kept)
        self.spent.explain(self.subject.result.key, given.usage - given.unpaid_usage, unknown=given.unpriced)
        self.fresh.append(given)

    def show_again(self, given: Explanation) -> None:
        """Show an earlier answer."""
        _say(answer_lines(given))
        self.shown += 1

    def interrupt(self) -> None:
        """Note that a signal asked to end."""
        self.interrupted = True

    def finish(self) -> int:
        """Show what was done; return the exit code, as for a run."""
        left = len(self.questions) - len(self.fresh) - self.shown
        stopped = self.refusal or "what stopped the one before would stop them too"
        why = "interrupted" if self.interrupted else stopped
        _say(
            closing_lines(
                self.subject.folder, self.fresh, again=self.shown, left=f"{left} not asked: {why}" if left else ""
            )
        )
        if self.interrupted:
            return INTERRUPTED
        found = {given.status for given in self.fresh}
        return FAILED if "failed" in found else ERRORED if "errored" in found or left else PASSED


async def _ask_pending(interview: Interview | None, asking: _Asking) -> None:
    """Ask the questions; a signal ends the one under way and loses no answer."""
    try:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(watch_signals, scope, asking.interrupt)
                await _ask_all(interview, asking)
            group.cancel_scope.cancel()
    finally:
        if interview is not None:
            with anyio.CancelScope(shield=True):
                await interview.parts.gateways.close()
                await interview.parts.sandbox.close()


async def _ask_all(interview: Interview | None, asking: _Asking) -> None:
    for number, asked in enumerate(asking.questions, 1):
        _say(question_lines(number, asked))
        earlier = asking.earlier(asked)
        if earlier is not None:
            asking.show_again(earlier)
            continue
        if asking.refusal:
            return
        assert interview is not None
        given = await interview.ask(asked, asking.kept.next_number)
        asking.take(given)
        _say(answer_lines(given))
        if given.status == "errored":
            # What the agent did not cause would stop the next question as well.
            return


def _prepare(request: ExplainRequest, asking: _Asking, session: SessionSummary, stack: ExitStack) -> Interview:
    """Make what asking needs; raises for everything that can be wrong, before anything starts."""
    subject = asking.subject
    run_dir = subject.record.run_dir
    state = state_of(subject, session)
    settings = _settings(request, subject)
    asking.max_cost_usd = settings.max_cost_usd
    runner = find_runner(subject, session, state, settings)
    if subject.record.suite.is_dir() and tasks_in(subject.record.suite):
        raise UsageError("the container of a task is gone with its attempt, so its agent cannot be asked")
    warnings = list(doubts(subject, runner, asking.pending))
    sandbox, note = choose_sandbox(settings.sandbox)
    hold_boundary(settings.sandbox, sandbox, [runner])
    warnings += (*hold_network(sandbox, [runner]), *hold_routes([runner], os.environ, sandbox))
    stack.callback(os.close, folders.lock(run_dir))
    clear_scratch(run_dir)
    scratch = Path(state.home).parent
    make_scratch(scratch)
    scratch.rmdir()
    become_subreaper()
    for warning in filter(None, (*warnings, note)):
        sys.stderr.write(f"warning: {warning}\n")
    execution = execution_of(subject, runner, settings)
    parts = _parts(subject, execution, settings, sandbox, scratch)
    housing = open_housing(parts, settings, stack) if sandbox.name == CONTAINER else None
    return Interview(parts=parts, subject=subject, session=session, state=state, execution=execution, housing=housing)


def _settings(request: ExplainRequest, subject: Subject) -> Settings:
    """Load the settings as they are now, from where the run had them."""
    record = subject.record
    flags = {name: value for name, value in record.asked.flags.items() if name in _KEPT_FLAGS} | dict(request.flags)
    config_file = request.config_file or record.config_file
    return load_settings(record.suite, flags=flags, environ=os.environ, config_file=config_file)


def _parts(subject: Subject, execution: Execution, settings: Settings, sandbox: Sandbox, scratch: Path) -> AttemptParts:
    """Make what the agent needs, for a plan of this one trial; its suite need not be loaded again."""
    record = subject.record
    plan = Plan(
        suite=Suite(name=subject.result.key.suite, cases=(execution.case,), source=record.suite, digest=""),
        executions=(execution,),
        schedule="serial",
        max_parallel=1,
        retries=0,
        check_timeout_s=settings.check_timeout_s,
    )
    return make_attempt_parts(plan, settings, record.run_dir, scratch=scratch, sandbox=sandbox)


def headline(subject: Subject, kept: Explanations, questions: int) -> str:
    """Say who is asked how many questions."""
    return f"{subject.name}: {count(questions, 'question')} for {kept.agent}, session {kept.session_id}"


def question_lines(number: int, asked: Asked) -> Iterator[str]:
    """Yield a question, and the expectation that left it."""
    yield ""
    first, *more = clean(asked.question).strip().split("\n")
    yield f"{number}. {first}"
    yield from (f"   {line}" for line in more)
    place = f"{asked.location.file}:{asked.location.line}" if asked.location else ""
    left = one_line(asked.expectation, _WIDEST) if asked.expectation else ""
    if place or left:
        yield f"   ({': '.join(part for part in (clean(place), left) if part)})"


def answer_lines(given: Explanation) -> Iterator[str]:
    """Yield an answer, or why there is none."""
    said = given.answer if given.status == "answered" else (given.failure.message if given.failure else "")
    if given.status != "answered":
        yield f"   {given.status}:"
    yield from (f"   {line}".rstrip() for line in clean(said).strip().split("\n"))
    if given.workspace:
        yield f"   (its workspace differs from the one that it left: {one_line(given.workspace, _WIDEST)})"
    yield from (f"   ({one_line(note, _WIDEST)})" for note in given.notes)


def closing_lines(folder: Path, fresh: Sequence[Explanation], *, again: int, left: str) -> Iterator[str]:
    """Yield what was done, and where it is kept."""
    yield ""
    if fresh:
        bills = (Bill(usage=each.usage - each.unpaid_usage, unknown=int(each.unpriced)) for each in fresh)
        spent = spending_text(Spending(agents=sum(bills, Bill())))
        cost = f", {spent}" if spent else ""
        yield f"Asked {count(len(fresh), 'question')} in {duration(sum(each.duration_s for each in fresh))}{cost}."
    if again:
        yield f"{count(again, 'question')} answered before; --rerun asks again."
    if left:
        yield f"{left}."
    yield f"Kept in {path_for_people(folder / EXPLANATIONS_FILE, Path.cwd())}"


def _say(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()

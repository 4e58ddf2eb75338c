"""Explain an attempt: ask its agent one question after the other, and keep each answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct, field

from whet import exit_codes
from whet.errors import UsageError
from whet.gateway.gateways import require_routes
from whet.model.grade import ExplainQuestion
from whet.model.request import Settings
from whet.model.run import Execution, Plan
from whet.model.session import SessionSummary
from whet.model.spending import Bill, Spending
from whet.model.suite import Suite
from whet.plan.settings.load import load_settings
from whet.reading.text import clean, count, duration, one_line, path_for_people
from whet.record import folder as folders
from whet.record.journal.journal import SpendingFile
from whet.report.screen import Screen
from whet.report.spent import spending_text
from whet.run.boundary import require_boundary
from whet.run.context import RunContext, RunFolders, RunLink, make_masker, make_run_context
from whet.run.explain._question import (
    EXPLANATIONS_FILE,
    Explanation,
    Explanations,
    Interview,
    make_scratch,
    questions_for,
    read_explanations,
    write_explanations,
)
from whet.run.explain._subject import (
    ExplainedAttempt,
    doubts,
    execution_of,
    find_runner,
    find_subject,
    session_of,
    state_of,
)
from whet.run.schedule import single_errors, watch_signals
from whet.run.scratch import clear_scratch
from whet.run.start import keep_image_log, open_container_pool
from whet.sandbox.contract import Sandbox, choose_sandbox, require_network_off
from whet.sandbox.process.procfs import become_subreaper
from whet.suites.other_tools.harbor import tasks_in

_WIDEST = 160
# The options of the run that hold for questions as well.
_KEPT_FLAGS = ("sandbox", "image", "timeout_ms", "max_steps")


class ExplainRequest(Struct, frozen=True, kw_only=True):
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
    explanations = read_explanations(subject.folder, _none_yet(subject, session))
    spending_log = SpendingFile(subject.record.run_dir / folders.SPENT_FILE)
    asking = _QuestionRound(subject, questions, explanations, request.rerun, spending_log)
    with ExitStack() as stack:
        interview = _prepare(request, asking, session, stack) if asking.pending else None
        _say([headline(subject, asking.kept, len(questions))])
        with single_errors():
            anyio.run(_ask_pending, interview, asking)
    return asking.finish()


def _none_yet(subject: ExplainedAttempt, session: SessionSummary) -> Explanations:
    return Explanations(
        trial=str(subject.result.key),
        attempt=subject.attempt.number,
        runner=session.runner,
        agent=session.agent,
        session_id=session.session_id,
    )


class _QuestionRound(Struct):
    """The questions, the answers that are kept, and the new ones."""

    subject: ExplainedAttempt
    questions: tuple[ExplainQuestion, ...]
    kept: Explanations
    rerun: bool
    spent: SpendingFile
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
        cost_usd = spending.cost_usd or 0.0
        return (
            f"${cost_usd:.6g} of at most ${most:g} is spent ({spending_text(spending)})" if cost_usd >= most else None
        )

    @property
    def pending(self) -> list[ExplainQuestion]:
        """The questions without an answer."""
        return [question for question in self.questions if self.earlier(question) is None]

    def earlier(self, question: ExplainQuestion) -> Explanation | None:
        """Return the earlier answer, unless `rerun` asks again."""
        return None if self.rerun else self.kept.answer(question.question)

    def take(self, explanation: Explanation) -> None:
        """Keep an answer at once, so that nothing can lose it."""
        self.kept = self.kept.adding(explanation)
        write_explanations(self.subject.folder, self.kept)
        self.spent.explain(
            self.subject.result.key, explanation.usage - explanation.unpaid_usage, unknown=explanation.unpriced
        )
        self.fresh.append(explanation)

    def show_again(self, explanation: Explanation) -> None:
        """Show an earlier answer."""
        _say(answer_lines(explanation))
        self.shown += 1

    def interrupt(self) -> None:
        """Note that a signal asked to end."""
        self.interrupted = True

    def finish(self) -> int:
        """Show what was done; return the exit code, as for a run."""
        open_count = len(self.questions) - len(self.fresh) - self.shown
        reason = self.refusal or "what stopped the one before would stop them too"
        why = "interrupted" if self.interrupted else reason
        _say(
            closing_lines(
                self.subject.folder,
                self.fresh,
                again=self.shown,
                open_note=f"{open_count} not asked: {why}" if open_count else "",
            )
        )
        if self.interrupted:
            return exit_codes.INTERRUPTED
        statuses = {explanation.status for explanation in self.fresh}
        if "failed" in statuses:
            return exit_codes.FAILED
        return exit_codes.ERRORED if "errored" in statuses or open_count else exit_codes.DONE


async def _ask_pending(interview: Interview | None, asking: _QuestionRound) -> None:
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
                await interview.context.gateways.close()
                await interview.context.sandbox.close()


async def _ask_all(interview: Interview | None, asking: _QuestionRound) -> None:
    for number, question in enumerate(asking.questions, 1):
        _say(question_lines(number, question))
        earlier = asking.earlier(question)
        if earlier is not None:
            asking.show_again(earlier)
            continue
        if asking.refusal:
            return
        assert interview is not None
        explanation = await interview.ask(question, asking.kept.next_number)
        asking.take(explanation)
        _say(answer_lines(explanation))
        if explanation.status == "errored":
            # What the agent did not cause would stop the next question as well.
            return


def _prepare(request: ExplainRequest, asking: _QuestionRound, session: SessionSummary, stack: ExitStack) -> Interview:
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
    require_boundary(settings.sandbox, sandbox, [runner])
    warnings += (*require_network_off(sandbox, [runner]), *require_routes([runner], os.environ, sandbox))
    stack.callback(os.close, folders.lock(run_dir))
    clear_scratch(run_dir)
    scratch = Path(state.home).parent
    make_scratch(scratch)
    scratch.rmdir()
    become_subreaper()
    for warning in filter(None, (*warnings, note)):
        sys.stderr.write(f"warning: {warning}\n")
    execution = execution_of(subject, runner, settings)
    context = _context(subject, execution, settings, sandbox, scratch, stack)
    return Interview(context=context, subject=subject, session=session, state=state, execution=execution)


def _settings(request: ExplainRequest, subject: ExplainedAttempt) -> Settings:
    """Load the settings as they are now, from where the run had them."""
    record = subject.record
    flags = {name: value for name, value in record.asked.flags.items() if name in _KEPT_FLAGS} | dict(request.flags)
    config_file = request.config_file or record.config_file
    return load_settings(record.suite, flags=flags, environ=os.environ, config_file=config_file)


def _context(
    subject: ExplainedAttempt,
    execution: Execution,
    settings: Settings,
    sandbox: Sandbox,
    scratch: Path,
    stack: ExitStack,
) -> RunContext:
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
    masker = make_masker(settings, plan)
    container_pool = None
    if sandbox.in_image:
        log = partial(keep_image_log, record.run_dir, masker)
        container_pool = open_container_pool(settings, record.run_dir, scratch, log, stack)
    return make_run_context(
        plan,
        settings,
        RunFolders(run_dir=record.run_dir, scratch=scratch),
        sandbox=sandbox,
        masker=masker,
        graders={},
        link=RunLink(),
        container_pool=container_pool,
        hidden_folders=(settings.output_dir, record.run_dir, scratch),
    )


def headline(subject: ExplainedAttempt, explanations: Explanations, questions: int) -> str:
    """Say who is asked how many questions."""
    return f"{subject.name}: {count(questions, 'question')} for {explanations.agent}, session {explanations.session_id}"


def question_lines(number: int, question: ExplainQuestion) -> Iterator[str]:
    """Yield a question, and the expectation that left it."""
    yield ""
    first, *more = clean(question.question).strip().split("\n")
    yield f"{number}. {first}"
    yield from (f"   {line}" for line in more)
    place = f"{question.location.file}:{question.location.line}" if question.location else ""
    expectation = one_line(question.expectation, _WIDEST) if question.expectation else ""
    if place or expectation:
        yield f"   ({': '.join(part for part in (clean(place), expectation) if part)})"


def answer_lines(explanation: Explanation) -> Iterator[str]:
    """Yield an answer, or why there is none."""
    if explanation.status == "answered":
        text = explanation.answer
    elif explanation.failure:
        text = explanation.failure.message
    else:
        text = ""
    if explanation.status != "answered":
        yield f"   {explanation.status}:"
    yield from (f"   {line}".rstrip() for line in clean(text).strip().split("\n"))
    if explanation.workspace:
        yield f"   (its workspace differs from the one that it left: {one_line(explanation.workspace, _WIDEST)})"
    yield from (f"   ({one_line(note, _WIDEST)})" for note in explanation.notes)


def closing_lines(folder: Path, fresh: Sequence[Explanation], *, again: int, open_note: str) -> Iterator[str]:
    """Yield what was done, and where it is kept."""
    yield ""
    if fresh:
        bills = (
            Bill(usage=explanation.usage - explanation.unpaid_usage, unknown=int(explanation.unpriced))
            for explanation in fresh
        )
        cost_text = spending_text(Spending(agents=sum(bills, Bill())))
        cost = f", {cost_text}" if cost_text else ""
        duration_s = sum(explanation.duration_s for explanation in fresh)
        yield f"Asked {count(len(fresh), 'question')} in {duration(duration_s)}{cost}."
    if again:
        yield f"{count(again, 'question')} answered before; --rerun asks again."
    if open_note:
        yield f"{open_note}."
    yield f"Kept in {path_for_people(folder / EXPLANATIONS_FILE, Path.cwd())}"


def _say(lines: Iterable[str]) -> None:
    sys.stdout.write(Screen(sys.stdout, os.environ).text(lines))
    sys.stdout.flush()

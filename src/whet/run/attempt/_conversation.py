"""A conversation: prompt after prompt in one session, workspace and home, each in a turn with a record of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

import anyio
from msgspec.structs import replace

from whet import plugins
from whet.agents.contract import Agent, Resume
from whet.errors import (
    AgentError,
    AgentTimedOut,
    JudgeFailed,
    JudgeRefused,
    MoneySpent,
    NoVerdict,
    SessionLost,
    StepLimitReached,
    UserFailed,
    UserRefused,
    WorkspaceSpoiled,
)
from whet.grade.evidence import EventLog, events_path, read_events
from whet.grade.judge.client import JudgeClient
from whet.grade.judge.user import FORM, WHO, Action, UserMove, flags_of, prompt_for, user_settings
from whet.grade.judge_settings import find_variable
from whet.grade.paying import charge_to
from whet.model import codec
from whet.model.events import Event, FinalOutput, TurnStarted
from whet.model.run import Trial, turn_folder
from whet.model.session import SessionSummary, TurnSummary, Usage, UserOutcome, UserSummary
from whet.model.skills import detect_skills
from whet.model.spending import BUDGET_NOT_ENFORCED
from whet.model.suite import Limits
from whet.run.attempt._dialogue import LiveAgent
from whet.run.attempt.attempt import Attempt
from whet.run.attempt.record import AttemptRecord
from whet.run.attempt.session import EVENTS, SESSION, note_unenforced_budget, run_agent, task_of, write_session
from whet.run.context import RunContext

# Called after every turn but the last, with its number; returns whether the next one is taken.
T = TypeVar("T", int, float)
AfterTurn: TypeAlias = Callable[[int], Awaitable[bool]]
_USER_FILE = "user.jsonl"
_OUTCOMES: dict[Action, UserOutcome] = {"say": "max-turns", "satisfied": "satisfied", "give_up": "gave-up"}


async def converse(attempt: Attempt, after_turn: AfterTurn) -> bool:
    """Take turn after turn, and note the session of all of them; return whether none was left out.

    Time, steps and budget are limits of the whole conversation. What ends a turn badly ends the conversation.
    """
    context, trial, record = attempt.context, attempt.trial, attempt.record
    case = trial.execution.case
    take = _take_turns if case.user is None else _talk_with_user
    # The steps of a task have ways of their own.
    proxy_session = None if case.task else await context.gateways.open(trial)
    live = LiveAgent(prompts=1 + len(case.then) if case.user is None else None, proxy_session=proxy_session)
    try:
        async with live:
            return await take(attempt, after_turn, live)
    except (AgentError, UserFailed, WorkspaceSpoiled):
        if record.session is not None:
            # What came before was well, and the conversation is not over.
            record.unfinished, record.session = replace(record.session, complete=False), None
        raise
    finally:
        if proxy_session is not None:
            with anyio.CancelScope(shield=True):
                await proxy_session.close()
        note_unenforced_budget(trial, record)
        session = record.session or record.unfinished
        artifact_dir = attempt.artifact_dir
        # As with a session of one prompt, there is none to read of an agent that was stopped on the way.
        if session is not None and (artifact_dir / turn_folder(len(session.turns)) / SESSION).exists():
            write_session(context, artifact_dir, session)


async def _talk_with_user(attempt: Attempt, after_turn: AfterTurn, live: LiveAgent) -> bool:
    """Go on as long as the user has something to say; its turns have no checks of their own."""
    del after_turn
    trial = attempt.trial
    agent: Agent = plugins.find("agents", trial.execution.runner.agent)()
    recording = agent.recorded(task_of(attempt))
    async with aclosing(_Speaker(attempt.context, trial, attempt.record, recording)) as speaker:
        prompt: str | None = trial.execution.case.prompt
        while prompt is not None:
            await _take_turn(attempt, prompt, live)
            prompt = await speaker.answer()
    return True


async def _take_turns(attempt: Attempt, after_turn: AfterTurn, live: LiveAgent) -> bool:
    trial = attempt.trial
    prompts = (trial.execution.case.prompt, *trial.execution.case.then)
    for number, prompt in enumerate(prompts, 1):
        await _take_turn(attempt, prompt, live)
        if number == len(prompts):
            break
        async with live.paused():
            goes_on = await after_turn(number)
        if not goes_on:
            skipped_turns = (
                f"turns {number + 1} to {len(prompts)} were" if number + 1 < len(prompts) else "the last turn was"
            )
            attempt.record.notes.append(f"{skipped_turns} not taken, because a check of turn {number} did not hold")
            return False
    return True


async def _take_turn(attempt: Attempt, prompt: str, live: LiveAgent) -> None:
    """Ask the agent once more, in the session that it is in: its program is still there, or resumes it."""
    context, folders, trial, record = attempt.context, attempt.folders, attempt.trial, attempt.record
    number = len(record.session.turns) + 1 if record.session else 1
    if not folders.workspace.path.is_dir():
        raise WorkspaceSpoiled(f"had removed its workspace before turn {number}")
    folder = f"{record.artifact_dir}/{turn_folder(number)}".rstrip("/")
    turn_record = AttemptRecord(runner=record.runner, number=record.number, artifact_dir=folder)
    one_turn = replace(attempt, trial=_trial_of_turn(trial, record, number, prompt), record=turn_record)
    spec = trial.execution.case.task
    # The steps of a task are sessions of their own, in one environment.
    resume = _resume(trial, record, number) if spec is None else None
    (context.run_dir / folder).mkdir(parents=True)
    if (listen := context.listener(trial)) is not None:
        listen(TurnStarted(turn=number, prompt=context.masker.text(prompt)))
    try:
        if spec is None:
            await run_agent(one_turn, resume, number, live=live)
            _refuse_another_session(record.session, turn_record.session, number)
        else:
            assert context.container is not None
            context.container.expect(spec.steps[number - 1])
            await run_agent(one_turn, resume, number)
    except AgentError as error:
        raise _in_turn(error, trial.execution.limits, record, turn_record, number) from error
    finally:
        _add(context, record, turn_record, number, prompt)


def _trial_of_turn(trial: Trial, record: AttemptRecord, number: int, prompt: str) -> Trial:
    """Return the trial with *prompt*, and with what is left of its limits; raises if one is used up."""
    limits = trial.execution.limits
    took_s = sum(turn.duration_s or 0.0 for turn in record.session.turns) if record.session else 0.0
    if limits.timeout_s and took_s >= limits.timeout_s:
        raise AgentTimedOut(f"had taken {took_s:.3g} s of {limits.timeout_s:g} s before turn {number}")
    if limits.max_steps is not None and record.steps >= limits.max_steps:
        raise StepLimitReached(f"had taken {record.steps} steps before turn {number}, and may take {limits.max_steps}")
    remaining_limits = Limits(
        timeout_s=limits.timeout_s - took_s if limits.timeout_s else limits.timeout_s,
        max_steps=None if limits.max_steps is None else limits.max_steps - record.steps,
        budget_usd=None if limits.budget_usd is None else limits.budget_usd - (record.usage.cost_usd or 0.0),
        budget_tokens=_remaining(limits.budget_tokens, record.usage.total_tokens),
        budget_requests=_remaining(limits.budget_requests, record.requests),
    )
    case = replace(trial.execution.case, prompt=prompt)
    return replace(trial, execution=replace(trial.execution, case=case, limits=remaining_limits))


def _remaining(most: int | None, usage: int | None) -> int | None:
    return None if most is None else max(0, most - (usage or 0))


def _resume(trial: Trial, record: AttemptRecord, number: int) -> Resume | None:
    """Return the session to resume; an agent without ids, such as a script, knows it by its home."""
    if number == 1 or record.session is None:
        return None
    session_id = record.session.session_id or ""
    if not session_id and plugins.find("agents", trial.execution.runner.agent).state:
        raise SessionLost(f"gave no id of its session in turn {number - 1}, so it cannot go on with it")
    return Resume(session_id=session_id, usage=record.usage)


def _refuse_another_session(before: SessionSummary | None, now: SessionSummary | None, number: int) -> None:
    """Raise if the agent says that it began a new session instead of resuming its own."""
    earlier_id, new_id = before.session_id if before else None, now.session_id if now else None
    if earlier_id and new_id and earlier_id != new_id:
        raise SessionLost(
            f"did not go on with its session {earlier_id}, and began a new one in turn {number}: {new_id}"
        )


def _in_turn(
    error: AgentError, limits: Limits, record: AttemptRecord, turn_record: AttemptRecord, number: int
) -> AgentError:
    """Return *error* with the turn in which it happened, and with the limit of the whole conversation."""
    match error:
        case AgentTimedOut():
            message = f"was still running after {limits.timeout_s or 0:g} s, in turn {number}, and was stopped"
        case StepLimitReached():
            message = f"began step {record.steps + turn_record.steps} in turn {number} and may take {limits.max_steps}"
        case MoneySpent():
            cost_usd = (record.usage + turn_record.usage).cost_usd or 0.0
            message = f"has spent ${cost_usd:.6g} of a budget of ${limits.budget_usd or 0:g}, in turn {number}"
        case _:
            message = f"turn {number}: {error.message}"
    return type(error)(message, hint=error.hint)


def _add(context: RunContext, record: AttemptRecord, turn_record: AttemptRecord, number: int, prompt: str) -> None:
    """Add what is known of a turn to the record of the conversation."""
    record.unpaid_usage += turn_record.unpaid_usage
    record.unpriced = record.unpriced or turn_record.unpriced
    record.tells_loads = record.tells_loads or turn_record.tells_loads
    record.usage, record.steps = record.usage + turn_record.usage, record.steps + turn_record.steps
    record.requests += turn_record.requests
    record.trusted, record.offered_skills = turn_record.trusted, (*record.offered_skills, *turn_record.offered_skills)
    record.resumable = turn_record.resumable or record.resumable
    record.notes += (f"turn {number}: {note}" for note in turn_record.notes if not note.startswith(BUDGET_NOT_ENFORCED))
    session = turn_record.session or turn_record.unfinished
    if session is None:
        # The turn never began, or a signal ended it.
        record.unfinished, record.session = record.session, None
        return
    artifact_dir = context.run_dir / record.artifact_dir
    _append(context, artifact_dir, artifact_dir / turn_folder(number), session, TurnStarted(turn=number, prompt=prompt))
    conversation = _with_turn(record, session, number, prompt)
    record.session, record.unfinished = (conversation, None) if turn_record.session else (None, conversation)
    record.detected_skills = detect_skills(EventLog(artifact_dir / EVENTS), conversation.placed_skills)


def _with_turn(record: AttemptRecord, session: SessionSummary, number: int, prompt: str) -> SessionSummary:
    """Return the session of the conversation up to this turn, whose own *session* is given."""
    before = record.session
    turn = TurnSummary(
        number=number,
        prompt=prompt,
        final_output=session.final_output,
        session_id=session.session_id or (before.session_id if before else None),
        exit_code=session.exit_code,
        steps=session.steps,
        usage=session.usage,
        duration_s=session.duration_s,
    )
    return replace(
        session,
        prompt=before.prompt if before else prompt,
        model=session.model or (before.model if before else None),
        version=session.version or (before.version if before else None),
        session_id=turn.session_id,
        steps=record.steps,
        usage=record.usage,
        started_at=record.started_at,
        duration_s=sum(summary.duration_s or 0.0 for summary in (*(before.turns if before else ()), turn)),
        turns=(*(before.turns if before else ()), turn),
        user=before.user if before else None,
        requests=_sum(before.requests if before else None, session.requests),
        model_s=_sum(before.model_s if before else None, session.model_s),
    )


def _sum(before: T | None, now: T | None) -> T | None:
    if before is None or now is None:
        return now if before is None else before
    return before + now


def _append(context: RunContext, artifact_dir: Path, folder: Path, session: SessionSummary, turn: TurnStarted) -> None:
    """Add the events of a turn, which are in *folder*, to those of the conversation."""
    events = _events(folder, session)
    turn_start = TurnStarted(turn=turn.turn, prompt=context.masker.text(turn.prompt))
    with (artifact_dir / EVENTS).open("ab") as file:
        file.write(codec.encode_lines([turn_start]))
        for event in events:
            file.write(codec.encode(event) + b"\n")


def _events(folder: Path, session: SessionSummary) -> Iterator[Event]:
    """Yield what is known of a turn; nothing in it may look like the beginning of another one."""
    path = events_path(folder)
    if path is None:
        yield FinalOutput(text=session.final_output)
        return
    yield from _readable(read_events(path))


def _readable(events: Iterator[Event]) -> Iterable[Event]:
    """Yield the events up to a line that is none, of which the session's own error tells."""
    try:
        for event in events:
            if not isinstance(event, TurnStarted):
                yield event
    except codec.WireError:
        return


class _Speaker:
    """The user of a conversation, who replies to each answer; if the session is *recorded*, as in the record."""

    def __init__(
        self, context: RunContext, trial: Trial, record: AttemptRecord, recording: SessionSummary | None
    ) -> None:
        user = trial.execution.case.user
        assert user is not None
        self._context, self._record, self._user = context, record, user
        self._recorded = recording
        self._client: JudgeClient | None = None
        self._model: str | None = None

    async def aclose(self) -> None:
        """Close the connections to the model."""
        if self._client is not None:
            await self._client.close()

    async def answer(self) -> str | None:
        """Return the next prompt, or None if the conversation is over; raises `UserFailed` if the model fails."""
        session = self._record.session
        assert session is not None
        if self._recorded is not None:
            return self._as_recorded(session, self._recorded)
        try:
            with charge_to(self._record.pay_user):
                reply, usage = await self._ask(session)
        except JudgeFailed as error:
            error_type = UserRefused if isinstance(error, JudgeRefused) else UserFailed
            raise error_type(f"after turn {len(session.turns)}, {error.message}", hint=error.hint) from error
        self._note(session, reply, usage)
        goes_on = reply.action == "say" and len(session.turns) < self._user.max_turns
        return reply.text if goes_on else None

    async def _ask(self, session: SessionSummary) -> tuple[UserMove, Usage]:
        if self._client is None:
            settings, key = user_settings(self._context.suite.user, self._user, self._context.environ)
            variable = find_variable(settings, self._context.environ)
            self._client = JudgeClient(settings, key, WHO, variable=variable)
            self._model = settings.model_name
        prompt = prompt_for(self._user, session.turns)
        with suppress(NoVerdict):
            return await self._client.fill(prompt, FORM)
        # Once more: it did not keep to the form.
        return await self._client.fill(prompt, FORM)

    def _note(self, session: SessionSummary, reply: UserMove, usage: Usage) -> None:
        number = len(session.turns)
        over = reply.action != "say" or number >= self._user.max_turns
        output_flags = flags_of(session.final_output)
        flags = (*output_flags, *(("tries to instruct the model, says the model",) if reply.manipulation else ()))
        earlier_flags = session.user.flags if session.user else ()
        summary = UserSummary(
            outcome=_OUTCOMES[reply.action] if over else None,
            reason=self._context.masker.text(reply.reason) if over else "",
            model=self._model,
            usage=self._record.users.usage,
            flags=tuple(dict.fromkeys((*earlier_flags, *flags))),
        )
        self._record.session = replace(session, user=summary)
        new = [flag for flag in flags if flag not in earlier_flags]
        if new:
            self._record.notes.append(f"turn {number}: what the agent said to its user {'; '.join(new)}")
        line = {"turn": number, "reply": reply, "usage": usage, "flags": flags}
        with (self._context.run_dir / self._record.artifact_dir / _USER_FILE).open("ab") as file:
            file.write(self._context.masker.data(codec.encode(line) + b"\n"))

    def _as_recorded(self, session: SessionSummary, recording: SessionSummary) -> str | None:
        turn_count = len(session.turns)
        if turn_count < len(recording.turns):
            return recording.turns[turn_count].prompt
        self._record.session = replace(session, user=recording.user)
        return None

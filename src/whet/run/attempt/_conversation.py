"""A conversation: prompt after prompt in one session, workspace and home, each in a turn with a record of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import anyio

from whet.agents.agent import Agent, Resume
from whet.errors import (
    AgentError,
    AgentTimedOut,
    BudgetSpent,
    JudgeFailed,
    JudgeRefused,
    NoVerdict,
    SessionLost,
    StepLimitReached,
    UserFailed,
    UserRefused,
    WorkspaceSpoiled,
)
from whet.grade.evidence import EventLog, events_path, read_events
from whet.grade.judge_client import JudgeClient, find_variable
from whet.grade.paying import paid_by
from whet.grade.user_model import FORM, WHO, Action, Reply, flags_of, prompt_for, user_settings
from whet.model import plugins, wire
from whet.model.run import UNHELD, Trial, turn_folder
from whet.model.seen import Event, FinalOutput, TurnStarted
from whet.model.session import SessionSummary, TurnSummary, Usage, UserOutcome, UserSummary
from whet.model.skills import detect_skills
from whet.model.suite import Limits
from whet.run.agent_session import EVENTS, SESSION, note_unheld, run_agent, task_of, write_session
from whet.run.attempt_record import AttemptRecord
from whet.run.dialogue import LiveAgent
from whet.run.grading import house_of
from whet.run.ground import Ground
from whet.run.parts import RunParts

# Called after every turn but the last, with its number; returns whether the next one is taken.
T = TypeVar("T", int, float)
AfterTurn: TypeAlias = Callable[[int], Awaitable[bool]]
_USER_FILE = "user.jsonl"
_OUTCOMES: dict[Action, UserOutcome] = {"say": "max-turns", "satisfied": "satisfied", "give_up": "gave-up"}


async def converse(parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord, after_turn: AfterTurn) -> bool:
    """Take turn after turn, and note the session of all of them; return whether none was left out.

    Time, steps and budget are limits of the whole conversation. What ends a turn badly ends the conversation.
    """
    take = _take_turns if trial.execution.case.user is None else _talk_with_user
    live = LiveAgent(last=False)
    try:
        async with live:
            return await take(parts, ground, trial, record, after_turn, live)
    except (AgentError, UserFailed, WorkspaceSpoiled):
        if record.session is not None:
            # What came before was well, and the conversation is not over.
            record.unfinished, record.session = replace(record.session, complete=False), None
        raise
    finally:
        if live.through is not None:
            with anyio.CancelScope(shield=True):
                await live.through.close()
        note_unheld(trial, record)
        session = record.session or record.unfinished
        artifact_dir = parts.run_dir / record.artifact_dir
        # As with a session of one prompt, there is none to read of an agent that was stopped on the way.
        if session is not None and (artifact_dir / turn_folder(len(session.turns)) / SESSION).exists():
            write_session(parts, artifact_dir, session)


async def _talk_with_user(
    parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord, after_turn: AfterTurn, live: LiveAgent
) -> bool:
    """Go on as long as the user has something to say; its turns have no checks of their own."""
    del after_turn
    agent: Agent = plugins.find("agents", trial.execution.runner.agent)()
    recorded = agent.recorded(task_of(parts, ground, trial))
    async with aclosing(_Speaker(parts, trial, record, recorded)) as speaker:
        prompt: str | None = trial.execution.case.prompt
        while prompt is not None:
            await _take_turn(parts, ground, trial, record, prompt, live)
            prompt = await speaker.answer()
    return True


async def _take_turns(
    parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord, after_turn: AfterTurn, live: LiveAgent
) -> bool:
    prompts = (trial.execution.case.prompt, *trial.execution.case.then)
    for number, prompt in enumerate(prompts, 1):
        live.last = number == len(prompts)
        await _take_turn(parts, ground, trial, record, prompt, live)
        if number == len(prompts):
            break
        async with live.paused():
            goes_on = await after_turn(number)
        if not goes_on:
            left = f"turns {number + 1} to {len(prompts)} were" if number + 1 < len(prompts) else "the last turn was"
            record.notes.append(f"{left} not taken, because a check of turn {number} did not hold")
            return False
    return True


async def _take_turn(
    parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord, prompt: str, live: LiveAgent
) -> None:
    """Ask the agent once more, in the session that it is in: its program is still there, or resumes it."""
    number = len(record.session.turns) + 1 if record.session else 1
    if not ground.workspace.path.is_dir():
        raise WorkspaceSpoiled(f"had removed its workspace before turn {number}")
    folder = f"{record.artifact_dir}/{turn_folder(number)}".rstrip("/")
    own = AttemptRecord(runner=record.runner, number=record.number, artifact_dir=folder)
    asked = _asked(trial, record, number, prompt)
    spec = trial.execution.case.task
    # The steps of a task are sessions of their own, in one environment.
    resume = _resume(trial, record, number) if spec is None else None
    (parts.run_dir / folder).mkdir(parents=True)
    if (listen := parts.listener(trial)) is not None:
        listen(TurnStarted(turn=number, prompt=parts.masker.text(prompt)))
    try:
        if spec is None:
            await run_agent(parts, ground, asked, own, resume, number, live=live)
            _refuse_another_session(record.session, own.session, number)
        else:
            house_of(parts.sandbox).expect(spec.steps[number - 1])
            await run_agent(parts, ground, asked, own, resume, number)
    except AgentError as error:
        raise _in_turn(error, trial.execution.limits, record, own, number) from error
    finally:
        _add(parts, record, own, number, prompt)


def _asked(trial: Trial, record: AttemptRecord, number: int, prompt: str) -> Trial:
    """Return the trial with *prompt*, and with what is left of its limits; raises if one is used up."""
    limits = trial.execution.limits
    took_s = sum(turn.duration_s or 0.0 for turn in record.session.turns) if record.session else 0.0
    if limits.timeout_s and took_s >= limits.timeout_s:
        raise AgentTimedOut(f"had taken {took_s:.3g} s of {limits.timeout_s:g} s before turn {number}")
    if limits.max_steps is not None and record.steps >= limits.max_steps:
        raise StepLimitReached(f"had taken {record.steps} steps before turn {number}, and may take {limits.max_steps}")
    left = Limits(
        timeout_s=limits.timeout_s - took_s if limits.timeout_s else limits.timeout_s,
        max_steps=None if limits.max_steps is None else limits.max_steps - record.steps,
        budget_usd=None if limits.budget_usd is None else limits.budget_usd - (record.usage.cost_usd or 0.0),
        budget_tokens=_left(limits.budget_tokens, record.usage.total_tokens),
        budget_requests=_left(limits.budget_requests, record.requests),
    )
    case = replace(trial.execution.case, prompt=prompt)
    return replace(trial, execution=replace(trial.execution, case=case, limits=left))


def _left(most: int | None, used: int | None) -> int | None:
    return None if most is None else max(0, most - (used or 0))


def _resume(trial: Trial, record: AttemptRecord, number: int) -> Resume | None:
    """Return the session to go on with; an agent without ids, such as a script, knows it by its home."""
    if number == 1 or record.session is None:
        return None
    session_id = record.session.session_id or ""
    if not session_id and plugins.find("agents", trial.execution.runner.agent).state:
        raise SessionLost(f"gave no id of its session in turn {number - 1}, so it cannot go on with it")
    return Resume(session_id=session_id, usage=record.usage)


def _refuse_another_session(before: SessionSummary | None, now: SessionSummary | None, number: int) -> None:
    """Raise if the agent says that it began a new session instead of going on with its own."""
    known, named = before.session_id if before else None, now.session_id if now else None
    if known and named and known != named:
        raise SessionLost(f"did not go on with its session {known}, and began a new one in turn {number}: {named}")


def _in_turn(error: AgentError, limits: Limits, record: AttemptRecord, own: AttemptRecord, number: int) -> AgentError:
    """Return *error* with the turn in which it happened, and with the limit of the whole conversation."""
    match error:
        case AgentTimedOut():
            said = f"was still running after {limits.timeout_s or 0:g} s, in turn {number}, and was stopped"
        case StepLimitReached():
            said = f"began step {record.steps + own.steps} in turn {number} and may take {limits.max_steps}"
        case BudgetSpent() if "$" in error.message:
            spent = (record.usage + own.usage).cost_usd or 0.0
            said = f"has spent ${spent:.6g} of a budget of ${limits.budget_usd or 0:g}, in turn {number}"
        case _:
            said = f"turn {number}: {error.message}"
    return type(error)(said, hint=error.hint)


def _add(parts: RunParts, record: AttemptRecord, own: AttemptRecord, number: int, prompt: str) -> None:
    """Add what is known of a turn to the record of the conversation."""
    record.unpaid_usage += own.unpaid_usage
    record.unpriced = record.unpriced or own.unpriced
    record.tells_loads = record.tells_loads or own.tells_loads
    record.usage, record.steps = record.usage + own.usage, record.steps + own.steps
    record.requests += own.requests
    record.trusted, record.offered_skills = own.trusted, (*record.offered_skills, *own.offered_skills)
    record.resumable = own.resumable or record.resumable
    record.notes += (f"turn {number}: {note}" for note in own.notes if not note.startswith(UNHELD))
    session = own.session or own.unfinished
    if session is None:
        # It never began, or a signal ended it.
        record.unfinished, record.session = record.session, None
        return
    artifact_dir = parts.run_dir / record.artifact_dir
    _append(parts, artifact_dir, artifact_dir / turn_folder(number), session, TurnStarted(turn=number, prompt=prompt))
    whole = _with_turn(record, session, number, prompt)
    record.session, record.unfinished = (whole, None) if own.session else (None, whole)
    record.detected_skills = detect_skills(EventLog(artifact_dir / EVENTS), whole.placed_skills)


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
        duration_s=sum(each.duration_s or 0.0 for each in (*(before.turns if before else ()), turn)),
        turns=(*(before.turns if before else ()), turn),
        user=before.user if before else None,
        requests=_sum(before.requests if before else None, session.requests),
        model_s=_sum(before.model_s if before else None, session.model_s),
    )


def _sum(before: T | None, now: T | None) -> T | None:
    return now if before is None else before if now is None else before + now


def _append(parts: RunParts, artifact_dir: Path, folder: Path, session: SessionSummary, turn: TurnStarted) -> None:
    """Add the events of a turn, which are in *folder*, to those of the conversation."""
    events = _events(folder, session)
    started = TurnStarted(turn=turn.turn, prompt=parts.masker.text(turn.prompt))
    with (artifact_dir / EVENTS).open("ab") as file:
        file.write(wire.encode_lines([started]))
        for event in events:
            file.write(wire.encode(event) + b"\n")


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
    except wire.WireError:
        return


class _Speaker:
    """The user of a conversation, who replies to each answer; if the session is *recorded*, as in the record."""

    def __init__(self, parts: RunParts, trial: Trial, record: AttemptRecord, recorded: SessionSummary | None) -> None:
        user = trial.execution.case.user
        assert user is not None
        self._parts, self._record, self._user = parts, record, user
        self._recorded = recorded
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
            with paid_by(self._record.pay_user):
                reply, usage = await self._ask(session)
        except JudgeFailed as error:
            failed = UserRefused if isinstance(error, JudgeRefused) else UserFailed
            raise failed(f"after turn {len(session.turns)}, {error.message}", hint=error.hint) from error
        self._note(session, reply, usage)
        goes_on = reply.action == "say" and len(session.turns) < self._user.max_turns
        return reply.text if goes_on else None

    async def _ask(self, session: SessionSummary) -> tuple[Reply, Usage]:
        if self._client is None:
            settings, key = user_settings(self._parts.suite.user, self._user, self._parts.environ)
            variable = find_variable(settings, self._parts.environ)
            self._client = JudgeClient(settings, key, WHO, variable=variable)
            self._model = settings.model_name
        prompt = prompt_for(self._user, session.turns)
        with suppress(NoVerdict):
            return await self._client.fill(prompt, FORM)
        # Once more: it did not keep to the form.
        return await self._client.fill(prompt, FORM)

    def _note(self, session: SessionSummary, reply: Reply, usage: Usage) -> None:
        number = len(session.turns)
        over = reply.action != "say" or number >= self._user.max_turns
        seen = flags_of(session.final_output)
        flags = (*seen, *(("tries to instruct the model, says the model",) if reply.manipulation else ()))
        known = session.user.flags if session.user else ()
        summary = UserSummary(
            outcome=_OUTCOMES[reply.action] if over else None,
            reason=self._parts.masker.text(reply.reason) if over else "",
            model=self._model,
            usage=self._record.users.usage,
            flags=tuple(dict.fromkeys((*known, *flags))),
        )
        self._record.session = replace(session, user=summary)
        new = [flag for flag in flags if flag not in known]
        if new:
            self._record.notes.append(f"turn {number}: what the agent said to its user {'; '.join(new)}")
        line = {"turn": number, "reply": reply, "usage": usage, "flags": flags}
        with (self._parts.run_dir / self._record.artifact_dir / _USER_FILE).open("ab") as file:
            file.write(self._parts.masker.data(wire.encode(line) + b"\n"))

    def _as_recorded(self, session: SessionSummary, recorded: SessionSummary) -> str | None:
        taken = len(session.turns)
        if taken < len(recorded.turns):
            return recorded.turns[taken].prompt
        self._record.session = replace(session, user=recorded.user)
        return None

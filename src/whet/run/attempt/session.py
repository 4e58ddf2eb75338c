"""The session of an agent: start it in the sandbox, read what it prints on the way to disk, and note how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from whet import plugins
from whet.agents.contract import Agent, AgentCommand, Resume, Signs, Task
from whet.agents.known import known_agent, logins
from whet.agents.observe.model_activity import ModelActivity, SignFilter
from whet.agents.observe.observer import Observer, SessionLimits
from whet.errors import (
    AgentError,
    ContextExhausted,
    KeyRefused,
    PromptTooLong,
    ProviderFailed,
    ProviderUnreachable,
)
from whet.gateway.sessions import SessionInfo as GatewaySession
from whet.model import codec
from whet.model.events import Event
from whet.model.run import Trial
from whet.model.session import SessionSummary, Usage
from whet.model.skills import EarlyEnd, was_loaded
from whet.model.spending import BUDGET_NOT_ENFORCED
from whet.packages.task_packages import in_package
from whet.reading.plugin_folder import skills_of
from whet.record.folder import write_new
from whet.run.attempt._early import EarlyEnding, early_ending
from whet.run.attempt._ending import judge_ending, silence_at_limit
from whet.run.attempt.attempt import Attempt
from whet.run.attempt.home import Resumable, collect_files, fill_home, login_secrets
from whet.run.attempt.record import AttemptRecord
from whet.run.context import RunContext
from whet.sandbox.contract import Boundary, Command, Ended, Sink
from whet.sandbox.limits import suspected
from whet.secrets import Capture
from whet.workspace.make import skills_in

if TYPE_CHECKING:
    from whet.gateway.sessions import ProxySession
    from whet.run.attempt._dialogue import LiveAgent

EVENTS, SESSION = "events.jsonl", "session.json"
# What whet said in a dialogue; the transcript is what the agent printed.
SENT = "sent.jsonl"
# Errors that stop a session on the way, and leave it readable to its end.
_READABLE = (ContextExhausted, KeyRefused, PromptTooLong, ProviderUnreachable)


class AgentSession(Struct, frozen=True):
    """An agent on one task: the command that starts it, the observer of its output, and its transcript."""

    attempt: Attempt
    task: Task
    agent: Agent
    agent_command: AgentCommand
    observer: Observer
    watch: SessionLimits
    transcript: Path
    proxy_session: ProxySession | None
    early: EarlyEnding | None

    @property
    def early_end(self) -> EarlyEnd | None:
        """Why whet ended it early, if it did; a recording was ended as its own session was."""
        if self.early is not None and self.early.has_ended:
            loaded = {detection.skill for detection in self.observer.detected_skills() if was_loaded(detection)}
            return self.early.follower.outcome(loaded, self.observer.steps)
        recording = None if self.agent_command.timed else self.agent.recorded(self.task)
        return recording.ended_early if recording else None


async def run_agent(
    attempt: Attempt, resume: Resume | None = None, turn: int = 1, *, live: LiveAgent | None = None
) -> None:
    """Start the agent, or resume an earlier session, and note its session if it ended well; raises if not.

    An agent that is spoken with stays in *live* if another prompt follows, and so does its way through the gateway.
    """
    context, trial, record = attempt.context, attempt.trial, attempt.record
    async with _way_to_model(attempt, live) as proxy_session:
        task = task_of(attempt, resume, turn)
        if proxy_session is not None:
            task = proxy_session.task(task)
        session = _begin(attempt, task, live, proxy_session)
        session = replace(session, agent_command=await context.unpacked.given_to(session.agent_command))
        context.masker.learn(login_secrets(session.agent_command))
        # Later, the agent may have changed what is there, such as a login that it renewed.
        if task.turn == 1 and (session.agent_command.home_files or session.agent_command.home_copies):
            await anyio.to_thread.run_sync(fill_home, attempt.folders.home, session.agent_command)
        ending: Ended | None = None
        try:
            try:
                ending, tail = await _stream(session, live)
                ending = suspected(ending, context.ceilings, tail)
            finally:
                _note_figures(session)
                if session.observer.turn.came:
                    context.gateways.heard.add(trial.key.runner)
            await _judge(session, ending, tail)
            if proxy_session is not None:
                proxy_session.require_budget(trial.execution.limits.budget_usd)
            if ending.reached is not None:
                record.notes.append(f"ran into its ceiling of {ending.reached} on the way")
        except AgentError as error:
            error.hint = _hint(session, error)
            record.unfinished = replace(_session(session, ending), complete=False)
            if ending is not None or isinstance(error, _READABLE):
                # No check sees it, but people who look for the reason do.
                write_session(context, attempt.artifact_dir, record.unfinished)
            raise
        record.session = _session(session, ending)
        write_session(context, attempt.artifact_dir, record.session)
        if session.observer.unreadable is not None:
            raise session.observer.unreadable


@asynccontextmanager
async def _way_to_model(attempt: Attempt, live: LiveAgent | None) -> AsyncIterator[ProxySession | None]:
    """Open a way through the gateway, if the agent of *attempt* has one; that of an agent in *live* stays open."""
    context = attempt.context
    proxy_session = live.proxy_session if live else await context.gateways.open(attempt.trial)
    try:
        yield proxy_session
    finally:
        if proxy_session is not None:
            context.link.under_way.end(proxy_session, attempt.record.usage)
            if live is None:
                with anyio.CancelScope(shield=True):
                    await proxy_session.close()


def _hint(session: AgentSession, error: AgentError) -> str | None:
    """Return what to do about *error*, if its session shows the reason."""
    if _lacks_network(session):
        return (
            f"runner {session.attempt.trial.key.runner} has no network, and {session.task.runner.agent} asks its model "
            'over one: network = "model" lets it reach its model and nothing else'
        )
    if error.hint is None and session.proxy_session is not None and session.proxy_session.only_faults:
        return "all that its model answered were faults on purpose (gateway.faults)"
    return error.hint


def _lacks_network(session: AgentSession) -> bool:
    """Return whether no model has answered an agent that cannot reach one: its boundary has no network."""
    agent_command = session.agent_command
    return agent_command.shows_model and not agent_command.network and not session.observer.turn.came


async def _judge(session: AgentSession, ending: Ended, tail: bytes) -> None:
    """Raise unless the session ended well; of an outage, first find out whether there is one."""
    if session.early is not None and session.early.has_ended:
        return
    proxy_session = session.proxy_session
    judge = partial(
        judge_ending,
        ending,
        session.observer,
        session.agent_command,
        timeout_s=session.attempt.timeout_s,
        silence_s=session.attempt.context.model_silence_s,
        tail=tail,
    )
    try:
        judge(observation=proxy_session.observation() if proxy_session else None)
    except ProviderFailed:
        if proxy_session is None:
            raise
        await proxy_session.reach()
        if session.agent_command.trusted or not await proxy_session.provider_answers():
            raise
        # Then a silence that a program may have asked for is none of the provider.
        judge(observation=proxy_session.observation(with_doubtful=False))


def _login(attempt: Attempt, task: Task, agent_command: AgentCommand, proxy_session: ProxySession | None) -> str | None:
    """Return what logs an agent in that asks its provider directly and is believed about it; a recording asks none."""
    if proxy_session is not None or not agent_command.trusted or not agent_command.timed:
        return None
    agent_program = known_agent(task.runner.agent)
    login_names = (
        logins(agent_program, {**attempt.context.environ, **task.options.table("env")}) if agent_program else []
    )
    return f"the login in {' or '.join(login_names)}" if login_names else f"the login of {task.runner.agent}"


def _note_figures(session: AgentSession) -> None:
    """Note what the session used, however it ended."""
    record = session.attempt.record
    reported_usage = session.observer.usage_or_guess(session.transcript)
    record.steps, record.detected_skills = session.observer.steps, session.observer.detected_skills()
    record.offered_skills, record.tells_loads = session.observer.started.skills, session.observer.tells_loads
    record.usage = session.proxy_session.usage(reported_usage) if session.proxy_session else reported_usage
    record.unpaid_usage = _unpaid(record.usage, session)
    record.unpriced = record.usage.cost_usd is None and not _is_free(session)
    record.requests = session.proxy_session.asked if session.proxy_session else 0
    record.trusted = session.agent_command.trusted
    record.resumable = _resumable(session)
    if session.proxy_session is None or not session.proxy_session.guessed_usd:
        # Otherwise the gateway held the budget by what it guessed.
        note_unenforced_budget(session.attempt.trial, record)


def _unpaid(usage: Usage, session: AgentSession) -> Usage:
    """Return the part of *usage* that no provider was asked for."""
    if not session.agent_command.paid:
        return usage
    return session.proxy_session.unpaid(usage) if session.proxy_session else Usage()


def _is_free(session: AgentSession) -> bool:
    """Return whether no provider was asked, so that an unknown cost is none."""
    return not session.agent_command.paid or (session.proxy_session is not None and session.proxy_session.free)


def note_unenforced_budget(trial: Trial, record: AttemptRecord) -> None:
    """Note that a budget was not enforced if the cost is unknown; unknown is not zero."""
    budget = trial.execution.limits.budget_usd
    if budget is not None and record.usage.cost_usd is None:
        record.notes.append(f"{BUDGET_NOT_ENFORCED}: it is ${budget:g}, and the cost is not known")


def _placed_skills(task: Task) -> tuple[str, ...]:
    return tuple(skill.name for folder in task.runner.skills for skill in skills_of(folder))


def _begin(attempt: Attempt, task: Task, live: LiveAgent | None, proxy_session: ProxySession | None) -> AgentSession:
    trial, limits, artifact_dir = attempt.trial, attempt.trial.execution.limits, attempt.artifact_dir
    agent: Agent = (live and live.agent) or plugins.find("agents", task.runner.agent)()
    agent_command = (live and live.agent_command) or agent.command(task)
    watch = SessionLimits(
        max_steps=limits.max_steps,
        budget_usd=limits.budget_usd,
        model=task.runner.model or agent_command.model,
        prompt=task.prompt,
        placed_skills=_placed_skills(task) or agent_command.placed_skills,
    )
    early = early_ending(attempt, agent_command, proxy_session)
    observer = Observer(
        agent_command.output,
        agent.events,
        events_path=artifact_dir / EVENTS,
        watch=watch,
        follower=early.follower if early else None,
        then=attempt.context.listener(trial),
        timed=agent_command.timed,
        turn=ModelActivity(
            attempt.timeout_s,
            login=_login(attempt, task, agent_command, proxy_session),
            heard=trial.key.runner in attempt.context.gateways.heard,
        ),
    )
    if live and live.started:
        # As an agent that resumes its session says it again.
        observer.take(live.started)
    transcript = artifact_dir / ("transcript.txt" if agent_command.output == "text" else "transcript.jsonl")
    return AgentSession(attempt, task, agent, agent_command, observer, watch, transcript, proxy_session, early)


def _resumable(session: AgentSession) -> Resumable | None:
    """Return what resumes the session, if the agent can and its id is known."""
    session_id, names = session.observer.started.session_id, session.agent.state
    return (
        Resumable(session_id=session_id, names=names, agent_command=session.agent_command)
        if session_id and names
        else None
    )


def _session(session: AgentSession, ending: Ended | None) -> SessionSummary:
    attempt, observer = session.attempt, session.observer
    context, trial, record = attempt.context, attempt.trial, attempt.record
    runner = trial.execution.runner
    return SessionSummary(
        runner=runner.id,
        agent=runner.agent,
        model=observer.started.model or session.watch.model,
        session_id=observer.started.session_id,
        version=observer.started.version,
        prompt=trial.execution.case.prompt,
        final_output=observer.final_output(session.transcript),
        exit_code=ending.exit_code if ending else None,
        complete=ending is not None,
        steps=record.steps,
        usage=record.usage,
        placed_skills=session.watch.placed_skills,
        watermarks=session.agent_command.watermarks or context.skill_copies.watermarks,
        started_at=record.started_at,
        duration_s=ending.duration_s if ending else None,
        ended_early=session.early_end,
        route=context.gateways.words(trial),
        **(session.proxy_session.figures if session.proxy_session else {}),
    )


def write_session(context: RunContext, artifact_dir: Path, session: SessionSummary) -> None:
    """Write a session, without secrets."""
    # The answer was masked with the transcript that it was read from; the prompt is as the author wrote it.
    mask = context.masker.text
    turns = tuple(replace(turn, prompt=mask(turn.prompt)) for turn in session.turns)
    masked_session = replace(session, prompt=mask(session.prompt), turns=turns) if context.masker else session
    write_new(f"{artifact_dir}/{SESSION}", codec.encode_pretty(masked_session))


def task_of(attempt: Attempt, resume: Resume | None = None, turn: int = 1) -> Task:
    """Return what the agent is asked, and where."""
    context, folders, trial = attempt.context, attempt.folders, attempt.trial
    return Task(
        prompt=trial.execution.case.prompt,
        case=trial.key.case,
        runner=trial.execution.runner,
        workspace=context.sandbox.workdir or folders.workspace.path,
        home=folders.home,
        temporary=folders.temporary,
        suite_dir=context.suite.source.parent,
        settings_dir=context.settings_dir,
        environ=context.environ,
        run=context.run_id,
        arm=trial.key.arm,
        trial=trial.key.number,
        turn=turn,
        resume=resume,
        skill=trial.execution.skill,
        workspace_skills=skills_in(folders.workspace.path),
        spec=trial.execution.case.task,
    )


async def _stream(session: AgentSession, live: LiveAgent | None) -> tuple[Ended, bytes]:
    """Run the agent's process, with its output to disk and to the observer; return how it ended, and its last words."""
    agent_command, observer = session.agent_command, session.observer
    context, folders, trial = session.attempt.context, session.attempt.folders, session.attempt.trial
    cwd, shown_at = in_package(trial.execution.workspace.package, folders.workspace.path)
    # The container of a task has a working folder of its own.
    cwd = context.sandbox.workdir or cwd
    most = context.max_output_bytes
    stdout = Capture(session.transcript, masker=context.masker, most_bytes=most, then=observer.feed)
    stderr = Capture(session.transcript.with_name("stderr.log"), masker=context.masker, most_bytes=most)
    proxy_session, case_env = session.proxy_session, trial.execution.case.env
    env = {**agent_command.env, **(proxy_session.env(case_env) if proxy_session else case_env)}
    command = Command(
        argv=agent_command.argv, env=env, cwd=cwd, stdin=agent_command.stdin, of_host=agent_command.of_host
    )
    boundary = replace(_boundary(session.attempt, agent_command), shown_at=shown_at)
    boundary = proxy_session.boundary(boundary) if proxy_session else boundary
    out, log = (
        _sift(context, observer, signs, capture)
        for signs, capture in ((agent_command.signs, stdout), (agent_command.log_signs, stderr))
    )
    input_log = Capture(session.transcript.with_name(SENT), masker=context.masker, most_bytes=most)
    streams = (out, log, input_log)
    try:
        try:
            ending = await _to_its_end(session, command, boundary, live=live, streams=streams)
        finally:
            for sink in (out, log):
                if isinstance(sink, SignFilter):
                    sink.finish()
            stdout.close()
            observer.finish()
            stderr.close()
            input_log.close()
        home_files = collect_files(folders.home, agent_command, context.masker)
        for event in session.agent.ending(home_files):
            observer.take(event)
        silent = (
            silence_at_limit(observer, agent_command, session.attempt.timeout_s, context.model_silence_s)
            if ending.timed_out
            else None
        )
        if silent is not None:
            # For people who read the session, and for replays.
            observer.take(silent)
    finally:
        # Also if the agent was stopped at one of its limits.
        observer.close()
    if home_files:
        await anyio.to_thread.run_sync(_read_again, session, home_files, silent)
    return ending, stderr.tail or stdout.tail


async def _to_its_end(
    session: AgentSession,
    command: Command,
    boundary: Boundary,
    *,
    live: LiveAgent | None,
    streams: tuple[Sink, Sink, Sink],
) -> Ended:
    """Run the process until it ends; raises why, if the gateway ended it."""
    context, timeout_s, (out, log, input_log) = session.attempt.context, session.attempt.timeout_s, streams
    with anyio.CancelScope() as scope:
        if session.early is not None:
            session.early.begin(scope)
        if session.proxy_session is not None:
            context.gateways.begin(session.proxy_session, _at_gateway(session), scope.cancel)
        if session.agent.dialogue is None:
            ending = await context.sandbox.run(command, boundary, timeout_s=timeout_s, stdout=out, stderr=log)
        else:
            # Only here: few agents are spoken with.
            from whet.run.attempt._dialogue import LiveAgent, Streams

            live = live or LiveAgent(prompts=1)
            ending = await live.ask(
                lambda stdout, stderr: context.sandbox.open(command, boundary, stdout=stdout, stderr=stderr),
                session.agent.dialogue,
                session.task.prompt,
                timeout_s=timeout_s,
                turn=session.observer.turn,
                streams=Streams(stdout=out, stderr=log, sent=input_log),
            )
            live.remember(session.agent, session.agent_command, session.observer.started)
    if session.proxy_session is not None:
        if session.proxy_session.verdict is not None:
            raise session.proxy_session.verdict
        await session.proxy_session.wait_until_quiet()
    return session.early.ending() if session.early is not None and session.early.has_ended else ending


def _at_gateway(session: AgentSession) -> GatewaySession:
    """Identify this session to the gateway."""
    context, trial = session.attempt.context, session.attempt.trial
    task, folder = session.task, session.transcript.parent
    places = {"workspace": task.workspace, "home": task.home, "temporary": task.temporary, "scratch": context.scratch}
    word = (session.agent_command.watermarks or context.skill_copies.watermarks).get(trial.key.arm, "")
    # A judge may be asked in the scratch folder, about a workspace that no agent has touched.
    kept_in = next(
        base for base in (context.run_dir / "trials", context.run_dir, context.scratch) if folder.is_relative_to(base)
    )
    return GatewaySession(
        trial=trial,
        folder=folder,
        place=folder.relative_to(kept_in),
        places={**{name: str(path) for name, path in places.items()}, "run": context.run_id, "watermark": word},
        trusted=session.agent_command.trusted,
        asks_again=session.early.follower.asks_again if session.early else None,
    )


def _read_again(session: AgentSession, home_files: Mapping[str, bytes], silent: Event | None) -> None:
    """Read the transcript once more if files of the home add to it, such as what sub-agents did."""
    agent: Agent = plugins.find("agents", session.task.runner.agent)()
    agent.command(session.task)
    if not agent.learn(home_files):
        return
    again = Observer(
        session.agent_command.output,
        agent.events,
        events_path=session.transcript.with_name(EVENTS),
        watch=replace(session.watch, max_steps=None, budget_usd=None),
        timed=session.agent_command.timed,
    )
    try:
        with session.transcript.open("rb") as file:
            session.observer.read_again(file, again)
        for event in (*agent.ending(home_files), *((silent,) if silent else ())):
            again.take(event)
    finally:
        again.close()
    session.observer.adopt(again)


def _sift(context: RunContext, observer: Observer, signs: Signs | None, capture: Capture) -> Capture | SignFilter:
    """Look for signs of the model in a stream, if the agent has any there."""
    if signs is None:
        return capture
    return SignFilter(signs, capture, masker=context.masker, sign=observer.turn.sign, trouble=observer.take)


def _boundary(attempt: Attempt, agent_command: AgentCommand) -> Boundary:
    context, folders, trial = attempt.context, attempt.folders, attempt.trial
    # The user's own home, if a runner has `inherit_home`.
    homes = {folders.home, Path(agent_command.env.get("HOME", folders.home))}
    # The container of a task has its own.
    workspace = () if trial.execution.case.task else (folders.workspace.path,)
    return Boundary(
        writable=(*(() if folders.read_only else workspace), folders.temporary, *homes),
        readable=(
            *agent_command.readable,
            *agent_command.named,
            *context.mounts,
            *(workspace if folders.read_only else ()),
        ),
        hidden=(*context.hidden_from(trial), *context.suite.held_out),
        apart=context.apart,
        network=agent_command.network,
        ceilings=context.ceilings,
    )

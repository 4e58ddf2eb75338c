"""The session of an agent: start it in the sandbox, read what it prints on the way to disk, and note how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from whet.agents.agent import Agent, AgentCommand, Resume, Signs, Task
from whet.agents.observing import Observer, Watch
from whet.agents.turns import Sieve, Turn
from whet.dataclass import dataclass
from whet.errors import (
    AgentError,
    ContextExhausted,
    KeyRefused,
    PromptTooLong,
    ProviderFailed,
    ProviderUnreachable,
)
from whet.ground.ceilings import suspected
from whet.ground.packages import in_package
from whet.ground.sandbox import Boundary, Command, Ended, Sink
from whet.ground.workspaces import skills_in
from whet.model import plugins, wire
from whet.model.run import UNHELD, Trial
from whet.model.seen import Event
from whet.model.session import SessionSummary, Usage
from whet.model.suite import Limits
from whet.record.folder import write_new
from whet.run.attempt_record import AttemptRecord
from whet.run.ending import judge_ending, silence_at_limit
from whet.run.gateways import Session as GatewaySession
from whet.run.ground import Ground
from whet.run.parts import AttemptParts
from whet.run.scratch import Capture
from whet.run.session_state import Resumable, collected, fill_home, login_secrets

if TYPE_CHECKING:
    from whet.run.dialogue import LiveAgent
    from whet.run.gateways import Through

EVENTS, SESSION = "events.jsonl", "session.json"
# What whet said in a dialogue; the transcript is what the agent printed.
SENT = "sent.jsonl"
# Errors that stop a session on the way, and leave it readable to its end.
_READABLE = (ContextExhausted, KeyRefused, PromptTooLong, ProviderUnreachable)


@dataclass(frozen=True, slots=True)
class _Talk:
    """An agent on one task: the command that starts it, the observer of its output, and its transcript."""

    task: Task
    agent: Agent
    asked: AgentCommand
    observer: Observer
    watch: Watch
    transcript: Path
    through: Through | None


async def run_agent(
    parts: AttemptParts,
    ground: Ground,
    trial: Trial,
    record: AttemptRecord,
    resume: Resume | None = None,
    turn: int = 1,
    *,
    live: LiveAgent | None = None,
) -> None:
    """Start the agent, or resume an earlier session, and note its session if it ended well; raises if not.

    An agent that is spoken with stays in *live* if another prompt follows, and so does its way through the gateway.
    """
    task = task_of(parts, ground, trial, resume, turn)
    through = live.through if live and live.through else await parts.gateways.open(trial)
    if live is not None:
        live.through = through
    try:
        await _run_session(
            parts, ground, trial, record, through.task(task) if through else task, live=live, through=through
        )
    finally:
        if through is not None:
            parts.gateways.end(through, record.usage)
            if live is None:
                with anyio.CancelScope(shield=True):
                    await through.close()


async def _run_session(
    parts: AttemptParts,
    ground: Ground,
    trial: Trial,
    record: AttemptRecord,
    task: Task,
    *,
    live: LiveAgent | None,
    through: Through | None,
) -> None:
    artifact_dir, turn = parts.run_dir / record.artifact_dir, task.turn
    talk = _begin(artifact_dir, task, trial.execution.limits, parts.listener(trial), live, through)
    talk = replace(talk, asked=await parts.unpacked.given_to(talk.asked))
    parts.masker.learn(login_secrets(talk.asked))
    # Later, the agent may have changed what is there, such as a login that it renewed.
    if turn == 1 and (talk.asked.home_files or talk.asked.home_copies):
        await anyio.to_thread.run_sync(fill_home, ground.home, talk.asked)
    ended: Ended | None = None
    try:
        try:
            ended, tail = await _stream(parts, ground, trial, talk, live)
            ended = suspected(ended, parts.ceilings, tail)
        finally:
            _note_figures(trial, record, talk)
            if talk.observer.turn.came:
                parts.gateways.heard.add(trial.key.runner)
        await _judge(parts, trial, talk, ended, tail)
        if through is not None:
            through.hold_budget(trial.execution.limits.budget_usd)
        if ended.reached is not None:
            record.notes.append(f"ran into its ceiling of {ended.reached} on the way")
    except AgentError as error:
        if through is not None and through.only_faults:
            error.hint = error.hint or "all that its model answered were faults on purpose (gateway.faults)"
        record.unfinished = replace(_session(parts, trial, record, talk, ended), complete=False)
        if ended is not None or isinstance(error, _READABLE):
            # No check sees it, but people who look for the reason do.
            write_session(parts, artifact_dir, record.unfinished)
        raise
    record.session = _session(parts, trial, record, talk, ended)
    write_session(parts, artifact_dir, record.session)
    if talk.observer.unreadable is not None:
        raise talk.observer.unreadable


async def _judge(parts: AttemptParts, trial: Trial, talk: _Talk, ended: Ended, tail: bytes) -> None:
    """Raise unless the session ended well; of an outage, first find out whether anybody can reach the provider."""
    through = talk.through
    try:
        judge_ending(
            ended,
            talk.observer,
            talk.asked,
            timeout_s=trial.execution.limits.timeout_s or 0,
            silence_s=parts.model_silence_s,
            tail=tail,
            witness=through.witness() if through else None,
        )
    except ProviderFailed:
        if through is not None:
            await through.reach()
        raise


def _login(parts: AttemptParts, talk: _Talk) -> str | None:
    """Return what logs an agent in that asks its provider directly and is believed about it; a recording asks none."""
    if talk.through is not None or not talk.asked.trusted or not talk.asked.timed:
        return None
    # Only here: most agents are programs of your own.
    from whet.agents.programs import BY_TYPE, logins  # noqa: PLC0415

    known = BY_TYPE.get(talk.task.runner.agent)
    named = logins(known, {**parts.environ, **talk.task.options.table("env")}) if known else []
    return f"the login in {' or '.join(named)}" if named else f"the login of {talk.task.runner.agent}"


def _note_figures(trial: Trial, record: AttemptRecord, talk: _Talk) -> None:
    """Note what the session used, however it ended."""
    reported = talk.observer.usage_or_guess(talk.transcript)
    record.usage, record.steps = talk.through.usage(reported) if talk.through else reported, talk.observer.steps
    record.unpaid_usage = _unpaid(record.usage, talk)
    record.unpriced = record.usage.cost_usd is None and not _is_free(talk)
    record.requests = talk.through.asked if talk.through else 0
    record.detected_skills, record.trusted = talk.observer.detected_skills(), talk.asked.trusted
    record.offered_skills = talk.observer.started.skills
    record.tells_loads = talk.observer.tells_loads
    record.resumable = _resumable(talk)
    if talk.through is None or not talk.through.guessed_usd:
        # Otherwise the gateway held the budget by what it guessed.
        note_unheld(trial, record)


def _unpaid(usage: Usage, talk: _Talk) -> Usage:
    """Return the part of *usage* that no provider was asked for."""
    if not talk.asked.paid:
        return usage
    return talk.through.unpaid(usage) if talk.through else Usage()


def _is_free(talk: _Talk) -> bool:
    """Return whether no provider was asked, so that an unknown cost is none."""
    return not talk.asked.paid or (talk.through is not None and talk.through.free)


def note_unheld(trial: Trial, record: AttemptRecord) -> None:
    """Note that a budget was not enforced if the cost is unknown; unknown is not zero."""
    budget = trial.execution.limits.budget_usd
    if budget is not None and record.usage.cost_usd is None:
        record.notes.append(f"{UNHELD}: it is ${budget:g}, and the cost is not known")


def _begin(
    artifact_dir: Path,
    task: Task,
    limits: Limits,
    then: Callable[[Event], None] | None,
    live: LiveAgent | None,
    through: Through | None,
) -> _Talk:
    agent: Agent = (live and live.agent) or plugins.find("agents", task.runner.agent)()
    asked = (live and live.asked) or agent.command(task)
    watch = Watch(
        max_steps=limits.max_steps,
        budget_usd=limits.budget_usd,
        model=task.runner.model or asked.model,
        prompt=task.prompt,
        placed_skills=tuple(skill.name for skill in task.runner.skills) or asked.placed_skills,
    )
    observer = Observer(
        asked.output, agent.events, events_path=artifact_dir / EVENTS, watch=watch, then=then, timed=asked.timed
    )
    if live and live.started:
        # As an agent that resumes its session says it again.
        observer.take(live.started)
    transcript = artifact_dir / ("transcript.txt" if asked.output == "text" else "transcript.jsonl")
    return _Talk(task, agent, asked, observer, watch, transcript, through)


def _resumable(talk: _Talk) -> Resumable | None:
    """Return what resumes the session, if the agent can and its id is known."""
    session_id, names = talk.observer.started.session_id, talk.agent.state
    return Resumable(session_id=session_id, names=names, asked=talk.asked) if session_id and names else None


def _session(
    parts: AttemptParts, trial: Trial, record: AttemptRecord, talk: _Talk, ended: Ended | None
) -> SessionSummary:
    runner, observer = trial.execution.runner, talk.observer
    return SessionSummary(
        runner=runner.id,
        agent=runner.agent,
        model=observer.started.model or talk.watch.model,
        session_id=observer.started.session_id,
        version=observer.started.version,
        prompt=trial.execution.case.prompt,
        final_output=observer.final_output(talk.transcript),
        exit_code=ended.exit_code if ended else None,
        complete=ended is not None,
        steps=record.steps,
        usage=record.usage,
        placed_skills=talk.watch.placed_skills,
        watermarks=talk.asked.watermarks or parts.skill_copies.watermarks,
        started_at=record.started_at,
        duration_s=ended.duration_s if ended else None,
        route=parts.gateways.words(trial),
        **(talk.through.figures if talk.through else {}),
    )


def write_session(parts: AttemptParts, artifact_dir: Path, session: SessionSummary) -> None:
    """Write a session, without secrets."""
    # The answer was masked with the transcript that it was read from; the prompt is as the author wrote it.
    mask = parts.masker.text
    turns = tuple(replace(turn, prompt=mask(turn.prompt)) for turn in session.turns)
    kept = replace(session, prompt=mask(session.prompt), turns=turns) if parts.masker else session
    write_new(f"{artifact_dir}/{SESSION}", wire.encode_pretty(kept))


def task_of(parts: AttemptParts, ground: Ground, trial: Trial, resume: Resume | None = None, turn: int = 1) -> Task:
    """Return what the agent is asked, and where."""
    return Task(
        prompt=trial.execution.case.prompt,
        case=trial.key.case,
        runner=trial.execution.runner,
        workspace=getattr(parts.sandbox, "workdir", ground.workspace.path),
        home=ground.home,
        temporary=ground.temporary,
        suite_dir=parts.suite.source.parent,
        settings_dir=parts.settings_dir,
        environ=parts.environ,
        run=parts.run_id,
        arm=trial.key.arm,
        trial=trial.key.number,
        turn=turn,
        resume=resume,
        skill=trial.execution.skill,
        workspace_skills=skills_in(ground.workspace.path),
        spec=trial.execution.case.task,
    )


async def _stream(
    parts: AttemptParts, ground: Ground, trial: Trial, talk: _Talk, live: LiveAgent | None
) -> tuple[Ended, bytes]:
    """Run the agent's process, with its output to disk and to the observer; return how it ended, and its last words."""
    asked, observer = talk.asked, talk.observer
    cwd, shown_at = in_package(trial.execution.workspace.package, ground.workspace.path)
    # The container of a task has a working folder of its own.
    cwd = getattr(parts.sandbox, "workdir", cwd)
    timeout_s = trial.execution.limits.timeout_s or 0
    most = parts.max_output_bytes
    stdout = Capture(talk.transcript, masker=parts.masker, most_bytes=most, then=observer.feed)
    stderr = Capture(talk.transcript.with_name("stderr.log"), masker=parts.masker, most_bytes=most)
    through, given = talk.through, trial.execution.case.env
    env = {**asked.env, **(through.env(given) if through else given)}
    command = Command(argv=asked.argv, env=env, cwd=cwd, stdin=asked.stdin, of_host=asked.of_host)
    boundary = replace(_boundary(parts, ground, trial, asked), shown_at=shown_at)
    boundary = through.boundary(boundary) if through else boundary
    observer.turn = Turn(timeout_s, login=_login(parts, talk), heard=trial.key.runner in parts.gateways.heard)
    out, log = (
        _sifted(parts, observer, signs, kept) for signs, kept in ((asked.signs, stdout), (asked.log_signs, stderr))
    )
    sent = Capture(talk.transcript.with_name(SENT), masker=parts.masker, most_bytes=most)
    streams = (out, log, sent)
    try:
        try:
            ended = await _to_its_end(parts, trial, talk, command, boundary, live=live, streams=streams)
        finally:
            for sink in (out, log):
                if isinstance(sink, Sieve):
                    sink.finish()
            stdout.close()
            observer.finish()
            stderr.close()
            sent.close()
        found = collected(ground.home, asked, parts.masker)
        for event in talk.agent.ending(found):
            observer.take(event)
        silent = silence_at_limit(observer, asked, timeout_s, parts.model_silence_s) if ended.timed_out else None
        if silent is not None:
            # For people who read the session, and for replays.
            observer.take(silent)
    finally:
        # Also if the agent was stopped at one of its limits.
        observer.close()
    if found:
        await anyio.to_thread.run_sync(_read_again, talk, found, silent)
    return ended, stderr.tail or stdout.tail


async def _to_its_end(
    parts: AttemptParts,
    trial: Trial,
    talk: _Talk,
    command: Command,
    boundary: Boundary,
    *,
    live: LiveAgent | None,
    streams: tuple[Sink, Sink, Sink],
) -> Ended:
    """Run the process until it ends; raises why, if the gateway ended it."""
    timeout_s, (out, log, sent) = trial.execution.limits.timeout_s or 0, streams
    with anyio.CancelScope() as scope:
        if talk.through is not None:
            parts.gateways.begin(talk.through, _at_gateway(parts, trial, talk), scope.cancel)
        if talk.agent.dialogue is None:
            ended = await parts.sandbox.run(command, boundary, timeout_s=timeout_s, stdout=out, stderr=log)
        else:
            # Only here: few agents are spoken with.
            from whet.run.dialogue import LiveAgent, Streams  # noqa: PLC0415

            live = live or LiveAgent(last=True)
            live.agent, live.asked = talk.agent, talk.asked
            ended = await live.ask(
                lambda stdout, stderr: parts.sandbox.open(command, boundary, stdout=stdout, stderr=stderr),
                talk.agent.dialogue,
                talk.task.prompt,
                timeout_s=timeout_s,
                turn=talk.observer.turn,
                streams=Streams(stdout=out, stderr=log, sent=sent),
            )
            live.started = talk.observer.started
    if talk.through is not None:
        if talk.through.verdict is not None:
            raise talk.through.verdict
        await talk.through.settle()
    return ended


def _at_gateway(parts: AttemptParts, trial: Trial, talk: _Talk) -> GatewaySession:
    """Return what tells this session from others, for the gateway."""
    task, folder = talk.task, talk.transcript.parent
    places = {"workspace": task.workspace, "home": task.home, "temporary": task.temporary, "scratch": parts.scratch}
    word = (talk.asked.watermarks or parts.skill_copies.watermarks).get(trial.key.arm, "")
    # A judge may be asked in the scratch folder, about a workspace that no agent has touched.
    kept_in = next(
        base for base in (parts.run_dir / "trials", parts.run_dir, parts.scratch) if folder.is_relative_to(base)
    )
    return GatewaySession(
        trial=trial,
        folder=folder,
        place=folder.relative_to(kept_in),
        places={**{name: str(path) for name, path in places.items()}, "run": parts.run_id, "watermark": word},
        trusted=talk.asked.trusted,
    )


def _read_again(talk: _Talk, found: Mapping[str, bytes], silent: Event | None) -> None:
    """Read the transcript once more if files of the home add to it, such as what sub-agents did."""
    agent: Agent = plugins.find("agents", talk.task.runner.agent)()
    agent.command(talk.task)
    if not agent.learn(found):
        return
    again = Observer(
        talk.asked.output,
        agent.events,
        events_path=talk.transcript.with_name(EVENTS),
        watch=replace(talk.watch, max_steps=None, budget_usd=None),
        timed=talk.asked.timed,
    )
    try:
        with talk.transcript.open("rb") as file:
            talk.observer.read_again(file, again)
        for event in (*agent.ending(found), *((silent,) if silent else ())):
            again.take(event)
    finally:
        again.close()
    talk.observer.adopt(again)


def _sifted(parts: AttemptParts, observer: Observer, signs: Signs | None, kept: Capture) -> Capture | Sieve:
    """Look for signs of the model in a stream, if the agent has any there."""
    if signs is None:
        return kept
    return Sieve(signs, kept, masker=parts.masker, sign=observer.turn.sign, trouble=observer.take)


def _boundary(parts: AttemptParts, ground: Ground, trial: Trial, asked: AgentCommand) -> Boundary:
    # The user's own home, if a runner has `inherit_home`.
    homes = {ground.home, Path(asked.env.get("HOME", ground.home))}
    # The container of a task has its own.
    workspace = () if trial.execution.case.task else (ground.workspace.path,)
    return Boundary(
        writable=(*(() if ground.read_only else workspace), ground.temporary, *homes),
        readable=(*asked.readable, *asked.named, *parts.mounts, *(workspace if ground.read_only else ())),
        hidden=(*parts.hidden_from(trial), *parts.suite.held_out),
        apart=parts.apart,
        network=asked.network,
        ceilings=parts.ceilings,
    )

"""The truth about endings: what an exit code, the agent's own last words and its troubles come to together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path

import anyio
import anyio.to_thread

from whet.agents.agent import AgentCommand
from whet.agents.observing import Observer
from whet.errors import (
    AgentCrashed,
    AgentError,
    AgentNotStarted,
    AgentTimedOut,
    AttemptError,
    CeilingReached,
    CheckMistaken,
    Contaminated,
    GraderError,
    JudgeFailed,
    ModelRejected,
    NoVerdict,
    ProviderFailed,
    SessionUnfinished,
)
from whet.grade.grader import EventLog, Evidence, NotRecorded, events_path
from whet.ground.copying import remove_tree
from whet.ground.sandbox import Ended
from whet.model.grade import Changes
from whet.model.run import Trial
from whet.model.seen import PROVIDER_TROUBLE, CommandRun, Event, FileRead, Trouble
from whet.model.session import SessionSummary, Usage
from whet.model.suite import NO_SKILL, Check, SkillUnderTest
from whet.run import ground as grounds
from whet.run.attempt_record import AttemptRecord
from whet.run.parts import Parts

_SIGNALLED = 128


def judge_ending(
    ended: Ended, observer: Observer, asked: AgentCommand, *, timeout_s: float, silence_s: float, tail: bytes
) -> None:
    """Raise unless the session came to a good end; what went wrong with the provider is not the agent's doing."""
    if ended.timed_out:
        raise _timed_out(observer, asked, timeout_s, silence_s)
    said = observer.ended
    finished = said.ok if said is not None else not asked.announces_end
    if finished and ended.exit_code == 0:
        return
    trouble = observer.trouble
    if trouble is not None and asked.trusted and trouble.kind in PROVIDER_TROUBLE:
        raise _provider_failed(trouble)
    if trouble is not None and asked.trusted and trouble.kind == "context":
        raise observer.turn.no_room(trouble)
    reason = (said.reason if said else None) or (trouble.message if trouble else None) or ""
    if ended.reached is not None:
        raise CeilingReached(f"ran into its ceiling of {ended.reached}, and {_crash(ended, reason, tail)}")
    if asked.shows_model and not observer.turn.came:
        raise _never_began(ended, asked, reason, tail)
    if ended.exit_code != 0:
        raise AgentCrashed(_crash(ended, reason, tail))
    raise SessionUnfinished(f"ended with exit code 0 and did not finish: {reason or 'its session has no end'}")


def silence_at_limit(observer: Observer, asked: AgentCommand, timeout_s: float, silence_s: float) -> Trouble | None:
    """The trouble that nobody told of: a model that said nothing until the time limit, although it was its turn."""
    turn, limit = observer.turn, f"at its time limit of {timeout_s:g} s"
    told = turn.unanswered or (observer.trouble if observer.trouble and observer.trouble.kind == "context" else None)
    if not asked.shows_model or told:
        return None
    if not turn.came:
        return Trouble(message=f"no model had answered {limit}, and no retry was told of", kind="network")
    # Where all of the time is little, half of it is long.
    if turn.silent_s >= min(silence_s, timeout_s / 2):
        said = f"the model had said nothing for {turn.silent_s:.0f} s in the middle of an answer {limit}"
        more = "no tool was running, and no retry was told of (defaults.model_silence_ms is how long it may be silent)"
        return Trouble(message=f"{said}; {more}", kind="network")
    return None


def _timed_out(observer: Observer, asked: AgentCommand, timeout_s: float, silence_s: float) -> AgentError:
    """Whether the agent took too long, or waited for a provider that did not answer."""
    turn, limit = observer.turn, f"at its time limit of {timeout_s:g} s"
    if not asked.trusted:
        return AgentTimedOut(f"was still running after {timeout_s:g} s and was stopped")
    if (trouble := turn.unanswered) is not None:
        times = "once" if turn.troubles == 1 else f"{turn.troubles} times"
        return _provider_failed(trouble, f"the provider had failed {times}, and the agent was trying again {limit}")
    if observer.trouble is not None and observer.trouble.kind == "context":
        return turn.no_room(observer.trouble)
    if (silent := silence_at_limit(observer, asked, timeout_s, silence_s)) is not None:
        return _provider_failed(silent)
    return AgentTimedOut(f"was still running after {timeout_s:g} s and was stopped")


def _never_began(ended: Ended, asked: AgentCommand, reason: str, tail: bytes) -> AgentError:
    """The program ended before any model answered, which says nothing about what it would have done."""
    words = _crash(ended, reason, tail)
    if asked.no_login is not None and asked.no_login.search(f"{reason}\n{tail.decode('utf-8', 'replace')}"):
        return ProviderFailed(f"auth: {words}", hint='"whet doctor" says what could log it in')
    return AgentNotStarted(f"no model had answered when it {words}", hint="see whether it works by hand")


def _provider_failed(trouble: Trouble, how: str = "") -> ProviderFailed:
    status = f" (status {trouble.status})" if trouble.status else ""
    text = f"{trouble.kind}{status}: {trouble.message}" + (f"; {how}" if how else "")
    return ModelRejected(text) if trouble.kind == "model-rejected" else ProviderFailed(text)


def _crash(ended: Ended, reason: str, tail: bytes) -> str:
    """How it ended, why it says it did, and its last words."""
    if ended.signal is not None:
        how = f"was ended by signal {ended.signal}"
    elif (ended.exit_code or 0) > _SIGNALLED:
        how = f"ended with exit code {ended.exit_code} (as after signal {(ended.exit_code or 0) - _SIGNALLED})"
    else:
        how = f"ended with exit code {ended.exit_code}"
    words = tail.decode("utf-8", "replace").strip()
    said = "\n".join(part for part in (reason.strip(), words) if part)
    return f"{how}:\n{said}" if said else how


# An agent may speak of a skill that it knows from elsewhere; reading or loading it is another matter.
_USED = frozenset(("explicit", "strong", "medium"))
_SHOWN = 200
_TALKS = frozenset(("echo", "printf"))


def refuse_contaminated(parts: Parts, trial: Trial, record: AttemptRecord) -> None:
    """Raise where the session of a trial without the skill touched the skill.

    All that is known of it is what was printed. Where the program that printed it is itself what is tried, that
    decides nothing: the trial counts, and a note says what the program said.
    """
    skill = parts.plan.suite.skill
    if trial.key.variant != NO_SKILL or skill is None:
        return
    found = _detected(skill, record) or _named(skill, parts, record)
    if found is None:
        return
    if not record.trusted:
        record.notes.append(
            f"the skill {skill.name} should have been absent, and the agent says that it came upon it: {found}; "
            "whet did not see that itself, so the trial counts"
        )
        return
    raise Contaminated(
        f"the skill {skill.name} should have been absent, and the agent came upon it: {found}",
        hint="see that no workspace, mount or home of the agent holds it",
    )


def _detected(skill: SkillUnderTest, record: AttemptRecord) -> str | None:
    for detection in record.detected_skills:
        if detection.skill in skill.names and detection.confidence in _USED:
            return f"{detection.evidence[0].why} ({detection.confidence})"
    return None


def _named(skill: SkillUnderTest, parts: Parts, record: AttemptRecord) -> str | None:
    """The event that names a file of the skill by its path, if any does."""
    # Where it was found, other things may lie too.
    files = (f"{skill.path}/", f"{skill.source}/SKILL.md")
    for event in EventLog(events_path(parts.run_dir / record.artifact_dir)):
        told = _told(event)
        if any(file in told for file in files):
            return f"it named {told[:_SHOWN]}"
    return None


def _told(event: Event) -> str:
    """The words of an event that may be paths; what failed has read nothing, and what only talks does not either."""
    if isinstance(event, CommandRun):
        failed = event.exit_code or event.ok is False
        return "" if failed else "\n".join(" ".join(words) for words in _doing(event.command))
    return event.path if isinstance(event, FileRead) and event.ok is not False else ""


def _doing(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of a line but those that print their words, or keep them as a note."""
    # Only here: most sessions end well, and the reader of shell commands is large.
    from whet.reading.shell_commands import read_command  # noqa: PLC0415

    for command in read_command(line):
        notes = command.name == "git" and command.words[:1] in (("commit",), ("tag",))
        if command.name not in _TALKS and not notes:
            yield (command.executable, *command.words, *(turn for turn in command.redirections if "<" in turn))


BECAUSE = "it decides on the untouched workspace without an answer, so what the agent left is the reason"
# These say already whose doing it is, or that a provider was not there.
_SETTLED = (CheckMistaken, NotRecorded, JudgeFailed)


def is_open(error: GraderError) -> bool:
    """Whether it is to be found out whose doing *error* is."""
    if isinstance(error, NoVerdict):
        return True
    return error.cause != "agent" and not isinstance(error, _SETTLED)


async def is_agents_doing(parts: Parts, trial: Trial, check: Check, evidence: Evidence) -> bool:
    """Whether *check* decides without what the agent left, and does not with it, also when it is asked again.

    Asking again tells a check that hangs by its own doing, or by that of a busy machine, from one that the agent hangs.
    """
    key = f"{trial.key.case}/{trial.key.variant}/{trial.execution.case.checks.index(check)}"
    if key not in parts.decides:
        parts.decides[key] = await _decides_untouched(parts, trial, check, evidence)
    if not parts.decides[key]:
        return False
    return not await _decides(parts, check, evidence)


async def _decides_untouched(parts: Parts, trial: Trial, check: Check, evidence: Evidence) -> bool:
    async with _untouched(parts, trial, evidence) as control:
        return control is not None and await _decides(parts, check, control)


async def _decides(parts: Parts, check: Check, evidence: Evidence) -> bool:
    """Whether there is a decision, whichever; a check that raises has decided."""
    try:
        given = await parts.graders[check.grader].grade(check, evidence)
    except GraderError as error:
        return not is_open(error) and not isinstance(error, NotRecorded | JudgeFailed)
    except AttemptError:
        return False
    return not given.undecided


@asynccontextmanager
async def _untouched(parts: Parts, trial: Trial, evidence: Evidence) -> AsyncIterator[Evidence | None]:
    """The evidence as it would be had the agent done nothing; none where there is no such workspace to be had."""
    spec = trial.execution.workspace
    folder = parts.scratch / f"c{len(parts.decides) + 1}-{trial.key.number}"
    if spec.cwd is not None:
        # The folder of a person, which the agent has changed by now.
        yield None
        return
    alone = replace(trial, execution=replace(trial.execution, workspace=replace(spec, mode="isolated")))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ground = await grounds.lay(parts, grounds.SharedGround(), alone, folder)
    except (AttemptError, OSError):
        yield None
        return
    try:
        yield _without_agent(evidence, ground.workspace.path, folder)
    finally:
        with anyio.CancelScope(shield=True):
            await grounds.leave(ground)
            await anyio.to_thread.run_sync(remove_tree, folder)


def _without_agent(evidence: Evidence, workspace: Path, folder: Path) -> Evidence:
    session = evidence.session
    known = {item.name: getattr(evidence, item.name) for item in fields(Evidence)}
    silent = SessionSummary(runner=session.runner, agent=session.agent, prompt=session.prompt, usage=Usage())
    nothing = {"session": silent, "events_path": None, "changes": Changes(), "workspace": workspace}
    apart = {"artifact_dir": folder, "keep": lambda _, __: None}
    return Evidence(**{**known, **nothing, **apart})

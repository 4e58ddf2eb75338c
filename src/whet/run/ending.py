"""How a session ended: what its exit code, its own last words and its troubles mean, and whether it met the skill."""

from __future__ import annotations

from collections.abc import Iterator

from whet.agents.agent import AgentCommand
from whet.agents.observing import Observer
from whet.errors import (
    AgentCrashed,
    AgentError,
    AgentNotStarted,
    AgentTimedOut,
    CeilingReached,
    Contaminated,
    ModelRejected,
    ProviderFailed,
    SessionUnfinished,
)
from whet.grade.evidence import EventLog, events_path
from whet.ground.sandbox import Ended
from whet.model.run import Trial
from whet.model.seen import PROVIDER_TROUBLE, CommandRun, Event, FileRead, Trouble
from whet.model.skills import proof_of, was_loaded
from whet.model.suite import SkillUnderTest
from whet.run.attempt_record import AttemptRecord
from whet.run.parts import AttemptParts

_SIGNALLED = 128


def judge_ending(
    ended: Ended, observer: Observer, asked: AgentCommand, *, timeout_s: float, silence_s: float, tail: bytes
) -> None:
    """Raise unless the session ended well; trouble with the provider is not blamed on the agent."""
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
    """Return the trouble of a model that said nothing until the time limit, although it was its turn."""
    turn, limit = observer.turn, f"at its time limit of {timeout_s:g} s"
    no_room = observer.trouble is not None and observer.trouble.kind == "context"
    if not asked.shows_model or turn.unanswered or no_room:
        return None
    if not turn.came:
        return Trouble(message=f"no model had answered {limit}, and no retry was reported", kind="network")
    # If the time limit is short, half of it is a long silence.
    if turn.silent_s >= min(silence_s, timeout_s / 2):
        said = f"the model had said nothing for {turn.silent_s:.0f} s in the middle of an answer {limit}"
        more = "no tool was running, and no retry was reported (defaults.model_silence_ms is how long it may be silent)"
        return Trouble(message=f"{said}; {more}", kind="network")
    return None


def _timed_out(observer: Observer, asked: AgentCommand, timeout_s: float, silence_s: float) -> AgentError:
    """Tell an agent that took too long from one that waited for a provider."""
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
    """Return the error of a program that ended before any model answered."""
    words = _crash(ended, reason, tail)
    if asked.no_login is not None and asked.no_login.search(f"{reason}\n{tail.decode('utf-8', 'replace')}"):
        return ProviderFailed(f"auth: {words}", hint='"whet doctor" says what could log it in')
    return AgentNotStarted(f"no model had answered when it {words}", hint="see whether it works by hand")


def _provider_failed(trouble: Trouble, how: str = "") -> ProviderFailed:
    status = f" (status {trouble.status})" if trouble.status else ""
    text = f"{trouble.kind}{status}: {trouble.message}" + (f"; {how}" if how else "")
    return ModelRejected(text) if trouble.kind == "model-rejected" else ProviderFailed(text)


def _crash(ended: Ended, reason: str, tail: bytes) -> str:
    """Say how it ended, the reason that it gives, and its last words."""
    if ended.signal is not None:
        how = f"was ended by signal {ended.signal}"
    elif (ended.exit_code or 0) > _SIGNALLED:
        how = f"ended with exit code {ended.exit_code} (as after signal {(ended.exit_code or 0) - _SIGNALLED})"
    else:
        how = f"ended with exit code {ended.exit_code}"
    words = tail.decode("utf-8", "replace").strip()
    said = "\n".join(part for part in (reason.strip(), words) if part)
    return f"{how}:\n{said}" if said else how


_SHOWN = 200
_TALKS = frozenset(("echo", "printf"))


def refuse_contaminated(parts: AttemptParts, trial: Trial, record: AttemptRecord) -> None:
    """Raise if the session of a trial without the skill touched the skill.

    Only the agent's output shows this. If that output is not trusted, the trial counts, and a note says what the
    program said.
    """
    skill = parts.suite.skill
    if skill is None or trial.execution.skill is not None:
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
        if detection.skill in skill.names and was_loaded(detection):
            return proof_of(detection)
    return None


def _named(skill: SkillUnderTest, parts: AttemptParts, record: AttemptRecord) -> str | None:
    """Return what names a file of the skill by its path, if anything does."""
    # Of the folder in which it was found, only the manifest: other things may be there too.
    files = (f"{skill.path}/", f"{skill.source}/SKILL.md")
    for event in EventLog(events_path(parts.run_dir / record.artifact_dir)):
        words = _paths_in(event)
        if any(file in words for file in files):
            return f"it named {words[:_SHOWN]}"
    return None


def _paths_in(event: Event) -> str:
    """Return the words of an event that may be paths; a command that failed or only prints has read nothing."""
    if isinstance(event, CommandRun):
        failed = event.exit_code or event.ok is False
        return "" if failed else "\n".join(" ".join(words) for words in _actions(event.command))
    return event.path if isinstance(event, FileRead) and event.ok is not False else ""


def _actions(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands of a line, without those that print their words or use them as a message."""
    # Only here: most sessions end well, and the reader of shell commands is large.
    from whet.reading.shell_commands import read_command  # noqa: PLC0415

    for command in read_command(line):
        notes = command.name == "git" and command.words[:1] in (("commit",), ("tag",))
        if command.name not in _TALKS and not notes:
            yield (command.executable, *command.words, *(turn for turn in command.redirections if "<" in turn))

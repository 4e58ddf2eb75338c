"""Whether a session without the skill came upon it all the same: then it says nothing about being without."""

from __future__ import annotations

from collections.abc import Iterator

from whet.engine.parts import Parts
from whet.engine.record import AttemptRecord
from whet.errors import Contaminated
from whet.grade.events import EventLog
from whet.grade.report import events_path
from whet.model.run import Trial
from whet.model.session import CommandRun, Event, FileRead
from whet.model.suite import NO_SKILL, SkillUnderTest
from whet.shell import read_command

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
    for command in read_command(line):
        notes = command.name == "git" and command.words[:1] in (("commit",), ("tag",))
        if command.name not in _TALKS and not notes:
            yield (command.executable, *command.words, *(turn for turn in command.redirections if "<" in turn))

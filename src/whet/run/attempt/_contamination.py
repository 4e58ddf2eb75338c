"""Contamination: whether a session met a skill that its arm should not have, and whether it met its own."""

from __future__ import annotations

from collections.abc import Iterator

from whet.agents.observe.loading import wants_skill
from whet.errors import Contaminated
from whet.grade.evidence import EventLog, events_path
from whet.model import codec
from whet.model.events import CommandRun, Event, FileRead
from whet.model.run import NO_AGENT, Trial
from whet.model.skills import proof_of, skill_name, was_loaded
from whet.model.suite import SkillUnderTest
from whet.reading.text import listed
from whet.run.attempt.record import AttemptRecord
from whet.run.context import RunContext
from whet.shell.parse import read_command
from whet.workspace.watermark import shown_in

_SHOWN = 200
_TALKS = frozenset(("echo", "printf"))
# The file of the session names the watermarks itself.
_OWN = ("session.json",)


def look_for_skills(context: RunContext, trial: Trial, record: AttemptRecord) -> None:
    """Note whether the session shows the skill of its arm, and raise if it shows one that its arm should not have."""
    skill = context.suite.skill
    if skill is None or (session := record.session or record.unfinished) is None:
        return
    words = session.watermarks
    folder, places_by_mark = context.run_dir / record.artifact_dir, dict[str, str]()
    for place in (folder, *sorted(folder.glob("turns/*"))):
        places_by_mark = shown_in(place, words.values(), but=_OWN) | places_by_mark
    has_one, arm_mark = trial.execution.skill is not None, words.get(trial.key.arm)
    # A session that ended before its first step, as with a key that is refused, could load nothing.
    began = record.session is not None or bool(record.steps)
    if has_one and began and trial.execution.runner.agent != NO_AGENT:
        record.skill_shown = arm_mark in places_by_mark or _is_mentioned(skill, record)
        record.skill_loaded = _is_loaded(skill, record)
        wanted = wants_skill(trial.execution.case.checks, skill)
        record.skill_wanted, record.skill_unwanted = wanted is True, wanted is False
        record.skills_listed = bool(record.offered_skills)
        loaded = {detection.skill for detection in record.detected_skills if was_loaded(detection)}
        record.other_skills = tuple(sorted(loaded - skill.names))
    # An arm that the recording of a replay does not know may have any of its skills.
    foreign_mark = (
        next((word for word in places_by_mark if word != arm_mark), None) if arm_mark or not has_one else None
    )
    if foreign_mark is not None:
        arms = listed([arm for arm, word in words.items() if word == foreign_mark])
        raise _contamination_error(
            skill, f"the copy that the arm {arms} is given has a word that {places_by_mark[foreign_mark]} shows"
        )
    if not has_one:
        _refuse_seen(skill, context, record)


def _contamination_error(skill: SkillUnderTest, evidence: str) -> Contaminated:
    return Contaminated(
        f"the skill {skill.name} should have been absent, but the agent found it: {evidence}",
        hint="make sure that no workspace, mount or home of the agent contains it",
    )


def _is_loaded(skill: SkillUnderTest, record: AttemptRecord) -> bool | None:
    """Return whether the agent loaded the skill; None if that cannot be known."""
    if not record.tells_loads:
        return None
    if _find_detection(skill, record) is not None:
        return True
    # What did not end well might have loaded it later.
    return False if record.session is not None else None


def _is_mentioned(skill: SkillUnderTest, record: AttemptRecord) -> bool:
    """Return whether the agent offered the skill to its model, or there is any evidence of its use."""
    names = (*map(skill_name, record.offered_skills), *(detection.skill for detection in record.detected_skills))
    return not skill.names.isdisjoint(names)


def _refuse_seen(skill: SkillUnderTest, context: RunContext, record: AttemptRecord) -> None:
    """Raise if the session loaded the skill, or read it where it was found: there it has no watermark.

    Only the agent's output shows this. If that output is not trusted, the trial counts, and a note says what the
    program said.
    """
    evidence = _find_detection(skill, record) or _find_named_file(skill, context, record)
    if evidence is not None and record.trusted:
        raise _contamination_error(skill, evidence)
    if evidence is not None:
        record.notes.append(
            f"the skill {skill.name} should have been absent, but the agent says that it found it: {evidence}; "
            "whet did not see that itself, so the trial counts"
        )


def _find_detection(skill: SkillUnderTest, record: AttemptRecord) -> str | None:
    for detection in record.detected_skills:
        if detection.skill in skill.names and was_loaded(detection):
            return proof_of(detection)
    return None


def _find_named_file(skill: SkillUnderTest, context: RunContext, record: AttemptRecord) -> str | None:
    """Return what names a file of the skill by its path, if anything does."""
    # Of the folder in which it was found, only the manifest: other things may be there too.
    files = (f"{skill.path}/", f"{skill.source}/SKILL.md")
    try:
        event_words = [_paths_in(event) for event in EventLog(events_path(context.run_dir / record.artifact_dir))]
    except codec.WireError:
        # A program that did nothing that whet knows leaves what it printed, which is no events.
        return None
    words = next((words for words in event_words if any(file in words for file in files)), None)
    return None if words is None else f"it named {words[:_SHOWN]}"


def _paths_in(event: Event) -> str:
    """Return the words of an event that may be paths; a command that failed or only prints has read nothing."""
    if isinstance(event, CommandRun):
        is_failure = event.exit_code or event.ok is False
        return "" if is_failure else "\n".join(" ".join(words) for words in _actions(event.command))
    return event.path if isinstance(event, FileRead) and event.ok is not False else ""


def _actions(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands of a line, without those that print their words or use them as a message."""
    for command in read_command(line):
        notes = command.name == "git" and command.words[:1] in (("commit",), ("tag",))
        if command.name not in _TALKS and not notes:
            yield (command.executable, *command.words, *(turn for turn in command.redirections if "<" in turn))

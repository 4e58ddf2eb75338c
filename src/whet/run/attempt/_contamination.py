"""Contamination: whether a session met a skill that its arm should not have, and whether it met its own."""

from __future__ import annotations

from collections.abc import Iterator

from whet.errors import Contaminated
from whet.grade.evidence import EventLog, events_path
from whet.ground.watermark import shown_in
from whet.model import wire
from whet.model.eval_cases import BooleanAssertion, TriggerQuery
from whet.model.run import NO_AGENT, Trial
from whet.model.seen import CommandRun, Event, FileRead
from whet.model.skills import proof_of, skill_name, was_loaded
from whet.model.suite import TRIGGERED, Check, SkillUnderTest
from whet.reading.text import listed
from whet.run.attempt_record import AttemptRecord
from whet.run.parts import AttemptParts

_SHOWN = 200
_TALKS = frozenset(("echo", "printf"))
# It names the watermarks itself.
_OWN = ("session.json",)


def look_for_skills(parts: AttemptParts, trial: Trial, record: AttemptRecord) -> None:
    """Note whether the session shows the skill of its arm, and raise if it shows one that its arm should not have."""
    skill = parts.suite.skill
    if skill is None or (session := record.session or record.unfinished) is None:
        return
    words = session.watermarks
    folder, shown = parts.run_dir / record.artifact_dir, dict[str, str]()
    for place in (folder, *sorted(folder.glob("turns/*"))):
        shown = shown_in(place, words.values(), but=_OWN) | shown
    has_one, own = trial.execution.skill is not None, words.get(trial.key.arm)
    # A session that ended before its first step, as with a key that is refused, could load nothing.
    began = record.session is not None or bool(record.steps)
    if has_one and began and trial.execution.runner.agent != NO_AGENT:
        record.skill_shown = own in shown or _is_mentioned(skill, record)
        record.skill_loaded = _is_loaded(skill, record)
        record.skill_unwanted = any(map(_shuns_skill, trial.execution.case.checks))
        record.skills_listed = bool(record.offered_skills)
    # An arm that the recording of a replay does not know may have any of its skills.
    leaked = next((word for word in shown if word != own), None) if own or not has_one else None
    if leaked is not None:
        arms = listed([arm for arm, word in words.items() if word == leaked])
        raise _contaminated(skill, f"the copy that the arm {arms} is given has a word that {shown[leaked]} shows")
    if not has_one:
        _refuse_seen(skill, parts, record)


def _contaminated(skill: SkillUnderTest, found: str) -> Contaminated:
    return Contaminated(
        f"the skill {skill.name} should have been absent, but the agent found it: {found}",
        hint="make sure that no workspace, mount or home of the agent contains it",
    )


def _is_loaded(skill: SkillUnderTest, record: AttemptRecord) -> bool | None:
    """Return whether the agent loaded the skill; None if that cannot be known."""
    if not record.tells_loads:
        return None
    if _detected(skill, record) is not None:
        return True
    # What did not end well might have loaded it later.
    return False if record.session is not None else None


def _shuns_skill(check: Check) -> bool:
    """Return whether a check asks that the skill is not loaded."""
    match check.params.get("case"):
        case TriggerQuery(expectation=wanted):
            return wanted == "should_not_trigger"
        case BooleanAssertion(assertions=assertions):
            return any(each.op == TRIGGERED and each.negate for each in assertions)
    return False


def _is_mentioned(skill: SkillUnderTest, record: AttemptRecord) -> bool:
    """Return whether the agent offered the skill to its model, or there is any evidence of its use."""
    names = (*map(skill_name, record.offered_skills), *(found.skill for found in record.detected_skills))
    return not skill.names.isdisjoint(names)


def _refuse_seen(skill: SkillUnderTest, parts: AttemptParts, record: AttemptRecord) -> None:
    """Raise if the session loaded the skill, or read it where it was found: there it has no watermark.

    Only the agent's output shows this. If that output is not trusted, the trial counts, and a note says what the
    program said.
    """
    found = _detected(skill, record) or _named(skill, parts, record)
    if found is not None and record.trusted:
        raise _contaminated(skill, found)
    if found is not None:
        record.notes.append(
            f"the skill {skill.name} should have been absent, but the agent says that it found it: {found}; "
            "whet did not see that itself, so the trial counts"
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
    try:
        said = [_paths_in(event) for event in EventLog(events_path(parts.run_dir / record.artifact_dir))]
    except wire.WireError:
        # A program that did nothing that whet knows leaves what it printed, which is no events.
        return None
    words = next((words for words in said if any(file in words for file in files)), None)
    return None if words is None else f"it named {words[:_SHOWN]}"


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

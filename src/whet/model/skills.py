"""That a skill was used: what speaks for it in a session, and how much each piece of evidence is worth.

`explicit`: the agent loaded it by its own word. `strong`: its SKILL.md was read. `medium`: something else in its folder
was read or run. `weak`: the agent asked for it in vain, named its folder in a command, or spoke of using it.
What a user says, what an agent lists and what it wrote itself is no evidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from whet.model.seen import CommandRun, Event, FileEdit, FileRead, Message, SessionStarted, SkillSignal
from whet.model.skill_places import SkillPlaces, command_parts, skill_name

Confidence = Literal["explicit", "strong", "medium", "weak"]
_TELLING = frozenset((FileRead, CommandRun, Message, FileEdit, SkillSignal, SessionStarted))
CONFIDENCES: tuple[Confidence, ...] = ("explicit", "strong", "medium", "weak")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillEvidence:
    """One thing that speaks for the use of a skill; `event` is its place among the events of the session, from 0."""

    confidence: Confidence
    why: str
    event: int

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDetection:
    """That a skill was used, how sure we are, and why: the best evidence first."""

    skill: str
    confidence: Confidence
    evidence: tuple[SkillEvidence, ...]


def detect_skills(events: Iterable[Event], placed: Iterable[str] = ()) -> tuple[SkillDetection, ...]:
    """What speaks for each skill in a whole session; *placed* are the skills under test."""
    watch = SkillWatch(placed)
    for event in events:
        watch.take(event)
    return watch.found()


class SkillWatch:
    """Looks at the events of a session as they come; of each confidence it keeps no more than *most* pieces."""

    def __init__(self, placed: Iterable[str] = (), *, most: int | None = None) -> None:
        self._places = SkillPlaces(placed)
        self._most = most
        self._seen: dict[str, dict[Confidence, list[SkillEvidence]]] = {}
        self._at = -1
        # What the last command says about skills, until it is known that a read says it better.
        self._command: dict[str, SkillEvidence] = {}

    def take(self, event: Event) -> None:
        """Look at the next event; most are of a kind that says nothing about skills."""
        self._at += 1
        kind = type(event)
        if self._command and kind is not FileRead:
            self._settle()
        if kind in _TELLING:
            self._look(event)

    def _look(self, event: Event) -> None:
        match event:
            case FileRead(path=path):
                self._read(path)
            case CommandRun(command=command, exit_code=exit_code):
                if self._places.concern(command):
                    self._ran(command, exit_code)
            case Message(role="assistant", text=text):
                for skill, words in self._places.spoken_of(text):
                    self._add(skill, "weak", f'said "{words}"')
            case FileEdit(path=path):
                self._places.wrote(path)
            case SkillSignal(skill=skill, signal=signal, loaded=loaded):
                why = f"loaded by {signal}" if loaded else f"asked for by {signal}, and not loaded"
                self._add(skill_name(skill), "explicit" if loaded else "weak", why)
            case SessionStarted(skills=skills):
                self._places.know(skills)
            case _:
                pass

    def found(self) -> tuple[SkillDetection, ...]:
        """Each skill once, in the order in which they were first seen."""
        self._settle()
        return tuple(_detection(skill, kept) for skill, kept in self._seen.items())

    def _read(self, path: str) -> None:
        skill = self._places.manifest(path)
        confidence: Confidence = "strong" if skill else "medium"
        skill = skill or self._places.owner(path)
        if skill:
            self._command.pop(skill, None)
            self._add(skill, confidence, f"read {_shown(path)}")

    def _ran(self, command: str, exit_code: int | None) -> None:
        """A command that runs what lies in the folder uses it; one that names the folder may only have looked."""
        for part in command_parts(command):
            for word in part.written:
                self._places.wrote(word)
            for word in part.words:
                skill = self._places.owner(f"{word}/")
                runs = word == part.runs and not exit_code
                if skill and (runs or skill not in self._command):
                    why = f"{'ran' if runs else 'named its folder in'} {_shown(command)}"
                    confidence: Confidence = "medium" if runs else "weak"
                    self._command[skill] = SkillEvidence(confidence=confidence, why=why, event=self._at)

    def _settle(self) -> None:
        for skill, evidence in self._command.items():
            self._keep(skill, evidence)
        self._command.clear()

    def _add(self, skill: str, confidence: Confidence, why: str) -> None:
        self._keep(skill, SkillEvidence(confidence=confidence, why=why, event=self._at))

    def _keep(self, skill: str, evidence: SkillEvidence) -> None:
        if not skill:
            return
        kept = self._seen.setdefault(skill, {}).setdefault(evidence.confidence, [])
        if self._most is None or len(kept) < self._most:
            kept.append(evidence)


def _detection(skill: str, kept: dict[Confidence, list[SkillEvidence]]) -> SkillDetection:
    ordered = [evidence for confidence in CONFIDENCES for evidence in kept.get(confidence, ())]
    return SkillDetection(skill=skill, confidence=ordered[0].confidence, evidence=tuple(ordered))


_SHOWN = 160


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 4]} ..."

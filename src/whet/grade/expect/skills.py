"""Expectations over the skills that were used, each known with some confidence."""

from __future__ import annotations

from collections.abc import Sequence

from whet.grade.expect.group import Group, Report, check_count, nearest, session_of, times
from whet.model.skills import Confidence, SkillDetection, SkillEvidence, skill_name

_STRENGTH: dict[Confidence, int] = {"weak": 0, "medium": 1, "strong": 2, "explicit": 3}
# Words and failed loads are worth knowing, and no proof of use.
_USUAL: Confidence = "medium"
_LOADS: Confidence = "strong"
_SHOWN = 3


class SkillsGroup(Group):
    """Skill names are matched exactly, without the plug-in before them; `min_confidence` leaves out weaker evidence."""

    def has(
        self,
        report: Report,
        skill: str,
        *,
        min_confidence: Confidence = _USUAL,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """The skill was used."""
        _check(skill)
        if skill_name(skill) not in _names(_sure(report, min_confidence)):
            self._miss(f'skill "{skill}"{_asked(min_confidence)}', report, skill, message, explain)

    def not_has(
        self,
        report: Report,
        skill: str,
        *,
        min_confidence: Confidence = _USUAL,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """The skill was not used."""
        _check(skill)
        if skill_name(skill) in _names(_sure(report, min_confidence)):
            self._miss(f'no use of skill "{skill}"{_asked(min_confidence)}', report, None, message, explain)

    def includes(
        self,
        report: Report,
        skills: Sequence[str],
        *,
        min_confidence: Confidence = _USUAL,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """All of them were used."""
        used = _names(_sure(report, min_confidence))
        missing = [skill for skill in _list(skills) if skill_name(skill) not in used]
        if missing:
            expected = f"skills {', '.join(skills)}{_asked(min_confidence)}, but missed {', '.join(missing)}"
            self._miss(expected, report, missing[0], message, explain)

    def count(
        self,
        report: Report,
        skill: str,
        expected: int,
        *,
        min_confidence: Confidence = _LOADS,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """The skill was loaded, or its SKILL.md read, so many times; weaker evidence is counted if it is asked for."""
        check_count(expected)
        _check(skill)
        loads = [detection for detection in _sure(report, min_confidence) if detection.skill == skill_name(skill)]
        found = sum(_enough(piece, min_confidence) for detection in loads for piece in detection.evidence)
        if found != expected:
            text = f'skill "{skill}"{_asked(min_confidence, _LOADS)} {times(expected)}, but found it {times(found)}'
            self._miss(text, report, None if loads else skill, message, explain)

    def exactly_one(
        self,
        report: Report,
        skill: str | None = None,
        *,
        min_confidence: Confidence = _USUAL,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """This skill was used, which counts once however often it was loaded; without a name, one skill in all."""
        if skill is not None:
            self.has(report, skill, min_confidence=min_confidence, message=message, explain=explain)
        elif len(_sure(report, min_confidence)) != 1:
            self._miss(f"exactly one skill{_asked(min_confidence)}", report, None, message, explain)

    def only(
        self,
        report: Report,
        skills: Sequence[str],
        *,
        min_confidence: Confidence = _USUAL,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """No skill but these was used."""
        allowed = _list(skills)
        names = {skill_name(skill) for skill in allowed}
        other = [skill for skill in _names(_sure(report, min_confidence)) if skill not in names]
        if other:
            wanted = f"no skill but {', '.join(allowed)}" if allowed else "no skill at all"
            expected = f"{wanted}{_asked(min_confidence)}, but saw {', '.join(other)}"
            self._miss(expected, report, None, message, explain)

    def _miss(self, expected: str, report: Report, near: str | None, message: str | None, explain: str | None) -> None:
        detected = session_of(report).detected_skills
        observed = [f"{found.skill} ({found.confidence}: {_reasons(found)})" for found in detected]
        pointed = nearest(near, [found.skill for found in detected])
        self._broken(expected, "skills", observed, pointed=pointed, message=message, explain=explain)


def _sure(report: Report, least: Confidence) -> list[SkillDetection]:
    if least not in _STRENGTH:
        raise ValueError(f'min_confidence is one of {", ".join(_STRENGTH)}, not "{least}"')
    return [found for found in session_of(report).detected_skills if _enough(found, least)]


def _enough(found: SkillDetection | SkillEvidence, least: Confidence) -> bool:
    return _STRENGTH[found.confidence] >= _STRENGTH[least]


def _reasons(found: SkillDetection) -> str:
    """The best evidence; the rest is in the record."""
    more = len(found.evidence) - _SHOWN
    reasons = [piece.why for piece in found.evidence[:_SHOWN]]
    return "; ".join([*reasons, f"and {more} more"] if more > 0 else reasons)


def _names(detections: list[SkillDetection]) -> list[str]:
    return [detection.skill for detection in detections]


def _list(skills: Sequence[str]) -> list[str]:
    if isinstance(skills, str) or not isinstance(skills, Sequence):
        raise TypeError(f"give a list of skill names, not a {type(skills).__name__}")
    for skill in skills:
        _check(skill)
    return list(skills)


def _check(skill: object) -> None:
    if not isinstance(skill, str):
        raise TypeError(f"a skill is looked for by its name, a string, not a {type(skill).__name__}")
    if not skill.strip():
        raise ValueError("a skill has a name: an empty string is none")


def _asked(least: Confidence, usual: Confidence = _USUAL) -> str:
    return "" if least == usual else f" (at least {least})"

"""Expectations over the skills that were used, each known with some confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from whet.checks.items import Items, exactly, times
from whet.checks.looked_at import look_at
from whet.checks.message import ExpectationOptions, Expectations, Pointer, Report, nearest, session_of
from whet.model.skills import Confidence, SkillDetection, SkillEvidence, skill_name

_STRENGTH: dict[Confidence, int] = {"weak": 0, "medium": 1, "strong": 2, "explicit": 3}
# Words and failed loads do not prove that a skill was used.
_USUAL: Confidence = "medium"
_LOADS: Confidence = "strong"
_SHOWN = 3


class SkillsGroup(Expectations):
    """Skill names are matched exactly, without the plug-in before them; `min_confidence` leaves out weaker evidence."""

    def has(
        self, report: Report, skill: str, *, min_confidence: Confidence = _USUAL, **words: Unpack[ExpectationOptions]
    ) -> None:
        """The skill was used."""
        self._expect(_Skills(report, min_confidence).missing(skill), words)

    def not_has(
        self, report: Report, skill: str, *, min_confidence: Confidence = _USUAL, **words: Unpack[ExpectationOptions]
    ) -> None:
        """The skill was not used."""
        self._expect(_Skills(report, min_confidence).present(skill), words)

    def includes(
        self,
        report: Report,
        skills: Sequence[str],
        *,
        min_confidence: Confidence = _USUAL,
        **words: Unpack[ExpectationOptions],
    ) -> None:
        """All the named skills were used."""
        self._expect(_Skills(report, min_confidence).incomplete(skills), words)

    def count(
        self,
        report: Report,
        skill: str,
        expected: int,
        *,
        min_confidence: Confidence = _LOADS,
        **words: Unpack[ExpectationOptions],
    ) -> None:
        """The skill was loaded, or its SKILL.md read, so many times; weaker evidence is counted if it is asked for."""
        skills = _Skills(report, min_confidence, usual=_LOADS)
        self._expect(skills.count_problem(skill, exactly(expected)._replace(text=times(expected))), words)

    def exactly_one(
        self,
        report: Report,
        skill: str | None = None,
        *,
        min_confidence: Confidence = _USUAL,
        **words: Unpack[ExpectationOptions],
    ) -> None:
        """The skill was used, which counts once however often it was loaded; without a name, one skill in all."""
        skills = _Skills(report, min_confidence)
        self._expect(skills.not_one() if skill is None else skills.missing(skill), words)

    def only(
        self,
        report: Report,
        skills: Sequence[str],
        *,
        min_confidence: Confidence = _USUAL,
        **words: Unpack[ExpectationOptions],
    ) -> None:
        """No skill but these was used."""
        self._expect(_Skills(report, min_confidence).others(skills), words)


class _Skills(Items[str, SkillDetection]):
    """The skills that were used with enough confidence; messages show all of them."""

    many = "skills"
    matchers = "skill names"

    def __init__(self, report: Report, least: Confidence, *, usual: Confidence = _USUAL) -> None:
        if least not in _STRENGTH:
            raise ValueError(f'min_confidence is one of {", ".join(_STRENGTH)}, not "{least}"')
        self._session = session_of(report)
        self._detections = self._session.detected_skills
        self._least = least
        self.qualifier = "" if least == usual else f" (at least {least})"
        super().__init__([detection for detection in self._detections if self._is_enough(detection)])

    def check(self, matcher: object) -> None:
        if not isinstance(matcher, str):
            raise TypeError(f"a skill is looked for by its name, a string, not a {type(matcher).__name__}")
        if not matcher.strip():
            raise ValueError("the name of a skill must not be empty")

    def look_at(self, indexes: Sequence[int]) -> None:
        look_at(self._session, None, (piece.event for index in indexes for piece in self.all[index].evidence))

    def matches(self, matcher: str, item: SkillDetection) -> bool:
        return item.skill == skill_name(matcher)

    def amount(self, indexes: Sequence[int]) -> int:
        return sum(self._is_enough(piece) for index in indexes for piece in self.all[index].evidence)

    @property
    def observed(self) -> Sequence[SkillDetection]:
        return self._detections

    def line(self, item: SkillDetection) -> str:
        """Show the best evidence; the rest is in the record."""
        more = len(item.evidence) - _SHOWN
        reasons = [piece.why for piece in item.evidence[:_SHOWN]]
        evidence = "; ".join([*reasons, f"and {more} more"] if more > 0 else reasons)
        return f"{item.skill} ({item.confidence}: {evidence})"

    def nearest(self, matcher: str) -> Pointer | None:
        return nearest(matcher, [detection.skill for detection in self._detections])

    def describe_wanted(self, matcher: str) -> str:
        return f'skill "{matcher}"{self.qualifier}'

    def describe_unwanted(self, matcher: str, indexes: Sequence[int]) -> str:
        del indexes
        return f"no use of {self.describe_wanted(matcher)}"

    def describe_allowed(self, matchers: Sequence[str], indexes: Sequence[int]) -> str:
        limit = f"no skill but {', '.join(matchers)}" if matchers else "no skill at all"
        return f"{limit}{self.qualifier}, but saw {', '.join(self.all[index].skill for index in indexes)}"

    def incomplete(self, skills: Sequence[str]) -> str | None:
        """Return what is wrong unless all of *skills* were used."""
        self.check_list(skills)
        misses = [skill for skill in skills if not self.find(skill)]
        if not misses:
            return None
        expectation = f"skills {', '.join(skills)}{self.qualifier}, but missed {', '.join(misses)}"
        return self.describe(expectation, self.nearest(misses[0]))

    def not_one(self) -> str | None:
        """Return what is wrong unless one skill was used in all."""
        return None if len(self.all) == 1 else self.describe(f"exactly one skill{self.qualifier}")

    def _is_enough(self, detection: SkillDetection | SkillEvidence) -> bool:
        return _STRENGTH[detection.confidence] >= _STRENGTH[self._least]

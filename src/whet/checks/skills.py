"""Expectations over the skills that were used, each known with some confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from whet.grade.expect.group import Group, Pointed, Report, Words, nearest, session_of
from whet.grade.expect.items import Items, exactly, times
from whet.grade.expect.looked import look_at
from whet.model.skills import Confidence, SkillDetection, SkillEvidence, skill_name

_STRENGTH: dict[Confidence, int] = {"weak": 0, "medium": 1, "strong": 2, "explicit": 3}
# Words and failed loads do not prove that a skill was used.
_USUAL: Confidence = "medium"
_LOADS: Confidence = "strong"
_SHOWN = 3


class SkillsGroup(Group):
    """Skill names are matched exactly, without the plug-in before them; `min_confidence` leaves out weaker evidence."""

    def has(self, report: Report, skill: str, *, min_confidence: Confidence = _USUAL, **words: Unpack[Words]) -> None:
        """The skill was used."""
        self._expect(_Skills(report, min_confidence).missing(skill), words)

    def not_has(
        self, report: Report, skill: str, *, min_confidence: Confidence = _USUAL, **words: Unpack[Words]
    ) -> None:
        """The skill was not used."""
        self._expect(_Skills(report, min_confidence).present(skill), words)

    def includes(
        self, report: Report, skills: Sequence[str], *, min_confidence: Confidence = _USUAL, **words: Unpack[Words]
    ) -> None:
        """All of them were used."""
        self._expect(_Skills(report, min_confidence).incomplete(skills), words)

    def count(
        self, report: Report, skill: str, expected: int, *, min_confidence: Confidence = _LOADS, **words: Unpack[Words]
    ) -> None:
        """The skill was loaded, or its SKILL.md read, so many times; weaker evidence is counted if it is asked for."""
        used = _Skills(report, min_confidence, usual=_LOADS)
        self._expect(used.miscounted(skill, exactly(expected)._replace(text=times(expected))), words)

    def exactly_one(
        self, report: Report, skill: str | None = None, *, min_confidence: Confidence = _USUAL, **words: Unpack[Words]
    ) -> None:
        """This skill was used, which counts once however often it was loaded; without a name, one skill in all."""
        used = _Skills(report, min_confidence)
        self._expect(used.not_one() if skill is None else used.missing(skill), words)

    def only(
        self, report: Report, skills: Sequence[str], *, min_confidence: Confidence = _USUAL, **words: Unpack[Words]
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
        self._detected = self._session.detected_skills
        self._least = least
        self.asked = "" if least == usual else f" (at least {least})"
        super().__init__([found for found in self._detected if self._is_enough(found)])

    def check(self, matcher: object) -> None:
        if not isinstance(matcher, str):
            raise TypeError(f"a skill is looked for by its name, a string, not a {type(matcher).__name__}")
        if not matcher.strip():
            raise ValueError("the name of a skill must not be empty")

    def look_at(self, found: Sequence[int]) -> None:
        look_at(self._session, None, (piece.event for index in found for piece in self.all[index].evidence))

    def matches(self, matcher: str, item: SkillDetection) -> bool:
        return item.skill == skill_name(matcher)

    def amount(self, found: Sequence[int]) -> int:
        return sum(self._is_enough(piece) for index in found for piece in self.all[index].evidence)

    @property
    def observed(self) -> Sequence[SkillDetection]:
        return self._detected

    def line(self, item: SkillDetection) -> str:
        """Show the best evidence; the rest is in the record."""
        more = len(item.evidence) - _SHOWN
        reasons = [piece.why for piece in item.evidence[:_SHOWN]]
        listed = "; ".join([*reasons, f"and {more} more"] if more > 0 else reasons)
        return f"{item.skill} ({item.confidence}: {listed})"

    def nearest(self, matcher: str) -> Pointed | None:
        return nearest(matcher, [found.skill for found in self._detected])

    def wanted(self, matcher: str) -> str:
        return f'skill "{matcher}"{self.asked}'

    def unwanted(self, matcher: str, found: Sequence[int]) -> str:
        del found
        return f"no use of {self.wanted(matcher)}"

    def allowed(self, matchers: Sequence[str], other: Sequence[int]) -> str:
        wanted = f"no skill but {', '.join(matchers)}" if matchers else "no skill at all"
        return f"{wanted}{self.asked}, but saw {', '.join(self.all[index].skill for index in other)}"

    def incomplete(self, skills: Sequence[str]) -> str | None:
        """Return what is wrong unless all of *skills* were used."""
        self.check_list(skills)
        missed = [skill for skill in skills if not self.find(skill)]
        if not missed:
            return None
        expected = f"skills {', '.join(skills)}{self.asked}, but missed {', '.join(missed)}"
        return self.describe(expected, self.nearest(missed[0]))

    def not_one(self) -> str | None:
        """Return what is wrong unless one skill was used in all."""
        return None if len(self.all) == 1 else self.describe(f"exactly one skill{self.asked}")

    def _is_enough(self, found: SkillDetection | SkillEvidence) -> bool:
        return _STRENGTH[found.confidence] >= _STRENGTH[self._least]

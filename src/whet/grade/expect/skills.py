"""Expectations over the skills that were used, each known with some confidence."""

from __future__ import annotations

from collections.abc import Sequence

from whet.grade.expect.group import Pointed, Report, Words, nearest, session_of
from whet.grade.expect.items import Items, ItemsGroup, check_count, check_list, times
from whet.model.skills import Confidence, SkillDetection, SkillEvidence, skill_name

_STRENGTH: dict[Confidence, int] = {"weak": 0, "medium": 1, "strong": 2, "explicit": 3}
# Words and failed loads do not prove that a skill was used.
_USUAL: Confidence = "medium"
_LOADS: Confidence = "strong"
_SHOWN = 3


class SkillsGroup(ItemsGroup):
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
        self._has(_Skills(report, min_confidence), skill, Words(message, explain))

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
        self._has_not(_Skills(report, min_confidence), skill, Words(message, explain))

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
        used = _Skills(report, min_confidence)
        check_list(used, skills)
        missing = [skill for skill in skills if not used.find(skill)]
        if missing:
            expected = f"skills {', '.join(skills)}{used.asked}, but missed {', '.join(missing)}"
            self._miss(used, expected, Words(message, explain), used.nearest(missing[0]))

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
        used = _Skills(report, min_confidence, usual=_LOADS)
        allowed = range(expected, expected + 1)
        self._amount(used, skill, times(expected), allowed, Words(message, explain))

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
        used = _Skills(report, min_confidence)
        if skill is not None:
            self._has(used, skill, Words(message, explain))
        elif len(used.all) != 1:
            self._miss(used, f"exactly one skill{used.asked}", Words(message, explain))

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
        self._only(_Skills(report, min_confidence), skills, Words(message, explain))


class _Skills(Items[str, SkillDetection]):
    """The skills that were used with enough confidence; messages show all of them."""

    many = "skills"
    matchers = "skill names"

    def __init__(self, report: Report, least: Confidence, *, usual: Confidence = _USUAL) -> None:
        if least not in _STRENGTH:
            raise ValueError(f'min_confidence is one of {", ".join(_STRENGTH)}, not "{least}"')
        self._detected = session_of(report).detected_skills
        self._least = least
        self.asked = "" if least == usual else f" (at least {least})"
        super().__init__([found for found in self._detected if self._is_enough(found)])

    def check(self, matcher: object) -> None:
        if not isinstance(matcher, str):
            raise TypeError(f"a skill is looked for by its name, a string, not a {type(matcher).__name__}")
        if not matcher.strip():
            raise ValueError("a skill has a name: it is not an empty string")

    def matches(self, matcher: str, item: SkillDetection) -> bool:
        return item.skill == skill_name(matcher)

    def amount(self, found: Sequence[int]) -> int:
        return sum(self._is_enough(piece) for index in found for piece in self.all[index].evidence)

    def lines(self) -> Sequence[str]:
        return [self.line(found) for found in self._detected]

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

    def only(self, matchers: Sequence[str], other: Sequence[int]) -> str:
        wanted = f"no skill but {', '.join(matchers)}" if matchers else "no skill at all"
        return f"{wanted}{self.asked}, but saw {', '.join(self.all[index].skill for index in other)}"

    def _is_enough(self, found: SkillDetection | SkillEvidence) -> bool:
        return _STRENGTH[found.confidence] >= _STRENGTH[self._least]

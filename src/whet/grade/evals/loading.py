"""Whether a skill was loaded: what counts as that, and how it is told."""

from __future__ import annotations

from collections.abc import Iterable

from whet.model.session import SkillDetection

# Named in a command or spoken of is not loaded.
_LOADED = frozenset(("explicit", "strong", "medium"))


def loaded(detections: Iterable[SkillDetection]) -> dict[str, str]:
    """The skills that were loaded, each with the best evidence of it."""
    return {
        each.skill: f"{each.evidence[0].why} ({each.confidence})" for each in detections if each.confidence in _LOADED
    }


def loaded_among(detections: Iterable[SkillDetection], names: frozenset[str]) -> str | None:
    """The evidence that one of *names* was loaded; none where none was."""
    found = loaded(detections)
    return next((found[name] for name in found if name in names), None)

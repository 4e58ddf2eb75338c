"""Arms: the versions of a skill, prompt, model or agent that a run compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from whet.dataclass import dataclass
from whet.model.suite import SkillUnderTest

# The arm of a run that compares nothing, and the two of a suite that is about a skill.
DEFAULT = "default"
SKILL, NO_SKILL = "skill", "no_skill"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSpec:
    """An arm as it is written; `skill` is a path, `none` or `git:REF`, and paths are absolute."""

    name: str
    skill: str | None = None
    model: str | None = None
    runner: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    prompt: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One version under test, with everything found; what it leaves out is as the suite and the settings say.

    `prompt` is put before each prompt, and `commit` is the one that the skill was taken from.
    """

    name: str = DEFAULT
    skill: SkillUnderTest | None = None
    commit: str | None = None
    model: str | None = None
    runner: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    prompt: str | None = None

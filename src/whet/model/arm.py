"""Arms: the versions of a skill, prompt, model or agent that a run compares."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from whet.model.suite import NO_SKILL, SKILL, SkillUnderTest

# The arm of a run that compares nothing.
DEFAULT = "default"


class ArmSpec(Struct, frozen=True, kw_only=True):
    """An arm as it is written; `skill` is a path, `none` or `git:REF`, and paths are absolute.

    `more_skills` are given to agents beside the one under test.
    """

    name: str
    skill: str | None = None
    more_skills: tuple[Path, ...] = ()
    model: str | None = None
    runner: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    prompt: Path | None = None


class Arm(Struct, frozen=True, kw_only=True):
    """One version under test, with everything found; what it leaves out is as the suite and the settings say.

    `prompt` is put before each prompt, and `commit` is the one that the skill was taken from.
    """

    name: str = DEFAULT
    skill: SkillUnderTest | None = None
    # The skills beside it, with their digests.
    more_skills: Mapping[Path, str] = field(default_factory=dict)
    commit: str | None = None
    model: str | None = None
    runner: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    prompt: str | None = None
    # Whether somebody defined it, in the settings or with `--arm`; the others are those that a suite has by itself.
    defined: bool = False
    # What a record says is special about it.
    recorded: Mapping[str, str] | None = None

    @property
    def kind(self) -> str:
        """`skill` if it has the skill under test, and otherwise `no_skill`."""
        return SKILL if self.skill else NO_SKILL

    def facts(self) -> dict[str, str]:
        """Return what is special about it, by content, so that two arms with the same facts do not differ."""
        if self.recorded is not None:
            return dict(self.recorded)
        env = {f"env {name}": _digest(value) for name, value in sorted(self.env.items())}
        more_skills = {f"skill {path.name}": digest for path, digest in self.more_skills.items()}
        settings = {
            "skill": self.skill.digest if self.skill else "none",
            "model": self.model,
            "runner": self.runner,
            "prompt": _digest(self.prompt) if self.prompt is not None else None,
        }
        return {name: value for name, value in (settings | more_skills | env).items() if value is not None}


def baseline_of(arms: Sequence[str]) -> str | None:
    """Return the arm that others are compared with: the first, or of a suite for a skill the one without it."""
    if len(arms) <= 1:
        return None
    return NO_SKILL if set(arms) == {SKILL, NO_SKILL} else arms[0]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

"""Hold arms to what you want to compare: a difference in anything else would be taken for its effect."""

from __future__ import annotations

from collections.abc import Sequence

from whet.errors import UsageError
from whet.model.arm import Arm
from whet.reading.text import did_you_mean, listed

FACTS = ("skill", "model", "runner", "env", "prompt")


def vary_problem(word: object) -> str | None:
    """Return why *word* is nothing that arms can differ in; None if it is."""
    if word in FACTS:
        return None
    near = did_you_mean(str(word), FACTS)
    return f"must be one of {', '.join(FACTS)}, not {word}" + (f" ({near})" if near else "")


def refuse_other_differences(arms: Sequence[Arm], vary: Sequence[str]) -> None:
    """Raise if *arms* differ in anything but what may *vary*."""
    first, *others = arms
    differences: list[str] = []
    for arm in others:
        for name in (*first.facts(), *arm.facts()):
            fact = name.partition(" ")[0]
            if fact in vary or first.facts().get(name) == arm.facts().get(name):
                continue
            line = f"{name}: {_shown(first, name)} in {first.name}, {_shown(arm, name)} in {arm.name}"
            if line not in differences:
                differences.append(line)
    if differences:
        raise UsageError(
            f"only {listed(vary)} may vary, and these arms differ in more: {'; '.join(differences)}",
            hint="make the rest of the arms the same, or name it too with --vary or in run.vary",
        )


def _shown(arm: Arm, name: str) -> str:
    """Return what *arm* has there; the text of a prompt is long, and the value of a variable may be a secret."""
    match name:
        case "skill":
            return str(arm.skill.source) if arm.skill else "none"
        case "model":
            return arm.model or "that of the runner"
        case "runner":
            return arm.runner or "every runner"
        case _:
            return "its own" if name in arm.facts() else "none"

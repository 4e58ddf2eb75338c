"""Arms may be held to what you want to compare: any other difference between them is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.errors import UsageError
from whet.model.arm import Arm
from whet.model.suite import SkillUnderTest
from whet.plan.vary import refuse_other_differences, vary_problem

OLD, NEW = (
    SkillUnderTest(path=Path(f"/{name}"), source=Path(f"/{name}"), name="greeter", digest=name) for name in ("v1", "v2")
)


@pytest.mark.parametrize(
    ("new", "vary"),
    [
        (Arm(name="new", skill=NEW), ("skill",)),
        (Arm(name="new"), ("skill",)),
        (Arm(name="new", skill=NEW, model="large"), ("skill", "model")),
    ],
)
def test_arms_that_differ_in_what_may_vary_are_fine(new: Arm, vary: tuple[str, ...]) -> None:
    refuse_other_differences((Arm(name="old", skill=OLD), new), vary)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (Arm(name="new", skill=OLD, model="large"), "model: that of the runner in old, large in new"),
        (Arm(name="new", skill=OLD, runner="r"), "runner: every runner in old, r in new"),
        (Arm(name="new", skill=OLD, env={"KEY": "secret"}), "env KEY: none in old, its own in new"),
        (Arm(name="new", skill=OLD, prompt="long text"), "prompt: none in old, its own in new"),
    ],
)
def test_any_other_difference_is_refused_and_named(new: Arm, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_other_differences((Arm(name="old", skill=OLD), new), ("skill",))

    assert words in caught.value.message
    assert "secret" not in caught.value.message


def test_skills_are_named_by_their_folders() -> None:
    with pytest.raises(UsageError) as caught:
        refuse_other_differences((Arm(name="old", skill=OLD), Arm(name="new", skill=NEW)), ("model",))

    assert "only model may vary" in caught.value.message
    assert "skill: /v1 in old, /v2 in new" in caught.value.message


def test_only_what_arms_have_can_vary() -> None:
    assert vary_problem("skill") is None
    assert "must be one of skill, model, runner, env, prompt" in str(vary_problem("skil"))

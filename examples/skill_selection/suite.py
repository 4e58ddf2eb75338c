"""Does the agent reach for the release-notes skill when it should, and only then?"""

from whet import Case, CheckContext, Workspace

workspace = Workspace(mode="isolated", template_dir="template")


def uses_the_skill(ctx: CheckContext) -> None:
    found = {skill.skill: skill for skill in ctx.detected_skills()}
    assert "release-notes" in found, "the release-notes skill was never used"
    assert found["release-notes"].confidence in ("explicit", "strong")


def leaves_the_skill_alone(ctx: CheckContext) -> None:
    used = [skill.skill for skill in ctx.detected_skills()]
    assert not used, f"no skill is needed here, but it used {', '.join(used)}"


suite = {
    "asks-for-release-notes": Case(
        prompt="Write the release notes for version 2.0 into NOTES.md.", check=uses_the_skill, tags=["should-trigger"]
    ),
    "asks-in-other-words": Case(
        prompt="Tell our users what is new in 2.0.", check=uses_the_skill, tags=["should-trigger"]
    ),
    "asks-for-something-else": Case(
        prompt="How many lines does CHANGES have?", check=leaves_the_skill_alone, tags=["should-not-trigger"]
    ),
}

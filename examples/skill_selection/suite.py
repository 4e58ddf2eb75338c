"""Does the agent reach for the release-notes skill when it should, and only then?"""

from whet import Case, Session, Workspace, expect

workspace = Workspace(mode="isolated", template_dir="template")


def uses_the_skill(session: Session) -> None:
    expect.skills.has(session, "release-notes", min_confidence="strong")


def leaves_the_skill_alone(session: Session) -> None:
    expect.skills.only(session, [], message="no skill is needed here")


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

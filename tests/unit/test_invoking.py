"""Skills that a prompt invokes: only those that there are, and not where it speaks of a path or a variable."""

from __future__ import annotations

import pytest

from whet.agents.observe.records import dollar_invoked, slash_invoked

SKILLS = ("release-notes", "house:tone", "usr")


@pytest.mark.parametrize(
    ("prompt", "skill"),
    [
        ("/release-notes for 2.0", "release-notes"),
        ("/release-notes", "release-notes"),
        ("/house:tone\nplease", "house:tone"),
        ("  /release-notes", None),
        ("/release-notes: for 2.0", None),
        ("/Release-Notes", None),
        ("/usr/bin is where it is", None),
        ("/tmp is where it is", None),
        ("/release-notes/x", None),
        ("/release-notes-2", None),
        ("please /release-notes", None),
        ("release-notes for 2.0", None),
        ("/", None),
    ],
)
def test_a_slash_invokes_at_the_start(prompt: str, skill: str | None) -> None:
    found = slash_invoked(prompt, SKILLS)

    assert [(each.skill, each.signal) for each in found] == ([(skill, f"prompt:/{skill}")] if skill else [])


@pytest.mark.parametrize(
    ("prompt", "skills"),
    [
        ("$release-notes for 2.0", ["release-notes"]),
        ("please use $release-notes, then ($house:tone).", ["release-notes", "house:tone"]),
        ("$release-notes and $release-notes", ["release-notes"]),
        # It looks neither before nor behind.
        ("a$release-notes/x", ["release-notes"]),
        ("$HOME/release-notes and ${release-notes}", []),
        ("$release-notes: for 2.0", []),
        ("$release-notes-2", []),
        ("$Release-Notes", []),
        ("/release-notes", []),
    ],
)
def test_a_dollar_invokes_anywhere(prompt: str, skills: list[str]) -> None:
    assert [each.skill for each in dollar_invoked(prompt, SKILLS)] == skills

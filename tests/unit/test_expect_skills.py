"""expect.skills: each expectation holds, or says which skills were seen and why."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from whet import Session, expect
from whet.model.events import Event, FileRead, SkillSignal


def _session(*events: Event) -> Session:
    return Session(runner="demo", agent="scripted", prompt="Go.", events=events)


REPORT = _session(
    FileRead(path="/skills/release-notes/SKILL.md"), SkillSignal(skill="style"), FileRead(path="/a/style/SKILL.md")
)
OBSERVED = """observed 2 skills:
  1. release-notes (strong: read /skills/release-notes/SKILL.md)
  2. style (explicit: loaded by tool:skill; read /a/style/SKILL.md)"""


def _said(call: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


def test_a_skill_was_used_or_it_is_said_which_were() -> None:
    expect.skills.has(REPORT, "style")
    expect.skills.has(REPORT, "release-notes", min_confidence="strong")

    said = _said(lambda: expect.skills.has(REPORT, "styles"))

    nearest = "nearest: 2. style (explicit: loaded by tool:skill; read /a/style/SKILL.md)"
    assert said == f'expected skill "styles"\n{OBSERVED}\n{nearest}'
    assert _said(lambda: expect.skills.has(_session(), "style")) == 'expected skill "style"\nobserved no skills'


def test_weaker_evidence_can_be_left_out() -> None:
    expect.skills.has(REPORT, "style", min_confidence="explicit")
    expect.skills.not_has(REPORT, "release-notes", min_confidence="explicit")

    said = _said(lambda: expect.skills.has(REPORT, "release-notes", min_confidence="explicit"))

    assert said.startswith(f'expected skill "release-notes" (at least explicit)\n{OBSERVED}')


def test_a_skill_was_not_used() -> None:
    expect.skills.not_has(REPORT, "Style")

    assert _said(lambda: expect.skills.not_has(REPORT, "style")) == f'expected no use of skill "style"\n{OBSERVED}'


def test_all_of_some_skills_were_used() -> None:
    expect.skills.includes(REPORT, ["style", "release-notes"])
    expect.skills.includes(REPORT, [])

    said = _said(lambda: expect.skills.includes(REPORT, ["style", "tone", "voice"]))

    assert said == f"expected skills style, tone, voice, but missed tone, voice\n{OBSERVED}"
    assert "but missed release-notes" in _said(
        lambda: expect.skills.includes(REPORT, ["style", "release-notes"], min_confidence="explicit")
    )


def test_what_speaks_for_a_skill_is_counted() -> None:
    expect.skills.count(REPORT, "style", 2)
    expect.skills.count(REPORT, "tone", 0)

    said = _said(lambda: expect.skills.count(REPORT, "style", 1))

    assert said.startswith(f'expected skill "style" once, but found it 2 times\n{OBSERVED}')
    assert "never, but found it once" in _said(lambda: expect.skills.count(REPORT, "release-notes", 0))


def test_other_files_of_a_skill_are_counted_only_if_they_are_asked_for() -> None:
    report = _session(SkillSignal(skill="style"), FileRead(path=".claude/skills/style/references/tone.md"))

    expect.skills.count(report, "style", 1)
    expect.skills.count(report, "style", 2, min_confidence="medium")


def test_words_and_failed_loads_count_only_if_they_are_asked_for() -> None:
    report = _session(SkillSignal(skill="style", loaded=False))

    expect.skills.not_has(report, "style")
    expect.skills.has(report, "style", min_confidence="weak")


@pytest.mark.parametrize("name", ["style", "house:style", "/style"])
def test_the_plug_in_before_a_name_does_not_matter(name: str) -> None:
    report = _session(SkillSignal(skill="house:style"))

    expect.skills.has(report, name)
    expect.skills.exactly_one(report, name)
    expect.skills.only(report, [name])
    expect.skills.count(report, name, 1)
    assert "house:style" not in _said(lambda: expect.skills.not_has(report, "style"))


def test_of_much_evidence_the_best_is_shown() -> None:
    reads = [FileRead(path=f".claude/skills/style/{number}.md") for number in range(9)]

    said = _said(lambda: expect.skills.has(_session(*reads, SkillSignal(skill="style")), "tone"))

    assert "1. style (explicit: loaded by tool:skill; read .claude/skills/style/0.md; " in said
    assert said.endswith("and 7 more)")


def test_a_skill_that_was_loaded_twice_is_counted_twice() -> None:
    report = _session(SkillSignal(skill="style"), SkillSignal(skill="style"))

    expect.skills.count(report, "style", 2)


def test_exactly_one_skill_was_used() -> None:
    expect.skills.exactly_one(_session(SkillSignal(skill="style")))

    assert _said(lambda: expect.skills.exactly_one(REPORT)) == f"expected exactly one skill\n{OBSERVED}"
    assert "observed no skills" in _said(lambda: expect.skills.exactly_one(_session()))


def test_a_skill_that_is_named_is_one_whatever_else_was_used() -> None:
    expect.skills.exactly_one(REPORT, "style")
    expect.skills.exactly_one(_session(SkillSignal(skill="style")), "style", min_confidence="explicit")

    said = _said(lambda: expect.skills.exactly_one(REPORT, "tone"))

    assert said.startswith(f'expected skill "tone"\n{OBSERVED}')


def test_a_skill_that_was_used_is_not_called_the_nearest_to_itself() -> None:
    said = _said(lambda: expect.skills.count(REPORT, "style", 7))

    assert "nearest" not in said


def test_no_skill_was_used_but_those_that_are_allowed() -> None:
    expect.skills.only(REPORT, ["style", "release-notes", "tone"])
    expect.skills.only(REPORT, ["style"], min_confidence="explicit")
    expect.skills.only(_session(), [])

    assert _said(lambda: expect.skills.only(REPORT, ["style"])) == (
        f"expected no skill but style, but saw release-notes\n{OBSERVED}"
    )
    assert "no skill at all, but saw release-notes, style" in _said(lambda: expect.skills.only(REPORT, []))


@pytest.mark.parametrize("method", ["includes", "only"])
def test_a_string_in_place_of_a_list_of_skills_is_refused(method: str) -> None:
    with pytest.raises(TypeError, match="give a list of skill names"):
        getattr(expect.skills, method)(REPORT, "style")


@pytest.mark.parametrize("method", ["has", "not_has", "exactly_one"])
def test_a_confidence_that_does_not_exist_is_refused(method: str) -> None:
    with pytest.raises(ValueError, match='one of weak, medium, strong, explicit, not "sure"'):
        getattr(expect.skills, method)(REPORT, "style", min_confidence="sure")


def test_the_nearest_skill_is_named_where_its_line_is_near() -> None:
    report = _session(SkillSignal(skill="a-skill-with-a-name-of-some-length"))

    said = _said(lambda: expect.skills.has(report, "a-skill-with-a-name-of-some-lenght"))

    assert "nearest: 1. a-skill-with-a-name-of-some-length" in said


def test_the_nearest_skill_is_named_whatever_its_evidence() -> None:
    said = _said(lambda: expect.skills.has(REPORT, "release-note"))

    assert "nearest: 1. release-notes" in said


def test_the_words_of_the_author_come_first() -> None:
    said = _said(lambda: expect.skills.has(REPORT, "tone", message="the tone guide applies here"))

    assert said.splitlines()[:2] == ["the tone guide applies here", 'expected skill "tone"']

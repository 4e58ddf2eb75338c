"""Skills in recordings of the real programs: all that speaks for one is told, with what it is worth and where it is."""

from __future__ import annotations

import pytest
from reading import RECORDINGS, read_recording

from whet import plugins
from whet.model.events import FileRead, SkillSignal

AGENTS = {
    "claude": "claude-code",
    "codex": "codex",
    "copilot": "copilot",
    "cursor": "cursor-agent",
    "gemini": "gemini",
    "opencode": "opencode",
}
LOADED = [name for name in AGENTS if name not in ("codex", "cursor")]


@pytest.mark.parametrize("program", LOADED)
def test_a_load_and_a_reference_that_was_read_are_two_pieces_of_evidence(program: str) -> None:
    read = read_recording(plugins.find("agents", AGENTS[program])(), f"{program}/skill")

    (found,) = read.session.detected_skills
    load, reference = found.evidence
    assert (found.skill, load.confidence, reference.confidence) == ("greeting", "explicit", "medium")
    assert isinstance(read.events[load.event], SkillSignal)
    assert isinstance(read.events[reference.event], FileRead)
    assert load.why.startswith("loaded by tool:")
    assert reference.why.endswith("/skills/greeting/references/tone.md")


def test_a_program_without_a_tool_for_skills_reads_them() -> None:
    read = read_recording(plugins.find("agents", "codex")(), "codex/skill")

    (found,) = read.session.detected_skills
    assert [(each.confidence, each.why) for each in found.evidence] == [
        ("strong", "read .agents/skills/greeting/SKILL.md"),
        ("medium", "read .agents/skills/greeting/references/tone.md"),
    ]


def test_a_load_that_failed_is_weak_beside_what_was_read_in_its_place() -> None:
    read = read_recording(plugins.find("agents", "opencode")(), "opencode/skill_no_ripgrep")

    (found,) = read.session.detected_skills
    assert [(each.confidence, each.why) for each in found.evidence] == [
        ("medium", "read .opencode/skills/greeting/references/tone.md"),
        ("weak", "asked for by tool:skill, and not loaded"),
    ]


@pytest.mark.parametrize("program", AGENTS)
def test_skills_that_are_only_offered_are_not_seen(program: str) -> None:
    for folder in sorted((RECORDINGS / program).rglob("stdout.jsonl")):
        name = str(folder.parent.relative_to(RECORDINGS))
        if "/skill" in name:
            continue

        read = read_recording(plugins.find("agents", AGENTS[program])(), name)

        assert read.session.detected_skills == (), name

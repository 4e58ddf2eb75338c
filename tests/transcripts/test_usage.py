"""Tokens in recordings of the real programs: counted alike, each with its source, and of this run only."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import RECORDINGS, Read, read_recording
from test_skills import AGENTS

from whet import plugins
from whet.agents.contract import Resume
from whet.model.session import Usage

GROSS = ("input_tokens", "output_tokens")


def _read(program: str, name: str, earlier: Usage | None = None) -> Read:
    file = RECORDINGS / program / name / "usage.json"
    collected = {"copilot-usage.json": file.read_bytes()} if file.exists() else {}
    given = {"resume": Resume(session_id="earlier", usage=earlier)} if earlier else {}
    return read_recording(plugins.find("agents", AGENTS[program])(), f"{program}/{name}", collected, **given)


@pytest.mark.parametrize(
    ("program", "derived"),
    [
        ("claude", {"input_tokens"}),
        ("codex", set()),
        ("copilot", set()),
        ("cursor", {"input_tokens"}),
        ("gemini", {"output_tokens", "reasoning_tokens"}),
        ("opencode", {"input_tokens", "output_tokens"}),
    ],
)
def test_every_figure_has_its_source(program: str, derived: set[str]) -> None:
    usage = _read(program, "tools").session.usage

    sources = dict(usage.sources)
    assert sources.pop("total_tokens") == "derived"
    assert {name for name, source in sources.items() if source == "derived"} == derived
    assert set(sources) == {name for name in (*GROSS, *_PARTS) if getattr(usage, name) is not None}


_PARTS = ("cached_tokens", "cache_write_tokens", "reasoning_tokens")


@pytest.mark.parametrize("program", [name for name in AGENTS if name != "cursor"])
def test_a_resumed_session_takes_what_it_took_itself(program: str) -> None:
    first = _read(program, "resume/turn1").session.usage

    second = _read(program, "resume/turn2", first).session.usage

    assert (first.input_tokens, first.output_tokens) == (1100, 21)
    assert (second.input_tokens, second.cached_tokens, second.output_tokens) == (1700, 500, 22)


def test_the_cost_of_a_resumed_session_is_its_own(tmp_path: Path) -> None:
    first = _read("claude", "resume/turn1").session.usage
    output = (RECORDINGS / "claude/resume/turn2/stdout.jsonl").read_bytes()
    recorded = RECORDINGS / "claude/resume/turn2"
    # Older versions tell nothing but the total.
    (tmp_path / "stdout.jsonl").write_bytes(output.replace(b"model_usage_since_last_result", b"unknown"))
    (tmp_path / "meta.json").write_bytes((recorded / "meta.json").read_bytes())

    resume = Resume(session_id="earlier", usage=first)
    second = read_recording(plugins.find("agents", "claude-code")(), str(tmp_path), resume=resume).session.usage

    assert first.cost_usd == pytest.approx(0.003615)
    assert second.cost_usd == pytest.approx(0.00408)


def test_the_cost_of_a_resumed_session_is_its_own_where_the_program_does_not_tell_that_of_the_whole(
    tmp_path: Path,
) -> None:
    recorded = RECORDINGS / "claude/resume/turn1"
    # As 2.1.197 tells it, which begins to count anew.
    output = (recorded / "stdout.jsonl").read_bytes().replace(b"model_usage_since_last_result", b"unknown")
    (tmp_path / "stdout.jsonl").write_bytes(output)
    (tmp_path / "meta.json").write_bytes((recorded / "meta.json").read_bytes())
    earlier = Usage(input_tokens=3000, output_tokens=60, cost_usd=0.01, cost_source="agent")

    resume = Resume(session_id="earlier", usage=earlier)
    usage = read_recording(plugins.find("agents", "claude-code")(), str(tmp_path), resume=resume).session.usage

    assert usage.cost_usd == pytest.approx(0.003615)


def test_what_is_written_to_a_cache_is_part_of_the_input() -> None:
    usage = _read("cursor", "tools").session.usage

    assert (usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens) == (6608, 3000, 8)


@pytest.mark.parametrize(
    ("program", "steps"),
    [("claude", 4), ("codex", 4), ("copilot", 4), ("cursor", 4), ("gemini", 4), ("opencode", 4)],
)
def test_steps_are_rounds_of_the_model(program: str, steps: int) -> None:
    read = _read(program, "tools")

    assert read.session.steps == steps
    assert _read(program, "plain").session.steps == 1

"""A check leads to the events that its expectations looked at, also in a turn of a conversation."""

from __future__ import annotations

import pytest

from whet import expect
from whet.checks.looked_at import MOST_EVENTS, collect_references
from whet.model.events import CommandRun, Event, FileRead, Message, SkillSignal, ToolCall, TurnStarted
from whet.model.session import Session, SessionSummary, TurnSummary


def session(*events: Event, turns: int = 0) -> Session:
    told = tuple(TurnSummary(number=number, prompt="p") for number in range(1, turns + 1))
    return Session.of(SessionSummary(runner="r", agent="a", prompt="p", turns=told), events)


EVENTS: tuple[Event, ...] = (
    Message(role="user", text="p"),
    ToolCall(tool="Bash", args={"command": "ls"}),
    CommandRun(command="ls -a"),
    FileRead(path="a.md"),
    CommandRun(command="pytest"),
    SkillSignal(skill="style"),
    ToolCall(tool="Read"),
)


def test_what_matches_is_named_by_its_place_among_all_events() -> None:
    whole = session(*EVENTS)

    with collect_references() as looked:
        expect.commands.includes(whole, "pytest")
        expect.file_reads.includes(whole, "a.md")
        expect.tool_calls.has(whole, "Read")
        expect.skills.has(whole, "style")

    assert looked.events(whole) == (3, 4, 5, 6)


def test_of_what_is_missing_the_nearest_is_named() -> None:
    whole = session(*EVENTS)

    with collect_references() as looked, pytest.raises(AssertionError, match="nearest"):
        expect.commands.includes(whole, "ls -l")

    assert looked.events(whole) == (2,)


def test_a_turn_of_a_conversation_has_its_place_in_the_whole() -> None:
    first, second = TurnStarted(turn=1, prompt="p"), TurnStarted(turn=2, prompt="q")
    whole = session(
        first, CommandRun(command="ls"), second, CommandRun(command="pwd"), CommandRun(command="ls"), turns=2
    )

    with collect_references() as looked:
        expect.commands.includes(whole.turns[1], "ls")

    assert looked.events(whole) == (4,)


def test_very_many_matches_name_the_first_of_them() -> None:
    whole = session(*(CommandRun(command="ls") for _ in range(1000)))

    with collect_references() as looked:
        expect.commands.includes(whole, "ls")

    assert looked.events(whole) == tuple(range(MOST_EVENTS))


def test_outside_of_a_check_nothing_is_noted() -> None:
    whole = session(*EVENTS)
    with collect_references() as looked:
        pass

    expect.commands.includes(whole, "pytest")

    assert looked.events(whole) == ()

"""What expectations cost: 1,000 of them, that hold, over a session of 10,000 events.

Each kind is measured on a session of its own, so that what it reads once is part of its time: commands by text, by
pattern and as a shell reads them, tool calls, file reads, and all of them in turns. The best of some rounds is told.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from whet import Session, Tool, command, expect
from whet.model.events import CommandRun, Event, FileRead, Message, ToolCall

EVENTS, ASSERTIONS, ROUNDS = 10_000, 1_000, 3
_KINDS = 4

Asked = Callable[[Session, int], None]


def session() -> Session:
    """As many events of each kind, each with something of its own."""
    events: list[Event] = []
    for number in range(EVENTS // _KINDS):
        events += (
            Message(role="assistant", text=f"Now for part {number}."),
            CommandRun(command=f"cd app{number} && FOO=1 pnpm test --filter unit{number} | tee log", exit_code=0),
            FileRead(path=f"/project/src/part{number}/main.py"),
            ToolCall(tool=f"edit{number % 50}", args={"path": f"part{number}.py"}),
        )
    return Session(runner="demo", agent="scripted", prompt="Go.", session_id=str(time.perf_counter()), events=events)


def by_text(report: Session, number: int) -> None:
    expect.commands.includes(report, f"unit{number}")


def by_pattern(report: Session, number: int) -> None:
    expect.commands.includes(report, re.compile(rf"unit{number}\b"))


def by_absence(report: Session, number: int) -> None:
    expect.commands.not_includes(report, f"npm install part{number}")


def by_command(report: Session, number: int) -> None:
    expect.commands.includes(report, command("pnpm").arg("test").option("--filter", f"unit{number}"))


def by_tool(report: Session, number: int) -> None:
    expect.tool_calls.has(report, Tool(tool=f"edit{number % 50}", where=lambda args: args["path"].endswith(".py")))


def by_file_read(report: Session, number: int) -> None:
    expect.file_reads.exactly_one(report, f"part{number}/")


def in_turns(report: Session, number: int) -> None:
    kinds: tuple[Asked, ...] = (by_text, by_pattern, by_absence, by_command, by_tool, by_file_read)
    kinds[number % len(kinds)](report, number)


def seconds(asked: Asked) -> float:
    """The time of all assertions of one kind, with what is read on first use."""
    report = session()
    began = time.perf_counter()
    for number in range(ASSERTIONS):
        asked(report, number)
    return time.perf_counter() - began


def measure() -> dict[str, float]:
    """Seconds for all, and microseconds for each, by kind."""
    figures: dict[str, float] = {}
    for asked in (in_turns, by_text, by_pattern, by_absence, by_command, by_tool, by_file_read):
        name = asked.__name__.replace("_", " ")
        best = min(seconds(asked) for _ in range(ROUNDS))
        figures[f"{name}, s"] = best
        figures[f"{name}, us per assertion"] = best / ASSERTIONS * 1_000_000
    return figures

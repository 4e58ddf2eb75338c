"""What an editor sees of the assertion language: checked by mypy, never run (see tests/unit/test_typing.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_type

from whet import (
    Changes,
    CheckContext,
    FailureClass,
    Ran,
    Session,
    SkillDetection,
    Tool,
    ToolCall,
    command,
    expect,
    load_report,
    read_command,
)
from whet.shell._arguments import SimpleCommand
from whet.shell.match import CommandMatcher

WORDS = re.compile("words")
PNPM = command("pnpm").arg("test").args("a", WORDS).option("--filter", "unit").flag("--watch").end_of_options().strict()


def _short(line: str) -> bool:
    return len(line) < 3


def _edits(call: ToolCall) -> bool:
    return call.tool == "edit"


def of_skills(report: Session, ctx: CheckContext) -> None:
    expect.skills.has(report, "a", min_confidence="strong", message="m", explain="e")
    expect.skills.not_has(ctx, "a")
    expect.skills.includes(report, ["a", "b"])
    expect.skills.count(report, "a", 1)
    expect.skills.exactly_one(report)
    expect.skills.exactly_one(report, "a")
    expect.skills.only(report, ("a",), min_confidence="explicit")
    expect.skills.has(report, "a", min_confidence="sure")  # type: ignore[arg-type]
    expect.skills.has(report)  # type: ignore[call-arg]


def of_commands(report: Session, ctx: CheckContext) -> None:
    expect.commands.includes(report, "a", message="m", explain="e")
    expect.commands.includes(ctx, WORDS)
    expect.commands.includes(report, _short)
    expect.commands.includes(report, PNPM)
    expect.commands.not_includes(report, lambda line: line.startswith("npm"))
    expect.commands.count(report, "a", 1)
    expect.commands.at_least(report, PNPM, 1)
    expect.commands.at_most(report, "a", 1)
    expect.commands.exactly_one(report, PNPM)
    expect.commands.before(report, "a", PNPM)
    expect.commands.only(report, ["a", PNPM, WORDS])
    expect.commands.size(report, 3)
    expect.commands.first(report, "a")
    expect.commands.last(report, "a")
    expect.commands.succeeded(report, PNPM)
    expect.commands.failed(report, "a")
    expect.commands.includes(report, 3)  # type: ignore[arg-type]
    expect.commands.includes("a", report)  # type: ignore[arg-type]


def of_file_reads(report: Session, ctx: CheckContext) -> None:
    expect.file_reads.includes(ctx, "a")
    expect.file_reads.not_includes(report, WORDS)
    expect.file_reads.count(report, "a", 1)
    expect.file_reads.at_least(report, "a", 1)
    expect.file_reads.at_most(report, "a", 1)
    expect.file_reads.exactly_one(report, _short)
    expect.file_reads.before(report, "a", WORDS)
    expect.file_reads.only(report, ["a"])
    expect.file_reads.size(report, 1)
    expect.file_reads.first(report, "a")
    expect.file_reads.last(report, "a")
    expect.file_reads.includes(report, PNPM)  # type: ignore[arg-type]
    expect.file_reads.succeeded(report, "a")  # type: ignore[attr-defined]


def of_tool_calls(report: Session, ctx: CheckContext) -> None:
    expect.tool_calls.has(ctx, "edit")
    expect.tool_calls.has(report, WORDS)
    expect.tool_calls.has(report, Tool(tool="edit", where=lambda args: args["path"] == "a"))
    expect.tool_calls.has(report, _edits)
    expect.tool_calls.not_has(report, Tool(tool=WORDS))
    expect.tool_calls.count(report, "edit", 1)
    expect.tool_calls.at_least(report, "edit", 1)
    expect.tool_calls.at_most(report, "edit", 1)
    expect.tool_calls.before(report, "read", "edit")
    expect.tool_calls.sequence(report, ["read", _edits])
    expect.tool_calls.only(report, ["read", Tool(tool="edit")])
    expect.tool_calls.has(report, _short)  # type: ignore[arg-type]


def of_output(report: Session, ctx: CheckContext) -> None:
    expect.output.includes(ctx, "a")
    expect.output.not_includes(report, WORDS)
    expect.output.not_empty(report)
    assert_type(expect.output.json(report, bool), Any)
    assert_type(expect.output.matches_schema(report, {"type": "object"}), Any)


def of_files(ctx: CheckContext, report: Session) -> None:
    expect.files.created(ctx, "a", message="m", explain="e")
    expect.files.modified(ctx, "a")
    expect.files.deleted(ctx, "a")
    expect.files.unchanged(ctx, "a")
    expect.files.only_changed(ctx, ["a", "b"])
    expect.files.contains(ctx, "a", WORDS)
    expect.files.matches(ctx, "a", "text")
    expect.files.created(report, "a")  # type: ignore[arg-type]


def of_usage(report: Session, ctx: CheckContext) -> None:
    expect.usage.tokens(report, at_most=1000, kind="output")
    expect.usage.cost(ctx, at_most=0.5)
    expect.usage.steps(report, at_most=3)
    expect.usage.duration(report, at_most_s=1.5)
    expect.usage.tokens(report, at_most=1, kind="all")  # type: ignore[arg-type]


def of_basics() -> None:
    expect.ok([1], "m")
    expect.equal(1, 2)
    expect.not_equal(1, 2)
    expect.match("a", "b")
    expect.does_not_match("a", WORDS)
    assert_type(expect.raises(ValueError, lambda: int("x")), ValueError | None)
    with expect.raises(ValueError, match="x") as raised:
        int("x")
    assert_type(raised.error, ValueError | None)
    expect.raises((ValueError, KeyError), of_basics)


def softly(report: Session, ctx: CheckContext) -> None:
    expect.soft.skills.has(report, "a")
    expect.soft.commands.includes(report, PNPM)
    expect.soft.file_reads.first(report, "a")
    expect.soft.tool_calls.sequence(report, ["a"])
    expect.soft.output.not_empty(report)
    expect.soft.files.created(ctx, "a")
    expect.soft.usage.steps(report, at_most=1)
    expect.soft.equal(1, 2)
    with expect.soft():
        pass
    expect.soft.soft  # type: ignore[attr-defined]  # noqa: B018 - it is looked at, by mypy


def classified(report: Session) -> None:
    with expect.classify("id", label="Label"):
        expect.ok(True)
    with expect.classify(FailureClass(id="id")):
        expect.ok(True)
    expect.classify("id", lambda: expect.ok(report))
    assert_type(expect.classify("id", lambda: 3), int)


def of_the_context(ctx: CheckContext) -> None:
    assert_type(ctx.session, Session)
    assert_type(ctx.workspace, Path)
    assert_type(ctx.changes(), Changes)
    assert_type(ctx.get_commands(), list[str])
    assert_type(ctx.get_tool_calls("edit"), list[ToolCall])
    assert_type(ctx.get_file_reads(), list[str])
    assert_type(ctx.detected_skills(), list[SkillDetection])
    assert_type(ctx.final_output(), str)
    assert_type(ctx.read("a"), str)
    ran = ctx.run("make test", timeout_s=10)
    assert_type(ran, Ran)
    assert_type(ran.ok, bool)
    assert_type(ran.exit_code, int | None)
    ctx.run(["make", "test"])


def of_commands_read() -> None:
    assert_type(PNPM, CommandMatcher)
    assert_type(PNPM.matches("pnpm test"), bool)
    commands: Sequence[SimpleCommand] = read_command("cd app && pnpm test")
    assert_type(commands[0].executable, str)


def of_reports() -> None:
    assert_type(load_report("trials/a/demo/default/1/1"), Session)
    assert_type(load_report(Path("session.json")), Session)

"""What an expectation cannot work with is refused in words, before it passes or fails for the wrong reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from whet import Session, Tool, command, expect, read_command
from whet.model.events import CommandRun, ToolCall

REPORT: Any = Session(
    runner="demo",
    agent="scripted",
    prompt="Go.",
    final_output='{"version": "2.0"}',
    events=(CommandRun(command="pnpm test"), ToolCall(tool="shell", args={"command": "pnpm test"})),
)
ANY: Any = expect


async def later(_: object) -> bool:
    return True


def yields(_: object) -> Iterator[bool]:
    yield False


@pytest.mark.parametrize("given", [None, "session", 3, {"session": REPORT}])
@pytest.mark.parametrize(
    "ask",
    [
        lambda given: ANY.commands.includes(given, "a"),
        lambda given: ANY.skills.has(given, "a"),
        lambda given: ANY.tool_calls.has(given, "a"),
        ANY.output.not_empty,
        lambda given: ANY.usage.steps(given, at_most=1),
    ],
)
def test_what_is_no_session(ask: Callable[[Any], None], given: object) -> None:
    with pytest.raises(TypeError, match="the first argument is the session or the context"):
        ask(given)


@pytest.mark.parametrize("matcher", [None, 3, b"pnpm", ["pnpm"], re.compile(b"pnpm"), later, str, Tool(tool="a")])
def test_what_is_no_matcher(matcher: Any) -> None:
    for refuse in (
        lambda: expect.commands.includes(REPORT, matcher),
        lambda: expect.commands.only(REPORT, [matcher]),
        lambda: expect.commands.first(REPORT, matcher),
        lambda: expect.output.includes(REPORT, matcher),
    ):
        with pytest.raises(TypeError):
            refuse()


@pytest.mark.parametrize("ask", [expect.commands.includes, expect.output.includes, expect.commands.not_includes])
def test_an_empty_string_that_is_found_in_everything(ask: Callable[[Any, str], None]) -> None:
    with pytest.raises(ValueError, match="found in everything"):
        ask(REPORT, "")


@pytest.mark.parametrize("group", [expect.file_reads, expect.output])
def test_a_command_where_no_commands_are(group: Any) -> None:
    with pytest.raises(TypeError, match=r"only expect\.commands takes it"):
        group.includes(REPORT, command("pnpm"))


@pytest.mark.parametrize("answer", [yields, lambda _: later(None), lambda _: NotImplemented, lambda _: command("a")])
def test_an_answer_of_a_predicate_that_is_none(answer: Callable[[Any], Any]) -> None:
    for refuse in (
        lambda: expect.commands.includes(REPORT, answer),
        lambda: expect.tool_calls.has(REPORT, answer),
        lambda: expect.tool_calls.has(REPORT, Tool(where=answer)),
        lambda: expect.output.json(REPORT, answer),
    ):
        with pytest.raises(TypeError, match="which is not an answer"):
            refuse()


def test_a_match_or_none_is_an_answer_of_a_predicate() -> None:
    expect.commands.includes(REPORT, lambda line: re.search("pnpm", line))
    expect.commands.not_includes(REPORT, lambda line: re.search("npx", line))


@pytest.mark.parametrize(
    ("count", "error"), [(None, TypeError), ("2", TypeError), (2.0, TypeError), (True, TypeError), (-1, ValueError)]
)
def test_what_is_no_count(count: Any, error: type[Exception]) -> None:
    for refuse in (
        lambda: expect.commands.count(REPORT, "pnpm", count),
        lambda: expect.commands.at_least(REPORT, "pnpm", count),
        lambda: expect.commands.at_most(REPORT, "pnpm", count),
        lambda: expect.commands.size(REPORT, count),
        lambda: expect.tool_calls.count(REPORT, "shell", count),
        lambda: expect.skills.count(REPORT, "style", count),
    ):
        with pytest.raises(error, match="a count is"):
            refuse()


@pytest.mark.parametrize("skill", [None, 3, b"a", re.compile("a"), ["a"], lambda _: True])
def test_what_is_no_name_of_a_skill(skill: Any) -> None:
    for refuse in (
        lambda: expect.skills.has(REPORT, skill),
        lambda: expect.skills.not_has(REPORT, skill),
        lambda: expect.skills.includes(REPORT, [skill]),
    ):
        with pytest.raises(TypeError, match="a skill is looked for by its name"):
            refuse()


@pytest.mark.parametrize("tool", [None, 3, {"tool": "shell"}, str, Tool(tool=ANY), Tool(where=ANY.soft)])
def test_what_is_no_tool(tool: Any) -> None:
    with pytest.raises(TypeError):
        expect.tool_calls.has(REPORT, tool)


@pytest.mark.parametrize("limit", [None, "5", True, float("nan")])
def test_what_is_no_ceiling(limit: Any) -> None:
    for refuse in (
        lambda: expect.usage.tokens(REPORT, at_most=limit),
        lambda: expect.usage.cost(REPORT, at_most=limit),
        lambda: expect.usage.steps(REPORT, at_most=limit),
        lambda: expect.usage.duration(REPORT, at_most_s=limit),
    ):
        with pytest.raises(TypeError, match="is a number"):
            refuse()


def test_words_of_the_author_that_are_none() -> None:
    with pytest.raises(TypeError, match="message is a string"):
        ANY.commands.includes(REPORT, "cargo", message=3)
    with pytest.raises(TypeError, match="explain is a string"):
        ANY.commands.includes(REPORT, "cargo", explain={"question": "Why?"})
    with pytest.raises(TypeError, match="message is a string"):
        ANY.ok(False, 3)


def test_a_keyword_that_no_expectation_takes_even_if_it_holds() -> None:
    refusals = {
        "LinesGroup.includes": lambda: ANY.commands.includes(REPORT, "pnpm", explian="Why?"),
        "OrderedGroup.count": lambda: ANY.soft.commands.count(REPORT, "pnpm", 1, explian="Why?"),
        "OutputGroup.json": lambda: ANY.output.json(REPORT, explian="Why?"),
    }
    for name, refuse in refusals.items():
        with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'explian'"):
            refuse()


def test_a_predicate_that_raises_is_told_with_what_it_was_asked_about() -> None:
    with pytest.raises(KeyError) as caught:
        expect.tool_calls.has(REPORT, Tool(where=lambda args: args["path"] == "a"))

    assert caught.value.__notes__ == ["the predicate <lambda> was asked about {'command': 'pnpm test'}"]


@pytest.mark.parametrize("line", [None, b"pnpm test", ["pnpm"]])
def test_what_is_no_line_of_shell(line: Any) -> None:
    for refuse in (lambda: read_command(line), lambda: command("pnpm").matches(line)):
        with pytest.raises(TypeError, match="a command is read from a string"):
            refuse()

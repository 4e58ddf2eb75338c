"""expect.tool_calls: each expectation holds, or says which calls were seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count

import pytest

from whet import Session, Tool, ToolCall, expect
from whet.model.events import CommandRun, Event

_ids = count()


def _session(*events: Event) -> Session:
    return Session(runner="demo", agent="scripted", prompt="Go.", session_id=str(next(_ids)), events=events)


@pytest.fixture
def report() -> Session:
    return _session(
        ToolCall(tool="read", args={"path": "a.py"}),
        CommandRun(command="edit b.py"),
        ToolCall(tool="edit", args={"path": "a.py", "lines": 3}),
        ToolCall(tool="read_image"),
        ToolCall(tool="edit", args={"path": "b.py"}),
    )


OBSERVED = """observed 4 tool calls:
  1. read {'path': 'a.py'}
  2. edit {'path': 'a.py', 'lines': 3}
  3. read_image
  4. edit {'path': 'b.py'}"""


def _said(call: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


def _edits_b(args: dict[str, str]) -> bool:
    return args["path"] == "b.py"


@pytest.mark.parametrize(
    "matcher",
    [
        "edit",
        re.compile("^ed"),
        Tool(tool="edit"),
        Tool(tool=re.compile("^read$")),
        Tool(tool="edit", where=_edits_b),
        Tool(where=lambda args: args is None),
        Tool(),
        lambda call: call.tool == "read" and call.args["path"] == "a.py",
    ],
    ids=["name", "pattern", "tool", "tool-pattern", "tool-where", "where", "any", "predicate"],
)
def test_a_call_is_found_by_every_kind_of_matcher(report: Session, matcher: object) -> None:
    expect.tool_calls.has(report, matcher)

    said = _said(lambda: expect.tool_calls.not_has(report, matcher))

    assert said.startswith("expected no call of ")
    assert said.endswith(OBSERVED)


def test_a_string_is_the_whole_name_of_a_tool(report: Session) -> None:
    expect.tool_calls.count(report, "read", 1)

    said = _said(lambda: expect.tool_calls.has(report, "rea"))

    assert said.startswith(f'expected a call of "rea"\n{OBSERVED}')


def test_a_call_that_was_not_made_is_told_with_the_nearest(report: Session) -> None:
    said = _said(lambda: expect.tool_calls.has(report, "read-image"))

    assert said == f'expected a call of "read-image"\n{OBSERVED}\nnearest: 3. read_image'


def test_no_calls_at_all_is_said_in_so_many_words() -> None:
    assert _said(lambda: expect.tool_calls.has(_session(), "read")) == (
        'expected a call of "read"\nobserved no tool calls'
    )


def test_a_call_that_must_not_be_made_is_named_by_number(report: Session) -> None:
    expect.tool_calls.not_has(report, "web_search")

    said = _said(lambda: expect.tool_calls.not_has(report, Tool(tool="edit", where=_edits_b)))

    assert said == f'expected no call of "edit" where _edits_b, but found number 4\n{OBSERVED}'


def test_calls_are_counted(report: Session) -> None:
    expect.tool_calls.count(report, "edit", 2)
    expect.tool_calls.at_least(report, "edit", 2)
    expect.tool_calls.at_most(report, "edit", 2)

    assert _said(lambda: expect.tool_calls.count(report, "edit", 1)) == (
        f'expected a call of "edit" exactly once, but found it 2 times\n{OBSERVED}'
    )
    assert _said(lambda: expect.tool_calls.at_least(report, "edit", 3)) == (
        f'expected a call of "edit" at least 3 times, but found it 2 times\n{OBSERVED}'
    )
    assert _said(lambda: expect.tool_calls.at_most(report, "edit", 1)) == (
        f'expected a call of "edit" at most once, but found it 2 times\n{OBSERVED}'
    )


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("edit", "read", "2 is not before 1"),
        ("edit", re.compile("edit"), "2 is not before 2"),
        ("web", "read", '"web" was not called'),
        ("read", "web", '"web" was not called'),
    ],
)
def test_one_call_comes_before_another_or_it_is_said_why_not(
    report: Session, first: str, second: str, why: str
) -> None:
    expect.tool_calls.before(report, "read", "edit")

    said = _said(lambda: expect.tool_calls.before(report, first, second))

    assert f", but {why}\n{OBSERVED}" in said


def test_calls_follow_each_other_with_anything_in_between(report: Session) -> None:
    expect.tool_calls.sequence(report, ["read", "edit", Tool(tool="edit", where=_edits_b)])
    expect.tool_calls.sequence(report, [])

    said = _said(lambda: expect.tool_calls.sequence(report, ["edit", "read"]))

    assert said.startswith(f'expected "edit", then "read"; step 2, "read", was not called after call 2\n{OBSERVED}')


def test_one_call_is_one_step_of_a_sequence(report: Session) -> None:
    expect.tool_calls.sequence(report, ["edit", "edit"])

    said = _said(lambda: expect.tool_calls.sequence(report, ["edit", "edit", "edit"]))

    assert 'step 3, "edit", was not called after call 4' in said


def test_only_the_tools_that_are_allowed_were_called(report: Session) -> None:
    expect.tool_calls.only(report, [re.compile("^read"), "edit"])
    expect.tool_calls.only(_session(), [])

    assert _said(lambda: expect.tool_calls.only(report, ["read", "edit"])) == (
        f'expected only calls of "read" or "edit", but found number 3\n{OBSERVED}'
    )
    assert "no tool calls at all, but found numbers 1, 2, 3, 4" in _said(lambda: expect.tool_calls.only(report, []))


@pytest.mark.parametrize("matcher", [None, 3, {"tool": "edit"}, b"edit"], ids=repr)
@pytest.mark.parametrize("method", ["has", "not_has"])
def test_what_cannot_look_for_a_tool_is_refused(method: str, matcher: object) -> None:
    with pytest.raises(TypeError, match=f"a Tool or a predicate, not {type(matcher).__name__}"):
        getattr(expect.tool_calls, method)(_session(), matcher)


@pytest.mark.parametrize("method", ["count", "at_least", "at_most"])
def test_what_cannot_look_for_a_tool_is_refused_where_calls_are_counted(method: str) -> None:
    with pytest.raises(TypeError, match="a Tool or a predicate, not int"):
        getattr(expect.tool_calls, method)(_session(), 3, 1)


@pytest.mark.parametrize("method", ["sequence", "only"])
def test_what_cannot_look_for_a_tool_is_refused_in_a_list(report: Session, method: str) -> None:
    with pytest.raises(TypeError, match="a Tool or a predicate, not int"):
        getattr(expect.tool_calls, method)(report, ["read", 3])


@pytest.mark.parametrize("method", ["sequence", "only"])
def test_a_string_in_place_of_a_list_of_tools_is_refused(method: str) -> None:
    with pytest.raises(TypeError, match="list"):
        getattr(expect.tool_calls, method)(_session(), "")


def test_the_words_of_the_author_come_first(report: Session) -> None:
    said = _said(lambda: expect.tool_calls.has(report, "web", message="it must look it up"))

    assert said.splitlines()[:2] == ["it must look it up", 'expected a call of "web"']

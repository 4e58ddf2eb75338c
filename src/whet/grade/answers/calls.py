"""Decide assertions about the tools that an agent called: how often, with what input, and in which order."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from whet.grade.claims.files import Outcome, failed, passed
from whet.model.eval_cases import Assertion, CalledTool, ToolMatch
from whet.model.events import Event, FileRead, SkillSignal, ToolCall, ToolResult
from whet.model.session import Session
from whet.reading.patterns import compiled, pattern_of
from whet.reading.text import shorten

# JavaScript writes larger numbers with an exponent.
_LARGEST_PLAIN = 1e21


def decide(assertion: Assertion, session: Session) -> Outcome:
    """Return whether an assertion about calls holds, without regard to negation."""
    match assertion.op:
        case "tool_used":
            return _decide_used(assertion, session)
        case "tool_order":
            return _decide_order(assertion.value, session)
        case "tool_matched":
            return _decide_matched(assertion, session)
        case "tools_in_order":
            return _decide_sequence(assertion.value, session)
        case _:
            return _decide_count(assertion, session)


def _decide_count(assertion: Assertion, session: Session) -> Outcome:
    """Return whether a tool was called as often as it should be, by the name that the agent gives it."""
    count = len(session.tool_calls(assertion.value))
    said = f"{assertion.value} was called {count} times" if count else f"{assertion.value} was not called"
    return passed(said) if is_within(assertion, count) else failed(said)


def _decide_used(assertion: Assertion, session: Session) -> Outcome:
    """Return whether a tool of Claude Code, or the one that another agent has for its purpose, was called so often."""
    tool: CalledTool = assertion.value
    count = sum(_is_call_of(tool, call, session) for call in _steps(session))
    what = f"{tool.tool} was called" if tool.input is None else f"{tool.tool} was called with such an input"
    said = f"{what} {count} times" if count else f"{tool.tool} was not called{_with_input(tool)}"
    return passed(said) if is_within(assertion, count) else failed(said)


def _decide_order(tools: tuple[CalledTool, CalledTool], session: Session) -> Outcome:
    """Return whether the first of two tools was called before the other one was for the first time."""
    places = [_first_call(tool, session) for tool in tools]
    for tool, place in zip(tools, places, strict=True):
        if place is None:
            return failed(f"{tool.tool} was not called{_with_input(tool)}")
    before, after = (place or 0 for place in places)
    names = f"{tools[0].tool} and {tools[1].tool}"
    if before < after:
        return passed(f"{names} were first called in this order, as calls {before + 1} and {after + 1}")
    return failed(f"{names} were not first called in this order, but as calls {before + 1} and {after + 1}")


def is_within(assertion: Assertion, count: int) -> bool:
    """Return whether *count* is in the bounds of *assertion*: by itself, at least once."""
    least = 1 if assertion.least is None else assertion.least
    return least <= count <= (math.inf if assertion.most is None else assertion.most)


def _decide_matched(assertion: Assertion, session: Session) -> Outcome:
    """Return whether there are as many calls that fit the patterns as there should be."""
    places = list(_matching(assertion.value, session))
    reason = f"{len(places)} of {len(session.tool_calls())} calls fit"
    if is_within(assertion, len(places)):
        return passed(reason)
    return failed(f"{reason}{_names_called(session)}")


def _decide_sequence(matches: tuple[ToolMatch, ...], session: Session) -> Outcome:
    """Return whether there are calls that fit the patterns, one after the other, with any calls between them."""
    last = -1
    for number, match in enumerate(matches, 1):
        place = next((place for place in _matching(match, session) if place > last), None)
        if place is None:
            return failed(
                f"no call fits the pattern {number} of {len(matches)} after those before{_names_called(session)}"
            )
        last = place
    return passed(f"{len(matches)} calls fit in this order")


def _names_called(session: Session) -> str:
    names = ", ".join(dict.fromkeys(call.tool for call in session.tool_calls()))
    return f"; the agent called {shorten(names) or 'nothing'}"


def _matching(match: ToolMatch, session: Session) -> Iterator[int]:
    """Yield the places of the calls that fit *match*."""
    calls = session.tool_calls()
    results = _results(session)
    for place, call in enumerate(calls):
        if match.final and place < len(calls) - 1:
            continue
        if match.at_step not in (None, place) or (match.before_step is not None and place >= match.before_step):
            continue
        has_name = match.name is None or any(_matches(match.name, name) for name in _names_of(call.tool))
        has_args = all(_matches(pattern, _argument(call, name)) for name, pattern in match.args)
        if has_name and has_args and (match.result is None or _matches(match.result, results.get(call.id))):
            yield place


def _matches(pattern: str, text: str | None) -> bool:
    return text is not None and compiled(pattern_of(pattern)).find(text) is not None


def _results(session: Session) -> dict[str | None, str]:
    return {event.id: event.output for event in session.events if isinstance(event, ToolResult) and event.id}


# What agents call the tools for one purpose, in lower case, what Copilot calls them, and what Claude Code does.
_SHELLS = ("bash", "shell", "exec_command", "shell_command", "run_shell_command", "execute", "local_shell")
_EDITORS = ("edit", "multiedit", "replace", "apply_patch", "notebookedit")
_WRITERS = ("write", "write_file", "apply_patch")
_PURPOSES = (
    (_SHELLS, ("bash", "powershell"), ("Bash",)),
    ((*_EDITORS, *_WRITERS), ("edit", "apply_patch"), ()),
    (_WRITERS, ("create",), ()),
    ((*_WRITERS, "create", "create_file"), (), ("Write",)),
    ((*_EDITORS, "str_replace", "str_replace_editor"), (), ("Edit", "MultiEdit")),
    (("read", "read_file"), ("view",), ()),
    (("read", "read_file", "read_many_files", "view"), (), ("Read",)),
    (("powershell",), (), ("Bash",)),
    (("glob", "find_files"), (), ("Glob",)),
    (("grep", "grep_search", "search_file_content", "rg"), (), ("Grep",)),
    (("webfetch", "web_fetch", "fetch"), (), ("WebFetch",)),
    (("websearch", "web_search", "google_web_search"), (), ("WebSearch",)),
    (("agent", "task", "spawn_agent"), (), ("Agent", "Task")),
    (("todowrite", "update_plan", "write_todos"), (), ("TodoWrite",)),
)
_CLAUDE_CODE = "claude-code"
_SKILL_TOOL, _MANIFEST = "Skill", "SKILL.md"
_SERVER_TOOL = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)|(?P<other_server>[\w-]+)[./:](?P<other_tool>[\w-]+)")


def _names_of(tool: str) -> tuple[str, ...]:
    """Return the name of a tool, and those that Copilot has for one of the same purpose, or of the same server."""
    names = [name for tools, copilot_names, _ in _PURPOSES if tool.lower() in tools for name in copilot_names]
    if part := _SERVER_TOOL.fullmatch(tool):
        names.append(f"{part['server'] or part['other_server']}-{part['tool'] or part['other_tool']}")
    return tuple(dict.fromkeys((tool, *names)))


# What agents call the argument with a command, and the one with a path.
_ARGUMENTS = {"command": ("command", "cmd", "script"), "path": ("path", "file_path", "filePath", "absolute_path")}


_CLAUDE_ARGUMENTS = {
    **dict.fromkeys(_ARGUMENTS["command"], "command"),
    **dict.fromkeys(_ARGUMENTS["path"], "file_path"),
}


def _argument(call: ToolCall, name: str) -> str | None:
    if not isinstance(call.args, dict):
        return None
    keys = _ARGUMENTS.get(name, (name,))
    value = next((call.args[key] for key in keys if call.args.get(key) is not None), None)
    if value is None or isinstance(value, str):
        return value
    return _as_javascript(value)


def _with_input(tool: CalledTool) -> str:
    return "" if tool.input is None else f" with an input that matches {tool.input}"


def _first_call(tool: CalledTool, session: Session) -> int | None:
    return next((place for place, call in enumerate(_steps(session)) if _is_call_of(tool, call, session)), None)


def _steps(session: Session) -> Sequence[ToolCall]:
    """Return the calls of a session; an agent that has no tool for skills calls it when it loads one."""
    if session.agent == _CLAUDE_CODE:
        return session.tool_calls()
    steps: list[ToolCall] = []
    loaded_skills: set[str] = set()
    for event in session.events:
        if isinstance(event, ToolCall):
            steps.append(event)
        skill = _loaded_skill(event)
        if skill is not None and skill not in loaded_skills:
            loaded_skills.add(skill)
            steps.append(ToolCall(tool=_SKILL_TOOL, args={"skill": skill}))
    return steps


def _loaded_skill(event: Event) -> str | None:
    """Return the name of the skill that is loaded by what happened: the agent says so, or reads its manifest."""
    match event:
        case SkillSignal(loaded=True):
            return event.skill
        case FileRead() if event.ok is not False and PurePosixPath(event.path).name == _MANIFEST:
            return PurePosixPath(event.path).parent.name
        case _:
            return None


def _is_call_of(tool: CalledTool, call: ToolCall, session: Session) -> bool:
    """Return whether a call is one of *tool* by the names of Claude Code, which other agents need not have."""
    is_claude = session.agent == _CLAUDE_CODE
    if tool.tool != call.tool and (is_claude or not _is_like(tool.tool, call.tool)):
        return False
    if tool.input is None:
        return True
    pattern = compiled(pattern_of(tool.input))
    inputs = (call.args,) if is_claude else (call.args, *_as_in_claude_code(call, tool.input))
    return any(pattern.find(_as_javascript(value)) is not None for value in inputs)


def _is_like(wanted: str, called: str) -> bool:
    """Return whether the tool *called* of another agent serves the purpose of Claude Code's tool *wanted*."""
    if any(wanted in claude_names and called.lower() in tools for tools, _, claude_names in _PURPOSES):
        return True
    theirs, ours = _SERVER_TOOL.fullmatch(called), _SERVER_TOOL.fullmatch(wanted)
    if theirs is None or ours is None or ours["tool"] is None:
        return False
    tool, server = theirs["tool"] or theirs["other_tool"], theirs["server"] or theirs["other_server"]
    # Claude Code puts the name of the plug-in before the server that it declares.
    return bool(ours["tool"] == tool and f"_{ours['server']}".endswith(f"_{server}"))


def _as_in_claude_code(call: ToolCall, pattern: str) -> Iterator[dict[str, Any]]:
    """Yield the input of a call of another agent with the names that Claude Code has for it."""
    if not isinstance(call.args, dict):
        return
    yield {_CLAUDE_ARGUMENTS.get(str(name), str(name)): value for name, value in call.args.items()}
    if call.tool == _SKILL_TOOL:
        # Claude Code names a skill with its plug-in, and the pattern says which that is.
        for plugin in re.findall(r"([\w.-]+):", pattern):
            yield {"skill": f"{plugin}:{call.args.get('skill')}"}


def _as_javascript(value: Any) -> str:
    """Return *value* as `JSON.stringify` of JavaScript writes it, where 1.0 is 1."""
    return json.dumps(_whole(value), ensure_ascii=False, separators=(",", ":"))


def _whole(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) < _LARGEST_PLAIN:
            return int(value)
        case dict():
            return {name: _whole(item) for name, item in value.items()}
        case list() | tuple():
            return [_whole(item) for item in value]
        case _:
            return value

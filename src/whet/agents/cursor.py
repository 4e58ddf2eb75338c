"""Cursor's agent: `cursor-agent -p --output-format stream-json`, the prompt as its last argument."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from whet.agents.contract import AgentCommand, AgentSetup, Signs, Task, environment
from whet.agents.observe.records import as_text, input_figures, look, moment, number, parse, rows, table, text
from whet.agents.observe.to_events import RecordsAgent, resuming
from whet.model.events import Event, Message, SessionStarted
from whet.model.run import Runner
from whet.model.suite import Case

_CREDENTIALS = ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN", "CURSOR_API_ENDPOINT")
_MODE = ("-p", "--output-format", "stream-json", "--trust", "--force")
_SIGNS = Signs(line=re.compile(rb'\{"type":"(?P<what>thinking|assistant)"'), means={}, kept=True)
_SUFFIX = "ToolCall"
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
# The kernel takes no longer argument; the rest is for what ends it.
_LONGEST = 128 * 1024 - 1


class CursorAgent(RecordsAgent):
    """Reads `system`, `user`, `thinking`, `assistant`, `tool_call` and `result`."""

    program, skills = "cursor-agent", ".cursor/skills"
    login = (".config/cursor/auth.json",)
    setup = AgentSetup(
        variables=("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN"),
        install="see cursor.com/cli, and set `command` if it has another name; not the packages on npm",
    )
    always_direct = True
    always_copies_login = True
    state = (".cursor/chats",)
    derived = ("input_tokens",)

    def __init__(self) -> None:
        super().__init__()
        self._thoughts: list[str] = []

    def command(self, task: Task) -> AgentCommand:
        """The prompt follows `--`, so that one which begins with a dash is not an option."""
        env = {"NO_OPEN_BROWSER": "1", **environment(task, *_CREDENTIALS)}
        mode = (*_MODE, "--workspace", str(task.workspace))
        command = self.start(task, mode, env, resume=resuming(task, "--resume"), last=("--", task.prompt))
        return replace(command, stdin=b"", signs=_SIGNS)

    def problems(self, runner: Runner, cases: Iterable[Case]) -> Iterable[str]:
        """A prompt must fit into an argument."""
        del runner
        for case in cases:
            if max(len(prompt.encode()) for prompt in (case.prompt, *case.then)) > _LONGEST:
                yield f"case {case.id}: its prompt is longer than the 128 KiB that an argument may have"

    def events(self, record: bytes) -> Iterable[Event]:
        """Thoughts come in pieces, words as a whole."""
        seen = parse(record)
        at = moment(seen.get("timestamp_ms"))
        match seen.get("type"):
            case "tool_call":
                yield from self._thought()
                yield from self._tool(seen, seen.get("subtype"), at)
            case "thinking" if seen.get("subtype") == "delta":
                self._thoughts.append(text(seen, "text") or "")
            case "thinking" if seen.get("subtype") == "completed":
                yield from self._thought()
            case "assistant":
                yield from self._thought()
                yield from self._reading.said(_words(seen), at=at)
            case "user":
                yield Message(role="user", text=_words(seen))
            case "system" if seen.get("subtype") == "init":
                yield SessionStarted(session_id=text(seen, "session_id"), model=text(seen, "model"))
            case "result":
                yield from self._thought()
                yield from self._result(seen, seen.get("subtype"))

    def ending(self, collected: Mapping[str, bytes]) -> Iterable[Event]:
        """A thought may have come in part."""
        return [*self._thought(), *super().ending(collected)]

    def _thought(self) -> list[Event]:
        if not self._thoughts:
            return []
        whole = "".join(self._thoughts)
        self._thoughts.clear()
        return self._reading.thought(whole)

    def _tool(self, seen: dict[str, Any], state: Any, at: str | None) -> list[Event]:
        """Both records have the call; the second has its result too, and may be the only one."""
        call_id = seen.get("call_id") or seen.get("model_call_id")
        tool, call = _named(table(seen, "tool_call"))
        if tool is None:
            return []
        events = [] if self._reading.is_open(call_id) else self._reading.began(call_id, tool, _args(call), at=at)
        if state == "completed":
            outcome, result = next(iter(table(call, "result").items()), ("", None))
            ok, ran, code = outcome == "success", outcome != "rejected", look(result, "exitCode")
            events += self._reading.ended(call_id, output=_output(result), ok=ok, ran=ran, exit_code=code, at=at)
            if not ran:
                events += self._reading.trouble(text(result, "reason") or f"{tool} was rejected", "permission")
        return events

    def _result(self, seen: dict[str, Any], state: Any) -> Iterator[Event]:
        """The text of a result is all that was ever said, glued together: what was said last is the answer."""
        used = table(seen, "usage")
        # The input of Cursor leaves out what a cache read or wrote.
        figures = input_figures(
            *(number(used, name) for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens"))
        )
        yield from self._spending.more(**figures, output_tokens=number(used, "outputTokens"))
        well = state == "success" and seen.get("is_error") is not True
        yield from self._reading.over(well, text(seen, "result") or f"it reports {state}")


def _words(seen: dict[str, Any]) -> str:
    return "\n".join(filter(None, (text(block, "text") for block in rows(seen, "message", "content"))))


@lru_cache(maxsize=256)
def _tool_name(field: str) -> str:
    return _CAPITAL.sub("-", field.removesuffix(_SUFFIX)).lower()


def _named(call: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """`updateTodosToolCall` is `update-todos`; a tool that it has no field for is a `function` with a name."""
    for name, value in call.items():
        if name.endswith(_SUFFIX) and name != _SUFFIX:
            return _tool_name(name), table(value)
    function = table(call, "function")
    return text(function, "name"), {"args": parse((text(function, "arguments") or "").encode("utf-8", "replace"))}


def _args(call: dict[str, Any]) -> dict[str, Any]:
    args = table(call, "args")
    folder = text(args, "workingDirectory")
    return {**args, "cwd": folder} if folder else args


def _output(result: Any) -> str:
    streams = [text(result, name) for name in ("stdout", "stderr", "content")]
    return "\n".join(filter(None, streams)) or as_text(result)

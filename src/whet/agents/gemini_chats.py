"""The chats that Gemini CLI keeps in its home: exit codes and the work of sub-agents, which it does not print."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from whet.agents.records import as_text, number, parse, rows, table, text

# The chat of the session, and those of its sub-agents in a folder of its name.
CHATS = (".gemini/tmp/*/chats/*.jsonl", ".gemini/tmp/*/chats/*/*.jsonl")
_SHELL = "run_shell_command"
# What follows the output of a command, line by line; its code only where it is not 0.
_OUTPUT = re.compile(r"(?:\A|\n)Output: ")
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,9})$", re.MULTILINE)
_UNKNOWN = re.compile(r"^(?:Signal|Error): ", re.MULTILINE)


class Chats:
    """The calls of a session and of its sub-agents, by the id of each call."""

    def __init__(self, collected: Mapping[str, bytes] | None = None) -> None:
        self._calls: dict[str, dict[str, Any]] = {}
        self._messages: dict[str, dict[str, dict[str, Any]]] = {}
        for data in (collected or {}).values():
            self._take(data)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def exit_code(self, call_id: Any) -> int | None:
        """The exit code of a command; none where it is not known."""
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        return _exit_code(call) if call is not None else None

    def inside(self, call_id: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """What the sub-agent of a call said and called, round by round; once, whoever asks again."""
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        for message in self._messages.pop(text(call, "agentId") or "", {}).values():
            if message.get("type") == "gemini":
                yield as_text(message.get("content")), _calls(message)

    def _take(self, data: bytes) -> None:
        """One file: its first line says whose chat it is; a message that is told again replaces itself."""
        session = ""
        for line in data.splitlines():
            seen = parse(line)
            session = text(seen, "sessionId") or session
            self._keep(session, seen)
            for message in rows(seen, "$set", "messages"):
                self._keep(session, table(message))

    def _keep(self, session: str, message: dict[str, Any]) -> None:
        told = text(message, "id")
        if told is None or text(message, "type") is None:
            return
        self._messages.setdefault(session, {})[told] = message
        for call in _calls(message):
            self._calls[call["id"]] = call


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for call in map(table, rows(message, "toolCalls")) if text(call, "id")]


def _exit_code(call: dict[str, Any]) -> int | None:
    """By what the model was told: the output as it was shown, and lines of the program's own after it."""
    if call.get("name") != _SHELL or call.get("status") != "success":
        return None
    answers = (text(part, "functionResponse", "response", "output") for part in rows(call, "result"))
    told = "\n".join(filter(None, answers))
    found = _OUTPUT.search(told)
    if found is None:
        return None
    rest, shown = told[found.end() :], text(call, "resultDisplay")
    # A command may print such lines as well.
    rest = rest.removeprefix(shown) if shown else rest
    code = _EXIT_CODE.search(rest)
    if code:
        return number(int(code[1]))
    return None if _UNKNOWN.search(rest) else 0

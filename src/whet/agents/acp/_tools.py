"""A tool call over the Agent Client Protocol: it comes in pieces, and says less about the tool than agents know."""

from __future__ import annotations

import re
from typing import Any

from whet.agents.observe.records import as_text, look, number, rows, table, text
from whet.agents.observe.to_events import OpenCall, kind_of

# Our names for what the protocol calls the kinds of tools.
_KINDS = {"execute": "shell", "read": "read", "edit": "edit", "delete": "delete"}
_FOLDERS = frozenset({"cwd", "workdir", "directory", "dir_path"})
_SHELL_FLAGS = ("-c", "-lc")
_BEFORE_ID = re.compile(r"(\w+?)(?:__|-)(?=[^_])")
_QUOTED = re.compile(r'"([\w:-]+)"')
_EXIT_CODE = re.compile(r"Exit code (\d{1,9})\b")
_OUTPUT_KEYS = ("output", "aggregated_output", "content", "stdout", "error", "message")


class ToolState:
    """What is known of one call so far: every update may add to it."""

    def __init__(self) -> None:
        self.began = self.ended = False
        self.status = "pending"
        self._titles: list[str] = []
        self._kind: str | None = None
        self._input: dict[str, Any] = {}
        self._output: Any = None
        self._content: list[Any] = []
        self._locations: list[str] = []
        self._name: str | None = None
        self._response: dict[str, Any] = {}

    def take(self, update: dict[str, Any]) -> None:
        """Take what an update, or a request for permission, says about it."""
        self.status = text(update, "status") or self.status
        self._kind = text(update, "kind") or self._kind
        self._titles += [title] if (title := text(update, "title")) else []
        self._input = table(update, "rawInput") or self._input
        self._output = look(update, "rawOutput") or self._output
        self._content = rows(update, "content") or self._content
        paths = [text(part, "path") for part in (*rows(update, "locations"), *self._content)]
        self._locations = [path for path in dict.fromkeys(paths) if path] or self._locations
        named = text(update, "_meta", "claudeCode", "toolName") or text(update, "_meta", "toolName")
        self._name = named or self._name
        self._response = table(update, "_meta", "claudeCode", "toolResponse") or self._response

    @property
    def ready(self) -> bool:
        """Whether it has begun, or is so far that nothing but its result is missing."""
        return self.status != "pending" or any(name not in _FOLDERS for name in self._input)

    def name(self, call_id: str) -> str:
        """The name of the tool: as the agent tells it, or else what it does; the title is for people."""
        if self._name:
            return self._name
        if isinstance(self._input.get("command"), list):
            return "shell"
        first = self._titles[0] if self._titles else ""
        before = _BEFORE_ID.match(call_id)
        for word in (first, before[1] if before else ""):
            if kind_of(word) is not None:
                return word
        if set(self._input) == {"skill"}:
            return "skill"
        kind = self._kind or "other"
        return _KINDS.get(kind, first or "unknown" if kind == "other" else kind)

    def args(self, call_id: str) -> dict[str, Any]:
        """What the tool was given: its input, or what the title and the places say of it."""
        tool = self.name(call_id)
        args, kind = dict(self._input), kind_of(tool)
        command = args.get("command")
        if isinstance(command, list) and len(command) == 3 and command[1] in _SHELL_FLAGS:  # noqa: PLR2004
            args["command"] = command[2]
        title = self._titles[-1] if self._titles else ""
        if kind == "shell" and not command and title:
            args["command"] = title
        if kind == "skill" and not args and (quoted := _QUOTED.match(title)):
            args["name"] = quoted[1]
        if kind in ("read", "edit") and self._locations and not any(OpenCall(tool, args, None, kind).paths()):
            args["paths"] = list(self._locations)
        return args

    def result(self) -> dict[str, Any]:
        """How it ended, for `Reading.ended`."""
        done, output = self.status == "completed", self._output_text()
        printed = _EXIT_CODE.match(output) if not done else None
        code = int(printed[1]) if printed else self._exit_code(done)
        return {"output": output, "ok": done, "exit_code": code}

    def _output_text(self) -> str:
        if isinstance(self._output, str):
            return self._output
        named = next((look(self._output, key) for key in _OUTPUT_KEYS if look(self._output, key)), None)
        if named is not None:
            return as_text(named)
        return "\n".join(filter(None, (text(part, "content", "text") for part in self._content)))

    def _exit_code(self, done: bool) -> int | None:
        """The exit code of a command, wherever it is said."""
        exits = (number(each, "exitCode") for each in rows(self._output, "contents"))
        places = (look(self._output, "metadata", "exit"), look(self._output, "exit_code"), *exits)
        code = next((each for each in map(number, places) if each is not None), None)
        if code is None and done and "stdout" in self._response:
            # The command worked, unless its code is explained away or it goes on in the background.
            unsure = self._response.get("returnCodeInterpretation") or self._response.get("backgroundTaskId")
            return None if unsure else 0
        return code

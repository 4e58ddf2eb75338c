"""The script of a model: its steps, and the replies and tool calls that they become."""

from __future__ import annotations

import itertools
import json
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, get_args

from msgspec import Struct, field

from whet.reading.text import did_you_mean

Fault = Literal["auth", "model-rejected", "bad-request", "context", "rate-limit", "server", "overloaded"]
# The tools of an agent by their purpose, with their further fields; `call` names a tool.
TOOL_WORDS: dict[str, tuple[str, ...]] = {
    "run": (),
    "read": (),
    "write": ("text",),
    "load_skill": ("path",),
    "call": ("args",),
}


class ScriptError(ValueError):
    """A script that cannot be followed."""


class Tokens(Struct, frozen=True):
    """The usage of a step; cached and written tokens are part of the input, reasoning is part of the output."""

    input: int = 1000
    output: int = 20
    cached: int = 0
    written: int = 0
    reasoning: int = 0


class Step(Struct, frozen=True, kw_only=True):
    """One answer of the model: thoughts, words and tool calls, or a fault; sent whole, in part, or never."""

    say: str = ""
    think: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    usage: Tokens = field(default_factory=Tokens)
    fail: Fault | None = None
    status: int | None = None
    message: str | None = None
    # In seconds. With 0, agents that would wait for minutes try again at once. With None, no header is sent.
    retry_after: float | None = 0
    # After half of the answer, the stream breaks off, or stays open without an end.
    cut: bool = False
    hang: bool = False
    times: int = 1
    always: bool = False


Steps: TypeAlias = Sequence["Step | Mapping[str, Any]"]


def read_step(step: Step | Mapping[str, Any]) -> Step:
    """Read a step as a person wrote it; a tool may be written in the step itself."""
    if isinstance(step, Step):
        return step
    values = dict(step)
    tools = [dict(tool) for tool in values.pop("tools", ())]
    word = next((word for word in TOOL_WORDS if word in values), None)
    if word is not None:
        own = {name: values.pop(name) for name in (word, *TOOL_WORDS[word]) if name in values}
        tools.append(own)
    _only(values, Step.__struct_fields__, "a step")
    for tool in tools:
        _check_tool(tool)
    if values.get("fail") not in (None, *get_args(Fault)):
        raise ScriptError(f'no fault is called "{values["fail"]}"; known: {", ".join(get_args(Fault))}')
    usage = dict(values.pop("usage", {}))
    _only(usage, Tokens.__struct_fields__, "usage")
    return Step(tools=tuple(tools), usage=Tokens(**usage), **values)


def _check_tool(tool: Mapping[str, Any]) -> None:
    words = [word for word in TOOL_WORDS if word in tool]
    if len(words) != 1:
        raise ScriptError(f"a tool has exactly one of {', '.join(TOOL_WORDS)}, and this has {sorted(tool)}")
    _only(tool, [words[0], *TOOL_WORDS[words[0]]], words[0])


def _only(values: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in values:
        if name not in known:
            hint = did_you_mean(name, known) or f"known: {', '.join(known)}"
            raise ScriptError(f'{what} has no "{name}"; {hint}')


class Script:
    """Steps, and how far they have been followed; requests may come from several threads."""

    def __init__(self, steps: Steps) -> None:
        self._steps = [read_step(step) for step in steps]
        self._lock = threading.Lock()
        self._place = 0
        self._taken = 0

    def next(self) -> tuple[int, Step] | None:
        """Return the step whose turn it is, with its number from 1, or None at the end of the script."""
        with self._lock:
            if self._place >= len(self._steps):
                return None
            number, step = self._place + 1, self._steps[self._place]
            self._taken += 1
            if not step.always and self._taken >= step.times:
                self._place, self._taken = self._place + 1, 0
            return number, step


Body: TypeAlias = Mapping[str, Any]
# The name of a server-sent event, if the format has one, and its data.
Frame: TypeAlias = tuple[str | None, Mapping[str, Any] | str]

STATUSES: dict[Fault, int] = {
    "auth": 401,
    "model-rejected": 404,
    "bad-request": 400,
    "context": 400,
    "rate-limit": 429,
    "server": 500,
    "overloaded": 529,
}
_numbers = itertools.count(1)


class OfferedTool(Struct, frozen=True, kw_only=True):
    """A tool as a request offers it; `kind` is "function", or "custom" for one that takes plain text."""

    name: str
    kind: str = "function"
    schema: Mapping[str, Any] = field(default_factory=dict)
    namespace: str | None = None

    @property
    def properties(self) -> Mapping[str, Any]:
        """The schemas of the tool's arguments, by name."""
        properties: Mapping[str, Any] = self.schema.get("properties") or {}
        return properties


class Call(Struct, frozen=True, kw_only=True):
    """A call of an offered tool, with a new id."""

    tool: OfferedTool
    args: Mapping[str, Any]
    id: str = field(default_factory=lambda: new_id("call"))


class Reply(Struct, frozen=True, kw_only=True):
    """What the model answers."""

    model: str
    think: str
    say: str
    calls: tuple[Call, ...]
    usage: Tokens


class Wire(Protocol):
    """A wire format: how it offers tools, how it answers at once, in pieces, and with an error."""

    name: str

    def tools(self, body: Body) -> list[OfferedTool]:
        """The tools that a request offers."""

    def message(self, reply: Reply) -> Mapping[str, Any]:
        """The answer in one piece."""

    def frames(self, reply: Reply, body: Body, /) -> Iterator[Frame]:
        """The answer as a stream."""

    def error(self, fault: Fault, status: int, message: str | None, model: str, /) -> Mapping[str, Any]:
        """The body of an error."""


def new_id(prefix: str) -> str:
    """Return an id that no other answer of this process has."""
    return f"{prefix}_scripted{next(_numbers):06d}"


def pieces(text: str) -> list[str]:
    """Split a text in two, as a stream does."""
    middle = (len(text) + 1) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


_NAMES = {
    "run": ("Bash", "bash", "shell", "exec_command", "shell_command", "local_shell", "run_shell_command"),
    "read": ("Read", "read", "read_file", "view"),
    "write": ("Write", "write", "write_file", "create", "create_file"),
    "load_skill": ("Skill", "skill", "activate_skill", "load_skill"),
}
_COMMAND = ("command", "cmd")
_PATH = ("file_path", "filePath", "path", "absolute_path")
_TEXT = ("content", "file_text", "contents", "text")
_SKILL = ("skill", "name", "command", "skill_name")
# Values of required arguments that the script does not mention.
_FILLERS: dict[str, Any] = {"number": 10_000, "integer": 10_000, "boolean": False, "array": [], "object": {}}


def calls_of(wanted: Sequence[Mapping[str, Any]], offered: Sequence[OfferedTool]) -> list[Call]:
    """Return a call for each tool of a step."""
    by_name = {tool.name: tool for tool in offered}
    return [_call(tool, by_name) for tool in wanted]


def _call(wanted: Mapping[str, Any], offered: Mapping[str, OfferedTool]) -> Call:
    if "call" in wanted:
        name = str(wanted["call"])
        return Call(tool=offered.get(name, OfferedTool(name=name)), args=wanted.get("args", {}))
    word = next(word for word in _NAMES if word in wanted)
    tool = next((offered[name] for name in _NAMES[word] if name in offered), None)
    if tool is None:
        return _without(word, wanted, offered)
    return Call(tool=tool, args=_filled(tool, _args(word, wanted, tool)))


def _args(word: str, wanted: Mapping[str, Any], tool: OfferedTool) -> dict[str, Any]:
    match word:
        case "run":
            return _command_args(str(wanted["run"]), tool)
        case "read":
            return {_named(tool, _PATH): wanted["read"]}
        case "write":
            return {_named(tool, _PATH): wanted["write"], _named(tool, _TEXT): wanted.get("text", "")}
        case _:
            return {_named(tool, _SKILL): wanted["load_skill"]}


def _command_args(command: str, tool: OfferedTool) -> dict[str, Any]:
    name = _named(tool, _COMMAND)
    as_words = tool.properties.get(name, {}).get("type") == "array" or tool.kind == "local_shell"
    args: dict[str, Any] = {name: ["bash", "-lc", command] if as_words else command}
    if "description" in tool.properties:
        args["description"] = "Run a command"
    return args


def _without(word: str, wanted: Mapping[str, Any], offered: Mapping[str, OfferedTool]) -> Call:
    """Call another tool instead, as a model does: the shell, a patch, or a program that calls either."""
    if word == "write" and "apply_patch" in offered:
        return Call(tool=offered["apply_patch"], args={"input": _patch(wanted)})
    if "exec" in offered:
        return Call(tool=offered["exec"], args={"input": _program(word, wanted)})
    if word != "run" and any(name in offered for name in _NAMES["run"]):
        return _call({"run": _shell_for(word, wanted)}, offered)
    raise ScriptError(f'"{word}" needs a tool, and the request offers none for it: {", ".join(sorted(offered))}')


def _shell_for(word: str, wanted: Mapping[str, Any]) -> str:
    if word == "write":
        return f"printf %s {shlex.quote(str(wanted.get('text', '')))} > {shlex.quote(str(wanted['write']))}"
    if word == "read":
        return f"cat {shlex.quote(str(wanted['read']))}"
    # In double quotes, so that the shell of the agent fills in "$HOME" and "$CODEX_HOME".
    return f'cat "{wanted.get("path") or ".agents/skills/" + str(wanted["load_skill"]) + "/SKILL.md"}"'


def _program(word: str, wanted: Mapping[str, Any]) -> str:
    """JavaScript, for the models of Codex that write programs instead of calls."""
    if word == "write":
        return f"text(await tools.apply_patch({json.dumps(_patch(wanted))}));\n"
    command = str(wanted["run"]) if word == "run" else _shell_for(word, wanted)
    return f"const done = await tools.exec_command({{cmd: {json.dumps(command)}}});\ntext(done.output ?? '');\n"


def _patch(wanted: Mapping[str, Any]) -> str:
    lines = "\n".join(f"+{line}" for line in str(wanted.get("text", "")).rstrip("\n").split("\n"))
    return f"*** Begin Patch\n*** Add File: {wanted['write']}\n{lines}\n*** End Patch\n"


def _named(tool: OfferedTool, names: Sequence[str]) -> str:
    return next((name for name in names if name in tool.properties), names[0])


def _filled(tool: OfferedTool, args: dict[str, Any]) -> dict[str, Any]:
    for name in tool.schema.get("required") or ():
        if name not in args:
            args[name] = filler(tool.properties.get(name) or {})
    return args


def filler(schema: Mapping[str, Any]) -> Any:
    """Return a value that *schema* accepts."""
    if schema.get("enum"):
        return schema["enum"][0]
    return _FILLERS.get(str(schema.get("type")), "scripted")

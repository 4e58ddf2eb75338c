"""From what a script wants done to a call of a tool that the agent offers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from whet.testing.model.reply import Call, Tool
from whet.testing.model.script import ScriptError

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
# What stands for an argument that must be there and that the script says nothing about.
_FILLERS: dict[str, Any] = {"number": 10_000, "integer": 10_000, "boolean": False, "array": [], "object": {}}


def calls_of(wanted: Sequence[Mapping[str, Any]], offered: Sequence[Tool]) -> list[Call]:
    """A call for each tool of a step."""
    by_name = {tool.name: tool for tool in offered}
    return [_call(tool, by_name) for tool in wanted]


def _call(wanted: Mapping[str, Any], offered: Mapping[str, Tool]) -> Call:
    if "call" in wanted:
        name = str(wanted["call"])
        return Call(tool=offered.get(name, Tool(name=name)), args=wanted.get("args", {}))
    word = next(word for word in _NAMES if word in wanted)
    tool = next((offered[name] for name in _NAMES[word] if name in offered), None)
    if tool is None:
        return _without(word, wanted, offered)
    return Call(tool=tool, args=_filled(tool, _args(word, wanted, tool)))


def _args(word: str, wanted: Mapping[str, Any], tool: Tool) -> dict[str, Any]:
    match word:
        case "run":
            return _command_args(str(wanted["run"]), tool)
        case "read":
            return {_named(tool, _PATH): wanted["read"]}
        case "write":
            return {_named(tool, _PATH): wanted["write"], _named(tool, _TEXT): wanted.get("text", "")}
        case _:
            return {_named(tool, _SKILL): wanted["load_skill"]}


def _command_args(command: str, tool: Tool) -> dict[str, Any]:
    name = _named(tool, _COMMAND)
    as_words = tool.properties.get(name, {}).get("type") == "array" or tool.kind == "local_shell"
    args: dict[str, Any] = {name: ["bash", "-lc", command] if as_words else command}
    if "description" in tool.properties:
        args["description"] = "Run a command"
    return args


def _without(word: str, wanted: Mapping[str, Any], offered: Mapping[str, Tool]) -> Call:
    """What a model does without such a tool: it takes the shell, a patch, or a program that calls either."""
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
    # In double quotes, so that "$HOME" and "$CODEX_HOME" are where the agent has them.
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


def _named(tool: Tool, names: Sequence[str]) -> str:
    return next((name for name in names if name in tool.properties), names[0])


def _filled(tool: Tool, args: dict[str, Any]) -> dict[str, Any]:
    for name in tool.schema.get("required") or ():
        if name not in args:
            args[name] = filler(tool.properties.get(name) or {})
    return args


def filler(schema: Mapping[str, Any]) -> Any:
    """Something that *schema* accepts."""
    if schema.get("enum"):
        return schema["enum"][0]
    return _FILLERS.get(str(schema.get("type")), "scripted")

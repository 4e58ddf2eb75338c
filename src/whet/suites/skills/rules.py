"""The rules for a skill: each has a name, a level and a reason, and finds what is wrong with a folder.

What agentskills.io asks for is an error, since some agents do not load the skill then; what only makes a skill worse is
a warning. docs/reference/skill-rules.md lists them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from whet.errors import Problem
from whet.reading.documents import Node
from whet.reading.skill_manifest import LARGEST, SkillText, manifest_text, take_apart
from whet.reading.text import did_you_mean, shown
from whet.suites.skills.files import link_findings, script_findings
from whet.workspace.make import MANIFEST

Level = Literal["error", "warning"]


class Rule(Struct, frozen=True):
    """A rule for skills: its level, and the reason for it."""

    level: Level
    reason: str


RULES: dict[str, Rule] = {
    "file-name": Rule("error", "agents look for SKILL.md, and on Linux skill.md is another file"),
    "readable": Rule("error", "an agent that cannot read the file does not load the skill"),
    "front-matter": Rule("error", "agents read name and description from YAML between two lines of three dashes"),
    "name": Rule("error", "agents list a skill by its name, and agentskills.io says what it may be"),
    "name-folder": Rule("warning", "agentskills.io asks for one name; some agents list a skill by its folder"),
    "description": Rule("error", "an agent decides by the description alone whether to load the skill"),
    "field-type": Rule("warning", "agentskills.io says what the optional fields hold, and agents may ignore others"),
    "unknown-field": Rule("warning", "no agent that whet knows reads the field, so it is most likely a slip"),
    "allowed-tools": Rule("warning", "a tool that does not exist is never allowed, so the agent asks each time"),
    "size": Rule("warning", "all of it is in the context from the moment that the skill is loaded"),
    "link": Rule("warning", "an agent that follows the link finds nothing"),
    "script": Rule("warning", "without a run bit, ./script fails, and an agent spends a step on finding out why"),
    "leak": Rule("warning", "an agent that has read the answer passes the case without being able to do the task"),
}
_LONGEST_NAME, _LONGEST_DESCRIPTION, _LONGEST_COMPATIBILITY = 64, 1024, 500
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# Of agentskills.io, and what Claude Code reads besides.
_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_FIELDS_OF_AGENTS = (
    *("disable-model-invocation", "user-invocable", "argument-hint", "arguments", "model", "effort", "context"),
    *("agent", "hooks", "paths", "shell", "when_to_use", "version", "disallowed-tools"),
)
# The tools of Claude Code, the only agent that reads the field.
_TOOLS = (
    *("Agent", "AskUserQuestion", "Bash", "BashOutput", "Edit", "EnterPlanMode", "EnterWorktree", "ExitPlanMode"),
    *("ExitWorktree", "Glob", "Grep", "KillBash", "KillShell", "LS", "LSP", "ListMcpResourcesTool", "Monitor"),
    *("MultiEdit", "NotebookEdit", "NotebookRead", "PowerShell", "Read", "ReadMcpResourceTool", "SendMessage"),
    *("Skill", "SlashCommand", "Task", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate"),
    *("TodoRead", "TodoWrite", "ToolSearch", "WebFetch", "WebSearch", "Write"),
)
_TOOL = re.compile(r"[^\s,()]+(?:\([^()\n]{0,300}\))?")
_NO_TEXT = re.compile("[\0\ufffd]")
_SERVER = "mcp__"
_MOST_TOKENS, _MOST_LINES = 5_000, 500
_BYTES_OF_TOKEN = 4


class SkillReport(Struct, frozen=True, kw_only=True):
    """What the rules found of the skill in a folder, and how many tokens its manifest has, roughly."""

    manifest: Path
    name: str
    tokens: int
    findings: tuple[Problem, ...]

    def of_level(self, level: Level) -> tuple[Problem, ...]:
        """Return the findings of the rules of that level."""
        return tuple(problem for problem in self.findings if RULES[problem.rule or ""].level == level)


def wrong_manifest(folder: Path) -> Path | None:
    """Return the manifest of a skill in *folder* whose name has the wrong case, if no other is there."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.lower() == MANIFEST.lower()]
    except OSError:
        return None
    return folder / min(names) if names and MANIFEST not in names else None


def check_skill(folder: Path) -> SkillReport:
    """Hold the skill in *folder* against all rules."""
    manifest = wrong_manifest(folder) or folder / MANIFEST
    try:
        text = manifest_text(manifest)
    except OSError as error:
        finding = _problem(manifest, "readable", f"cannot be read: {error.strerror}")
        return SkillReport(manifest=manifest, name=folder.name, tokens=0, findings=(finding,))
    skill = take_apart(text)
    values = skill.front.plain() if skill.front is not None else {}
    name = values.get("name")
    return SkillReport(
        manifest=manifest,
        name=name if isinstance(name, str) else folder.name,
        tokens=len(text.encode()) // _BYTES_OF_TOKEN,
        findings=tuple(_findings(manifest, skill, values)),
    )


def _problem(manifest: Path, rule: str, message: str, line: int = 0, hint: str | None = None) -> Problem:
    place = f"line {line}" if line else None
    return Problem(file=str(manifest), field=place, message=message, hint=hint, rule=rule)


def _findings(manifest: Path, skill: SkillText, values: dict[str, Any]) -> Iterator[Problem]:
    if manifest.name != MANIFEST:
        yield _problem(
            manifest, "file-name", f"must be called {MANIFEST}", hint=f"mv {manifest} {manifest.parent / MANIFEST}"
        )
    if (broken := _NO_TEXT.search(skill.text)) is not None:
        place = broken.start()
        yield _problem(manifest, "readable", "is not text in UTF-8", skill.text.count("\n", 0, place) + 1)
        return
    if skill.trouble is not None:
        error = skill.trouble
        yield _problem(manifest, "front-matter", error.message, error.line or 1, error.hint)
        return
    if skill.front is None:
        hint = "begin with a line ---, then name and description, then a line ---"
        yield _problem(manifest, "front-matter", "has no front matter", 1, hint)
    else:
        for repeat in skill.repeats:
            message = f"has the key {shown(repeat.key)} a second time; the first is in line {repeat.first}"
            yield _problem(manifest, "front-matter", message, repeat.line, "agents refuse it, or take the last one")
        yield from _name_findings(manifest, skill.front, values.get("name"))
        yield from _description_findings(manifest, skill.front, values.get("description"))
        yield from _field_findings(manifest, skill.front, values)
        yield from _tool_findings(manifest, skill.front, values.get("allowed-tools"))
    yield from _size_findings(manifest, skill)
    for rule, line, message in (
        *link_findings(manifest.parent, skill.body),
        *script_findings(manifest.parent, skill.body),
    ):
        yield _problem(manifest, rule, message, line + skill.body_line - 1 if line else 0)


def _line(front: Node, name: str) -> int:
    return front.at(name).line


def _name_findings(manifest: Path, front: Node, name: object) -> Iterator[Problem]:
    if name is None or name == "":
        yield _problem(manifest, "name", "has no name", hint=f"name: {manifest.parent.name}")
        return
    if not isinstance(name, str):
        yield _problem(manifest, "name", f"the name must be a text, not {shown(name)}", _line(front, "name"))
        return
    line = _line(front, "name")
    if len(name) > _LONGEST_NAME:
        yield _problem(manifest, "name", f"the name has {len(name)} characters, and may have {_LONGEST_NAME}", line)
    if not _NAME.fullmatch(name):
        words = "lower-case letters, digits and single hyphens between them"
        yield _problem(manifest, "name", f"the name {shown(name)} may have only {words}", line)
    folder = manifest.parent.resolve()
    # The folder of a clone may be called anything.
    if folder.name != name and not (folder / ".git").exists():
        message = f"the name is {shown(name)}, and the folder is called {shown(folder.name)}"
        yield _problem(manifest, "name-folder", message, line, "give both one name")


def _description_findings(manifest: Path, front: Node, description: object) -> Iterator[Problem]:
    if description is None or (isinstance(description, str) and not description.strip()):
        hint = "say what the skill does and when to use it"
        yield _problem(manifest, "description", "has no description", hint=hint)
    elif not isinstance(description, str):
        message = f"the description must be a text, not {shown(description)}"
        yield _problem(manifest, "description", message, _line(front, "description"))
    elif len(description) > _LONGEST_DESCRIPTION:
        message = f"the description has {len(description):,} characters, and may have {_LONGEST_DESCRIPTION:,}"
        yield _problem(manifest, "description", message, _line(front, "description"))


def _field_findings(manifest: Path, front: Node, values: dict[str, Any]) -> Iterator[Problem]:
    for name, value in values.items():
        if name not in _FIELDS and name not in _FIELDS_OF_AGENTS:
            hint = did_you_mean(str(name), (*_FIELDS, *_FIELDS_OF_AGENTS)) or f"known: {', '.join(_FIELDS)}"
            yield _problem(
                manifest, "unknown-field", f"{shown(name)} is not a known field", _line(front, str(name)), hint
            )
        elif (why := _why_unfit(name, value)) is not None:
            yield _problem(manifest, "field-type", f"{name} {why}", _line(front, name))


def _why_unfit(name: str, value: object) -> str | None:
    """Return why *value* is not what the optional field *name* may hold."""
    if value is None:
        return None
    if name in ("license", "compatibility") and not isinstance(value, str):
        return f"must be a text, not {shown(value)}"
    if name == "compatibility" and len(str(value)) > _LONGEST_COMPATIBILITY:
        return f"has {len(str(value)):,} characters, and may have {_LONGEST_COMPATIBILITY}"
    if name == "metadata" and not isinstance(value, dict):
        return f"must be a map of texts, not {shown(value)}"
    if name == "metadata" and isinstance(value, dict) and not all(map(_is_text, value.values())):
        return "must be a map of texts: put its values into quotes"
    return None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _tool_findings(manifest: Path, front: Node, tools: object) -> Iterator[Problem]:
    if tools is None:
        return
    line = _line(front, "allowed-tools")
    if not isinstance(tools, str | list):
        yield _problem(manifest, "allowed-tools", f"must be a text or a list of tools, not {shown(tools)}", line)
        return
    words: Iterable[object] = _TOOL.findall(tools) if isinstance(tools, str) else tools
    for word in words:
        name = str(word).partition("(")[0].strip()
        if name not in _TOOLS and not name.startswith(_SERVER):
            hint = did_you_mean(name, _TOOLS)
            yield _problem(manifest, "allowed-tools", f"there is no tool called {shown(name)}", line, hint)


def _size_findings(manifest: Path, skill: SkillText) -> Iterator[Problem]:
    tokens, lines = len(skill.body.encode()) // _BYTES_OF_TOKEN, skill.body.count("\n") + 1
    if len(skill.text.encode()) >= LARGEST:
        message = f"has more than {LARGEST // 1024**2} MiB, and whet looked only at the first one"
    elif tokens > _MOST_TOKENS:
        message = f"has about {tokens:,} tokens, and {_MOST_TOKENS:,} are the most that is recommended"
    elif lines > _MOST_LINES:
        message = f"has {lines:,} lines, and {_MOST_LINES} are the most that is recommended"
    else:
        return
    yield _problem(manifest, "size", message, hint="move what is not always needed into files that the skill names")

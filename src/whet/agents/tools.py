"""What tools mean, for every agent: which of them run, read, edit or load a skill, and what a call came to.

An adapter keeps one `Calls` per session and tells it what it finds in the agent's records; every method gives the
events to pass on. A `Reading` also holds words back until it is known whether they were the last. `parse`, `text`,
`table`, `rows` and `number` take foreign values, which may be anything, and look further in by name.
"""

from __future__ import annotations

import json
import math
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from whet.model.session import (
    CommandRun,
    Event,
    FileEdit,
    FileRead,
    FinalOutput,
    Message,
    MessagePhase,
    SkillSignal,
    ToolCall,
    ToolResult,
    Trouble,
    TroubleKind,
    UsageSeen,
)
from whet.shell import SimpleCommand, read_command

Kind = Literal["shell", "read", "edit", "skill"]
# By the name in small letters, since programs differ in no more than that.
_NAMES: dict[Kind, str] = {
    "shell": "bash shell local_shell exec_command command_execution run_shell_command run_terminal_cmd terminal",
    "read": "read read_file read_many_files view notebookread open_file",
    "edit": "write edit multiedit notebookedit write_file replace edit_file create create_file str_replace insert "
    "apply_patch patch delete delete_file search_replace",
    "skill": "skill activate_skill load_skill use_skill",
}
_KINDS: dict[str, Kind] = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEYS = ("file_path", "filePath", "path", "absolute_path", "notebook_path", "target_file", "filename")
_PATHS_KEYS = ("paths", "include", "files", "changes")
_SKILL_KEYS = ("skill", "name", "skill_name", "command")
_PATCH_KEYS = ("patch", "input", "patchText")
_FOLDER_KEYS = ("workdir", "cwd", "directory", "dir_path")
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)


def kind_of(tool: str) -> Kind | None:
    """What *tool* does, or none where that is nobody's business."""
    return _KINDS.get(tool.lower())


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that was asked for and has not answered yet."""

    tool: str
    args: Any
    id: str | None = None

    @property
    def command(self) -> str | None:
        """The line that a shell was given."""
        if kind_of(self.tool) != "shell":
            return None
        given = _first(self.args, _COMMAND_KEYS) if isinstance(self.args, dict) else self.args
        if isinstance(given, list):
            return command_line([str(word) for word in given]) or None
        return text(given)

    @property
    def folder(self) -> str:
        """Where it was to happen, if not in the workspace."""
        return text(_first(self.args, _FOLDER_KEYS)) or ""

    @property
    def skill(self) -> str | None:
        """The skill that was asked for; `plugin:skill` is the same skill as `skill`."""
        if kind_of(self.tool) != "skill":
            return None
        named = text(_first(self.args, _SKILL_KEYS)) or text(self.args) or ""
        words = named.split()
        return words[0].rsplit(":", 1)[-1].lstrip("/") or None if words else None

    def paths(self) -> Iterator[str]:
        """The files that its arguments name: in a field, in a list, or in a patch."""
        single = text(self.args) if isinstance(self.args, str) else text(_first(self.args, _PATCH_KEYS))
        if single and "*** " in single:
            yield from (found.strip() for found in _PATCHED.findall(single))
            return
        path = text(_first(self.args, _PATH_KEYS))
        if path:
            yield path
            return
        for item in rows(_first(self.args, _PATHS_KEYS)):
            named = text(item) or text(_first(item, _PATH_KEYS))
            if named:
                yield named


class Calls:
    """The calls of one session: what each came to is told when its result is there."""

    def __init__(self, workspace: str = "") -> None:
        # Paths below it are told as seen from it, whichever way an agent writes them.
        self.workspace = workspace
        self._open: dict[str, Call] = {}

    def began(self, call_id: Any, tool: Any, args: Any, *, at: Any = None) -> Iterator[Event]:
        """The model asked for a tool."""
        call = Call(text(tool) or "unknown", args, text(call_id))
        if call.id is not None:
            self._open[call.id] = call
        yield ToolCall(tool=call.tool, id=call.id, args=args, at=text(at))

    def ended(
        self,
        call_id: Any,
        *,
        output: Any = "",
        ok: bool | None = None,
        exit_code: Any = None,
        ran: bool = True,
        at: Any = None,
    ) -> Iterator[Event]:
        """A tool gave its result; `ran=False` where it was refused, so that it did nothing."""
        call = self._open.pop(text(call_id) or "", None)
        if call is not None and ran:
            yield from self._deeds(call, ok, number(exit_code), text(at))
        yield ToolResult(
            id=text(call_id),
            tool=call.tool if call else None,
            output=as_text(output),
            ok=ok if ran else False,
            at=text(at),
        )

    def left(self) -> Iterator[Event]:
        """What is left when the session is over: commands that were cut off while they ran."""
        for call in self._open.values():
            if call.command:
                yield CommandRun(command=call.command)
        self._open.clear()

    def is_open(self, call_id: Any) -> bool:
        """Whether a call with this id waits for its result."""
        return text(call_id) in self._open

    def _deeds(self, call: Call, ok: bool | None, exit_code: int | None, at: str | None) -> Iterator[Event]:
        """What a call did; one that failed read, wrote and loaded nothing."""
        command, skill, kind = call.command, call.skill, kind_of(call.tool)
        if command:
            yield CommandRun(command=command, exit_code=exit_code, at=at)
            for path in shell_reads(command, exit_code):
                yield FileRead(path=self._path(path, call.folder), at=at)
        elif ok is False:
            return
        elif skill:
            yield SkillSignal(skill=skill, signal=f"tool:{call.tool.lower()}", at=at)
        elif kind == "read":
            yield from (FileRead(path=self._path(path, call.folder), at=at) for path in call.paths())
        elif kind == "edit":
            yield from (FileEdit(path=self._path(path, call.folder), at=at) for path in call.paths())

    def _path(self, path: str, folder: str) -> str:
        if path.startswith(("~", "$")):
            return path
        whole = posixpath.normpath(posixpath.join(self.workspace, folder, path))
        inside = self.workspace.rstrip("/") + "/"
        return whole[len(inside) :] if self.workspace and whole.startswith(inside) else whole


class Reading(Calls):
    """Calls, and words that are held back until it is known whether they were the last."""

    def __init__(self, workspace: str = "") -> None:
        super().__init__(workspace)
        self._held: Message | None = None
        self._last: str | None = None

    def began(self, call_id: Any, tool: Any, args: Any, *, at: Any = None) -> Iterator[Event]:
        """Words before a call were not the last."""
        yield from self.settle()
        yield from super().began(call_id, tool, args, at=at)

    def ended(self, call_id: Any, **told: Any) -> Iterator[Event]:
        """Nor were words before a result."""
        yield from self.settle()
        yield from super().ended(call_id, **told)

    def left(self) -> Iterator[Event]:
        """Words after which nothing came were not an answer, or it would have been announced."""
        yield from self.settle()
        yield from super().left()

    def thought(self, words: Any, *, at: Any = None) -> Iterator[Event]:
        """The model thought."""
        thought = text(words)
        if thought:
            yield from self.settle()
            yield Message(role="assistant", phase="thinking", text=thought, at=text(at))

    def said(self, words: Any, *, at: Any = None) -> Iterator[Event]:
        """The model said something."""
        said = text(words)
        if said:
            yield from self.settle()
            self._held = Message(role="assistant", text=said, at=text(at))

    def blocks(self, content: list[Any], *, at: Any = None) -> Iterator[Event]:
        """A reply in blocks: thoughts, words and calls."""
        for block in content:
            match look(block, "type"):
                case "thinking":
                    yield from self.thought(look(block, "thinking"), at=at)
                case "text":
                    yield from self.said(look(block, "text"), at=at)
                case "tool_use":
                    yield from self.began(look(block, "id"), look(block, "name"), look(block, "input"), at=at)
                case _:
                    pass

    def trouble(self, message: Any, kind: TroubleKind, status: Any = None, *, at: Any = None) -> Iterator[Event]:
        """Something went wrong; it comes after the words that were held back, since those do not show it overcome."""
        yield from self.settle()
        yield Trouble(message=as_text(message) or kind, kind=kind, status=number(status), at=text(at))

    def answered(self, words: Any = None, *, at: Any = None) -> Iterator[Event]:
        """The session ended well: what was said last is the answer, unless the agent names another."""
        yield from self.settle(final=True)
        answer = text(words) or self._last
        if answer is not None:
            yield FinalOutput(text=answer, at=text(at))

    def settle(self, *, final: bool = False) -> Iterator[Event]:
        """Pass on the words that were held back, now that it is known what they were."""
        held, self._held = self._held, None
        if held is not None:
            self._last = held.text
            phase: MessagePhase = "final" if final else "commentary"
            yield Message(role="assistant", phase=phase, text=held.text, at=held.at)


class Spending:
    """Tokens and money told so far, so that totals which come later are not counted twice."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def more(self, **amounts: Any) -> Iterator[Event]:
        """So much more was spent; the names are those of `UsageSeen`."""
        known = {name: value for name, value in amounts.items() if amount(value) is not None}
        for name, value in known.items():
            self._told[name] = self._told.get(name, 0) + value
        if known:
            yield UsageSeen(**known)

    def total(self, **amounts: Any) -> Iterator[Event]:
        """So much was spent in all; what was told before is part of it."""
        known = {name: value for name, value in amounts.items() if amount(value) is not None}
        yield from self.more(**{name: max(0, value - self._told.get(name, 0)) for name, value in known.items()})

    def anew(self) -> None:
        """Later totals begin at nothing."""
        self._told.clear()


@dataclass(frozen=True, slots=True)
class _Reader:
    """A program that shows files: its options with a value, and whether its first operand is a pattern or a script."""

    valued: str = ""
    valued_long: tuple[str, ...] = ()
    # The options that give the pattern or script, so that every operand is a file.
    script: str = ""
    has_script: bool = False
    # Takes folders as well as files.
    searches: bool = False


_LONG_SEARCH = ("--after-context", "--before-context", "--context", "--max-count", "--glob", "--type", "--type-not")
_SEARCH = ("--regexp", "--file", "--include", "--exclude", "--exclude-dir", *_LONG_SEARCH)
_GREP = _Reader("efABCmdD", _SEARCH, "ef", has_script=True)
_READERS: dict[str, _Reader] = {
    **dict.fromkeys(("cat", "tac", "more", "batcat"), _Reader()),
    "bat": _Reader("rlHm", ("--line-range", "--language", "--style", "--theme", "--highlight-line", "--color")),
    "less": _Reader("pPtTxjDkoO"),
    "nl": _Reader("bdfhilnsvw"),
    "head": _Reader("nc", ("--lines", "--bytes")),
    "tail": _Reader("ncs", ("--lines", "--bytes", "--sleep-interval", "--pid")),
    "sed": _Reader("efl", ("--expression", "--file", "--line-length"), "ef", has_script=True),
    **dict.fromkeys(("awk", "gawk", "mawk"), _Reader("Fvf", ("--field-separator", "--assign", "--file"), "f", True)),
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _GREP),
    "rg": _Reader("efABCmgtTMjEr", (*_SEARCH, "--replace", "--max-columns"), "ef", has_script=True, searches=True),
}
_NOT_A_PATH = re.compile(r"[*?`(){}\[\]<>|\n]|^-$")
# A search that finds nothing looked all the same.
_FOUND_NOTHING = 1


def shell_reads(line: str, exit_code: int | None = None) -> Iterator[str]:
    """The files that a command line shows, each once; a lone command that failed showed none."""
    commands = read_command(line)
    if len(commands) == 1 and exit_code and not (_searches(commands[0]) and exit_code == _FOUND_NOTHING):
        return
    folder = ""
    seen: set[str] = set()
    for command in commands:
        if command.name == "cd":
            folder = posixpath.join(folder, next((word for word in command.words if not word.startswith("-")), "~"))
        for operand in _operands(command):
            path = operand if operand.startswith(("~", "$")) else posixpath.join(folder, operand)
            if path not in seen and _is_path(path):
                seen.add(path)
                yield path


def _searches(command: SimpleCommand) -> bool:
    return _READERS.get(command.name) is _GREP or command.name == "rg"


def _is_path(path: str) -> bool:
    """Whether it is clear what file is meant: a variable or home may stand in front only."""
    front, _, rest = path.partition("/")
    unclear = _NOT_A_PATH.search(path) or "$" in rest or (not rest and front.startswith(("$", "~")))
    return not unclear and not path.startswith("/dev/")


def _operands(command: SimpleCommand) -> Iterator[str]:
    """The files among the words of a program that shows files."""
    reader = _READERS.get(command.name)
    if reader is None or _edits_or_lists(command):
        return
    found, script_given = _split(reader, command.words)
    files = found if script_given or not reader.has_script else found[1:]
    many = reader.searches or (reader is _GREP and _has_letter(command.words, "rR"))
    # Where folders are searched too, only a name with an ending is taken for a file.
    yield from (file for file in files if not many or "." in posixpath.basename(file).lstrip("."))
    yield from (turn[1:] for turn in command.redirections if re.match(r"<[^<&(>]", turn))


def _edits_or_lists(command: SimpleCommand) -> bool:
    """`sed -i` writes, and `rg --files` only lists."""
    if command.name == "sed":
        return any(word.startswith(("-i", "--in-place")) for word in command.words)
    return command.name == "rg" and "--files" in command.words


def _has_letter(words: tuple[str, ...], letters: str) -> bool:
    short = (word for word in words if word.startswith("-") and not word.startswith("--"))
    return "--recursive" in words or any(letter in word for word in short for letter in letters)


def _split(reader: _Reader, words: tuple[str, ...]) -> tuple[list[str], bool]:
    """The operands, and whether an option gave the pattern or script."""
    operands: list[str] = []
    script_given = skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word == "--":
            return operands + list(words[index + 1 :]), script_given
        elif word.startswith("--"):
            name, has_value, _ = word.partition("=")
            skip = not has_value and name in reader.valued_long
            script_given = script_given or (reader.has_script and name in ("--regexp", "--expression", "--file"))
        elif word.startswith("-") and word != "-":
            at = next((at for at, letter in enumerate(word) if letter in reader.valued), None)
            skip = at is not None and at == len(word) - 1
            script_given = script_given or (at is not None and word[at] in reader.script)
        elif not word.startswith("+"):
            operands.append(word)
    return operands, script_given


_SHELLS = re.compile(r"(?:\S*/)?(?:ba|z|da|k|)sh$")
_WRAPPED = re.compile(r"\S*sh -[a-z]*c ")
# Nearly all of them; a word with quotes in its quotes takes longer to read.
_PLAINLY_WRAPPED = re.compile(r"(?:\S*/)?(?:ba|z|da|k|)sh -[a-z]*c (?:'([^']*)'|\"([^\"\\$`]*)\"|(\w+))")
_SCRIPT_OPTION = re.compile(r"-[a-z]*c$")


def command_line(words: list[str]) -> str:
    """The line that *words* run: the script itself where they are a shell with one."""
    if len(words) == len(("sh", "-c", "script")) and _SHELLS.match(words[0]) and _SCRIPT_OPTION.match(words[1]):
        return words[2]
    return shlex.join(words)


def unwrapped(command: str) -> str:
    """The script of a line that is nothing but a shell with a script, as some programs put around every command."""
    if not _WRAPPED.match(command):
        return command
    plain = _PLAINLY_WRAPPED.fullmatch(command)
    if plain:
        return plain[1] or plain[2] or plain[3] or ""
    try:
        return command_line(shlex.split(command))
    except ValueError:
        return command


def parse(record: bytes) -> dict[str, Any]:
    """One line of JSON as an object; empty where it is anything else."""
    try:
        value = msgspec.json.decode(record)
    except (ValueError, RecursionError):
        # Half of a surrogate pair, where a program cut its text: the rest of the record counts.
        try:
            loose = json.loads(record.decode("utf-8", "replace"), strict=False)
            value = msgspec.json.decode(json.dumps(loose, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def look(value: Any, *names: str) -> Any:
    """What lies under *names* in objects within objects, or none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text(value: Any, *names: str) -> str | None:
    """A text that is not empty, or none."""
    found = look(value, *names) if names else value
    return found if isinstance(found, str) and found else None


def table(value: Any, *names: str) -> dict[str, Any]:
    """An object, or an empty one."""
    found = look(value, *names)
    return found if isinstance(found, dict) else {}


def rows(value: Any, *names: str) -> list[Any]:
    """A list, or an empty one."""
    found = look(value, *names)
    return found if isinstance(found, list) else []


def number(value: Any, *names: str) -> int | None:
    """A whole number, or none; none is as large as to need more than 63 bits."""
    found = look(value, *names) if names else value
    whole = isinstance(found, int) and not isinstance(found, bool) and abs(found) < 1 << 63
    return found if whole else None


def amount(value: Any, *names: str) -> float | None:
    """A number that may have a fraction, or none."""
    found = look(value, *names)
    return found if isinstance(found, float) and math.isfinite(found) else number(found)


def as_text(value: Any) -> str:
    """Whatever a tool gave back as text: the texts of a list of blocks, or JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        return "\n".join(as_text(table(item).get("text", item)) for item in value)
    return json.dumps(value, ensure_ascii=False)


_STATUSES: dict[int, TroubleKind] = {
    400: "bad-request",
    401: "auth",
    402: "auth",
    403: "auth",
    404: "model-rejected",
    408: "network",
    413: "bad-request",
    422: "bad-request",
    429: "rate-limit",
    503: "overloaded",
    529: "overloaded",
}
_SERVER_ERRORS = range(500, 600)


def status_kind(status: int | None) -> TroubleKind:
    """What kind of trouble an answer of a provider's API is; the only thing asked for by name there is a model."""
    if status is None:
        return "other"
    return _STATUSES.get(status, "server" if status in _SERVER_ERRORS else "other")


def _first(args: Any, names: tuple[str, ...]) -> Any:
    known = table(args)
    return next((known[name] for name in names if known.get(name)), None)


def plus(first: int | None, *more: int | None) -> int | None:
    """A sum whose first part has to be known."""
    return None if first is None else number(first + sum(part for part in more if part is not None))


_YEAR_10000 = 253_402_300_800_000


def moment(milliseconds: Any) -> str | None:
    """The text for a moment that is told in milliseconds since 1970."""
    known = number(milliseconds)
    if known is None or not 0 <= known < _YEAR_10000:
        return None
    return datetime.fromtimestamp(known / 1000, UTC).isoformat(timespec="milliseconds")

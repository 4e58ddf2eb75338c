"""From the records of an agent to events: what its tools do, what it says, and what it spends.

An adapter keeps one `EventBuilder` per session and calls a method for each thing that it finds in the agent's records.
Every method returns the events to pass on.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from whet.agents.contract import (
    AgentCommand,
    AgentDefaults,
    Resume,
    TakesSkills,
    Task,
    credential_files,
    mounts,
    skill_copies,
)
from whet.agents.observe.records import amount, as_text, look, number, rows, text
from whet.model.events import (
    CommandRun,
    Event,
    FileEdit,
    FileRead,
    FinalOutput,
    Message,
    MessagePhase,
    SessionEnded,
    SkillSignal,
    ToolCall,
    ToolResult,
    Trouble,
    TroubleKind,
    UsageSeen,
)
from whet.model.session import USAGE_FIGURES, add_figures
from whet.model.skills import skill_name
from whet.shell.files import command_line, shell_reads

Kind = Literal["shell", "read", "edit", "skill"]
# By the name in small letters: the names of several programs differ only in that.
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
# A path from the workspace that is as short as it can be.
_SETTLED = re.compile(r"(?:\.?[\w-][\w.-]*/)*\.?[\w-][\w.-]*", re.ASCII)
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)


def kind_of(tool: str) -> Kind | None:
    """Return what *tool* does, or None if that does not matter here."""
    return _KINDS.get(tool.lower())


class OpenCall(NamedTuple):
    """A tool that was asked for and has not answered yet."""

    tool: str
    args: Any
    id: str | None
    kind: Kind | None

    @property
    def command(self) -> str | None:
        """The line that a shell gets."""
        if self.kind != "shell":
            return None
        words = _first(self.args, _COMMAND_KEYS) if isinstance(self.args, dict) else self.args
        if isinstance(words, list):
            return command_line([str(word) for word in words]) or None
        return text(words)

    @property
    def folder(self) -> str:
        """Where it happens, if not in the workspace."""
        return text(_first(self.args, _FOLDER_KEYS)) or ""

    @property
    def skill(self) -> str | None:
        """The skill that it asks for; `plugin:skill` is the same skill as `skill`."""
        if self.kind != "skill":
            return None
        named = text(_first(self.args, _SKILL_KEYS)) or text(self.args) or ""
        words = named.split()
        return skill_name(words[0]) or None if words else None

    def paths(self) -> Iterator[str]:
        """The files that its arguments name: in a field, in a list, or in a patch."""
        single = text(self.args) if isinstance(self.args, str) else text(_first(self.args, _PATCH_KEYS))
        if single and "*** " in single:
            yield from (patched_path.strip() for patched_path in _PATCHED.findall(single))
            return
        path = text(_first(self.args, _PATH_KEYS))
        if path:
            yield path
            return
        for item in rows(_first(self.args, _PATHS_KEYS)):
            named = text(item) or text(_first(item, _PATH_KEYS))
            if named:
                yield named


def _first(args: Any, names: tuple[str, ...]) -> Any:
    """The first of *names* that says something."""
    if isinstance(args, dict):
        for name in names:
            if value := args.get(name):
                return value
    return None


class EventBuilder:
    """The calls of one session, and its words, held back until it is known whether they were the last.

    The events of a call follow with its result. Events are given as lists: a transcript may have a million calls, and
    generators within generators take longer.
    """

    def __init__(self, workspace: str = "") -> None:
        # Paths below it become relative to it, however an agent writes them.
        self.workspace = workspace
        # Where a shell begins, if not in the workspace: some programs stay where the last command went.
        self.cwd = ""
        self._open: dict[str, OpenCall] = {}
        # Words, and when they were said.
        self._held: tuple[str, str | None] | None = None
        self._last: str | None = None

    def began(self, call_id: Any, tool: Any, args: Any, *, at: str | None = None) -> list[Event]:
        """The model asked for a tool."""
        name, known = text(tool) or "unknown", text(call_id)
        if known is not None:
            self._open[known] = OpenCall(name, args, known, kind_of(name))
        return [*self.release_words(), ToolCall(tool=name, id=known, args=args, at=at)]

    def ended(
        self,
        call_id: Any,
        *,
        output: Any = "",
        ok: bool | None = None,
        exit_code: Any = None,
        worked: bool | None = None,
        ran: bool = True,
        at: str | None = None,
    ) -> list[Event]:
        """A tool gave its result; `ran=False` if it was refused, so that it did nothing.

        `worked` says whether a command succeeded if its exit code is unknown.
        """
        known = text(call_id)
        call = self._open.pop(known, None) if known else None
        result = ToolResult(
            id=known, tool=call.tool if call else None, output=as_text(output), ok=ok if ran else False, at=at
        )
        actions: list[Event] = []
        if call and call.kind == "skill" and (skill := call.skill):
            # Also if it failed: it is evidence that the model asked for it.
            signal = f"tool:{call.tool.lower()}"
            actions = [SkillSignal(skill=skill, signal=signal, loaded=ran and ok is not False, at=at)]
        elif call and ran and call.kind == "shell":
            actions = self._ran(call, number(exit_code), worked, at)
        elif call and ran and ok is not False and call.kind in ("read", "edit"):
            did = FileRead if call.kind == "read" else FileEdit
            actions = [did(path=self._path(path, call.folder), at=at) for path in call.paths()]
        return [*self.release_words(), *actions, result]

    def left(self) -> list[Event]:
        """The session is over: words without an answer, and commands that were cut off while they ran."""
        commands = [call.command for call in self._open.values()]
        self._open.clear()
        words, self._last = self.release_words(), None
        return [*words, *(CommandRun(command=command) for command in commands if command)]

    def command_of(self, call_id: Any) -> str | None:
        """The command line of a call that waits for its result."""
        call = self._open.get(text(call_id) or "")
        return call.command if call else None

    def is_open(self, call_id: Any) -> bool:
        """Whether a call with this id waits for its result."""
        return text(call_id) in self._open

    def thought(self, words: Any, *, at: str | None = None) -> list[Event]:
        """The model thought."""
        thought = text(words)
        if not thought:
            return []
        return [*self.release_words(), Message(role="assistant", phase="thinking", text=thought, at=at)]

    def said(self, words: Any, *, at: str | None = None) -> list[Event]:
        """The model said something."""
        said = text(words)
        if not said:
            return []
        before, self._held = self.release_words(), (said, at)
        return before

    def blocks(self, content: list[Any], *, at: str | None = None) -> Iterator[Event]:
        """A reply in blocks: thoughts, words and calls."""
        for block in content:
            match look(block, "type"):
                case "thinking":
                    yield from self.thought(block.get("thinking"), at=at)
                case "text":
                    yield from self.said(block.get("text"), at=at)
                case "tool_use":
                    yield from self.began(block.get("id"), block.get("name"), block.get("input"), at=at)
                case _:
                    pass

    def trouble(self, message: Any, kind: TroubleKind, status: Any = None, *, at: str | None = None) -> list[Event]:
        """Something went wrong; it comes after the words that were held back, since those do not show it overcome."""
        happened = Trouble(message=as_text(message) or kind, kind=kind, status=number(status), at=at)
        return [*self.release_words(), happened]

    def answered(self, words: Any = None, *, at: str | None = None) -> list[Event]:
        """The session ended well: what was said last is the answer, unless the agent names another."""
        before = self.release_words("final")
        answer = text(words) or self._last
        return before if answer is None else [*before, FinalOutput(text=answer, at=at)]

    def over(self, ok: bool, reason: str, *, at: str | None = None) -> list[Event]:
        """The session ended well, with an answer, or not, for a *reason*."""
        words = self.answered(at=at) if ok else self.release_words()
        return [*words, SessionEnded(ok=ok, reason=None if ok else reason, at=at)]

    def release_words(self, phase: MessagePhase = "commentary") -> list[Event]:
        """Pass on the words that were held back, now that it is known what they were; a thought is not an answer."""
        if self._held is None:
            return []
        (words, at), self._held = self._held, None
        self._last = self._last if phase == "thinking" else words
        return [Message(role="assistant", phase=phase, text=words, at=at)]

    def _ran(self, call: OpenCall, exit_code: int | None, worked: bool | None, at: str | None) -> list[Event]:
        """A command and the files that it shows; if it is unknown whether it worked, it may have shown none."""
        command = call.command
        if not command:
            return []
        ok = worked if exit_code is None else None
        sure = True if ok or exit_code is not None else None
        shown = shell_reads(command, exit_code) if ok is not False else ()
        began_in = call.folder or self.cwd
        reads = [FileRead(path=self._path(path, began_in), ok=sure, at=at) for path in shown]
        folder = self._path(began_in, "") if began_in else ""
        cwd = folder if folder not in ("", ".", self.workspace.rstrip("/")) else None
        return [CommandRun(command=command, exit_code=exit_code, cwd=cwd, ok=ok, at=at), *reads]

    def _path(self, path: str, folder: str) -> str:
        if path.startswith(("~", "$")) or (not folder and _SETTLED.fullmatch(path)):
            return path
        whole = posixpath.normpath(posixpath.join(self.workspace, folder, path))
        inside = self.workspace.rstrip("/") + "/"
        return whole[len(inside) :] if self.workspace and whole.startswith(inside) else whole


class RecordsAgent(AgentDefaults):
    """A program that prints records: what all of them share, from their arguments to what they leave undone."""

    program: str
    # Where it looks for skills in its home, the files there of which each can log it in, and those that go with them.
    skills: str
    login: tuple[str, ...] = ()
    beside_login: tuple[str, ...] = ()
    # Whether it gets a copy of these files even if it works in the user's own home.
    always_copies_login = False
    # The figures of its usage that it does not report as we count them.
    derived: tuple[str, ...] = ()
    takes_skills: TakesSkills | None = "home"

    def __init__(self) -> None:
        self._reading, self._spending = EventBuilder(), SpendingTotals(derived=self.derived)

    def start(
        self,
        task: Task,
        mode: Sequence[str],
        env: Mapping[str, str],
        *,
        resume: Sequence[str] = (),
        last: Sequence[str] = (),
    ) -> AgentCommand:
        """Return a command for *task*; *resume* goes before the `args` of the runner, and *last* after them.

        A program with its own home gets a copy of the user's login, and whet masks what is in it.
        """
        self._reading.workspace = str(task.workspace)
        model = ("--model", task.runner.model) if task.runner.model else ()
        name, args = task.options.text("command") or self.program, task.options.texts("args")
        copies = self.always_copies_login or env["HOME"] == str(task.home)
        login = credential_files(task, (*self.login, *self.beside_login)) if copies and not task.routed else {}
        return AgentCommand(
            argv=(name, *mode, *model, *resume, *args, *last),
            env=env,
            stdin=task.prompt.encode(),
            announces_end=True,
            shows_model=True,
            home_copies=login | skill_copies(task, self.skills),
            readable=mounts(task),
            network=task.options.flag("network", True),
        )

    def ending(self, collected: Mapping[str, bytes]) -> Iterable[Event]:
        """What it was saying or doing when it was stopped."""
        del collected
        return self._reading.left()


def resuming(task: Task, flag: str) -> tuple[str, ...]:
    """Return *flag* and the id of the session to resume, if there is one."""
    return (flag, task.resume.session_id) if task.resume else ()


class SpendingTotals:
    """Tokens and money reported so far, so that later totals are not counted twice."""

    def __init__(self, *, derived: tuple[str, ...] = ()) -> None:
        self._known: dict[str, float] = {}
        self._derives = derived
        self._unsure: frozenset[str] = frozenset()

    def resumed(self, earlier: Resume | None) -> None:
        """Continue the totals of *earlier*; a figure that is missing there stays unknown."""
        before = {name: earlier.usage.reported(name) for name in USAGE_FIGURES} if earlier else {}
        if earlier and earlier.usage.cost_source != "agent":
            before["cost_usd"] = None
        self._known = {name: value for name, value in before.items() if value is not None}
        self._unsure = frozenset(before) - frozenset(self._known)

    def more(self, **amounts: Any) -> Iterator[Event]:
        """Add to what was spent; the names are those of `UsageSeen`."""
        known = {name: value for name, value in amounts.items() if amount(value) is not None}
        for name, value in known.items():
            self._known[name] = add_figures(self._known.get(name, 0), value)
        if known:
            yield UsageSeen(**known, derived=tuple(name for name in self._derives if name in known))

    def total(self, **amounts: Any) -> Iterator[Event]:
        """Report a total, which includes what was reported before."""
        sure = {name: value for name, value in amounts.items() if name not in self._unsure}
        known = {name: value for name, value in sure.items() if amount(value) is not None}
        yield from self.more(**{name: max(0, value - self._known.get(name, 0)) for name, value in known.items()})

    def anew(self) -> None:
        """Later totals begin at nothing."""
        self._known.clear()

"""The contract of an agent: how whet starts it, and what its output means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from whet.model.arm import DEFAULT
from whet.model.events import Event
from whet.model.run import Runner
from whet.model.session import SessionSummary, Usage
from whet.model.suite import Case
from whet.model.task import TaskSpec
from whet.reading.plugin_folder import skills_of
from whet.sandbox.contract import is_there

Output = Literal["text", "events", "records"]
# How an agent gets skills: in the place of its home where it looks for them, or by the variable `WHET_SKILL`.
TakesSkills = Literal["home", "variable"]
# Where skills are put for agents that find them by a variable.
NAMED_SKILLS = ".agents/skills"
# What a sign says: the model is asked, is speaking, has said all of an answer, did not answer; or a tool has begun.
Meaning = Literal["asked", "speaking", "said", "trouble", "tool"]
# What every process gets of our own environment. A runner asks for more by `env` or `pass_env`.
_PASSED_ON = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")


class Options(Struct, frozen=True):
    """A runner's options, read by name with the type that settings have already given them."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """A string, or none."""
        value = self.values.get(name)
        return None if value is None else str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(str(item) for item in self.values.get(name) or ())

    def table(self, name: str) -> dict[str, str]:
        """A table of strings."""
        return {str(key): str(value) for key, value in (self.values.get(name) or {}).items()}

    def flag(self, name: str, default: bool) -> bool:
        """Yes or no."""
        value = self.values.get(name)
        return default if value is None else bool(value)


class Resume(Struct, frozen=True, kw_only=True):
    """An earlier session to resume, and its usage until then: some agents continue to count from there."""

    session_id: str
    usage: Usage = field(default_factory=Usage)


class Task(Struct, frozen=True, kw_only=True):
    """What an agent is asked to do, and where."""

    prompt: str
    case: str
    runner: Runner
    workspace: Path
    home: Path
    temporary: Path
    suite_dir: Path
    settings_dir: Path | None
    environ: Mapping[str, str]
    # The id of the run.
    run: str = ""
    arm: str = DEFAULT
    trial: int = 1
    # Which prompt of a conversation it is, from 1, and the session to go on with.
    turn: int = 1
    resume: Resume | None = None
    # The skill under test, if this arm has it.
    skill: Path | None = None
    # Whether its traffic goes through the gateway, so that no login has to be inside.
    routed: bool = False
    # The tools of its provider that the gateway lets pass; None if it lets all of them pass.
    hosted_tools: tuple[str, ...] | None = None
    # The folders of skills in the workspace, such as `.agents/skills/tidy-up`, before the agent begins.
    workspace_skills: tuple[str, ...] = ()
    # The task of Harbor's layout, if the case is one.
    spec: TaskSpec | None = None

    @property
    def options(self) -> Options:
        """The options of the runner."""
        return Options(self.runner.options)


class Unpacking(Struct, frozen=True):
    """What a program unpacks for itself at its first start, into the folder that `variable` names.

    The folder is made once for a run, by starting `argv` without a task, and attempts can only read it.
    """

    variable: str
    argv: tuple[str, ...]


class Rows(Struct, frozen=True):
    """What `query` finds in a SQLite database of the home: a JSON object for each row, each on a line."""

    database: str
    query: str


class Signs(Struct, frozen=True, kw_only=True):
    """Lines by which a program shows what its model is doing, before a message is complete.

    `line` is matched at the beginning of each line. `means` maps its group `what` to a meaning; any other value means
    that the model is speaking, and a line without it means nothing. Trouble may have groups `status` and `said`.
    Lines that match are kept in the record only with `kept`: the others are a log that we asked for, or pieces of
    a message that is printed as a whole later.
    """

    line: re.Pattern[bytes]
    means: Mapping[bytes, Meaning]
    kept: bool = False


class AgentCommand(Struct, frozen=True, kw_only=True):
    """The program to start, what it finds in its home, and how to read what it prints.

    `output` is "text" (all of it is the final output), "events" (each line is one of our own session events) or
    "records" (each line is given to `Agent.events`). `announces_end` says that a good session ends with a
    `SessionEnded` event, so that one without is unfinished whatever the exit code says. `shows_model` says that
    whatever its model answers is seen in its output, so that no model has answered if nothing was seen.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes = b""
    output: Output = "records"
    announces_end: bool = False
    shows_model: bool = False
    # Whether to believe it about what takes a trial out of the rate: trouble with its provider, and a skill that should
    # be absent. A program that is itself under test is not believed: it could say so in every trial that it would fail.
    trusted: bool = True
    signs: Signs | None = None
    # The same for its standard error.
    log_signs: Signs | None = None
    # How it says on standard error that it is not logged in; this counts only if no model has answered.
    no_login: re.Pattern[str] | None = None
    # Paths are relative to the home of the attempt, which is deleted afterwards because it may hold credentials.
    home_files: Mapping[str, bytes] = field(default_factory=dict)
    home_copies: Mapping[str, Path] = field(default_factory=dict)
    # What `ending` and `learn` get: files, also by patterns such as `logs/*.jsonl`, and rows of databases.
    collect: tuple[str, ...] = ()
    collect_rows: Mapping[str, Rows] = field(default_factory=dict)
    unpacking: Unpacking | None = None
    readable: tuple[Path, ...] = ()
    # What its arguments name. Like its program, it is visible, and nothing that logs the agent in.
    named: tuple[Path, ...] = ()
    # Whether its program is one of this machine, also in a container; otherwise the image has it.
    of_host: bool = True
    network: bool = True
    # The model of the session if it is not that of the runner, as in a recording.
    model: str | None = None
    # Whether an event happens when it is printed; not in a recording, which is printed all at once.
    timed: bool = True
    # Whether somebody is paid for its session; not for a recording.
    paid: bool = True
    placed_skills: tuple[str, ...] = ()
    watermarks: Mapping[str, str] = field(default_factory=dict)


class Dialogue(Protocol):
    """What whet says to a program that asks and answers, line by line, on its standard streams.

    A dialogue does no I/O: whet sends the lines that each method returns, and keeps them in the record. `answered` says
    that nothing is to be expected after the last prompt, and `failed` that there is no sense in another one.
    """

    answered: bool
    failed: bool

    def ask(self, prompt: str) -> Iterable[bytes]:
        """Return what to send for *prompt*; the one before has been answered."""

    def hear(self, line: bytes) -> Iterable[bytes]:
        """Return what to send after *line* of its output, which may be anything."""

    def cancel(self) -> Iterable[bytes]:
        """Return what to send at the time limit."""


class AgentSetup(Struct, frozen=True, kw_only=True):
    """How the program of an agent gets onto a machine, and which `variables` can log it in.

    `helpers` are other programs that the agent needs, each with what it does not do without them. `free` says that the
    agent works without a login, and `unpacks` that it fills a folder at its first start.
    """

    variables: tuple[str, ...]
    install: str
    helpers: Mapping[str, str] = field(default_factory=dict)
    free: bool = False
    unpacks: bool = False


class Agent(Protocol):
    """One file per agent; an object lives for one attempt, so it may keep what later records need.

    `state` names where in its home its sessions are, so that one can be resumed; none means that none can.
    `takes_skills` says how it gets skills; if it is None, whet does not run the agent with a skill under test.
    `dialogue` is for a program that does not get its prompt with its start; `command` makes it.
    `provider` names whose variables it takes, if its address is one of them: then it can go through the gateway.
    `asks_nobody` says that it does what its model says without asking a person: without a boundary, whet starts it only
    if its user says so. `setup` is for an agent whose program whet looks for on the machine.
    `has_program` says that it starts a program of the machine, and `always_direct` that it asks a model at an address
    that whet cannot change.
    """

    setup: AgentSetup | None = None
    has_program: bool = True
    always_direct: bool = False
    asks_nobody: bool = True
    provider: str | None = None
    state: tuple[str, ...] = ()
    takes_skills: TakesSkills | None = None
    dialogue: Dialogue | None = None

    def command(self, task: Task) -> AgentCommand:
        """Return how to start it for *task*."""

    def events(self, record: bytes) -> Iterable[Event]:
        """Return what one line of its output means; a line that it does not understand means nothing.

        Agents that print text or our own events need no such method.
        """
        del record
        return ()

    def ending(self, collected: Mapping[str, bytes]) -> Iterable[Event]:
        """Return what is known only at the end, such as tokens in a file of `collect`."""
        del collected
        return ()

    def learn(self, collected: Mapping[str, bytes]) -> bool:
        """Return whether files in its home say more about records than the records do.

        If so, the records are read once more from the first on, by an object that has learned from *collected*.
        """
        del collected
        return False

    def provider_of(self, runner: Runner) -> str | None:
        """Return `provider`, unless it depends on the runner."""
        del runner
        return self.provider

    def continues(self, runner: Runner) -> bool:
        """Return whether it takes another prompt in the session that it was in, by `Task.resume` or in its dialogue."""
        del runner
        return bool(self.state)

    def recorded(self, task: Task) -> SessionSummary | None:
        """Return the session that the agent replays, if any: then no model has to be asked for new prompts."""
        del task
        return None

    def problems(self, runner: Runner, cases: Iterable[Case]) -> Iterable[str]:
        """Return what is wrong with *runner*, before anything starts."""
        del runner, cases
        return ()


class AgentDefaults(Agent):
    """An agent that has nothing to say but its command; derive from it, and write what yours has."""


def environment(task: Task, *passed: str) -> dict[str, str]:
    """Return the environment of an agent: its own home, a few variables of ours, *passed*, and those of its runner."""
    options = task.options
    names = (*_PASSED_ON, *passed, *options.texts("pass_env"))
    env = {name: task.environ[name] for name in names if name in task.environ}
    inherited = options.flag("inherit_home", False) and "HOME" in task.environ
    home = task.environ["HOME"] if inherited else str(task.home)
    env |= {"HOME": home, "TMPDIR": str(task.temporary), "TERM": "dumb"}
    return env | options.table("env")


def facts(task: Task) -> dict[str, str]:
    """Return the variables that tell a program of the user about its trial; other agents get none of them.

    A trial should be blind: who knows its arm, or that it is tested at all, may act on it.
    """
    variables = {"WHET_WORKSPACE": str(task.workspace), "WHET_RUN": task.run}
    return variables | ({"WHET_TURN": str(task.turn)} if task.turn > 1 else {})


def mounts(task: Task) -> tuple[Path, ...]:
    """Return the folders that a runner asks for beyond the usual."""
    return tuple(Path(path) for path in task.options.texts("mounts"))


def named_paths(args: Iterable[str]) -> Iterator[Path]:
    """Yield the files and folders that arguments name, also behind an option as in `--config=/there`."""
    for arg in args:
        for text in (arg, arg.partition("=")[2]):
            if text.startswith("/") and is_there(Path(text)):
                yield Path(text)


def skill_copies(task: Task, folder: str) -> dict[str, Path]:
    """Return the skills of the runner, those of a plug-in too, each under its own name below *folder* of the home."""
    return {f"{folder}/{skill.name}": skill for given in task.runner.skills for skill in skills_of(given)}


def with_named_skills(task: Task, command: AgentCommand) -> AgentCommand:
    """Return *command* with the skills in its home and `WHET_SKILL`, for agents without a place to look."""
    named = {} if task.skill is None else {"WHET_SKILL": str(task.home / _named_skill(task.skill))}
    return replace(command, env={**command.env, **named}, home_copies=skill_copies(task, NAMED_SKILLS))


def _named_skill(folder: Path) -> str:
    """Return where a skill is below a home; of a plug-in its only skill, or the folder of all of them."""
    skills = skills_of(folder)
    return f"{NAMED_SKILLS}/{skills[0].name}" if len(skills) == 1 else NAMED_SKILLS


def credential_files(task: Task, names: Iterable[str]) -> dict[str, Path]:
    """Return those of *names* in the user's own home that exist; nothing else of that home is copied."""
    home = Path(task.environ.get("HOME", "/nonexistent"))
    return {name: home / name for name in names if (home / name).is_file()}

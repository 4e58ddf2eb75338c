"""The contract of an agent: how it is started, and what its output means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from whet.model.run import Runner
from whet.model.session import Event
from whet.model.suite import Case

Output = Literal["text", "events", "records"]
# What every process gets of our own environment; anything else is asked for by `env` or `pass_env`.
_PASSED_ON = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """The program to start, and how to read what it prints.

    `output` is "text" (all of it is the final output), "events" (each line is one of our own session events) or
    "records" (each line is given to `Agent.events`).
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes = b""
    output: Output = "records"
    readable: tuple[Path, ...] = ()
    network: bool = True


class Agent(Protocol):
    """One file per agent; an object lives for one attempt, so what later records need may be kept on it."""

    def command(self, task: Task) -> AgentCommand:
        """How to start it for *task*."""

    def events(self, record: bytes) -> Iterable[Event]:
        """What one line of its output means."""

    def problems(self, runner: Runner, cases: Iterable[Case]) -> Iterable[str]:
        """What is wrong with *runner*, found before anything is started."""


@dataclass(frozen=True, slots=True)
class Options:
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


def environment(task: Task) -> dict[str, str]:
    """The environment that any agent gets: a home of its own, little of ours, and what its runner asks for."""
    options = Options(task.runner.options)
    passed = (*_PASSED_ON, *options.texts("pass_env"))
    env = {name: task.environ[name] for name in passed if name in task.environ}
    env |= {"HOME": str(task.home), "TMPDIR": str(task.temporary), "TERM": "dumb"}
    env |= {"WHET_WORKSPACE": str(task.workspace)}
    return env | options.table("env")


def mounts(task: Task) -> tuple[Path, ...]:
    """The folders that a runner asks for beyond the usual."""
    return tuple(Path(path) for path in Options(task.runner.options).texts("mounts"))

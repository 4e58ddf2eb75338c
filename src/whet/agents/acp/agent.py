"""Any agent that speaks the Agent Client Protocol: JSON-RPC on its standard streams, one session for all prompts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from whet import plugins
from whet.agents.acp._events import AcpReading, Habits
from whet.agents.acp._protocol import Opening
from whet.agents.codex import config_args
from whet.agents.contract import (
    AgentCommand,
    AgentDefaults,
    Options,
    Signs,
    TakesSkills,
    Task,
    environment,
    mounts,
    named_paths,
    skill_copies,
)
from whet.errors import UsageError
from whet.model.events import Event
from whet.model.run import Runner
from whet.model.suite import Case
from whet.reading.plugin_folder import skills_of
from whet.version import install_command

if TYPE_CHECKING:
    from whet.agents.acp._dialogue import AcpDialogue

_MODEL = "{model}"
# Pieces of an answer; the words of a model are escaped, so they cannot look like this.
_SIGNS = Signs(
    line=re.compile(rb'[^\n]*?"sessionUpdate": ?"(?P<what>agent_message_chunk|agent_thought_chunk|tool_call)"'),
    means={},
    kept=True,
)


class Known(Struct, frozen=True, kw_only=True):
    """A program that whet knows by the adapter for its own output: it shares home, login, skills and quiet settings.

    `variable` names its model, and `mode` is that in which it does not ask for every single thing.
    """

    adapter: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    variable: str | None = None
    mode: str | None = None
    habits: Habits = Habits()


_CLAUDE = Known(adapter="claude-code", variable="ANTHROPIC_MODEL")
KNOWN = {
    "claude-agent-acp": _CLAUDE,
    "claude-code-acp": _CLAUDE,
    # The sandbox of Codex does not work inside of ours, as with `codex`.
    "codex-acp": Known(adapter="codex", env={"NO_COLOR": "1"}, mode="full-access"),
    "copilot": Known(
        adapter="copilot",
        variable="COPILOT_MODEL",
        habits=Habits(
            noise=re.compile(r"Info: (?:/|Request failed )[^\n]*"), outage=re.compile(r"Error: "), tokens="session"
        ),
    ),
    "gemini": Known(adapter="gemini", habits=Habits(noise=re.compile(r"\[MODE_UPDATE\] \w+"), tokens="quota")),
    # OpenCode reports the tokens of its last step only.
    "opencode": Known(
        adapter="opencode", args=("--print-logs", "--log-level", "INFO"), habits=Habits(tokens="unknown")
    ),
}


class AcpAgent(AgentDefaults):
    """Starts what `command` and `args` say, and speaks with it; `permissions` says what it may do."""

    takes_skills: TakesSkills | None = "home"
    always_direct = True

    def __init__(self) -> None:
        self._reading = AcpReading(Habits(), policy="allow", model=None, workspace="")

    def command(self, task: Task) -> AgentCommand:
        """The program as its user named it, in a home like that of the adapter for its own output."""
        options, known = task.options, known_as(task.runner)
        policy = options.text("permissions") or "allow"
        asked = self._base(task, known)
        # What an argument or a variable says need not be said again.
        by_name = _names_model(options) or bool(known and known.variable)
        model = None if by_name else task.runner.model
        mode = known.mode if known and policy == "allow" else None
        opening = Opening(
            cwd=str(task.workspace),
            login=options.text("login"),
            model=model,
            mode=options.text("mode") or mode,
            permissions=policy,
        )
        habits = known.habits if known else Habits()
        self.dialogue = _dialogue_class()(opening)
        self._reading = AcpReading(habits, policy=policy, model=model, workspace=str(task.workspace))
        return _filled(asked, task.runner.model or "")

    def events(self, record: bytes) -> Iterable[Event]:
        """What one message of the agent means."""
        return self._reading.events(record)

    def ending(self, collected: Mapping[str, bytes]) -> Iterable[Event]:
        """What it was saying or doing when it was stopped."""
        del collected
        return self._reading.left()

    def provider_of(self, runner: Runner) -> str | None:
        """Return the provider of the adapter for the same program."""
        known = known_as(runner)
        adapter = plugins.find("agents", known.adapter)() if known else None
        return adapter.provider_of(runner) if adapter else None

    def continues(self, runner: Runner) -> bool:
        """The program of the agent waits for the next prompt."""
        del runner
        return True

    def problems(self, runner: Runner, cases: Iterable[Case]) -> Iterable[str]:
        """An ACP agent needs a program, the library, and a place for skills if it gets any."""
        del cases
        options = Options(runner.options)
        skills_dir = options.text("skills_dir")
        if not options.text("command"):
            yield "agent.command: is missing; say which program to start"
        elif runner.skills and skills_dir is None and known_as(runner) is None:
            yield "agent.skills_dir: is missing; say where in its home the agent looks for skills"
        if skills_dir is not None and (PurePosixPath(skills_dir).is_absolute() or ".." in Path(skills_dir).parts):
            yield f'agent.skills_dir: "{skills_dir}" is not a path below the home of the agent'
        if runner.model is None and _names_model(options):
            yield "agent.model: is missing; `args` or `env` use it as {model}"
        try:
            _dialogue_class()
        except UsageError as error:
            yield f"agent.type: {error.message}; {error.hint}"

    def _base(self, task: Task, known: Known | None) -> AgentCommand:
        """The command, trusted as far as the runner says: by itself, whet believes only programs that it knows."""
        options = task.options
        name, args = options.text("command") or "", options.texts("args")
        trusted = options.flag("trusted", known is not None)
        if known is None:
            asked = AgentCommand(argv=(name, *args), env=environment(task), readable=mounts(task))
        else:
            adapter = plugins.find("agents", known.adapter)()
            asked = adapter.command(task)
            variable = {known.variable: task.runner.model} if known.variable and task.runner.model else {}
            env = {**variable, **(known.env or {}), **asked.env}
            extra = _settings(known.adapter, task, env)
            asked = replace(asked, argv=(name, *args, *known.args, *extra), env=env, collect=(), collect_rows={})
        place = options.text("skills_dir")
        skills = skill_copies(task, place) if place else {}
        return replace(
            asked,
            stdin=b"",
            announces_end=True,
            shows_model=trusted,
            trusted=trusted,
            signs=_SIGNS,
            home_copies={**_without_skills(asked, task, bool(place)), **skills},
            named=(*asked.named, *named_paths(args)),
            network=options.flag("network", True),
        )


def known_as(runner: Runner) -> Known | None:
    """Return what is known of the program of *runner*, by its name."""
    return KNOWN.get(Path(Options(runner.options).text("command") or "").name)


def _dialogue_class() -> type[AcpDialogue]:
    """Import what speaks the protocol; raises if its SDK is not installed."""
    try:
        from whet.agents.acp._dialogue import AcpDialogue
    except ImportError as error:
        reason = "agents of type acp need the agent-client-protocol library"
        raise UsageError(reason, hint=install_command("acp")) from error
    return AcpDialogue


def _names_model(options: Options) -> bool:
    return any(_MODEL in value for value in (*options.texts("args"), *options.table("env").values()))


def _settings(adapter: str, task: Task, env: Mapping[str, str]) -> tuple[str, ...]:
    """Arguments with the settings that whet gives this program in any case."""
    if adapter != "codex":
        return ()

    return tuple(config_args(task, env))


def _without_skills(asked: AgentCommand, task: Task, elsewhere: bool) -> dict[str, Path]:
    """What is copied into the home, without the skills if the runner names another place for them."""
    skills = {skill for folder in task.runner.skills for skill in skills_of(folder)} if elsewhere else set()
    return {name: path for name, path in asked.home_copies.items() if path not in skills}


def _filled(asked: AgentCommand, model: str) -> AgentCommand:
    """Put the model where arguments and variables name it."""
    argv = tuple(part.replace(_MODEL, model) for part in asked.argv)
    env: dict[str, Any] = {name: value.replace(_MODEL, model) for name, value in asked.env.items()}
    return replace(asked, argv=argv, env=env)

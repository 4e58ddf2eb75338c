"""The agents that whet knows on this machine: where their programs are, their versions, and their logins."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal

import anyio

from whet.dataclass import dataclass
from whet.errors import AttemptError
from whet.ground.sandbox import Boundary, Command, Sandbox
from whet.reading.text import one_line

# "problem" keeps a configured runner from starting; "warning" may matter; "absent" does not.
State = Literal["ok", "absent", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check of the machine."""

    part: Literal["settings", "machine", "agents", "runners"]
    name: str
    state: State
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAgent:
    """One agent: `program` starts it, any of `variables` or `files` (below the home) can log it in.

    `helpers` are other programs that it needs, each with what it does not do without them. `free` says that it works
    without a login, and `unpacks` that it fills a folder at its first start.
    """

    type: str
    program: str
    variables: tuple[str, ...]
    files: tuple[str, ...]
    install: str
    helpers: Mapping[str, str] = field(default_factory=dict)
    free: bool = False
    unpacks: bool = False


KNOWN = (
    KnownAgent(
        type="claude-code",
        program="claude",
        variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        files=(".claude/.credentials.json",),
        install="npm install -g @anthropic-ai/claude-code",
    ),
    KnownAgent(
        type="codex",
        program="codex",
        variables=("OPENAI_API_KEY", "CODEX_API_KEY"),
        files=(".codex/auth.json",),
        install="npm install -g @openai/codex",
    ),
    KnownAgent(
        type="opencode",
        program="opencode",
        variables=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"),
        files=(".local/share/opencode/auth.json",),
        install="npm install -g opencode-ai",
        helpers={"rg": "cannot load skills without ripgrep"},
        free=True,
    ),
    KnownAgent(
        type="copilot",
        program="copilot",
        variables=(
            "COPILOT_GITHUB_TOKEN",
            "GH_TOKEN",
            "GITHUB_TOKEN",
            "COPILOT_PROVIDER_API_KEY",
            "COPILOT_PROVIDER_BASE_URL",
        ),
        files=(),
        install="npm install -g @github/copilot",
        unpacks=True,
    ),
    KnownAgent(
        type="gemini",
        program="gemini",
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GENAI_USE_VERTEXAI"),
        files=(".gemini/oauth_creds.json",),
        install="npm install -g @google/gemini-cli",
    ),
    KnownAgent(
        type="cursor-agent",
        program="cursor-agent",
        variables=("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN"),
        files=(".config/cursor/auth.json",),
        install="see cursor.com/cli, and set `command` if it has another name; not the packages on npm",
    ),
)
BY_TYPE = {agent.type: agent for agent in KNOWN}


def logins(agent: KnownAgent, environ: Mapping[str, str]) -> list[str]:
    """Return the names of what could log *agent* in: variables that are set and files that exist."""
    home = Path(environ.get("HOME") or "/nonexistent")
    files = [f"~/{name}" for name in agent.files if os.path.isfile(home / name)]  # noqa: PTH113 - a home that we may not read has no logins
    return [name for name in agent.variables if environ.get(name)] + files


_PATIENCE_S = 15.0
_KEPT = 4096
_SHOWN, _SHOWN_WRONG = 60, 160
_WRONG = re.compile(r"error|missing|cannot find|not found|no such", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What a program answered to `--version`, or why it did not; `late` if it took too long."""

    text: str
    ok: bool
    late: bool = False


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of the program of this name."""
    return shutil.which(name, path=environ.get("PATH"))


def ask_versions(programs: Iterable[str], sandbox: Sandbox, environ: Mapping[str, str]) -> dict[str, Version]:
    """Ask all programs for their versions at the same time."""
    wanted = tuple(dict.fromkeys(programs))
    answers: dict[str, Version] = {}

    async def ask(program: str) -> None:
        answers[program] = await _version(program, sandbox, environ)

    async def ask_all() -> None:
        async with anyio.create_task_group() as group:
            for program in wanted:
                group.start_soon(ask, program)
        await sandbox.close()

    if wanted:
        anyio.run(ask_all)
    return answers


async def _version(program: str, sandbox: Sandbox, environ: Mapping[str, str]) -> Version:
    """Run it inside the sandbox, in an empty home without network: it is not trusted."""
    printed, complained = _Beginning(), _Beginning()
    with tempfile.TemporaryDirectory(prefix="whet-doctor-", ignore_cleanup_errors=True) as home:
        folder = Path(home)
        env = {"PATH": environ.get("PATH", ""), "HOME": home, "TMPDIR": home, "TERM": "dumb", "LANG": "C.UTF-8"}
        command = Command(argv=(program, "--version"), env=env, cwd=folder)
        boundary = Boundary(writable=(folder,), network=False)
        try:
            ended = await sandbox.run(command, boundary, timeout_s=_PATIENCE_S, stdout=printed, stderr=complained)
        except AttemptError as error:
            return Version(text=one_line(error.message), ok=False)
    if ended.timed_out:
        return Version(text=f'"--version" did not end within {_PATIENCE_S:g} s', ok=False, late=True)
    if ended.exit_code != 0:
        said = complained.telling_line()
        about = f": {said}" if said else ""
        return Version(text=f'"--version" ended with exit code {ended.exit_code}{about}', ok=False)
    return Version(text=printed.first_line() or "version unknown", ok=True)


class _Beginning:
    """A sink that keeps the beginning of what a program prints."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __call__(self, chunk: bytes) -> None:
        self._data += chunk[: _KEPT - len(self._data)]

    def first_line(self) -> str:
        return one_line(next(self._lines(), ""), _SHOWN)

    def telling_line(self) -> str:
        """The line that says what is wrong, which in a trace of calls is not the first one."""
        telling = (line for line in self._lines() if _WRONG.search(line))
        return one_line(next(telling, next(self._lines(), "")), _SHOWN_WRONG)

    def _lines(self) -> Iterator[str]:
        return (line for line in self._data.decode("utf-8", "replace").split("\n") if line.strip())


def not_working(program: str) -> str:
    """What to do about a program that does not say its version."""
    return f"see whether {program} works by hand; if it does, add the folder that it misses to `mounts` of its runner"


def look_at_agent(agent: KnownAgent, program: str | None, version: Version | None, found: list[str]) -> Finding:
    """One line on an agent that whet knows."""
    if program is None:
        return _finding(agent, "absent", "not installed", agent.install)
    if version is not None and not version.ok:
        return _finding(agent, "warning", f"{program}: {version.text}", not_working(program))
    said = f"{version.text if version else 'version unknown'}  ({program})"
    if not found:
        hint = f"log in once by hand, or set {' or '.join(agent.variables[:2])}"
        return _finding(agent, "warning", f"{said}  no login found", hint)
    return _finding(agent, "ok", f"{said}  could log in with {', '.join(found)}")


def _finding(agent: KnownAgent, state: State, message: str, hint: str | None = None) -> Finding:
    return Finding(part="agents", name=agent.type, state=state, message=message, hint=hint)

"""The real programs: which versions of them are meant, where they are kept, and how they find the scripted model."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

# Git does not see this folder; each program has one of its own in it, laid out as npm lays out /usr/local.
STORE = Path(__file__).resolve().parents[2] / ".agents"
# A slow line brings 250 MB in this time.
PATIENCE_S = 420
# The user's own settings of npm may say where packages come from; tests see another home later.
_ENVIRON = dict(os.environ)
KEY = "sk-scripted-model-000000"


class NotInstalled(Exception):
    """Why a program is not there; it always names npm."""


class Program(Struct, frozen=True, eq=False):
    """An agent, as npm knows it and as `whet.toml` does."""

    agent: str
    package: str
    version: str
    command: str
    model: str
    # Variables for whet itself; `{url}` is where the model is.
    environ: Mapping[str, str]
    # The variables of its runner.
    env: Mapping[str, str] = field(default_factory=dict)
    # Where the program that has no tool for it reads a skill from.
    skill_path: str | None = None
    # Files of its workspace, and those that its user has at home.
    workspace: Mapping[str, str] = field(default_factory=dict)
    home: Mapping[str, str] = field(default_factory=dict)
    # Whether the table of prices knows its model.
    has_price: bool = True
    # Where its skills are placed below its home.
    skills: str = ""
    # In which time it surely has come to its first tool, also on a busy machine.
    start_ms: int = 10_000
    # The type of its runner if it is not called like the agent, and the arguments of its own.
    type: str | None = None
    args: tuple[str, ...] = ()
    # Whether it answers `--version`: a bridge waits for a client instead.
    tells_version: bool = True

    @property
    def prefix(self) -> Path:
        """Where it is installed."""
        return STORE / f"{self.agent}-{self.version}"


CLAUDE_CODE = Program(
    agent="claude-code",
    package="@anthropic-ai/claude-code",
    version="2.1.197",
    command="claude",
    model="claude-sonnet-4-5",
    environ={"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": KEY},
    env={"CLAUDE_CODE_MAX_RETRIES": "2"},
    skills=".claude/skills",
)
CODEX = Program(
    agent="codex",
    package="@openai/codex",
    version="0.166.0",
    command="codex",
    model="gpt-5.5",
    environ={"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": KEY},
    skill_path="$HOME/.agents/skills/{skill}/SKILL.md",
    skills=".agents/skills",
)
OPENCODE = Program(
    agent="opencode",
    package="opencode-ai",
    version="1.18.33",
    command="opencode",
    model="scripted/scripted-model",
    has_price=False,
    skills=".config/opencode/skills",
    environ={"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": KEY},
    start_ms=80_000,
)
COPILOT = Program(
    agent="copilot",
    package="@github/copilot",
    version="1.0.102",
    command="copilot",
    model="scripted-model",
    has_price=False,
    skills=".copilot/skills",
    environ={
        "COPILOT_PROVIDER_BASE_URL": "{url}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_OFFLINE": "true",
        # With a provider of your own, it has no default model.
        "COPILOT_MODEL": "scripted-model",
    },
    start_ms=40_000,
)
GEMINI = Program(
    agent="gemini",
    package="@google/gemini-cli",
    version="0.61.0",
    command="gemini",
    model="gemini-2.5-pro",
    environ={"GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_API_KEY": KEY},
    # By itself it tries for minutes.
    workspace={".gemini/settings.json": json.dumps({"general": {"maxAttempts": 2}})},
    skills=".gemini/skills",
    home={".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}})},
    start_ms=40_000,
)
# The same programs, and bridges to two others, over the Agent Client Protocol.
OPENCODE_ACP = replace(OPENCODE, type="acp", args=("acp",))
COPILOT_ACP = replace(COPILOT, type="acp", args=("--acp",))
GEMINI_ACP = replace(GEMINI, type="acp", args=("--acp",))
CLAUDE_ACP = replace(
    CLAUDE_CODE,
    agent="claude-agent-acp",
    package="@agentclientprotocol/claude-agent-acp",
    version="0.49.0",
    command="claude-agent-acp",
    type="acp",
    tells_version=False,
    start_ms=40_000,
)
CODEX_ACP = replace(
    CODEX,
    agent="codex-acp",
    package="@zed-industries/codex-acp",
    version="0.16.0",
    command="codex-acp",
    type="acp",
    tells_version=False,
)
OVER_ACP = (OPENCODE_ACP, COPILOT_ACP, GEMINI_ACP, CLAUDE_ACP, CODEX_ACP)
ALWAYS = (CLAUDE_CODE, CODEX)
MORE = (OPENCODE, COPILOT, GEMINI)


@lru_cache
def installed(program: Program) -> Path:
    """The folder of its command, after installing it unless it is there; raises `NotInstalled`."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise NotInstalled("npm and node are not both installed, so there is no real agent to run")
    STORE.mkdir(exist_ok=True)
    with _alone(program.prefix.with_name(f"{program.prefix.name}.lock")):
        if not _is_there(program):
            _install(program)
    return program.prefix / "bin"


def search_path(program: Program) -> str:
    """The PATH with *program* on it."""
    folders = [installed(program)]
    if program.agent == OPENCODE.agent and shutil.which("rg") is None:
        # It loads no skill without ripgrep, and would fetch it itself. Codex brings one along.
        folders += [path.parent for path in installed(CODEX).parent.rglob("codex-path/rg")]
    return os.pathsep.join([*map(str, folders), os.environ["PATH"]])


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Workers of one run, and runs in one checkout, wait for each other."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_there(program: Program) -> bool:
    manifest = program.prefix / "lib" / "node_modules" / program.package / "package.json"
    if not manifest.is_file() or (program.command and not (program.prefix / "bin" / program.command).exists()):
        return False
    return bool(json.loads(manifest.read_bytes())["version"] == program.version)


def _install(program: Program) -> None:
    fresh, cache = (program.prefix.with_name(f"{program.prefix.name}.{what}") for what in ("new", "cache"))
    for folder in (fresh, program.prefix):
        shutil.rmtree(folder, ignore_errors=True)
    argv = ["npm", "install", "--global", "--no-audit", "--no-fund", "--loglevel", "error"]
    argv += ["--prefix", str(fresh), "--cache", str(cache), f"{program.package}@{program.version}"]
    try:
        _run(argv, f"npm could not install {program.package}@{program.version}")
        if program.tells_version:
            _ask_version(program, fresh)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    # Only a whole installation gets the name that others look for.
    fresh.rename(program.prefix)


def _ask_version(program: Program, fresh: Path) -> None:
    """Packages may need scripts that npm was told not to run."""
    told = _run([str(fresh / "bin" / program.command), "--version"], f"what npm installed as {program.package} fails")
    if program.version not in told:
        raise NotInstalled(f"npm installed {program.package} {told.strip()} and not {program.version}")


def _run(argv: list[str], what: str) -> str:
    with tempfile.TemporaryDirectory(prefix="whet-npm-") as home:
        env = _ENVIRON if argv[0] == "npm" else {**_ENVIRON, "HOME": home}
        try:
            ended = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise NotInstalled(f"{what} in {PATIENCE_S} s") from error
    if ended.returncode != 0:
        said = [line for line in ended.stderr.splitlines() if line.strip()] or ["no reason given"]
        raise NotInstalled(f"{what}: {said[0]}")
    return ended.stdout

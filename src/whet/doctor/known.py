"""The agents that the doctor knows: their programs, and the names of what they log in with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAgent:
    """One agent: `program` starts it, any of `variables` or `files` (below the home) can log it in.

    `helpers` are programs that it needs beside itself, each with what it does not do without. `free` says that it can
    be used without any login, and `unpacks` that it fills a folder when it is first asked for anything.
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
        helpers={"rg": "loads no skill without ripgrep"},
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
        install="see cursor.com/cli, and say `command` where it is called otherwise; the packages on npm are not it",
    ),
)
BY_TYPE = {agent.type: agent for agent in KNOWN}


def logins(agent: KnownAgent, environ: Mapping[str, str]) -> list[str]:
    """The names of what could log *agent* in: variables that are set and files that are there, never what they hold."""
    home = Path(environ.get("HOME") or "/nonexistent")
    files = [f"~/{name}" for name in agent.files if os.path.isfile(home / name)]  # noqa: PTH113 - a home that is closed to us is one without logins
    return [name for name in agent.variables if environ.get(name)] + files

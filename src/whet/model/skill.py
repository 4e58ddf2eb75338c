"""What a callable skill is: a program, an endpoint or a tool that is called with JSON and answers with JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Adapter = Literal["subprocess", "http", "mcp"]
ADAPTERS: tuple[Adapter, ...] = ("subprocess", "http", "mcp")
Auth = Literal["none", "bearer", "api-key"]
AUTHS: tuple[Auth, ...] = ("none", "bearer", "api-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallableSkill:
    """A skill as its folder describes it: `skill.json`, with `adapter.config.json` laid over it.

    For a subprocess and for MCP over stdio `argv` is the program, otherwise `url` is where it listens. Secrets stand
    here by the names of their variables only.
    """

    id: str
    name: str
    version: str
    description: str
    adapter: Adapter
    entrypoint: str
    root: Path
    digest: str
    argv: tuple[str, ...] = ()
    url: str | None = None
    tags: tuple[str, ...] = ()
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] = field(default_factory=dict)
    tool: str | None = None
    auth: Auth = "none"
    auth_variable: str | None = None
    pass_env: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: float | None = None
    retries: int | None = None
    keep_alive: bool = False
    network: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

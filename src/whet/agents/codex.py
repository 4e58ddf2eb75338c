"""Codex: `codex exec --json`, the prompt on standard input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from whet.agents.contract import AgentCommand, AgentSetup, Signs, Task, environment
from whet.agents.observe.records import dollar_invoked, look, number, parse, rows, status_kind, table, text
from whet.agents.observe.to_events import RecordsAgent, resuming
from whet.model.events import Event, SessionEnded, SessionStarted, SkillSignal, TroubleKind
from whet.reading.plugin_folder import skills_of
from whet.shell.files import unwrapped

_CREDENTIALS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY")
_MODE = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
# Without either of the last two, every session without a network ends with a stall of 5 s.
_SETTINGS = ("check_for_update_on_startup=false", "features.plugins=false", "analytics.enabled=false")
_SEARCH, _NO_SEARCH = "web_search", 'web_search="disabled"'
_PROVIDER = 'model_providers.whet={name="whet", base_url=%s, wire_api="responses", %s}'
# Without a key in a variable it takes the one of its login.
_KEY, _LOGIN = 'env_key="CODEX_API_KEY"', "requires_openai_auth=true"
_RETRY = re.compile(r"Reconnecting\.\.\. (?:\d+/\d+|waiting for network) \((.*)\)\Z", re.DOTALL)
# Codex prints only complete messages; its log shows when the model is speaking.
_LOG = "error,codex_api::sse::responses=trace,codex_api::endpoint::responses_websocket=trace"
_LOGGED = (
    rb"\S+ TRACE [^\n]*?codex_api::(?:sse::responses|endpoint::responses_websocket): "
    rb'(?:(?:SSE|websocket) event: \{"type": ?"(?P<what>response\.[\w.]+)")?'
)
# No sign says that an answer is complete: its log and its records are two streams, so that sign could come too late.
_SIGNS = Signs(line=re.compile(_LOGGED), means={})
_STATUS = re.compile(r"(?:unexpected status|exceeded retry limit, last status:) (\d{3})\b")
_CODES: dict[str, TroubleKind] = {"model_not_found": "model-rejected", "context_length_exceeded": "context"}
# All are matched from the start of a typed error's message, which no prompt and no answer reaches.
_MESSAGES: tuple[tuple[str, TroubleKind, int | None], ...] = (
    (r"The model `[^`]*` does not exist", "model-rejected", 404),
    (r"We.re currently experiencing high demand", "server", 500),
    (r"Codex ran out of room in the model's context window", "context", None),
    (r"Selected model is at capacity", "overloaded", 503),
    (r"You.ve hit your usage limit|Quota exceeded", "rate-limit", 429),
    (r"stream disconnected before completion|Connection failed|error sending request", "network", None),
)


class CodexAgent(RecordsAgent):
    """Reads `thread.started`, `item.*`, `turn.*` and `error`."""

    program, skills = "codex", ".agents/skills"
    provider = "openai"
    login = (".codex/auth.json",)
    setup = AgentSetup(variables=("OPENAI_API_KEY", "CODEX_API_KEY"), install="npm install -g @openai/codex")
    state = (".codex/sessions",)

    def __init__(self) -> None:
        super().__init__()
        self._invoked: list[SkillSignal] = []

    def command(self, task: Task) -> AgentCommand:
        """The login is in the home of the attempt, or in the user's own; our settings are on the command line."""
        self._spending.resumed(task.resume)
        self._invoked = dollar_invoked(task.prompt, _skills(task))
        env = environment(task, *_CREDENTIALS)
        own = env["HOME"] == str(task.home)
        if "OPENAI_API_KEY" in env:
            # The only key that it takes without a login.
            env.setdefault("CODEX_API_KEY", env["OPENAI_API_KEY"])
        state = {"CODEX_HOME": str(task.home / ".codex")} if own else {}
        resume = (*resuming(task, "resume"), "-") if task.resume else ()
        return replace(
            self.start(task, (*_MODE, *config_args(task, env)), {"RUST_LOG": _LOG, **state, **env}, last=resume),
            log_signs=_SIGNS,
            # Codex wants its folder to exist; its settings are arguments.
            home_files={".codex/config.toml": b""} if own else {},
        )

    def events(self, record: bytes) -> Iterable[Event]:  # noqa: PLR0911 - a table of kinds
        """What one record means; an item that is an error is a warning."""
        seen = parse(record)
        match seen.get("type"):
            case "item.started":
                item = table(seen, "item")
                return self._began(item.get("id"), item)
            case "item.completed":
                item = table(seen, "item")
                return self._completed(item.get("id"), item)
            case "thread.started":
                invoked, self._invoked = self._invoked, []
                return [SessionStarted(session_id=text(seen, "thread_id")), *invoked]
            case "error":
                return self._reading.trouble(*_trouble(text(seen, "message") or "it reports an error"))
            case "turn.completed":
                return [*self._reading.answered(), *self._spent(table(seen, "usage")), SessionEnded(ok=True)]
            case "turn.failed":
                message, kind, status = _trouble(text(seen, "error", "message") or "its turn failed")
                return [*self._reading.trouble(message, kind, status), SessionEnded(ok=False, reason=message)]
            case _:
                return []

    def _began(self, call_id: Any, item: dict[str, Any]) -> list[Event]:
        """Codex's tools are items: a command, a change of files, a search, or a call of a server's tool."""
        match item.get("type"):
            case "command_execution":
                return self._reading.began(call_id, "shell", {"command": unwrapped(text(item, "command") or "")})
            case "file_change":
                return self._reading.began(call_id, "apply_patch", {"changes": rows(item, "changes")})
            case "web_search":
                return self._reading.began(call_id, "web_search", {"query": item.get("query")})
            case "mcp_tool_call":
                name = f"mcp__{text(item, 'server')}__{text(item, 'tool')}"
                return self._reading.began(call_id, name, item.get("arguments"))
            case _:
                return []

    def _completed(self, call_id: Any, item: dict[str, Any]) -> list[Event]:
        match item.get("type"):
            case "command_execution" | "file_change" | "web_search" | "mcp_tool_call":
                began = [] if self._reading.is_open(call_id) else self._began(call_id, item)
                output = item.get("aggregated_output") or look(item, "result", "content") or item.get("error")
                status, code = item.get("status"), item.get("exit_code")
                ok, ran = status not in ("failed", "declined"), status != "declined"
                return began + self._reading.ended(call_id, output=output, ok=ok, exit_code=code, ran=ran)
            case "reasoning":
                return self._reading.thought(item.get("text"))
            case "agent_message":
                return self._reading.said(item.get("text"))
            case _:
                return []

    def _spent(self, usage: dict[str, Any]) -> Iterator[Event]:
        """Totals of the session: cached tokens are part of the input, reasoning of the output."""
        yield from self._spending.total(
            input_tokens=number(usage, "input_tokens"),
            cached_tokens=number(usage, "cached_input_tokens"),
            cache_write_tokens=number(usage, "cache_write_input_tokens"),
            output_tokens=number(usage, "output_tokens"),
            reasoning_tokens=number(usage, "reasoning_output_tokens"),
        )


def _skills(task: Task) -> set[str]:
    """The skills that Codex finds, as far as we know: it does not say which it offers."""
    there = (folder for folder in task.workspace_skills if folder.startswith((".agents/", ".codex/")))
    skills = {skill.name for skill_folder in task.runner.skills for skill in skills_of(skill_folder)}
    return skills | {folder.rpartition("/")[2] for folder in there}


def config_args(task: Task, env: Mapping[str, str]) -> Iterator[str]:
    """Arguments, so that they count in a user's own home as well, before the `args` of a runner, which win."""
    for setting in _SETTINGS:
        yield from ("-c", setting)
    if task.hosted_tools is not None and _SEARCH not in task.hosted_tools:
        # Otherwise it would ask its provider for the web with each request, and the gateway would refuse them all.
        yield from ("-c", _NO_SEARCH)
    if "OPENAI_BASE_URL" in env:
        access = _KEY if "CODEX_API_KEY" in env else _LOGIN
        yield from ("-c", _PROVIDER % (json.dumps(env["OPENAI_BASE_URL"]), access), "-c", 'model_provider="whet"')


def _trouble(message: str) -> tuple[str, TroubleKind, int | None]:
    """Read an error, which is a text: with a status in front, the whole answer of the provider, or Codex's words."""
    retried = _RETRY.match(message)
    said = retried[1] if retried else message
    error = table(parse(said.encode()), "error")
    if error:
        kind = _CODES.get(text(error, "code") or "", "bad-request")
        return text(error, "message") or said, kind, number(error, "status") or 400
    match = _STATUS.match(said)
    if match:
        return said, status_kind(int(match[1])), int(match[1])
    # Whatever it says, it tries again only if the provider did not answer.
    unknown: tuple[TroubleKind, None] = ("network" if retried else "other", None)
    return said, *next(((kind, code) for known, kind, code in _MESSAGES if re.match(known, said)), unknown)

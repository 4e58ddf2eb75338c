"""OpenCode: `opencode run --format json`, the prompt on standard input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from whet.agents.contract import AgentCommand, AgentSetup, Meaning, Rows, Signs, Task, environment
from whet.agents.observe.records import (
    amount,
    input_figures,
    look,
    moment,
    number,
    parse,
    plus,
    status_kind,
    table,
    text,
)
from whet.agents.observe.to_events import RecordsAgent, resuming
from whet.model.events import Event, SessionEnded, SessionStarted, ToolResult, TroubleKind

# Providers that it knows by itself.
_KNOWN = ("anthropic", "deepseek", "google", "groq", "mistral", "opencode", "openrouter", "xai")
_KEYS = tuple(f"{name.upper()}_API_KEY" for name in _KNOWN)
_CREDENTIALS = (*_KEYS, "GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL")
_CONFIG = "opencode.json"
_OFF = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
_QUIET = {f"OPENCODE_DISABLE_{what}": "1" for what in _OFF}
# What sub-agents did: it prints only what the agent itself does.
_PARTS = "sub-agents"
_QUERY = """
SELECT part.session_id AS session, part.data AS part, message.data AS message FROM part
JOIN message ON message.id = part.message_id JOIN session ON session.id = part.session_id
WHERE session.parent_id IS NOT NULL ORDER BY part.id
"""
_MODE = ("run", "--format", "json", "--auto", "--thinking", "--print-logs", "--log-level", "INFO")
# OpenCode prints only complete messages, and a tool when it has ended; its log shows when either begins.
_LOGGED = (
    rb'timestamp=\S+ (?=level=(?:DEBUG|INFO) |level=ERROR run=\w+ message="stream error")level=\w+ run=\w+ '
    rb'(?:message="?(?P<what>evaluated|stream error|stream)"? '
    rb"(?:permission=|providerID=\S+ modelID=\S+ session\.id=\S+ small=false "
    rb'agent=\S+ mode=\S+(?: error\.error="(?P<said>[^\n]*)"\n)?))?'
)
_STEP = re.compile(rb'\{"type":"(?P<what>step_(?:start|finish))"')
_SIGNS = Signs(line=_STEP, means={b"step_finish": "said"}, kept=True)
_MEANS: dict[bytes, Meaning] = {b"evaluated": "tool", b"stream": "asked", b"stream error": "trouble"}
_LOG_SIGNS = Signs(line=re.compile(_LOGGED), means=_MEANS)


class OpencodeAgent(RecordsAgent):
    """Reads `step_start`, `text`, `reasoning`, `tool_use`, `step_finish` and `error`; none of them is the end."""

    program, skills = "opencode", ".config/opencode/skills"
    # Only for a server that its user names: for others it has addresses of its own.
    provider = "openai-compatible"
    login = (".local/share/opencode/auth.json",)
    setup = AgentSetup(
        variables=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"),
        install="npm install -g opencode-ai",
        helpers={"rg": "cannot load skills without ripgrep"},
        free=True,
    )
    always_copies_login = True
    state = tuple(f".local/share/opencode/opencode.db{part}" for part in ("", "-wal", "-shm"))
    derived = ("input_tokens", "output_tokens")

    def __init__(self) -> None:
        super().__init__()
        self._session: str | None = None
        self._reason = "nothing"
        self._failed: str | None = None
        # What sub-agents did, by their sessions.
        self._inner: dict[str, list[dict[str, Any]]] = {}
        self._fresh = True
        # A call is printed once it has ended. Its result waits for the end of the step, so that a step is one round.
        self._results: list[Event] = []

    def command(self, task: Task) -> AgentCommand:
        """OpenCode keeps its files below its home; `args` are passed to `run`."""
        self._fresh = task.resume is None
        env = {**_QUIET, **environment(task, *_CREDENTIALS)}
        config = _config(task.runner.model or "", env)
        if config:
            env = {"OPENCODE_CONFIG": str(task.home / _CONFIG), **env}
        return replace(
            self.start(task, _MODE, env, resume=resuming(task, "--session")),
            signs=_SIGNS,
            log_signs=_LOG_SIGNS,
            home_files=config,
            collect_rows={_PARTS: Rows(self.state[0], _QUERY)},
        )

    def events(self, record: bytes) -> Iterable[Event]:
        """Every record but an error is one part of a step."""
        seen = parse(record)
        part, at = table(seen, "part"), moment(seen.get("timestamp"))
        if self._session is None and text(seen, "sessionID"):
            self._session = text(seen, "sessionID")
            yield SessionStarted(session_id=self._session, at=at)
        match seen.get("type"):
            case "step_start":
                yield from self._let_go()
                self._reason, self._failed = "nothing", None
            case "text" if look(part, "metadata", "compaction_continue") is True:
                # OpenCode writes this prompt for itself after a summary of the session.
                yield from self._reading.release_words("thinking")
                yield from self._let_go()
                self._reason = "a summary of the session"
            case "text":
                yield from self._reading.said(part.get("text"), at=at)
            case "reasoning":
                yield from self._reading.thought(part.get("text"), at=at)
            case "tool_use":
                yield from self._tool(part, at)
            case "step_finish":
                yield from self._step(part)
            case "error":
                yield from self._let_go()
                yield from self._trouble(table(seen, "error"), at)

    def learn(self, collected: Mapping[str, bytes]) -> bool:
        """A sub-agent has its own session, of which only its last words are printed."""
        for line in collected.get(_PARTS, b"").splitlines():
            row = parse(line)
            session, part, message = (text(row, name) or "" for name in ("session", "part", "message"))
            if parse(message.encode("utf-8", "replace")).get("role") == "assistant":
                self._inner.setdefault(session, []).append(parse(part.encode("utf-8", "replace")))
        return bool(self._inner)

    def ending(self, collected: Mapping[str, bytes]) -> Iterable[Event]:
        """OpenCode is done if its last step stopped by itself: a step that asked for a tool was refused or killed."""
        del collected
        ok = self._reason == "stop"
        yield from self._reading.answered() if ok else ()
        yield from self._let_go()
        # Sub-agents that were cut off while they worked; in a resumed session, an earlier run may have left some too.
        for session in list(self._inner) if self._fresh else ():
            yield from self._helped(session)
        yield from self._reading.left()
        why = f" ({self._failed})" if self._failed else ""
        yield SessionEnded(ok=ok, reason=None if ok else f"its last step ended with {self._reason}{why}")

    def _tool(self, part: dict[str, Any], at: str | None) -> Iterator[Event]:
        state, call_id = table(part, "state"), part.get("callID")
        done = state.get("status") == "completed"
        self._failed = None if done else text(state, "error")
        output = state.get("output") if done else state.get("error")
        began, ended = (moment(look(state, "time", name)) or at for name in ("start", "end"))
        yield from self._reading.began(call_id, part.get("tool"), state.get("input"), at=began)
        yield from self._helped(text(state, "metadata", "sessionId"))
        # A command that fails is a tool that completed; an error is a call that was refused or could not be made.
        for event in self._reading.ended(
            call_id, output=output, ok=done, ran=done, exit_code=look(state, "metadata", "exit"), at=ended
        ):
            if isinstance(event, ToolResult):
                self._results.append(event)
            else:
                yield event

    def _helped(self, session: str | None) -> Iterator[Event]:
        """What a sub-agent did in its own session; only the first time that the session occurs."""
        outside, self._results, failed = self._results, [], self._failed
        for part in self._inner.pop(session or "", ()):
            match part.get("type"):
                case "text":
                    yield from self._reading.said(part.get("text"))
                case "reasoning":
                    yield from self._reading.thought(part.get("text"))
                case "tool":
                    yield from self._tool(part, moment(look(part, "state", "time", "end")))
                case "step-finish":
                    yield from self._let_go()
                    yield from self._usage(part)
        yield from self._let_go()
        self._results, self._failed = outside, failed

    def _step(self, part: dict[str, Any]) -> Iterator[Event]:
        self._reason = text(part, "reason") or "nothing"
        if self._reason != "stop":
            yield from self._let_go()
        # Otherwise it is not known before the end whether this was the answer, or a summary to go on with.
        yield from self._usage(part)

    def _usage(self, part: dict[str, Any]) -> Iterator[Event]:
        """Read the usage of a step: its input leaves out what a cache read or wrote, its output reasoning."""
        tokens = table(part, "tokens")
        thought = number(tokens, "reasoning")
        return self._spending.more(
            **input_figures(number(tokens, "input"), number(tokens, "cache", "read"), number(tokens, "cache", "write")),
            output_tokens=plus(number(tokens, "output"), thought),
            reasoning_tokens=thought,
            # OpenCode says 0 if it does not know the price.
            cost_usd=amount(part, "cost") or None,
        )

    def _let_go(self) -> list[Event]:
        results, self._results = self._results, []
        return [*self._reading.release_words(), *results]

    def _trouble(self, error: dict[str, Any], at: str | None) -> Iterator[Event]:
        status = number(error, "data", "statusCode")
        # An error of the API without a status means that there was no answer.
        names: dict[Any, TroubleKind] = {"ProviderAuthError": "auth", "APIError": "network"}
        kind = names.get(text(error, "name"), "other") if status is None else status_kind(status)
        if text(error, "name") == "ContextOverflowError":
            kind = "context"
        self._reason = "an error"
        yield from self._reading.trouble(text(error, "data", "message") or text(error, "name"), kind, status, at=at)


def _config(model: str, env: Mapping[str, str]) -> dict[str, bytes]:
    """A provider for an OpenAI-compatible server, called as the model says; the key itself is not written down."""
    provider, _, name = model.partition("/")
    if "OPENAI_BASE_URL" not in env or provider in _KNOWN or not name:
        return {}
    reached = {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"}
    served = {"npm": "@ai-sdk/openai-compatible", "options": reached, "models": {name: {}}}
    return {_CONFIG: json.dumps({"provider": {provider: served}}).encode()}

"""Gemini CLI: `gemini --output-format stream-json`, the prompt on standard input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whet.agents.contract import AgentCommand, AgentSetup, Signs, Task, environment
from whet.agents.observe.records import as_text, number, parse, plus, rows, status_kind, table, text
from whet.agents.observe.to_events import EventBuilder, RecordsAgent, resuming
from whet.model.events import Event, Message, SessionStarted, TroubleKind

# The chat of the session, and those of its sub-agents in a folder of its name.
CHATS = (".gemini/tmp/*/chats/*.jsonl", ".gemini/tmp/*/chats/*/*.jsonl")
_SHELL = "run_shell_command"
# What follows the output of a command, line by line; its code only if it is not 0.
_OUTPUT = re.compile(r"(?:\A|\n)Output: ")
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,9})$", re.MULTILINE)
_UNKNOWN = re.compile(r"^(?:Signal|Error): ", re.MULTILINE)


class Chats:
    """The calls of a session and of its sub-agents, by the id of each call."""

    def __init__(self, collected: Mapping[str, bytes] | None = None) -> None:
        self._calls: dict[str, dict[str, Any]] = {}
        self._messages: dict[str, dict[str, dict[str, Any]]] = {}
        for data in (collected or {}).values():
            self._take(data)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def exit_code(self, call_id: Any) -> int | None:
        """The exit code of a command; None if it is unknown."""
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        return _exit_code(call) if call is not None else None

    def inside(self, call_id: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Return what the sub-agent of a call said and called, round by round; only the first time."""
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        for message in self._messages.pop(text(call, "agentId") or "", {}).values():
            if message.get("type") == "gemini":
                yield as_text(message.get("content")), _calls(message)

    def _take(self, data: bytes) -> None:
        """Read one file: its first line names the session; a message that is repeated replaces the earlier one."""
        session = ""
        for line in data.splitlines():
            seen = parse(line)
            session = text(seen, "sessionId") or session
            self._keep(session, seen)
            for message in rows(seen, "$set", "messages"):
                self._keep(session, table(message))

    def _keep(self, session: str, message: dict[str, Any]) -> None:
        ident = text(message, "id")
        if ident is None or text(message, "type") is None:
            return
        self._messages.setdefault(session, {})[ident] = message
        for call in _calls(message):
            self._calls[call["id"]] = call


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for call in map(table, rows(message, "toolCalls")) if text(call, "id")]


def _exit_code(call: dict[str, Any]) -> int | None:
    """Read the exit code from what the model saw: the output of the command, and lines of the program after it."""
    if call.get("name") != _SHELL or call.get("status") != "success":
        return None
    answers = (text(part, "functionResponse", "response", "output") for part in rows(call, "result"))
    seen = "\n".join(filter(None, answers))
    match = _OUTPUT.search(seen)
    if match is None:
        return None
    rest, shown = seen[match.end() :], text(call, "resultDisplay")
    # A command may print such lines as well.
    rest = rest.removeprefix(shown) if shown else rest
    code = _EXIT_CODE.search(rest)
    if code:
        return number(int(code[1]))
    return None if _UNKNOWN.search(rest) else 0


_KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_VERTEX = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_VERTEX_BASE_URL", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
_CREDENTIALS = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", *_VERTEX, _KEY_FILE)
_QUIET = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
_MODE = ("--output-format", "stream-json", "--approval-mode", "yolo")
_REFUSED = frozenset({"tool_not_registered", "invalid_tool_params", "policy_violation", "stop_execution"})

_SIGNS = Signs(
    line=re.compile(rb'\{"type":"(?P<what>message)","timestamp":"[^"]*","role":"assistant"'), means={}, kept=True
)
_LOG_SIGNS = Signs(
    line=re.compile(rb"(?P<what>Attempt \d+ failed)(?: with status (?P<status>\d{3}))?\. Retrying"),
    means={f"Attempt {number} failed".encode(): "trouble" for number in range(1, 101)},
    kept=True,
)
_NO_LOGIN = re.compile(r"set an Auth method|GEMINI_API_KEY|Invalid auth method", re.IGNORECASE)
_API_ERROR = re.compile(r"\[API Error: (.*)\]", re.DOTALL)
_STATUS_NAME = re.compile(r"\(Status: ([A-Z_]+)\)\Z")
# After several attempts the status is lost, and only the beginning of the message shows what happened.
_SAID: tuple[tuple[TroubleKind, re.Pattern[str]], ...] = (
    ("model-rejected", re.compile(r"models/\S+ is not found for API version ")),
    ("network", re.compile(r"terminated\Z|(?:exception TypeError: )?fetch failed")),
    ("overloaded", re.compile(r"The model is overloaded")),
    ("server", re.compile(r"(?:An i|I)nternal error ")),
    ("rate-limit", re.compile(r"Quota exceeded|You (?:exceeded|have exhausted) your ")),
)
# By the API, and by the program itself before it asks.
_NO_ROOM = re.compile(r"The input token count .*exceeds|Sending this message .*exceed the .*context window")
_CODES = (400, 401, 403, 404, 429, 500, 503)
_NAMES = "INVALID_ARGUMENT UNAUTHENTICATED PERMISSION_DENIED NOT_FOUND RESOURCE_EXHAUSTED INTERNAL UNAVAILABLE"
_STATUSES = dict(zip(_NAMES.split(), _CODES, strict=True))


class GeminiAgent(RecordsAgent):
    """Reads `init`, `message`, `tool_use`, `tool_result`, `error` and `result`."""

    program, skills = "gemini", ".gemini/skills"
    provider = "gemini"
    login = (".gemini/oauth_creds.json",)
    beside_login = (".gemini/google_accounts.json",)
    setup = AgentSetup(
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GENAI_USE_VERTEXAI"),
        install="npm install -g @google/gemini-cli",
    )
    state = (".gemini/tmp",)
    derived = ("output_tokens", "reasoning_tokens")

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[str] = []
        self._chats = Chats()

    def command(self, task: Task) -> AgentCommand:
        """Gemini's settings name the way to log in: without it, Gemini refuses a base URL that is not Google's.

        In the user's own home, only their settings count: it takes ours from no other place.
        """
        env = {**_QUIET, **environment(task, *_CREDENTIALS)}
        command = self.start(task, _MODE, env, resume=resuming(task, "--resume"))
        login = any(name in command.home_copies for name in self.login)
        return replace(
            command,
            signs=_SIGNS,
            log_signs=_LOG_SIGNS,
            no_login=_NO_LOGIN,
            home_files={".gemini/settings.json": _settings(env, login)} if env["HOME"] == str(task.home) else {},
            collect=CHATS,
            readable=(*command.readable, *([Path(env[_KEY_FILE])] if _KEY_FILE in env else [])),
        )

    def events(self, record: bytes) -> Iterable[Event]:
        """An answer comes in pieces; it is whole when anything else follows."""
        seen = parse(record)
        kind, at = seen.get("type"), text(seen, "timestamp")
        if kind == "message" and seen.get("role") == "assistant":
            self._pieces.append(text(seen, "content") or "")
            return
        yield from self._joined()
        call_id = seen.get("tool_id")
        match kind:
            case "init":
                yield SessionStarted(session_id=text(seen, "session_id"), model=text(seen, "model"), at=at)
            case "message" if seen.get("role") == "user":
                yield Message(role="user", text=text(seen, "content") or "", at=at)
            case "tool_use":
                yield from self._reading.began(call_id, seen.get("tool_name"), seen.get("parameters"), at=at)
            case "tool_result":
                done, ran = seen.get("status") == "success", text(seen, "error", "type") not in _REFUSED
                yield from self._helped(call_id)
                code = self._chats.exit_code(call_id)
                yield from self._reading.ended(
                    call_id, output=seen.get("output"), ok=done, exit_code=code, ran=ran, at=at
                )
            case "error":
                said = text(seen, "message") or ""
                yield from self._reading.trouble(said, "context" if _NO_ROOM.match(said) else "other", at=at)
            case "result":
                yield from self._result(seen, at)

    def learn(self, collected: Mapping[str, bytes]) -> bool:
        """Exit codes, and what sub-agents did, are only in the files of its chats."""
        self._chats = Chats(collected)
        return bool(self._chats)

    def ending(self, collected: Mapping[str, bytes]) -> Iterable[Event]:
        """An answer may have come in part."""
        return [*self._joined(), *super().ending(collected)]

    def _helped(self, call_id: Any) -> Iterator[Event]:
        """What the sub-agent did that a call asked for, and its own sub-agents."""
        for said, calls in self._chats.inside(call_id):
            yield from self._reading.said(said)
            for call in calls:
                yield from self._reading.began(call.get("id"), call.get("name"), call.get("args"))
            for call in calls:
                inner, done = call.get("id"), call.get("status") == "success"
                yield from self._helped(inner)
                code = self._chats.exit_code(inner)
                yield from self._reading.ended(inner, output=call.get("resultDisplay"), ok=done, exit_code=code)
            yield from self._reading.release_words()

    def _joined(self) -> list[Event]:
        whole = "".join(self._pieces)
        self._pieces.clear()
        return self._reading.said(whole)

    def _result(self, seen: dict[str, Any], at: str | None) -> Iterator[Event]:
        yield from self._spending.more(**_tokens(table(seen, "stats")))
        message = text(seen, "error", "message") or "it ended with an error"
        well = seen.get("status") == "success"
        yield from () if well else _trouble(self._reading, message)
        yield from self._reading.over(well, message, at=at)


def _tokens(stats: dict[str, Any]) -> dict[str, int | None]:
    """Gemini's input includes cached tokens; its output leaves out the thoughts, which only the total includes."""
    total, read, written = (number(stats, name) for name in ("total_tokens", "input_tokens", "output_tokens"))
    if not total or read is None or written is None:
        return {}
    thoughts = max(total - read - written, 0)
    cached, output = number(stats, "cached"), plus(written, thoughts)
    return {"input_tokens": read, "cached_tokens": cached, "output_tokens": output, "reasoning_tokens": thoughts}


def _trouble(reading: EventBuilder, message: str) -> Iterator[Event]:
    """Read the message: the type of an error is always "unknown", and the exit code is the status cut to a byte."""
    match = _API_ERROR.match(message)
    said = match[1] if match else ""
    error = table(parse(said.encode("utf-8", "replace")), "error")
    named = _STATUS_NAME.search(said)
    status = number(error, "code") or _STATUSES.get(named[1] if named else "")
    kind = next((kind for kind, pattern in _SAID if pattern.match(said)), status_kind(status))
    if "API_KEY_INVALID" in [text(detail, "reason") for detail in rows(error, "details")]:
        # The real API answers a wrong key with status 400.
        kind = "auth"
    if _NO_ROOM.match(text(error, "message") or said or message):
        kind = "context"
    yield from reading.trouble(text(error, "message") or message, kind, status)


def _settings(env: Mapping[str, str], login: bool) -> bytes:
    if login:
        other = "oauth-personal"
    elif _VERTEX[0] in env:
        other = "vertex-ai"
    else:
        other = "gemini-api-key"
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key" if "GEMINI_API_KEY" in env else other}},
        # Otherwise it tries ten times, for minutes, without a word.
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 4},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    return json.dumps(settings).encode()

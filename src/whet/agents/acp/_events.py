"""What an agent says over the Agent Client Protocol, as events: words, thoughts, tools, plans, permissions, tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from whet.agents.acp._protocol import (
    ASKS_PERMISSION,
    AUTHENTICATE,
    FIRST_PROMPT,
    INITIALIZE,
    NEW_SESSION,
    NO_MODEL,
    SET_MODE,
    SET_MODEL,
    answer_id,
    chosen,
    may,
    model_option,
    protocol_problem,
)
from whet.agents.acp._tools import ToolState
from whet.agents.observe.records import amount, as_text, look, number, parse, plus, rows, status_kind, table, text
from whet.agents.observe.to_events import EventBuilder, SpendingTotals
from whet.model.events import Event, Permission, SessionEnded, SessionStarted, TroubleKind

_STEPS = {
    INITIALIZE: "initialize",
    AUTHENTICATE: "authenticate",
    NEW_SESSION: "session/new",
    SET_MODEL: "the choice of the model",
    SET_MODE: "session/set_mode",
}
# Codes of JSON-RPC: the agent wants a login, and it does not know what it was asked for.
_WANTS_LOGIN, _UNKNOWN_METHOD = -32000, -32601
_STOPPED = {
    "max_tokens": "its model reached its limit of tokens",
    "max_turn_requests": "it reached its own limit of requests",
    "refusal": "it refused to go on",
    "cancelled": "it was cancelled",
}
# What the programs call their troubles, wherever they say it.
_NAMES: dict[str, TroubleKind] = {
    "authentication_failed": "auth",
    "billing_error": "auth",
    "unauthorized": "auth",
    "ProviderAuthError": "auth",
    "model_not_found": "model-rejected",
    "rate_limit": "rate-limit",
    "usage_limit_exceeded": "rate-limit",
    "overloaded": "overloaded",
    "server_overloaded": "overloaded",
    "server_error": "server",
    "internal_server_error": "server",
    "invalid_request": "bad-request",
    "bad_request": "bad-request",
    "APIError": "network",
    "http_connection_failed": "network",
    "response_stream_connection_failed": "network",
    "response_stream_disconnected": "network",
    "response_too_many_failed_attempts": "network",
    "ContextOverflowError": "context",
    "context_window_exceeded": "context",
}
_NAMED_BY = ("errorKind", "errorName", "codex_error_info", "kind", "name", "type", "code")
_STATUS_KEYS = ("status", "statusCode", "httpStatus", "http_status_code")
_STATUS = re.compile(r"(?:API Error:|\bHTTP|\bstatus(?: code)?:?|Last error:) ?(\d{3})\b", re.IGNORECASE)
_MESSAGES: tuple[tuple[re.Pattern[str], TroubleKind], ...] = (
    (re.compile(r"model\b.*\b(?:does not exist|not found|may not exist)", re.IGNORECASE), "model-rejected"),
    (re.compile(r"at capacity|overloaded|high demand", re.IGNORECASE), "overloaded"),
    (re.compile(r"prompt is too long|context window|maximum context", re.IGNORECASE), "context"),
    (re.compile(r"fetch failed|unable to connect|connection error|error sending request|ECONN"), "network"),
)
_HTTP_ERRORS = range(400, 600)


class Habits(Struct, frozen=True, kw_only=True):
    """What one agent does in its own way, as far as we know it.

    `noise` are pieces of speech that its program writes, `outage` is speech that means an error if no model was
    used. `tokens` says what its figures are: of each prompt, of the session so far, or nothing that can be used.
    """

    noise: re.Pattern[str] | None = None
    outage: re.Pattern[str] | None = None
    tokens: str = "prompt"


class AcpReading:
    """Reads one session from the messages of its agent alone; our own are known by their ids."""

    def __init__(self, habits: Habits, *, policy: str, model: str | None, workspace: str) -> None:
        self._reading, self._spending = EventBuilder(workspace), SpendingTotals()
        self._habits, self._policy, self._model = habits, policy, model
        self._session: str | None = None
        self._answered: set[int] = set()
        self._calls: dict[str, ToolState] = {}
        # What is being said or thought, in pieces: which of the two, the id of the message, and the pieces.
        self._pieces: list[str] = []
        self._piece: tuple[str, str | None] = ("", None)
        # What each round took, of agents that do not say it of the whole prompt.
        self._rounds: list[dict[str, Any]] = []
        self._plans = 0
        self._plan: list[Any] | None = None

    def events(self, record: bytes) -> Iterator[Event]:
        """What one message means."""
        seen = parse(record)
        params, answers = table(seen, "params"), answer_id(seen)
        if seen.get("method") == "session/update" and self._is_ours(params):
            yield from self._update(table(params, "update"))
        elif seen.get("method") == ASKS_PERMISSION and "id" in seen and self._is_ours(params):
            yield from self._asked(params)
        elif answers is not None and answers not in self._answered:
            self._answered.add(answers)
            yield from self._answer(answers, seen)

    def left(self) -> list[Event]:
        """What it was saying or doing when it was stopped."""
        return [*self._joined(), *self._reading.left()]

    def _is_ours(self, params: dict[str, Any]) -> bool:
        return self._session is not None and params.get("sessionId") == self._session

    def _update(self, update: dict[str, Any]) -> Iterator[Event]:
        match kind := update.get("sessionUpdate"):
            case "agent_message_chunk" | "agent_thought_chunk":
                yield from self._piece_of(kind, update)
            case "tool_call" | "tool_call_update":
                yield from self._tool(update)
            case "plan":
                yield from self._planned(rows(update, "entries"))
            case "usage_update" if text(update, "cost", "currency") == "USD":
                # An agent that does not know the price says 0.
                yield from self._spending.total(cost_usd=amount(update, "cost", "amount") or None)
            case "config_option_update":
                yield from self._started(update)

    def _piece_of(self, kind: str, update: dict[str, Any]) -> Iterator[Event]:
        piece, message = text(update, "content", "text") or "", text(update, "messageId")
        if took := table(update, "_meta", "usage"):
            self._rounds.append(took)
        noise = self._habits.noise
        if noise is not None and kind == "agent_message_chunk" and noise.fullmatch(piece):
            return
        if self._pieces and self._piece != (kind, message):
            yield from self._joined()
        self._piece = kind, message
        self._pieces.append(piece)

    def _joined(self) -> list[Event]:
        """What was said in pieces, as a whole: something else has begun."""
        whole = "".join(self._pieces).strip("\n")
        self._pieces.clear()
        return self._reading.thought(whole) if self._piece[0] == "agent_thought_chunk" else self._reading.said(whole)

    def _tool(self, update: dict[str, Any], *, asked: bool = False) -> Iterator[Event]:
        call_id = text(update, "toolCallId")
        if call_id is None:
            return
        call = self._calls.setdefault(call_id, ToolState())
        if call.ended:
            return
        call.take(update)
        if not call.began and (asked or call.ready):
            call.began = True
            yield from self._joined()
            yield from self._reading.began(call_id, call.name(call_id), call.args(call_id))
        if call.began and call.status in ("completed", "failed"):
            call.ended = True
            yield from self._joined()
            yield from self._reading.ended(call_id, **call.result())

    def _asked(self, params: dict[str, Any]) -> Iterator[Event]:
        """A permission that it asks for, with the answer that the policy gives."""
        update = table(params, "toolCall")
        call_id = text(update, "toolCallId")
        yield from self._tool(update, asked=True)
        allowed = may(self._policy, params) and chosen(True, params) is not None
        call = self._calls.get(call_id or "")
        name = call.name(call_id or "") if call else "unknown"
        yield from self._reading.release_words()
        yield Permission(tool=name, id=call_id, allowed=allowed, policy=self._policy)
        if call and not call.ended and not allowed:
            # Not every agent says what became of it.
            call.ended = True
            yield from self._reading.ended(call_id, output="refused", ran=False)

    def _planned(self, entries: list[Any]) -> Iterator[Event]:
        """A plan, as the tool that most programs have for it."""
        if entries == self._plan:
            return
        self._plan, self._plans = entries, self._plans + 1
        call_id = f"plan-{self._plans}"
        yield from self._joined()
        yield from self._reading.began(call_id, "plan", {"entries": entries})
        yield from self._reading.ended(call_id, ok=True)

    def _answer(self, number_: int, seen: dict[str, Any]) -> Iterator[Event]:
        result = table(seen, "result")
        if "error" in seen:
            yield from self._failed(number_, table(seen, "error"))
        elif number_ == INITIALIZE:
            yield SessionStarted(version=text(result, "agentInfo", "version"))
            if problem := protocol_problem(seen):
                yield SessionEnded(ok=False, reason=problem)
        elif number_ == NEW_SESSION:
            yield from self._opened(result)
        elif number_ == SET_MODEL:
            yield SessionStarted(model=self._model)
        elif number_ >= FIRST_PROMPT:
            yield from self._ended(result)

    def _opened(self, result: dict[str, Any]) -> Iterator[Event]:
        self._session = text(result, "sessionId")
        if self._session is None:
            yield SessionEnded(ok=False, reason="its answer to session/new names no session")
            return
        yield SessionStarted(session_id=self._session)
        yield from self._started(result)
        if self._model is not None and model_option(result) is None and not table(result, "models"):
            yield SessionEnded(ok=False, reason=NO_MODEL)

    def _started(self, said: dict[str, Any]) -> Iterator[Event]:
        """The model, if it is named; some have words for "whatever is best"."""
        model = text(model_option(said), "currentValue") or text(said, "models", "currentModelId")
        if model and model not in ("default", "auto"):
            yield SessionStarted(model=model)

    def _ended(self, result: dict[str, Any]) -> Iterator[Event]:
        """The answer to a prompt; one that nothing was used for may be an outage that its program puts into words."""
        usage, reason = table(result, "usage"), text(result, "stopReason")
        said = "".join(self._pieces)
        outage = self._habits.outage
        if outage is not None and not usage and outage.match(said):
            self._pieces.clear()
            yield from self._trouble({"message": said})
            yield SessionEnded(ok=False, reason=said)
            return
        yield from self._joined()
        yield from self._spent(usage, result)
        why = _STOPPED.get(reason or "", f"its turn ended with {reason or 'no reason'}")
        yield from self._reading.over(reason == "end_turn", why)

    def _spent(self, usage: dict[str, Any], result: dict[str, Any]) -> Iterator[Event]:
        rounds, self._rounds = self._rounds, []
        match self._habits.tokens:
            case "prompt":
                for took in [usage] if usage else rounds:
                    yield from self._spending.more(**read_tokens(took))
            case "session":
                yield from self._spending.total(**read_tokens(usage))
            case "quota":
                # The output of Gemini leaves out what was thought, and nothing else says how much that was.
                read = number(result, "_meta", "quota", "token_count", "input_tokens")
                yield from self._spending.more(input_tokens=read)

    def _failed(self, number_: int, error: dict[str, Any]) -> Iterator[Event]:
        step = _STEPS.get(number_)
        said = _message(error)
        yield from self._joined()
        yield from self._trouble(error, rejected=number_ == SET_MODEL)
        login = error.get("code") == _WANTS_LOGIN
        wants = "; it wants a login: log in once by hand, or let `login` name one of its ways" if login else ""
        yield SessionEnded(ok=False, reason=f"{step} failed: {said}{wants}" if step else f"{said}{wants}")

    def _trouble(self, error: dict[str, Any], *, rejected: bool = False) -> list[Event]:
        kind, status = trouble_kind(error)
        # A method that it does not know says nothing about the model.
        if rejected and kind == "other" and error.get("code") != _UNKNOWN_METHOD:
            kind = "model-rejected"
        return self._reading.trouble(_message(error), kind, status)


def _message(error: dict[str, Any]) -> str:
    """What an error says in words: some put the answer of their provider into it, some say more in its data."""
    said = as_text(error.get("message"))
    inner = text(parse(said.encode("utf-8", "replace")), "error", "message")
    more = text(error, "data", "message") or text(error, "data", "details")
    return inner or (f"{said}: {more}" if more and more not in said else said) or "it reports an error"


def trouble_kind(error: dict[str, Any]) -> tuple[TroubleKind, int | None]:
    """Return what kind of trouble an error is, and its HTTP status: by its code, its data, and at last its words."""
    data, said = table(error, "data"), _message(error)
    if error.get("code") == _WANTS_LOGIN:
        return "auth", None
    inner = table(parse(as_text(error.get("message")).encode("utf-8", "replace")), "error")
    known = [number(each, key) for each in (data, inner, error) for key in (*_STATUS_KEYS, "code")]
    match = _STATUS.search(said)
    statuses = [*(each for each in known if each in _HTTP_ERRORS), *([int(match[1])] if match else [])]
    status = next((each for each in statuses if each in _HTTP_ERRORS), None)
    by_words = next((kind for pattern, kind in _MESSAGES if pattern.search(said)), None)
    names = [_name(look(data, key)) for key in _NAMED_BY]
    named = next((_NAMES[name] for name in names if name in _NAMES), None)
    if by_words in ("context", "model-rejected") and status in (None, 400, 404):
        return by_words, status
    if status is not None:
        return status_kind(status), status
    return named or by_words or "other", None


def _name(value: Any) -> str:
    """The name of a trouble: a text, or the only name of an object that says more about it."""
    if isinstance(value, dict):
        value = next(iter(value), "")
    return value if isinstance(value, str) else ""


def read_tokens(usage: dict[str, Any]) -> dict[str, int | None]:
    """The tokens as we count them: agents differ in what their input and output leave out, and the total shows it."""
    read, written, total, thought, cached, stored = (
        number(usage, f"{name}Tokens") for name in ("input", "output", "total", "thought", "cachedRead", "cachedWrite")
    )
    outside = None if None in (read, written, total) else (total or 0) - (read or 0) - (written or 0)
    cache = (cached or 0) + (stored or 0)
    if outside and outside in (cache, cache + (thought or 0)):
        read = plus(read, cached, stored)
    if outside and thought and outside in (thought, cache + thought):
        written = plus(written, thought)
    return {
        "input_tokens": read,
        "cached_tokens": cached,
        "cache_write_tokens": stored,
        "output_tokens": written,
        "reasoning_tokens": thought,
    }

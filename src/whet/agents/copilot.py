"""GitHub Copilot CLI: `copilot --output-format json`, the prompt on standard input, its tokens in a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whet.agents.contract import AgentCommand, AgentSetup, Signs, Task, Unpacking, environment
from whet.agents.observe.records import look, number, parse, rows, status_kind, table, text
from whet.agents.observe.to_events import RecordsAgent
from whet.model.events import Event, Message, SessionStarted, TroubleKind

_CREDENTIALS = ("GH_TOKEN", "GITHUB_TOKEN", "COPILOT_GITHUB_TOKEN", "COPILOT_MODEL", "COPILOT_OFFLINE", "GH_HOST")
_PROVIDER = "COPILOT_PROVIDER_"
_USAGE = "copilot-usage.json"
_MODE = ("--output-format", "json", "--allow-all", "--no-ask-user")
_ERRORS: dict[str, TroubleKind] = {
    "authentication": "auth",
    "authorization": "auth",
    "quota": "rate-limit",
    "rate_limit": "rate-limit",
    "transport": "network",
    "context_limit": "context",
}

_SIGNS = Signs(
    line=re.compile(rb'\{"type":"(?P<what>assistant\.\w+_(?:start|delta)|model\.call_(?:start|finished))"'),
    means={b"assistant.turn_start": "asked", b"model.call_start": "asked", b"model.call_finished": "said"},
    kept=True,
)
_NO_LOGIN = re.compile(r"No authentication information found|not logged in", re.IGNORECASE)
_FIGURES = {
    "input_tokens": "inputTokens",
    "cached_tokens": "cacheReadTokens",
    "cache_write_tokens": "cacheWriteTokens",
    "output_tokens": "outputTokens",
    "reasoning_tokens": "reasoningTokens",
}


class CopilotAgent(RecordsAgent):
    """Reads messages, tool executions, failures and `result`; it repeats later what it marks as ephemeral."""

    program, skills = "copilot", ".copilot/skills"
    provider = "copilot"
    setup = AgentSetup(
        variables=(
            "COPILOT_GITHUB_TOKEN",
            "GH_TOKEN",
            "GITHUB_TOKEN",
            "COPILOT_PROVIDER_API_KEY",
            "COPILOT_PROVIDER_BASE_URL",
        ),
        install="npm install -g @github/copilot",
        unpacks=True,
    )
    state = (".copilot/session-state",)

    def __init__(self) -> None:
        super().__init__()
        self._stopped: str | None = None
        self._failed: TroubleKind = "other"

    def command(self, task: Task) -> AgentCommand:
        """Copilot's state is in its home; only the file of `--usage-output-file` has tokens."""
        self._spending.resumed(task.resume)
        env = environment(task, *_CREDENTIALS, *(name for name in task.environ if name.startswith(_PROVIDER)))
        own = {"COPILOT_HOME": str(Path(env["HOME"]) / ".copilot"), "COPILOT_AUTO_UPDATE": "false"}
        mode = (*_MODE, "--usage-output-file", str(task.home / _USAGE))
        resume = (f"--resume={task.resume.session_id}",) if task.resume else ()
        command = self.start(task, mode, {**own, **env}, resume=resume)
        return replace(
            command,
            signs=_SIGNS,
            no_login=_NO_LOGIN,
            collect=(_USAGE,),
            # 235 MB, which it would otherwise unpack for every attempt.
            unpacking=Unpacking("COPILOT_PKG_CACHE_HOME", (command.argv[0], "--version")),
        )

    def events(self, record: bytes) -> Iterable[Event]:
        """Most records are noise; those that count keep what they say in `data`."""
        seen = parse(record)
        data, at = table(seen, "data"), text(seen, "timestamp")
        match seen.get("type"):
            case "session.tools_updated":
                yield SessionStarted(model=text(data, "model"), at=at)
            case "session.skills_loaded":
                names = [text(skill, "name") for skill in rows(data, "skills")]
                yield SessionStarted(skills=tuple(name for name in names if name), at=at)
            case "user.message":
                yield Message(role="user", text=text(data, "content") or "", at=at)
            case "assistant.message" if not seen.get("ephemeral"):
                yield from self._message(data, at)
            case "tool.execution_start" if not self._reading.is_open(data.get("toolCallId")):
                yield from self._reading.began(
                    data.get("toolCallId"), data.get("toolName"), data.get("arguments"), at=at
                )
            case "tool.execution_complete":
                yield from self._executed(data, at)
            case "model.call_failure" | "session.error" | "assistant.turn_retry":
                yield from self._failure(data, at)
            case "abort":
                self._stopped = f"aborted: {text(data, 'reason') or 'no reason given'}"
            case "result":
                yield from self._result(seen, at)

    def ending(self, collected: Mapping[str, bytes]) -> Iterable[Event]:
        """Totals of the session: input includes the cache, output reasoning. Premium requests are not dollars."""
        yield from self._reading.left()
        models = table(parse(collected.get(_USAGE, b"")), "modelMetrics").values()
        yield from self._spending.total(**{ours: _sum(models, theirs) for ours, theirs in _FIGURES.items()})

    def _message(self, data: dict[str, Any], at: str | None) -> Iterator[Event]:
        """One round of the model: thoughts, words, and all the calls that it asks for."""
        self._failed = "other"
        yield from self._reading.thought(data.get("reasoningText"), at=at)
        yield from self._reading.said(data.get("content"), at=at)
        for call in rows(data, "toolRequests"):
            yield from self._reading.began(look(call, "toolCallId"), look(call, "name"), look(call, "arguments"), at=at)
        if text(data, "parentToolCallId"):
            # What a sub-agent says to the agent is not the answer.
            yield from self._reading.release_words()

    def _executed(self, data: dict[str, Any], at: str | None) -> Iterator[Event]:
        denied = text(data, "error", "code") == "denied"
        yield from self._reading.ended(
            data.get("toolCallId"),
            output=look(data, "result", "content") or look(data, "error", "message"),
            ok=data.get("success") is True,
            exit_code=look(data, "shellExecution", "exitCode"),
            ran=not denied,
            at=at,
        )
        if denied:
            yield from self._reading.trouble(look(data, "error", "message"), "permission", at=at)

    def _failure(self, data: dict[str, Any], at: str | None) -> Iterator[Event]:
        """One failed request, which Copilot may repeat, or the end; without an answer, the failure has no kind."""
        if text(data, "reason"):
            # Copilot tries again. If that fails too, Copilot does not print why.
            self._failed = "context" if data["reason"] == "forced_compaction" else self._failed
            return
        status = number(data, "statusCode")
        answered = status_kind(status) if status else self._failed
        self._failed = _ERRORS.get(text(data, "errorType") or text(data, "failureKind") or "", answered)
        message = data.get("message") or data.get("errorMessage")
        yield from self._reading.trouble(message, self._failed, status, at=at)

    def _result(self, seen: dict[str, Any], at: str | None) -> Iterator[Event]:
        """A session that was aborted says exit code 0 as well."""
        yield SessionStarted(session_id=text(seen, "sessionId"), at=at)
        code = number(seen, "exitCode")
        well = code == 0 and self._stopped is None
        yield from self._reading.over(well, self._stopped or f"it reports exit code {code}", at=at)


def _sum(models: Iterable[Any], name: str) -> int | None:
    """Return the sum over all models; None if none of them has the figure."""
    values = [value for model in models if (value := number(model, "usage", name)) is not None]
    return number(sum(values)) if values else None

"""Claude Code: `claude -p --output-format stream-json`, the prompt on standard input."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from msgspec.structs import replace

from whet.agents.contract import AgentCommand, AgentSetup, Signs, Task, environment
from whet.agents.observe.records import (
    amount,
    as_text,
    input_figures,
    look,
    number,
    parse,
    rows,
    slash_invoked,
    status_kind,
    table,
    text,
)
from whet.agents.observe.to_events import RecordsAgent, resuming
from whet.model.events import ContextAdded, Event, SessionEnded, SessionStarted, TroubleKind
from whet.model.session import Usage
from whet.reading.plugin_folder import is_plugin
from whet.shell.parse import folder_after, read_command

Figures: TypeAlias = dict[str, float]
_TOKENS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")


def read_tokens(usage: dict[str, Any]) -> dict[str, int | None]:
    """Claude Code's input leaves out what was read from and written to the cache."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return input_figures(*(number(usage, name) for name in names))


class UsageReader:
    """Reads `usage`, which leaves sub-agents out, and `modelUsage`, which counts all, in some versions all runs.

    `before` is the usage of a resumed session until then.
    """

    def __init__(self, before: Usage | None = None) -> None:
        self._before = before
        # What the totals had counted at the last result; None before the first.
        self._counted: Figures | None = None

    def spent(self, seen: dict[str, Any]) -> dict[str, float | None]:
        """The figures of a `result` since the one before."""
        usage = table(seen, "usage")
        reported = read_tokens(usage) | {"output_tokens": number(usage, "output_tokens")}
        thoughts = number(usage, "output_tokens_details", "thinking_tokens")
        recent = _over_models(table(seen, "model_usage_since_last_result"))
        if recent:
            return {**_most(reported, recent), "reasoning_tokens": thoughts, "cost_usd": recent["cost_usd"]}
        whole, total = _over_models(table(seen, "modelUsage")), amount(seen, "total_cost_usd")
        counted = self._earlier(whole, reported) if self._counted is None else self._counted
        self._counted = whole | ({} if total is None else {"cost_usd": total})
        spent = {} if counted is None else {name: value - counted.get(name, 0) for name, value in whole.items()}
        cost = None if total is None else total - (counted or {}).get("cost_usd", 0)
        return {**_most(reported, spent), "reasoning_tokens": thoughts, "cost_usd": cost}

    def _earlier(self, whole: Figures, reported: dict[str, int | None]) -> Figures | None:
        """Return what of the totals was spent before the session was resumed; None if that is unknown."""
        if self._before is None:
            return {}
        earlier = {name: self._before.reported(name) for name in _TOKENS}
        if earlier["output_tokens"] is None or not whole:
            return None
        if any(
            whole[name] < (reported[name] or 0) + (earlier[name] or 0) for name in ("input_tokens", "output_tokens")
        ):
            # The program started to count from 0 again.
            return {}
        paid = self._before.cost_usd if self._before.cost_source == "agent" else None
        return {name: value for name, value in (earlier | {"cost_usd": paid}).items() if value is not None}


def _most(reported: dict[str, int | None], spent: Figures) -> dict[str, float | None]:
    """Return the larger figures: the count over all models includes all that the session itself reports."""
    return {name: max(value or 0, spent[name]) if name in spent else value for name, value in reported.items()}


def _over_models(models: dict[str, Any]) -> Figures:
    """Return the totals over all models, by our names; empty if there are none."""
    if not models:
        return {}
    read, cost = [_model(usage) for usage in models.values()], [amount(usage, "costUSD") for usage in models.values()]
    tokens: Figures = {name: sum(figures[name] or 0 for figures in read) for name in _TOKENS}
    return tokens | {"cost_usd": sum(value or 0 for value in cost)}


def _model(usage: Any) -> dict[str, int | None]:
    names = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    figures = input_figures(*(number(usage, name) for name in names))
    return {**figures, "output_tokens": number(usage, "outputTokens")}


_CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN")
# IS_SANDBOX: without it the program refuses, as root, to work without asking for permissions.
_QUIET = ("IS_SANDBOX", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY")
# Where plug-ins are put below its home, for `--plugin-dir`.
_PLUGINS = "plugins"
_STREAM = ("--output-format", "stream-json", "--verbose", "--include-partial-messages")
_MODE = ("-p", *_STREAM, "--dangerously-skip-permissions")
# Pieces of an answer, which is printed again when it is complete.
_SIGNS = Signs(
    line=re.compile(rb'\{"type":"stream_event","event":\{"type":"(?P<what>\w+)"'), means={b"message_stop": "said"}
)
_ERRORS: dict[str, TroubleKind] = {
    "authentication_failed": "auth",
    "billing_error": "auth",
    "model_not_found": "model-rejected",
    "rate_limit": "rate-limit",
    "overloaded": "overloaded",
    "invalid_request": "bad-request",
}
_IN_BACKGROUND = re.compile(r"Command running in background with ID: ")
_TOO_LONG = "Prompt is too long"
_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b")
_BACK = re.compile(r"^Shell cwd was reset to ", re.MULTILINE)
_EXIT_CODE = re.compile(r"Exit code (\d{1,9})\b")


class ClaudeCodeAgent(RecordsAgent):
    """Reads `system`, `assistant` (one record for each block of a reply), `user` (results) and `result`."""

    program, skills = "claude", ".claude/skills"
    provider = "anthropic"
    login = (".claude/.credentials.json",)
    setup = AgentSetup(
        variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        install="npm install -g @anthropic-ai/claude-code",
    )
    state = (".claude/projects",)
    derived = ("input_tokens",)

    def __init__(self) -> None:
        super().__init__()
        self._refused = set[str | None]()
        # The last reply of the agent and of each sub-agent.
        self._replies: dict[str | None, str | None] = {}
        self._error: tuple[str | None, int | None] = (None, None)
        self._bill, self._prompt, self._cwd = UsageReader(), "", ""

    def command(self, task: Task) -> AgentCommand:
        """The settings and the login are in the home of the attempt, unless the runner wants the user's own."""
        self._prompt = task.prompt
        self._bill = UsageReader(task.resume.usage if task.resume else None)
        env = environment(task, *_CREDENTIALS)
        state = {"CLAUDE_CONFIG_DIR": str(task.home / ".claude")} if env["HOME"] == str(task.home) else {}
        env = {**dict.fromkeys(_QUIET, "1"), "CLAUDE_CODE_TMPDIR": str(task.temporary), **state, **env}
        plugins = {f"{_PLUGINS}/{folder.name}": folder for folder in task.runner.skills if is_plugin(folder)}
        skills = tuple(folder for folder in task.runner.skills if folder not in plugins.values())
        plain_task = replace(task, runner=replace(task.runner, skills=skills))
        places = (word for path in plugins for word in ("--plugin-dir", str(task.home / path)))
        command = self.start(plain_task, (*_MODE, *places), env, resume=resuming(task, "--resume"))
        return replace(command, home_copies={**command.home_copies, **plugins}, signs=_SIGNS)

    def events(self, record: bytes) -> Iterable[Event]:
        """What one record means."""
        seen = parse(record)
        match seen.get("type"):
            case "system":
                yield from self._system(seen)
            case "assistant":
                yield from self._assistant(seen, table(seen, "message"), text(seen, "timestamp"))
            case "user":
                for block in rows(seen, "message", "content"):
                    if look(block, "type") == "tool_result":
                        # Only the shell of the agent itself stays where a command went.
                        self._reading.cwd = "" if text(seen, "parent_tool_use_id") else self._cwd
                        yield from self._returned(block, look(seen, "tool_use_result"), text(seen, "timestamp"))
                    elif seen.get("isSynthetic") is True and (added := text(block, "text")):
                        yield ContextAdded(text=added, at=text(seen, "timestamp"))
            case "result":
                yield from self._result(seen)

    def _system(self, seen: dict[str, Any]) -> Iterator[Event]:
        match seen.get("subtype"):
            case "init":
                self._reading.workspace = text(seen, "cwd") or self._reading.workspace
                model, version = text(seen, "model"), text(seen, "claude_code_version")
                skills = tuple(name for name in rows(seen, "skills") if isinstance(name, str))
                yield SessionStarted(session_id=text(seen, "session_id"), model=model, version=version, skills=skills)
                # Some skills are only for the model, and not commands.
                commands = rows(seen, "slash_commands") or skills
                yield from slash_invoked(self._prompt, {name for name in skills if name in commands})
                self._prompt = ""
            case "api_retry":
                error, status = text(seen, "error"), number(seen, "error_status")
                # Without a status there was no answer.
                kind = _kind(error, status) if status else _ERRORS.get(error or "", "network")
                yield from self._reading.trouble(error or "it tries again", kind, status)
            case "permission_denied":
                self._refused.add(text(seen, "tool_use_id"))
                yield from self._reading.trouble(f"{text(seen, 'tool_name') or 'a tool'} was refused", "permission")

    def _assistant(self, seen: dict[str, Any], message: dict[str, Any], at: str | None) -> Iterator[Event]:
        if text(seen, "error"):
            # The program says this, not the model.
            self._error = text(seen, "error"), number(seen, "api_error_status")
            said = as_text(rows(message, "content"))
            kind = "context" if said.startswith(_TOO_LONG) else _kind(*self._error)
            yield from self._reading.trouble(said, kind, self._error[1])
            return
        author, reply = text(seen, "parent_tool_use_id"), text(message, "id")
        if author not in self._replies or self._replies[author] != reply:
            # Every block of a reply repeats its usage; how much it wrote is not known before the end.
            self._replies[author] = reply
            yield from self._spending.more(**read_tokens(table(message, "usage")))
        yield from self._reading.blocks(rows(message, "content"), at=at)

    def _returned(self, block: dict[str, Any], details: Any, at: str | None) -> Iterator[Event]:
        call_id, output = text(block, "tool_use_id"), as_text(block.get("content"))
        failed = block.get("is_error") is True
        ran = call_id not in self._refused and not (failed and output.startswith("<tool_use_error>"))
        said = _EXIT_CODE.match(output) if failed else None
        in_background = look(details, "backgroundTaskId") or _IN_BACKGROUND.match(output)
        # The command worked but its code is unknown: it was explained away, or a sub-agent ran it without details.
        unsure = failed or not isinstance(details, dict) or look(details, "returnCodeInterpretation") or in_background
        if said:
            code = int(said[1])
        elif unsure:
            code = None
        else:
            code = 0
        worked = None if failed or in_background else True
        command = self._reading.command_of(call_id) if code == 0 else None
        yield from self._reading.ended(
            call_id, output=output, ok=not failed, exit_code=code, worked=worked, ran=ran, at=at
        )
        if command and _MOVES.search(command):
            moved = folder_after(read_command(command), self._cwd)
            # Claude Code does not stay outside of its workspace, and says so.
            self._cwd = "" if _BACK.search(output) else moved

    def _result(self, seen: dict[str, Any]) -> Iterator[Event]:
        """An error is a "success" with `is_error`."""
        ok = seen.get("is_error") is not True and seen.get("subtype") == "success"
        answer, status = text(seen, "result"), number(seen, "api_error_status")
        if ok:
            yield from self._reading.answered(answer)
        elif seen.get("terminal_reason") == "prompt_too_long" or (answer or "").startswith(_TOO_LONG):
            yield from self._reading.trouble(answer, "context", status)
        elif status is not None and status != self._error[1]:
            yield from self._reading.trouble(answer, _kind(self._error[0], status), status)
        yield from self._reading.release_words()
        yield from self._spending.total(**self._bill.spent(seen))
        self._spending.anew()
        yield SessionEnded(ok=ok, reason=None if ok else answer or text(seen, "subtype"))


def _kind(name: str | None, status: int | None) -> TroubleKind:
    """By its name, else by its status; only the name says that a 404 is about the model and not about a gateway."""
    by_status = status_kind(500 if name == "server_error" and status is None else status)
    return _ERRORS.get(name or "", "other" if by_status == "model-rejected" else by_status)

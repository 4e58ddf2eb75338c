"""What whet says over the Agent Client Protocol: it opens a session, sends prompts and answers what the agent asks.

The SDK makes what is sent. What is heard may be anything, so it is read as the output of every agent is: the SDK's own
connection prints a traceback for a line that is no message, and starts a task for each that is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from whet.agents.records import look, parse, rows, table, text
from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.version import __version__

if TYPE_CHECKING:
    from pydantic import BaseModel

# The ids of our requests. They say what an answer is about, also to those who only see the transcript.
INITIALIZE, AUTHENTICATE, NEW_SESSION, SET_MODEL, SET_MODE, FIRST_PROMPT = 1, 2, 3, 4, 5, 100
VERSION = 1
ASKS_PERMISSION = "session/request_permission"
NO_MODEL = "it offers no choice of a model; let `args` or `env` name it as {model}, or leave out `model`"
_READS = frozenset({"read", "search", "think"})


def require_acp() -> None:
    """Raise if the SDK is missing; call it before anything runs."""
    try:
        import acp.schema  # noqa: F401, PLC0415
    except ImportError as error:
        raise UsageError("agents of type acp need the agent-client-protocol library", hint=INSTALL) from error


INSTALL = "pip install 'whet[acp]'"


def may(policy: str, request: dict[str, Any]) -> bool:
    """Return whether *policy* permits what the params of a permission request are about."""
    return policy == "allow" or (policy == "reads" and text(request, "toolCall", "kind") in _READS)


def chosen(allowed: bool, request: dict[str, Any]) -> str | None:
    """Return the option to select: for this one time if there is such an option, so that every use is asked for."""
    wanted = ("allow_once", "allow_always") if allowed else ("reject_once", "reject_always")
    options = [table(option) for option in rows(request, "options")]
    found = [text(option, "optionId") for kind in wanted for option in options if option.get("kind") == kind]
    return next(filter(None, found), None)


def answer_id(seen: dict[str, Any]) -> int | None:
    """Return which of our requests a message answers, if it answers one."""
    number = seen.get("id")
    answers = "method" not in seen and ("result" in seen or "error" in seen)
    return number if answers and isinstance(number, int) and not isinstance(number, bool) else None


def model_option(session: dict[str, Any]) -> dict[str, Any] | None:
    """Return the option by which a new session lets its model be chosen."""
    options = [table(option) for option in rows(session, "configOptions")]
    found = (option for option in options if "model" in (option.get("category"), option.get("id")))
    return next((option for option in found if text(option, "id")), None)


def protocol_problem(answer: dict[str, Any]) -> str | None:
    """Return why the answer to `initialize` is none that we can work with."""
    version = look(answer, "result", "protocolVersion")
    if "error" in answer or version == VERSION:
        return None
    return f"it speaks version {json.dumps(version)[:40]} of the protocol, and whet speaks version {VERSION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How to open a session: where it works, how it logs in, which model and mode it takes, and what it may do.

    `model` is None if it is chosen in another way, such as by an argument.
    """

    cwd: str
    login: str | None = None
    model: str | None = None
    mode: str | None = None
    permissions: str = "allow"


class AcpDialogue:
    """One session: every request waits for the answer to the one before."""

    def __init__(self, opening: Opening) -> None:
        self.answered = self.failed = False
        self._opening = opening
        self._session: str | None = None
        self._prompts = 0
        self._prompt = ""
        # The request whose answer is awaited, and what follows on it.
        self._awaited: int | None = None
        self._then: Callable[[dict[str, Any]], Iterable[bytes]] = lambda _: ()
        self._cancelled = False

    def ask(self, prompt: str) -> Iterable[bytes]:
        """Send a prompt; the first one opens the session."""
        self.answered, self._prompt = False, prompt
        return self._send_prompt() if self._session is not None else self._initialize()

    def hear(self, line: bytes) -> Iterable[bytes]:
        """Go on after an answer, and answer what it asks."""
        seen = parse(line)
        if "method" in seen:
            return self._reply(seen) if "id" in seen else ()
        if self._awaited is None or answer_id(seen) != self._awaited:
            return ()
        self._awaited = None
        return self._give_up() if "error" in seen else self._then(table(seen, "result"))

    def cancel(self) -> Iterable[bytes]:
        """Tell it to end its turn, if it has one; permissions that it still asks for are cancelled too."""
        from acp.schema import CancelNotification  # noqa: PLC0415

        self._cancelled = True
        if self._session is None:
            return self._give_up()
        return [_message("session/cancel", CancelNotification(session_id=self._session))]

    def _initialize(self) -> Iterable[bytes]:
        from acp.schema import (  # noqa: PLC0415
            ClientCapabilities,
            FileSystemCapabilities,
            Implementation,
            InitializeRequest,
        )

        # It has the tools of its own, inside the sandbox: it needs neither our files nor our terminal.
        nothing = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
        )
        me = Implementation(name="whet", title="whet", version=__version__)
        request = InitializeRequest(protocol_version=VERSION, client_capabilities=nothing, client_info=me)
        return self._request(INITIALIZE, "initialize", request, self._initialized)

    def _initialized(self, result: dict[str, Any]) -> Iterable[bytes]:
        from acp.schema import AuthenticateRequest  # noqa: PLC0415

        if protocol_problem({"result": result}):
            return self._give_up()
        if self._opening.login is None:
            return self._open({})
        login = AuthenticateRequest(method_id=self._opening.login)
        return self._request(AUTHENTICATE, "authenticate", login, self._open)

    def _open(self, _: dict[str, Any]) -> Iterable[bytes]:
        from acp.schema import NewSessionRequest  # noqa: PLC0415

        request = NewSessionRequest(cwd=self._opening.cwd, mcp_servers=[])
        return self._request(NEW_SESSION, "session/new", request, self._opened)

    def _opened(self, result: dict[str, Any]) -> Iterable[bytes]:
        from acp.schema import SetSessionConfigOptionSelectRequest  # noqa: PLC0415

        session, model = text(result, "sessionId"), self._opening.model
        if session is None:
            return self._give_up()
        self._session = session
        if model is None:
            return self._set_mode({})
        if option := model_option(result):
            request = SetSessionConfigOptionSelectRequest(session_id=session, config_id=option["id"], value=model)
            return self._request(SET_MODEL, "session/set_config_option", request, self._set_mode)
        if table(result, "models"):
            # The SDK no longer has this request; agents still do.
            chosen_model = {"sessionId": session, "modelId": model}
            return self._request(SET_MODEL, "session/set_model", chosen_model, self._set_mode)
        return self._give_up()

    def _set_mode(self, _: dict[str, Any]) -> Iterable[bytes]:
        from acp.schema import SetSessionModeRequest  # noqa: PLC0415

        mode = self._opening.mode
        if mode is None:
            return self._send_prompt()
        request = SetSessionModeRequest(session_id=self._session or "", mode_id=mode)
        return self._request(SET_MODE, "session/set_mode", request, lambda _: self._send_prompt())

    def _send_prompt(self) -> Iterable[bytes]:
        from acp.schema import PromptRequest, TextContentBlock  # noqa: PLC0415

        said = TextContentBlock(type="text", text=self._prompt)
        request = PromptRequest(session_id=self._session or "", prompt=[said])
        number, self._prompts = FIRST_PROMPT + self._prompts, self._prompts + 1
        return self._request(number, "session/prompt", request, self._end_turn)

    def _end_turn(self, result: dict[str, Any]) -> Iterable[bytes]:
        self.answered, self.failed = True, text(result, "stopReason") != "end_turn"
        return ()

    def _give_up(self) -> Iterable[bytes]:
        self.answered = self.failed = True
        return ()

    def _request(
        self,
        number: int,
        method: str,
        params: BaseModel | dict[str, Any],
        then: Callable[[dict[str, Any]], Iterable[bytes]],
    ) -> Iterable[bytes]:
        self._awaited, self._then = number, then
        return [_message(method, params, number)]

    def _reply(self, seen: dict[str, Any]) -> Iterable[bytes]:
        """Answer a permission request by the policy; everything else is something that we did not offer."""
        from acp.exceptions import RequestError  # noqa: PLC0415

        number, params = seen["id"], table(seen, "params")
        if not isinstance(number, int | str) or isinstance(number, bool):
            return []
        if seen["method"] != ASKS_PERMISSION:
            return [_line(id=number, error=RequestError.method_not_found(str(seen["method"])[:80]).to_error_obj())]
        if not rows(params, "options") or params.get("sessionId") != self._session:
            return [_line(id=number, error=RequestError.invalid_params().to_error_obj())]
        return [_line(id=number, result={"outcome": self._outcome(params)})]

    def _outcome(self, params: dict[str, Any]) -> dict[str, Any]:
        from acp.schema import AllowedOutcome, DeniedOutcome  # noqa: PLC0415

        option = None if self._cancelled else chosen(may(self._opening.permissions, params), params)
        if option is None:
            return DeniedOutcome(outcome="cancelled").model_dump(by_alias=True, exclude_none=True)
        return AllowedOutcome(outcome="selected", option_id=option).model_dump(by_alias=True, exclude_none=True)


def _message(method: str, params: BaseModel | dict[str, Any], number: int | None = None) -> bytes:
    given = params if isinstance(params, dict) else params.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _line(**({} if number is None else {"id": number}), method=method, params=given)


def _line(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n"

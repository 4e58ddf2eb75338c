"""What whet says over the Agent Client Protocol: it opens a session, sends prompts and answers what the agent asks.

The SDK makes what is sent. What is heard may be anything, so it is read as the output of every agent is: the SDK's own
connection prints a traceback for a line that is no message, and starts a task for each that is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from acp.exceptions import RequestError
from acp.schema import (
    AllowedOutcome,
    AuthenticateRequest,
    CancelNotification,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    InitializeRequest,
    NewSessionRequest,
    PromptRequest,
    SetSessionConfigOptionSelectRequest,
    SetSessionModeRequest,
    TextContentBlock,
)

from whet.agents.acp._protocol import (
    ASKS_PERMISSION,
    AUTHENTICATE,
    FIRST_PROMPT,
    INITIALIZE,
    NEW_SESSION,
    SET_MODE,
    SET_MODEL,
    VERSION,
    Opening,
    answer_id,
    chosen,
    may,
    model_option,
    protocol_problem,
)
from whet.agents.observe.records import parse, rows, table, text
from whet.version import __version__

if TYPE_CHECKING:
    from pydantic import BaseModel


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
        self._cancelled = True
        if self._session is None:
            return self._give_up()
        return [_message("session/cancel", CancelNotification(session_id=self._session))]

    def _initialize(self) -> Iterable[bytes]:
        # The agent has tools of its own, inside the sandbox, and needs neither our files nor our terminal.
        nothing = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
        )
        me = Implementation(name="whet", title="whet", version=__version__)
        request = InitializeRequest(protocol_version=VERSION, client_capabilities=nothing, client_info=me)
        return self._request(INITIALIZE, "initialize", request, self._initialized)

    def _initialized(self, result: dict[str, Any]) -> Iterable[bytes]:
        if protocol_problem({"result": result}):
            return self._give_up()
        if self._opening.login is None:
            return self._open({})
        login = AuthenticateRequest(method_id=self._opening.login)
        return self._request(AUTHENTICATE, "authenticate", login, self._open)

    def _open(self, _: dict[str, Any]) -> Iterable[bytes]:
        request = NewSessionRequest(cwd=self._opening.cwd, mcp_servers=[])
        return self._request(NEW_SESSION, "session/new", request, self._opened)

    def _opened(self, result: dict[str, Any]) -> Iterable[bytes]:
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
        mode = self._opening.mode
        if mode is None:
            return self._send_prompt()
        request = SetSessionModeRequest(session_id=self._session or "", mode_id=mode)
        return self._request(SET_MODE, "session/set_mode", request, lambda _: self._send_prompt())

    def _send_prompt(self) -> Iterable[bytes]:
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
        number, params = seen["id"], table(seen, "params")
        if not isinstance(number, int | str) or isinstance(number, bool):
            return []
        if seen["method"] != ASKS_PERMISSION:
            return [_line(id=number, error=RequestError.method_not_found(str(seen["method"])[:80]).to_error_obj())]
        if not rows(params, "options") or params.get("sessionId") != self._session:
            return [_line(id=number, error=RequestError.invalid_params().to_error_obj())]
        return [_line(id=number, result={"outcome": self._outcome(params)})]

    def _outcome(self, params: dict[str, Any]) -> dict[str, Any]:
        option = None if self._cancelled else chosen(may(self._opening.permissions, params), params)
        if option is None:
            return DeniedOutcome(outcome="cancelled").model_dump(by_alias=True, exclude_none=True)
        return AllowedOutcome(outcome="selected", option_id=option).model_dump(by_alias=True, exclude_none=True)


def _message(method: str, params: BaseModel | dict[str, Any], number: int | None = None) -> bytes:
    plain_params = (
        params if isinstance(params, dict) else params.model_dump(mode="json", by_alias=True, exclude_none=True)
    )
    return _line(**({} if number is None else {"id": number}), method=method, params=plain_params)


def _line(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n"

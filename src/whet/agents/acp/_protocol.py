"""What whet knows of the Agent Client Protocol without its SDK: ids, answers, options, and how to open a session."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from whet.agents.observe.records import look, rows, table, text

# The ids of our requests. They say what an answer is about, also to those who only see the transcript.
INITIALIZE, AUTHENTICATE, NEW_SESSION, SET_MODEL, SET_MODE, FIRST_PROMPT = 1, 2, 3, 4, 5, 100
VERSION = 1
ASKS_PERMISSION = "session/request_permission"
NO_MODEL = "it offers no choice of a model; let `args` or `env` name it as {model}, or leave out `model`"
_READS = frozenset({"read", "search", "think"})


def may(policy: str, request: dict[str, Any]) -> bool:
    """Return whether *policy* permits what the params of a permission request are about."""
    return policy == "allow" or (policy == "reads" and text(request, "toolCall", "kind") in _READS)


def chosen(allowed: bool, request: dict[str, Any]) -> str | None:
    """Return the option to select: for this one time if there is such an option, so that every use is asked for."""
    wanted = ("allow_once", "allow_always") if allowed else ("reject_once", "reject_always")
    options = [table(option) for option in rows(request, "options")]
    option_ids = [text(option, "optionId") for kind in wanted for option in options if option.get("kind") == kind]
    return next(filter(None, option_ids), None)


def answer_id(seen: dict[str, Any]) -> int | None:
    """Return which of our requests a message answers, if it answers one."""
    number = seen.get("id")
    answers = "method" not in seen and ("result" in seen or "error" in seen)
    return number if answers and isinstance(number, int) and not isinstance(number, bool) else None


def model_option(session: dict[str, Any]) -> dict[str, Any] | None:
    """Return the option by which a new session lets its model be chosen."""
    options = [table(option) for option in rows(session, "configOptions")]
    model_options = (option for option in options if "model" in (option.get("category"), option.get("id")))
    return next((option for option in model_options if text(option, "id")), None)


def protocol_problem(answer: dict[str, Any]) -> str | None:
    """Return why the answer to `initialize` is none that we can work with."""
    version = look(answer, "result", "protocolVersion")
    if "error" in answer or version == VERSION:
        return None
    return f"it speaks version {json.dumps(version)[:40]} of the protocol, and whet speaks version {VERSION}"


class Opening(Struct, frozen=True, kw_only=True):
    """How to open a session: where it works, how it logs in, which model and mode it takes, and what it may do.

    `model` is None if it is chosen in another way, such as by an argument.
    """

    cwd: str
    login: str | None = None
    model: str | None = None
    mode: str | None = None
    permissions: str = "allow"

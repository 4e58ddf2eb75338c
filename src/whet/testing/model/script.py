"""What a scripted model does: a step for each answer, and a place that each request moves on."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, get_args

Fault = Literal["auth", "model-rejected", "bad-request", "context", "rate-limit", "server", "overloaded"]
# A tool of an agent by what it is for; `call` is one by its own name.
TOOL_WORDS: dict[str, tuple[str, ...]] = {
    "run": (),
    "read": (),
    "write": ("text",),
    "load_skill": ("path",),
    "call": ("args",),
}


class ScriptError(ValueError):
    """A script that cannot be followed."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a step says it took; cached and written tokens are part of the input, reasoning is part of the output."""

    input: int = 1000
    output: int = 20
    cached: int = 0
    written: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer of the model: thoughts, words and tool calls, or a fault; sent whole, in part, or never."""

    say: str = ""
    think: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    usage: Tokens = field(default_factory=Tokens)
    fail: Fault | None = None
    status: int | None = None
    message: str | None = None
    # In seconds; agents that would wait for minutes try again at once with 0. None says nothing of it.
    retry_after: float | None = 0
    # The stream ends without an end, or goes on for ever, after half of what there is to send.
    cut: bool = False
    hang: bool = False
    times: int = 1
    always: bool = False


Steps: TypeAlias = Sequence["Step | Mapping[str, Any]"]


def read_step(given: Step | Mapping[str, Any]) -> Step:
    """A step from what a person wrote; a tool may stand in the step itself."""
    if isinstance(given, Step):
        return given
    values = dict(given)
    tools = [dict(tool) for tool in values.pop("tools", ())]
    word = next((word for word in TOOL_WORDS if word in values), None)
    if word is not None:
        own = {name: values.pop(name) for name in (word, *TOOL_WORDS[word]) if name in values}
        tools.append(own)
    _only(values, [each.name for each in fields(Step)], "a step")
    for tool in tools:
        _check_tool(tool)
    if values.get("fail") not in (None, *get_args(Fault)):
        raise ScriptError(f'no fault is called "{values["fail"]}"; known: {", ".join(get_args(Fault))}')
    usage = dict(values.pop("usage", {}))
    _only(usage, [each.name for each in fields(Tokens)], "usage")
    return Step(tools=tuple(tools), usage=Tokens(**usage), **values)


def _check_tool(tool: Mapping[str, Any]) -> None:
    words = [word for word in TOOL_WORDS if word in tool]
    if len(words) != 1:
        raise ScriptError(f"a tool has exactly one of {', '.join(TOOL_WORDS)}, and this has {sorted(tool)}")
    _only(tool, [words[0], *TOOL_WORDS[words[0]]], words[0])


def _only(values: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
            raise ScriptError(f'{what} has no "{name}"; {hint}')


class Script:
    """Steps, and how far they have been followed; requests may come from several threads."""

    def __init__(self, steps: Steps) -> None:
        self._steps = [read_step(step) for step in steps]
        self._lock = threading.Lock()
        self._place = 0
        self._taken = 0

    def next(self) -> tuple[int, Step] | None:
        """The step whose turn it is, with its number from 1; none where the script is at its end."""
        with self._lock:
            if self._place >= len(self._steps):
                return None
            number, step = self._place + 1, self._steps[self._place]
            self._taken += 1
            if not step.always and self._taken >= step.times:
                self._place, self._taken = self._place + 1, 0
            return number, step

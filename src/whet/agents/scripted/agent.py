"""The scripted agent: plays a file of steps without a model; it really runs, reads and writes, at no cost."""

from __future__ import annotations

import json
import marshal
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, get_args

from whet.agents.contract import (
    AgentCommand,
    AgentDefaults,
    Options,
    Task,
    environment,
    facts,
    mounts,
    with_named_skills,
)
from whet.model.events import MessagePhase
from whet.model.run import Runner
from whet.model.suite import Case
from whet.reading.documents import load_json
from whet.reading.fields import is_number, is_whole
from whet.reading.text import did_you_mean

_PLAYER = Path(__file__).with_name("player.py")
# The further fields of each step; the player knows what they do.
STEPS: dict[str, tuple[str, ...]] = {
    "say": ("phase",),
    "think": (),
    "run": (),
    "read": (),
    "write": ("text",),
    "delete": (),
    "load_skill": (),
    "usage": (),
    "trouble": (),
    "wait_s": (),
    "exit": (),
    "answer": (),
}
_PHASES: tuple[str, ...] = get_args(MessagePhase)
_LARGEST_EXIT = 255
# For each field, how to check its value and what it must be. Fields that are not here are texts.
_Rule: TypeAlias = tuple[Callable[[Any], bool], str]
_TEXT: _Rule = (lambda value: isinstance(value, str), "a text")
_COUNT: _Rule = (lambda value: is_whole(value, 0), "a whole number of at least 0")
_AMOUNT: _Rule = (lambda value: is_number(value) and value >= 0, "a number of at least 0")
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_USAGE = {**dict.fromkeys(_TOKENS, _COUNT), "cost_usd": _AMOUNT}
_VALUES: dict[str, _Rule] = {
    "wait_s": _AMOUNT,
    # A step of every kind may say in which turn of a conversation it is played; otherwise, it is played in all.
    "turn": (lambda value: is_whole(value, 1), "a whole number of at least 1"),
    "exit": (lambda value: is_whole(value, 0, _LARGEST_EXIT), f"a whole number from 0 to {_LARGEST_EXIT}"),
    "phase": (lambda value: value in _PHASES, " or ".join(f'"{phase}"' for phase in _PHASES)),
    # The names in a table have rules of their own.
    "usage": (lambda _: False, "a table"),
    **{f"usage.{name}": rule for name, rule in _USAGE.items()},
}


class ScriptedAgent(AgentDefaults):
    """Plays `script`: one file for every case, or a folder with one file per case id (`.toml` or `.json`)."""

    has_program = False
    asks_nobody = False
    takes_skills = "variable"

    def command(self, task: Task) -> AgentCommand:
        """The player with the case's steps on standard input."""
        steps = [
            {key: value for key, value in step.items() if key != "turn"}
            for step in read_steps(script_for(task.runner, task.case))
            if step.get("turn", task.turn) == task.turn
        ]
        played = [_event("message", role="user", text=task.prompt), *(_played(step, task.prompt) for step in steps)]
        command = AgentCommand(
            # -I -S: nothing of the user's Python leaks in, and it starts in 10 ms.
            argv=(sys.executable, "-I", "-S", str(_PLAYER)),
            env=environment(task) | facts(task),
            stdin=marshal.dumps(played),
            output="events",
            # A script is no measure of time.
            timed=False,
            readable=(_PLAYER.parent, *mounts(task)),
            network=task.options.flag("network", True),
        )
        return with_named_skills(task, command)

    def continues(self, runner: Runner) -> bool:
        """The steps of the script say what the agent does in which turn."""
        del runner
        return True

    def problems(self, runner: Runner, cases: Iterable[Case]) -> Iterable[str]:
        """Every script is read before anything starts."""
        if not Options(runner.options).text("script"):
            yield "agent.script: is missing; name a file of steps, or a folder with one file per case"
            return
        seen: set[Path] = set()
        for case in cases:
            path = script_for(runner, case.id)
            if path not in seen:
                seen.add(path)
                yield from (f"agent.script: {path}: {problem}" for problem in script_problems(path))


def _played(step: dict[str, Any], prompt: str) -> str | dict[str, Any]:
    """What the player does for a step: the line that it prints, or else the step itself."""
    filled: dict[str, Any] = {
        key: value.replace("{prompt}", prompt) if isinstance(value, str) else value for key, value in step.items()
    }
    match filled:
        case {"say": text}:
            return _event("message", role="assistant", phase=filled.get("phase", "final"), text=text)
        case {"think": text}:
            return _event("message", role="assistant", phase="thinking", text=text)
        case {"usage": usage}:
            return _event("usage", **usage)
        case {"trouble": text}:
            return _event("trouble", message=text)
        case {"answer": text}:
            return _event("final_output", text=text)
        case _:
            return filled


def _event(kind: str, **fields: Any) -> str:
    """One event as a line of JSON; the player would take as long to import `json` as to start."""
    return json.dumps({"type": kind, **fields}) + "\n"


def script_for(runner: Runner, case: str) -> Path:
    """The file that holds the steps of *case*."""
    script = Path(Options(runner.options).text("script") or "")
    if not script.is_dir():
        return script
    paths = (script / f"{case}{ending}" for ending in (".toml", ".json"))
    return next((path for path in paths if path.is_file()), script / f"{case}.toml")


def read_steps(path: Path) -> list[dict[str, Any]]:
    """The steps of a script: `[[steps]]` in TOML, or a list (also under `steps`) in JSON."""
    text = path.read_text(encoding="utf-8")
    data = tomllib.loads(text) if path.suffix == ".toml" else _json(text)
    steps = data.get("steps", []) if isinstance(data, dict) else data
    if not isinstance(steps, list):
        raise ValueError("its steps are not a list")  # noqa: TRY004 - the file's value, not the caller's type
    return steps


def _json(text: str) -> Any:
    return load_json(text, repeats=True)


def script_problems(path: Path) -> Iterator[str]:
    """What is wrong with a script."""
    try:
        steps = read_steps(path)
    except FileNotFoundError:
        yield "there is no such file"
        return
    except (OSError, ValueError, RecursionError) as error:
        yield f"cannot be read: {error}"
        return
    if not steps:
        yield "has no steps"
    for number, step in enumerate(steps, 1):
        yield from (f"step {number}: {problem}" for problem in _step_problems(step))


def _step_problems(step: Any) -> Iterator[str]:
    if not isinstance(step, dict):
        yield "is not a table"
        return
    words = [word for word in step if word in STEPS]
    if len(words) != 1:
        near = next(filter(None, (did_you_mean(word, list(STEPS)) for word in step)), None)
        hint = f" ({near})" if near and not words else ""
        yield f"must have exactly one of {', '.join(STEPS)}{hint}"
        return
    word = words[0]
    for key, value in step.items():
        if key in (word, "turn", *STEPS[word]):
            yield from _value_problems(key, value)
        else:
            yield f'{word}: has no "{key}"'


def _value_problems(key: str, value: Any) -> Iterator[str]:
    """What is wrong with one value of a step."""
    if key == "usage" and isinstance(value, dict):
        for name, amount in value.items():
            if name in _USAGE:
                yield from _value_problems(f"usage.{name}", amount)
            else:
                known = did_you_mean(name, list(_USAGE)) or f"known: {', '.join(_USAGE)}"
                yield f'usage: has no "{name}" ({known})'
        return
    is_good, wanted = _VALUES.get(key, _TEXT)
    if not is_good(value):
        yield f"{key}: must be {wanted}, not {value!r}"

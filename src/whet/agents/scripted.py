"""The scripted agent: plays a file of steps without a model; it really runs, reads and writes, at no cost."""

from __future__ import annotations

import json
import marshal
import sys
import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from whet.agents.agent import (
    NAMED_SKILLS,
    AgentCommand,
    AgentDefaults,
    Options,
    Task,
    environment,
    mounts,
    named_skill,
    skill_copies,
)
from whet.model.run import Runner
from whet.model.seen import MessagePhase
from whet.model.suite import Case
from whet.reading.fields import is_number, is_whole

_PLAYER = Path(__file__).with_name("scripted_player.py")
# What each step may say besides its own word; the player knows what they do.
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
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_PHASES: tuple[str, ...] = get_args(MessagePhase)
_LARGEST_EXIT = 255


class ScriptedAgent(AgentDefaults):
    """Plays `script`: one file for every case, or a folder with one file per case id (`.toml` or `.json`)."""

    takes_skills = "variable"

    def command(self, task: Task) -> AgentCommand:
        """The player with the case's steps on standard input."""
        steps = read_steps(script_for(task.runner, task.case))
        played = [_event("message", role="user", text=task.prompt), *(_played(step, task.prompt) for step in steps)]
        return AgentCommand(
            # -I -S: nothing of the user's Python leaks in, and it starts in 10 ms.
            argv=(sys.executable, "-I", "-S", str(_PLAYER)),
            env=environment(task) | named_skill(task),
            stdin=marshal.dumps(played),
            output="events",
            readable=(_PLAYER.parent, *mounts(task)),
            home_copies=skill_copies(task, NAMED_SKILLS),
            network=Options(task.runner.options).flag("network", True),
        )

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
    found = (script / f"{case}{ending}" for ending in (".toml", ".json"))
    return next((path for path in found if path.is_file()), script / f"{case}.toml")


def read_steps(path: Path) -> list[dict[str, Any]]:
    """The steps of a script: `[[steps]]` in TOML, or a list (also under `steps`) in JSON."""
    text = path.read_text(encoding="utf-8")
    data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    steps = data.get("steps", []) if isinstance(data, dict) else data
    if not isinstance(steps, list):
        raise ValueError("its steps are not a list")  # noqa: TRY004 - the file's value, not the caller's type
    return steps


def script_problems(path: Path) -> Iterator[str]:
    """What is wrong with a script."""
    try:
        steps = read_steps(path)
    except FileNotFoundError:
        yield "there is no such file"
        return
    except (OSError, ValueError) as error:
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
        near = [match for word in step for match in get_close_matches(word, STEPS, n=1)]
        hint = f' (did you mean "{near[0]}"?)' if near and not words else ""
        yield f"must have exactly one of {', '.join(STEPS)}{hint}"
        return
    word = words[0]
    for key, value in step.items():
        if key in (word, *STEPS[word]):
            yield from _value_problems(key, value)
        else:
            yield f'{word}: has no "{key}"'


def _value_problems(key: str, value: Any) -> Iterator[str]:
    """What is wrong with one value of a step."""
    match key:
        case "usage" if isinstance(value, dict):
            for name, amount in value.items():
                yield from _usage_problems(name, amount)
            return
        case "usage":
            good, wanted = False, "a table"
        case "wait_s":
            good, wanted = _is_amount(value), "a number of at least 0"
        case "exit":
            good, wanted = _is_count(value) and value <= _LARGEST_EXIT, f"a whole number from 0 to {_LARGEST_EXIT}"
        case "phase":
            good, wanted = value in _PHASES, " or ".join(f'"{phase}"' for phase in _PHASES)
        case _:
            good, wanted = isinstance(value, str), "a text"
    if not good:
        yield f"{key}: must be {wanted}, not {value!r}"


def _usage_problems(name: str, amount: Any) -> Iterator[str]:
    known = (*_TOKENS, "cost_usd")
    if name not in known:
        near = get_close_matches(name, known, n=1)
        yield f'usage: has no "{name}"' + (f' (did you mean "{near[0]}"?)' if near else f" (known: {', '.join(known)})")
    elif name == "cost_usd" and not _is_amount(amount):
        yield f"usage.{name}: must be a number of at least 0, not {amount!r}"
    elif name in _TOKENS and not _is_count(amount):
        yield f"usage.{name}: must be a whole number of at least 0, not {amount!r}"


def _is_count(value: Any) -> bool:
    return is_whole(value, 0)


def _is_amount(value: Any) -> bool:
    return is_number(value) and value >= 0

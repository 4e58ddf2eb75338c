"""An agent without a model: it plays a file of steps, really running, reading and writing, so it costs nothing."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from whet.agents.base import AgentCommand, AgentDefaults, Options, Task, environment, mounts
from whet.model.run import Runner
from whet.model.suite import Case

_PLAYER = Path(__file__).with_name("scripted_player.py")
# What each step may say besides its own word; the player knows what they do.
STEPS: dict[str, tuple[type, tuple[str, ...]]] = {
    "say": (str, ("phase",)),
    "think": (str, ()),
    "run": (str, ()),
    "read": (str, ()),
    "write": (str, ("text",)),
    "delete": (str, ()),
    "load_skill": (str, ()),
    "usage": (dict, ()),
    "trouble": (str, ()),
    "wait_s": (float, ()),
    "exit": (int, ()),
    "answer": (str, ()),
}


class ScriptedAgent(AgentDefaults):
    """Plays `script`: one file for every case, or a folder with one file per case id (`.toml` or `.json`)."""

    def command(self, task: Task) -> AgentCommand:
        """The player with the case's steps on standard input."""
        steps = read_steps(script_for(task.runner, task.case))
        told = json.dumps({"prompt": task.prompt, "steps": steps})
        return AgentCommand(
            # -I -S: nothing of the user's Python leaks in, and it starts in 10 ms.
            argv=(sys.executable, "-I", "-S", str(_PLAYER)),
            env=environment(task),
            stdin=told.encode(),
            output="events",
            readable=(_PLAYER.parent, *mounts(task)),
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
    kind, others = STEPS[word]
    if not isinstance(step[word], (int, float) if kind is float else kind) or isinstance(step[word], bool):
        yield f"{word}: must be a {kind.__name__}, not {step[word]!r}"
    elif word == "wait_s" and step[word] < 0:
        yield "wait_s: must not be negative"
    for other in step.keys() - {word, *others}:
        yield f'{word}: has no "{other}"'

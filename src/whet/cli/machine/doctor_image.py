"""`whet doctor --container IMAGE`: what of this machine's agents would work in an image, and what is missing there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import anyio

from whet.agents.known import KnownAgent, known_agents
from whet.agents.programs import ReadinessFinding, State, find_program
from whet.errors import AttemptError, UsageError
from whet.model.task import ImageSpec
from whet.sandbox.container.host_programs import ask_image, brought
from whet.sandbox.container.images import Images
from whet.sandbox.container.leftovers import Mark
from whet.sandbox.engine import INITS, Engine, working_engine

# Programs that tasks and agents use inside, and who misses them.
_USED = {
    "sh": "tasks and checks need a shell",
    "bash": "Claude Code runs no commands without it, and most tasks need it",
    "git": "agents often need it",
    "python3": "scripted agents need it",
}


def examine_image(text: str, engine: str | None, environ: Mapping[str, str]) -> list[ReadinessFinding]:
    """Return all findings for containers of the image that *text* names; a folder with a Dockerfile is built."""
    try:
        with Mark(working_engine(engine)) as mark:
            return _examine(text, mark.engine, environ)
    except (UsageError, AttemptError) as error:
        return [_finding("machine", "image", "problem", error.message, error.hint)]


def _examine(text: str, engine: Engine, environ: Mapping[str, str]) -> list[ReadinessFinding]:
    spec = ImageSpec.of(str(Path(text).resolve()) if text.startswith(("./", "../", "/")) else text)
    image = anyio.run(Images(engine).prepare, spec)
    return [
        _finding("machine", "image", "ok", f"{image}, by {engine.program}"),
        *_machine(engine),
        *(_program(engine, image, name, why) for name, why in _USED.items()),
        *(_agent(engine, image, agent, environ) for agent in known_agents()),
    ]


def _machine(engine: Engine) -> Iterator[ReadinessFinding]:
    if not engine.init:
        hint = f"install catatonit ({INITS[0]}): without it, a command is the first process and ignores most signals"
        yield _finding("machine", "init", "warning", "podman has no program that reaps processes", hint)


def _program(engine: Engine, image: str, name: str, why: str) -> ReadinessFinding:
    answer = ask_image(engine, image, 'command -v "$1"', name)
    return _finding("machine", name, "ok" if answer.ok else "absent", answer.out.strip() or "not in the image", why)


def _agent(engine: Engine, image: str, agent: KnownAgent, environ: Mapping[str, str]) -> ReadinessFinding:
    program = find_program(agent.program, environ)
    if program is None:
        message = "not on this machine: install it here, or into the image with run.install"
        return _finding("agents", agent.type, "absent", message)
    host_program = brought(Path(program), environ, engine, image)
    places = ", ".join(str(inside) for inside in host_program.packages)
    if not host_program.libraries:
        return _finding("agents", agent.type, "ok", f"mounted at {places}")
    names = ", ".join(sorted(inside.name for inside in host_program.libraries))
    return _finding("agents", agent.type, "ok", f"mounted at {places}, with libraries that the image lacks: {names}")


def _finding(
    part: Literal["machine", "agents"], name: str, state: State, message: str, hint: str | None = None
) -> ReadinessFinding:
    return ReadinessFinding(part=part, name=name, state=state, message=message, hint=None if state == "ok" else hint)

"""Reads a recording of a real program exactly as the engine does: an adapter, an observer, and the ending."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.agents.contract import Agent, AgentCommand, Signs, Task
from whet.agents.observe.model_activity import SignFilter
from whet.agents.observe.observer import Observer
from whet.errors import AttemptError
from whet.model.codec import decode_event
from whet.model.events import Event
from whet.model.run import Runner
from whet.model.session import Session, SessionSummary
from whet.run.attempt._ending import judge_ending
from whet.sandbox.contract import Ended, Sink
from whet.secrets import Masker
from whet.testing.agent import OTHERS, garbled

RECORDINGS = Path(__file__).parent
# Where the recorded programs ran.
WORKSPACE = Path("/tmp/ws/demo")


class Read(Struct, frozen=True, kw_only=True):
    """What came out of a recording."""

    events: tuple[Event, ...]
    observer: Observer
    session: Session
    # The error that the ending was judged to be, or none.
    error: AttemptError | None

    @property
    def verdict(self) -> str:
        """`ok`, or the code of the error."""
        return "ok" if self.error is None else self.error.code

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


def task(runner: Runner | None = None, **given: Any) -> Task:
    """What a recorded program was asked, unless *given* says something else."""
    facts: dict[str, Any] = {
        "prompt": "Say ready.",
        "case": "greets",
        "runner": runner or Runner(id="r", agent="a"),
        "workspace": WORKSPACE,
        "home": Path("/tmp/ws/home"),
        "temporary": Path("/tmp/ws/tmp"),
        "suite_dir": Path("/tmp/ws"),
        "settings_dir": None,
        "environ": {"PATH": "/usr/bin:/bin"},
    }
    return Task(**facts | given)


def read_recording(agent: Agent, name: str, collected: Mapping[str, bytes] | None = None, **given: Any) -> Read:
    """Read the recording in the folder *name* (such as "claude/plain") with *agent*; *given* goes to `task`."""
    folder = RECORDINGS / name
    exit_code = json.loads((folder / "meta.json").read_text())["exit_code"]
    home = {path.relative_to(folder / "home") for path in (folder / "home").rglob("*") if path.is_file()}
    collected = {str(path): (folder / "home" / path).read_bytes() for path in home} | dict(collected or {})
    return read_output(agent, (folder / "stdout.jsonl").read_bytes(), exit_code, collected, **given)


def read_output(
    agent: Agent, output: bytes, exit_code: int = 0, collected: Mapping[str, bytes] | None = None, **given: Any
) -> Read:
    """The same for any *output*; an exit code below 0 is a signal."""
    asked = agent.command(task(**given))
    agent.learn(collected or {})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        observer = Observer(asked.output, agent.events, events_path=path)
        sink = sifted(asked.signs, observer)
        # In pieces, as they come from a pipe.
        for start in range(0, len(output), 4096):
            sink(output[start : start + 4096])
        if isinstance(sink, SignFilter):
            sink.finish()
        observer.finish()
        for event in agent.ending(collected or {}):
            observer.take(event)
        observer.close()
        lines = path.read_bytes().splitlines() if path.exists() else []
    events = tuple(decode_event(line) for line in lines)
    return Read(
        events=events, observer=observer, session=_session(observer, events), error=_judge(asked, observer, exit_code)
    )


def sifted(signs: Signs | None, observer: Observer) -> Sink:
    """Output on its way to *observer*, its signs looked at."""
    if signs is None:
        return observer.feed
    return SignFilter(signs, observer.feed, masker=Masker(()), sign=observer.turn.sign, trouble=observer.take)


def garbled_output(agent: str, seed: int) -> bytes:
    """All recordings of *agent* in one, garbled in every way: more than an adapter of somebody else is held to."""
    paths = sorted((RECORDINGS / agent).rglob("stdout.jsonl"))
    lines = [line for path in paths for line in path.read_bytes().splitlines()]
    others = (*OTHERS, True, 2**63 - 1, 10**30, "\ud800", "-")
    return b"\n".join(garbled(lines, others=others, seed=seed))


def _session(observer: Observer, events: tuple[Event, ...]) -> Session:
    summary = SessionSummary(
        runner="r",
        agent="a",
        prompt="Say ready.",
        final_output=observer.final_output(Path("none")),
        model=observer.started.model,
        session_id=observer.started.session_id,
        version=observer.started.version,
        steps=observer.steps,
        usage=observer.usage(),
    )
    return Session.of(summary, events)


def _judge(asked: AgentCommand, observer: Observer, exit_code: int) -> AttemptError | None:
    signal = -exit_code if exit_code < 0 else None
    ended = Ended(exit_code=None if signal else exit_code, signal=signal, timed_out=False, duration_s=1.0)
    try:
        judge_ending(ended, observer, asked, timeout_s=60, silence_s=30, tail=b"")
    except AttemptError as error:
        return error
    return None

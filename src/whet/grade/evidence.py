"""What graders decide about: the evidence that an attempt left, as it happened or as a record holds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from whet.dataclass import dataclass
from whet.errors import StoreError
from whet.grade.context import Gaps, Shell
from whet.model import plugins, wire
from whet.model.grade import Changes
from whet.model.seen import Event, TurnStarted
from whet.model.session import Session, SessionSummary, Usage
from whet.model.suite import Case
from whet.model.wire import decode_event
from whet.reading.files import LONGEST_LINE, next_line, open_file

if TYPE_CHECKING:
    from whet.ground.packages import Prepared
    from whet.ground.protecting import Surveyed
    from whet.ground.sandbox import Sandbox
    from whet.ground.task_container import TaskContainer

# Where questions for the agent are kept, with the other evidence.
QUESTIONS_FILE = "explain.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an agent that judges said last, and what its session used."""

    text: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that a grader may look at.

    `keep(name, text)` writes a file next to the other evidence, without secrets. `surveyed` is what your grader's
    `survey` returned before the agent started. `timeout_s` limits a check, `command_timeout_s` each command of a claim.
    `skill` is the folder of the skill under test, in the arm that has it. `prepared` is the package that the
    workspace began as, if it began as one. `ask(evidence, prompt)` lets the agent that judges look at the evidence.
    """

    case: Case
    session: SessionSummary
    events_path: Path | None
    workspace: Path
    changes: Changes
    artifact_dir: Path
    shell: Shell
    keep: Callable[[str, str], None]
    timeout_s: float
    surveyed: Surveyed | None = None
    prepared: Prepared | None = None
    command_timeout_s: float = 300.0
    arm: str = "default"
    skill: Path | None = None
    ask: Callable[[Evidence, str], Awaitable[Reply]] | None = None
    # The container that the agent of a task worked in.
    house: TaskContainer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvidence(Evidence):
    """Evidence from a record, with its gaps.

    `folders` existed before the agent started, which a list of changes does not show.
    """

    gaps: Gaps
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEvidence(Evidence):
    """What a callable skill answered, with secrets still in it; `skill` is its folder."""

    output: Any
    skill_id: str
    skill_version: str = ""
    latency_ms: float | None = None
    sandbox: Sandbox

    @classmethod
    def of(cls, evidence: Evidence, **answer: Any) -> AnswerEvidence:
        """Return *evidence* with an *answer*; if an agent worked, that is the text that it ended with."""
        if isinstance(evidence, AnswerEvidence):
            return evidence
        known = {item.name: getattr(evidence, item.name) for item in fields(Evidence)}
        session = evidence.session
        given = answer or {
            "output": session.final_output,
            "skill_id": session.runner,
            "sandbox": plugins.find("sandboxes", evidence.shell.sandbox)(),
        }
        return cls(**{**known, **given})


class EventLog(Sequence[Event]):
    """One event per line; read once, on first use, because most checks never look.

    Of a conversation, only the first *turns*, if their number is given.
    """

    def __init__(self, path: Path | None, turns: int = 0) -> None:
        self._path = path
        self._turns = turns
        self._loaded: tuple[Event, ...] | None = None

    def _all(self) -> tuple[Event, ...]:
        if self._loaded is None:
            found = read_events(self._path) if self._path else iter(())
            self._loaded = tuple(takewhile(self._is_of, found) if self._turns else found)
        return self._loaded

    def _is_of(self, event: Event) -> bool:
        return not (isinstance(event, TurnStarted) and event.turn > self._turns)

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._all())

    def __repr__(self) -> str:
        return repr(list(self._all()))


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events in *path*; raises `WireError` at what is none, and `OSError`."""
    with open_file(path) as file:
        while line := next_line(file, LONGEST_LINE):
            if line.strip():
                yield decode_event(line)


_FILE = "session.json"
_HINT = "name the folder of an attempt, such as trials/case/runner/default/1/1"


def load_report(path: str | Path) -> Session:
    """Load the session of a trial from its folder or its session.json; events are read when you use them."""
    folder = Path(path)
    file = folder / _FILE if folder.is_dir() else folder
    try:
        summary = wire.decode_file(file, SessionSummary)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}; {_HINT}") from error
    except wire.WireError as error:
        raise StoreError(f"{file}: is not a session: {error}; {_HINT}") from error
    return Session.of(summary, EventLog(events_path(file.parent), len(summary.turns)))


def events_path(folder: Path) -> Path | None:
    """Return the file with the events of a session: normalized ones, or those that an agent printed itself."""
    names = (folder / name for name in ("events.jsonl", "transcript.jsonl"))
    return next((path for path in names if path.exists()), None)

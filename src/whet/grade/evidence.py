"""What graders decide about: the evidence that an attempt left, as it happened or as a record holds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from msgspec import Struct

from whet import plugins
from whet.checks.context import Gaps, Shell
from whet.errors import StoreError
from whet.model import codec
from whet.model.codec import decode_event
from whet.model.events import Event, TurnStarted
from whet.model.grade import Changes
from whet.model.session import Session, SessionSummary, Usage
from whet.model.suite import Case
from whet.reading.files import LONGEST_LINE, next_line, open_file

if TYPE_CHECKING:
    from whet.packages.task_packages import PreparedPackage
    from whet.sandbox.container.task import TaskContainer
    from whet.sandbox.contract import Sandbox
    from whet.workspace.protected import WorkspaceSurvey

# Where questions for the agent are kept, with the other evidence.
QUESTIONS_FILE = "explain.json"


class JudgeAnswer(Struct, frozen=True, kw_only=True):
    """What an agent that judges said last, and what its session used."""

    text: str
    usage: Usage


class GradedAnswer(Struct, frozen=True, kw_only=True):
    """What a callable skill answered, with secrets still in it, and the folder of the skill."""

    output: Any
    skill_id: str
    skill_version: str = ""
    skill: Path | None = None
    latency_ms: float | None = None
    sandbox: Sandbox


class Evidence(Struct, frozen=True, kw_only=True):
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
    surveyed: WorkspaceSurvey | None = None
    prepared: PreparedPackage | None = None
    command_timeout_s: float = 300.0
    arm: str = "default"
    skill: Path | None = None
    ask: Callable[[Evidence, str], Awaitable[JudgeAnswer]] | None = None
    # The container that the agent of a task worked in.
    container: TaskContainer | None = None
    # What a record does not hold; None if the attempt has just ended.
    gaps: Gaps | None = None
    # The folders that a record names as older than the agent's work: a list of changes does not show them.
    folders: tuple[str, ...] = ()
    # What a callable skill answered; None if an agent worked.
    answer: GradedAnswer | None = None

    def answer_or_text(self) -> GradedAnswer:
        """Return the answer of the skill; if an agent worked, the text that it ended with."""
        if self.answer is not None:
            return self.answer
        return GradedAnswer(
            output=self.session.final_output,
            skill_id=self.session.runner,
            skill=self.skill,
            sandbox=plugins.find("sandboxes", self.shell.sandbox)(),
        )


class EventLog(Sequence[Event]):
    """One event per line; read once, on first use, because most checks never look.

    Of a conversation, only the first *turns*, if their number is given.
    """

    def __init__(self, path: Path | None, turns: int = 0) -> None:
        self._path = path
        self._turns = turns
        self._events: tuple[Event, ...] | None = None

    def _load(self) -> tuple[Event, ...]:
        if self._events is None:
            events = read_events(self._path) if self._path else iter(())
            self._events = tuple(takewhile(self._is_of, events) if self._turns else events)
        return self._events

    def _is_of(self, event: Event) -> bool:
        return not (isinstance(event, TurnStarted) and event.turn > self._turns)

    def __len__(self) -> int:
        return len(self._load())

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        return self._load()[index]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._load())

    def __repr__(self) -> str:
        return repr(list(self._load()))


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
        summary = codec.decode_file(file, SessionSummary)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}; {_HINT}") from error
    except codec.WireError as error:
        raise StoreError(f"{file}: is not a session: {error}; {_HINT}") from error
    return Session.of(summary, EventLog(events_path(file.parent), len(summary.turns)))


def events_path(folder: Path) -> Path | None:
    """Return the file with the events of a session: normalized ones, or those that an agent printed itself."""
    names = (folder / name for name in ("events.jsonl", "transcript.jsonl"))
    return next((path for path in names if path.exists()), None)

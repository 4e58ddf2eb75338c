"""Evidence read back from a record: a check that needs more than was recorded is told so, and decides nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar, NoReturn, Protocol, overload, runtime_checkable

from whet.dataclass import dataclass
from whet.errors import Cause, GraderError, StoreError
from whet.grade.context import CheckContext, Ran, Shell
from whet.model import wire
from whet.model.grade import Changes, Grade
from whet.model.seen import Event
from whet.model.session import Session, SessionSummary
from whet.model.suite import Case, Check, Suite
from whet.model.wire import decode_event

if TYPE_CHECKING:
    from whet.ground.packages import Prepared
    from whet.ground.protecting import Baseline

# Where questions for the agent are kept, beside the other evidence.
QUESTIONS_FILE = "explain.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a grader may look at; `keep` puts a text beside it, under a file name, without secrets.

    `baseline` is what was surveyed before the agent started, `command_timeout_s` the limit of each command of a claim;
    `skill` is the folder of the one under test, in the variant that has it.
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
    baseline: Baseline | None = None
    # The package that the workspace began as, where it did.
    prepared: Prepared | None = None
    command_timeout_s: float = 300.0
    variant: str = "default"
    skill: Path | None = None


class Grader(Protocol):
    """Decides one kind of check; made once per run, before the event loop starts."""

    # Whether its decisions are worth knowing also where the agent came to no good end; they cannot change the verdict.
    informs: bool

    def __init__(self, suite: Suite) -> None: ...

    async def survey(self, case: Case, workspace: Path, store: Path, *, timeout_s: float) -> Baseline | None:
        """What its checks need to know of a workspace before the agent starts; copies go to the folder *store*."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """The decision; a `GraderError` where there is none."""

    def grade_all(self, checks: Sequence[Check], evidence: Evidence) -> AsyncIterator[Grade]:
        """The decisions on *checks*, one after the other; for graders that are quicker with several at once."""

    def close(self) -> None:
        """Let go of what it holds."""


@runtime_checkable
class Releasing(Protocol):
    """A grader that holds what must be let go of in the event loop, such as connections."""

    async def release(self) -> None:
        """Let go of it; called once, when no check is asked any more."""


class EventLog(Sequence[Event]):
    """One event per line; read once, on first use, because most checks never look."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._loaded: tuple[Event, ...] | None = None

    def _all(self) -> tuple[Event, ...]:
        if self._loaded is None:
            self._loaded = tuple(read_events(self._path)) if self._path else ()
        return self._loaded

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
    """The events in *path*, one at a time."""
    with path.open("rb") as file:
        yield from (decode_event(line) for line in file if line.strip())


_FILE = "session.json"
_HINT = "name the folder of an attempt, such as trials/case/runner/default/1/1"


def load_report(path: str | Path) -> Session:
    """The session that a trial's folder, or its session.json, holds; its events are read when they are used."""
    folder = Path(path)
    file = folder / _FILE if folder.is_dir() else folder
    try:
        summary = wire.decode(file.read_bytes(), SessionSummary)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}; {_HINT}") from error
    except wire.WireError as error:
        raise StoreError(f"{file}: is no session: {error}; {_HINT}") from error
    return Session.of(summary, EventLog(events_path(file.parent)))


def events_path(folder: Path) -> Path | None:
    """Where the events of a session lie: as they were normalized, or as an agent of our own kind printed them."""
    names = (folder / name for name in ("events.jsonl", "transcript.jsonl"))
    return next((path for path in names if path.exists()), None)


_COMMAND_TIMEOUT_S = 60.0


class NotRecorded(GraderError):
    """A check asked for what the record does not hold."""

    code = "not-recorded"
    cause: ClassVar[Cause] = "infrastructure"
    class_id = "not-recorded"
    class_label = "Not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Why the workspace is not whole and why its changes are not known, if so; `paths` can be read all the same."""

    workspace: str | None = None
    changes: str | None = None
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvidence(Evidence):
    """Evidence with what it lacks; `folders` were there before the agent, which a list of changes does not tell."""

    gaps: Gaps
    folders: tuple[str, ...] = ()


class RecordedContext(CheckContext):
    """The context of a check over a record; remembers what it could not give, whatever the check makes of it."""

    __slots__ = ("_gaps", "_whole", "lacked")

    def __init__(self, whole: CheckContext, gaps: Gaps) -> None:
        for name, value in (("_whole", whole), ("_gaps", gaps), ("session", whole.session), ("lacked", [])):
            object.__setattr__(self, name, value)

    _whole: CheckContext
    _gaps: Gaps
    lacked: list[str]

    @property
    def workspace(self) -> Path:
        """Where the agent worked, if all of it was recorded."""
        if self._gaps.workspace is not None:
            self._lack("the workspace", self._gaps.workspace)
        return self._whole.workspace

    def changes(self) -> Changes:
        """What the agent created, modified and deleted, if that was recorded."""
        if self._gaps.changes is not None:
            self._lack("the changes", self._gaps.changes)
        return self._whole.changes()

    def read(self, path: str | Path) -> str:
        """The text of a file; in a workspace that is not whole, of one that the agent changed."""
        if self._gaps.workspace is not None and str(PurePosixPath(path)) not in self._gaps.paths:
            self._lack(str(path), self._gaps.workspace)
        return self._whole.read(path)

    def run(self, command: str | Sequence[str], *, timeout_s: float = _COMMAND_TIMEOUT_S) -> Ran:
        """Run a command in the workspace, if all of it was recorded."""
        if self._gaps.workspace is not None:
            self._lack("the workspace", self._gaps.workspace)
        return self._whole.run(command, timeout_s=timeout_s)

    def _lack(self, what: str, why: str) -> NoReturn:
        message = f"the check looks at {what}, which was not recorded: {why}"
        self.lacked.append(message)
        raise NotRecorded(message)

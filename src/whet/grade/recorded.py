"""Evidence read back from a record: a check that needs more than was recorded is told so, and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, NoReturn

from whet.errors import Cause, GraderError
from whet.grade.base import Evidence
from whet.grade.context import CheckContext
from whet.grade.shell import Ran
from whet.model.changes import Changes

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

"""What the worker asks of each kind of run: how its process starts, what it tells, and what its end means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection

from whet.service.service import Service
from whet.service.store.run_folder import RunFolder
from whet.service.store.runs import Ending, Run, end_run


class Follower(Protocol):
    """Tells what a process does while it does it."""

    def look(self) -> int:
        """Add events for what is new, and return how many; 0 means that there is nothing more for now."""


class Job(ABC):
    """A run that a worker has taken."""

    def __init__(self, service: Service, run: Run, folder: RunFolder) -> None:
        self.service = service
        self.run = run
        self.folder = folder

    @abstractmethod
    def tail(self) -> Follower:
        """Return what follows the process."""

    @abstractmethod
    def command(self, skills: Sequence[Path | None]) -> list[str]:
        """Return the command that starts the run with the archives of these skills, or resumes it."""

    @abstractmethod
    def conclude(self, code: int, *, cancelled: bool) -> Ending | None:
        """Return how the run ended after its process did; None if it was interrupted and can be resumed."""

    def prepare(self, document: object) -> None:
        """Write what the process reads, unless it is there already; *document* is the suite."""
        self.folder.prepare(document)

    def complete(self, ending: Ending) -> Ending:
        """Return the ending of a run that has completed with what follows from it."""
        return ending

    def store(self, connection: Connection, ending: Ending) -> None:
        """Store how the run ended."""
        end_run(connection, self.run.id, ending)

"""One attempt at a trial: what it shares with its run, where it works, and what is known of it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from whet.model.run import Trial
from whet.run.attempt.folders import AttemptFolders
from whet.run.attempt.record import AttemptRecord
from whet.run.context import RunContext


class Attempt(Struct, frozen=True, kw_only=True):
    """An agent on a trial; a judge and an agent that explains itself make attempts too."""

    context: RunContext
    folders: AttemptFolders
    trial: Trial
    record: AttemptRecord

    @property
    def artifact_dir(self) -> Path:
        """The folder of its record."""
        return self.context.run_dir / self.record.artifact_dir

    @property
    def timeout_s(self) -> float:
        """How long its agent may take."""
        return self.trial.execution.limits.timeout_s or 0

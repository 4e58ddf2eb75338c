"""What reporters share that write a folder for each runner when the run ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from whet.model.run import Runner, folder_name
from whet.model.run_events import RunEnded, RunEvent
from whet.report.contract import NotWritten, ReporterContext
from whet.report.screen import Screen


class FolderReporter(ABC):
    """Writes into its folder when the run ends; with several runners, into a folder for each."""

    # The target of such a reporter is a folder, by default this one.
    folder = True
    default_folder: ClassVar[str]

    def __init__(self, context: ReporterContext) -> None:
        self._context = context

    def __call__(self, event: RunEvent) -> None:
        """At the end, write everything."""
        if not isinstance(event, RunEnded):
            return
        target = self._context.target or self._context.cwd / self.default_folder
        runners = {execution.runner.id: execution.runner for execution in event.results.plan.executions}
        try:
            for runner in runners.values():
                written = self.write(event, runner, target / folder_name(runner.id) if len(runners) > 1 else target)
                screen = Screen(self._context.stdout, self._context.environ)
                self._context.stdout.write(screen.text([f"wrote {screen.path(written, self._context.cwd)}"]))
        except OSError as error:
            raise NotWritten(f"could not write {target}: {error.strerror or error}") from error

    @abstractmethod
    def write(self, event: RunEnded, runner: Runner, folder: Path) -> Path:
        """Write what is to be said of *runner* into *folder*, and return the path that people look for."""

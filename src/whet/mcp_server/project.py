"""The project that a server is for: which paths and runs belong to it, and where its settings let whet write."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from whet.errors import UsageError
from whet.model.request import Settings
from whet.plan.settings.load import load_settings
from whet.reading.paths import why_no_folder
from whet.reading.text import listed, shown
from whet.record.batches import find_batch, read_batch
from whet.record.folder import BATCH_FILE, LATEST, RUN_FILE

_LONGEST_PATH = 4096
_RUN_ID = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9]{6}")
_RUNS_NAMED = 5


class ServedProject(Struct, frozen=True):
    """The folder of a project. `root` is free of links, and nothing outside of it is named or written."""

    root: Path

    @classmethod
    def at(cls, folder: Path) -> ServedProject:
        """Return the project in *folder*."""
        if not folder.is_dir():
            raise UsageError(f"{folder}: {why_no_folder(folder)}", hint="name the folder of a project with --project")
        return cls(folder.resolve())

    def enter(self) -> None:
        """Make the folder of the project the current one; refuses a folder that was deleted meanwhile.

        Again for every call: a folder that was deleted and made anew is not the one in which we are.
        """
        try:
            os.chdir(self.root)
        except OSError as error:
            raise UsageError(
                f"{self.root}: the folder of the project cannot be entered: {error.strerror}",
                hint="create it again, or end this server and start one for another folder",
            ) from error

    def path(self, text: str) -> Path:
        """Return the file or folder of the project that *text* names, with every link followed."""
        if not text.strip() or "\0" in text or len(text) > _LONGEST_PATH:
            raise UsageError(
                f"{shown(text)} is not a path", hint="name a file or folder of the project, such as suite.py"
            )
        try:
            place = (self.root / text).resolve()
        except (OSError, RuntimeError):
            # Links that lead in a circle.
            place = self.root / text
        # First, so that the answer does not show which files there are elsewhere.
        if not place.is_relative_to(self.root):
            raise UsageError(
                f"{shown(text)} is outside of the project",
                hint="this server works inside one project; its operator can start one for another folder",
            )
        if not place.exists():
            raise UsageError(
                f"{shown(text)}: no such file or folder in the project", hint="write the path as seen from its folder"
            )
        return place

    def settings(self, start: Path | None = None) -> Settings:
        """Return the settings for the suite or skill at *start*; refuses those that write outside of the project.

        The folder of a suite may have settings of its own, but all records are where those of the project put them.
        """
        settings = load_settings(self.root, flags={}, environ=os.environ)
        if start is not None:
            settings = load_settings(start, flags={"output_dir": settings.output_dir}, environ=os.environ)
        for key, place in _written_places(settings):
            if not place.resolve().is_relative_to(self.root):
                raise UsageError(
                    f"{key} is {place}, which is outside of the project",
                    hint=f"set {key} to a folder of the project, or let a person run it: whet run",
                )
        return settings

    def run_folder(self, name: str, settings: Settings) -> Path:
        """Return the folder of the run or batch called *name*: an id, or `latest`."""
        folders = self.run_folders(settings)
        if name == LATEST and (settings.output_dir / LATEST).exists():
            name = (settings.output_dir / LATEST).resolve().name
        if _RUN_ID.fullmatch(name) and name in folders:
            return folders[name]
        newest = [*reversed(folders)]
        hint = f"the newest are {listed(newest, _RUNS_NAMED)}" if newest else "there is none yet: call the tool run"
        raise UsageError(f"there is no run {shown(name)} in this project", hint=hint)

    def single_run(self, name: str, settings: Settings) -> Path:
        """Return the folder of one run; refuses a batch, whose runs it names."""
        folder = self.run_folder(name, settings)
        batch = find_batch(folder.name, settings.output_dir)
        if batch is not None:
            runs = [run.name for _, run in read_batch(batch)]
            raise UsageError(f"{folder.name} is a batch of {len(runs)} runs", hint=f"name one of {listed(runs, 50)}")
        return folder

    def run_folders(self, settings: Settings) -> dict[str, Path]:
        """Return the folders of all runs and batches by their ids, the oldest first; links lead nowhere."""
        if not settings.output_dir.is_dir():
            return {}
        records = sorted(place for place in settings.output_dir.iterdir() if _is_record(place))
        return {place.name: place for place in records}

    def shown(self, place: Path) -> str:
        """Return *place* as it is seen from the folder of the project."""
        return str(place.relative_to(self.root)) if place.is_relative_to(self.root) else str(place)


def _is_record(place: Path) -> bool:
    is_own = _RUN_ID.fullmatch(place.name) is not None and not place.is_symlink()
    return is_own and ((place / RUN_FILE).is_file() or (place / BATCH_FILE).is_file())


def _written_places(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yield each folder that a run with these settings writes into, with the key that sets it."""
    yield "run.output_dir", settings.output_dir
    if settings.record_to is not None:
        yield "run.record_to", settings.record_to
    if settings.cassette is not None and settings.cassette_mode == "new":
        yield "run.cassette", settings.cassette
    if settings.cwd is not None:
        # Agents work here if their workspace is shared.
        yield "run.cwd", settings.cwd

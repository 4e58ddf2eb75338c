"""The folder of an improve run: where its parts are, and improve.json, which is written in one go after each step.

improve.json                    what was asked, done and decided
start/ROUND/NAME/               the version that a round starts from
candidates/ID/skill/            a candidate, and the session that made it beside it
runs/PHASE/RUN/                 the runs of each phase, as ordinary run folders
accepted.patch, report.*        what came of it
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from whet.errors import StoreError, UsageError
from whet.model import codec
from whet.reading.files import UnfitFile, read_file
from whet.reading.text import did_you_mean
from whet.record.folder import LATEST, PRIVATE, RUN_FILE, create_run_folder, point_latest, write_atomically, writing
from whet.record.improve.document import FILE, SCHEMA, ImproveDocument

# Beside the folder of runs.
IMPROVE_RUNS = "improve"
_LARGEST = 256 << 20


class ImproveFolder(Struct, frozen=True):
    """Where the parts of an improve run are."""

    path: Path

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.path.name

    @property
    def candidates(self) -> Path:
        """The folder of all candidates."""
        return self.path / "candidates"

    @property
    def runs(self) -> Path:
        """The folder of the runs of all phases."""
        return self.path / "runs"

    def candidate(self, name: str) -> Path:
        """Return the skill of a candidate."""
        return self.candidates / name / "skill"

    def start(self, round_number: int) -> Path:
        """Return the folder that holds the version that a round starts from."""
        return self.path / "start" / str(round_number)

    def runs_of(self, phase: str) -> Path:
        """Return the folder of the runs of a phase."""
        return self.runs / phase

    def run_of(self, phase: str) -> Path | None:
        """Return the run of a phase that has begun."""
        folders = sorted(path.parent for path in self.runs_of(phase).glob(f"*/{RUN_FILE}"))
        return next((folder for folder in folders if not folder.is_symlink()), None)

    def run_folders(self) -> tuple[Path, ...]:
        """Return all runs of all phases."""
        folders = sorted(path.parent for path in self.runs.glob(f"*/*/{RUN_FILE}"))
        return tuple(folder for folder in folders if not folder.is_symlink())

    def place_of(self, path: Path) -> str:
        """Return where *path* is, from here."""
        return path.resolve().relative_to(self.path.resolve()).as_posix()

    def write(self, document: ImproveDocument) -> None:
        """Write improve.json."""
        with writing(self.path):
            write_atomically(self.path / FILE, codec.encode_pretty(document), mode=PRIVATE)

    def read(self) -> ImproveDocument:
        """Read improve.json; raises `StoreError` if it cannot be understood."""
        file = self.path / FILE
        try:
            return codec.decode(read_file(file, _LARGEST), ImproveDocument)
        except (OSError, UnfitFile) as error:
            raise StoreError(f"{file} cannot be read: {error}") from error
        except codec.WireError as error:
            raise StoreError(f"{file} is not the record of an improve run ({SCHEMA}): {error.message}") from error


def create_improve_folder(output_dir: Path) -> ImproveFolder:
    """Make the folder of a new run below *output_dir*, and point `latest` at it."""
    folder = ImproveFolder(create_run_folder(output_dir))
    point_latest(folder.path)
    return folder


def find_improve_folder(name: str, output_dir: Path) -> ImproveFolder:
    """Find the improve run that *name* names: a path, an id, or `latest`."""
    for folder in (output_dir / name, Path(name)):
        if (folder / FILE).is_file():
            return ImproveFolder(folder.resolve())
    ids = [folder.id for folder in improve_folders(output_dir)]
    if not ids:
        raise UsageError(
            f'there is no improve run "{name}" in {output_dir}', hint="whet improve SKILL makes the first one"
        )
    hint = did_you_mean(name, [LATEST, *ids]) or "name its folder, its id, or latest"
    raise UsageError(f'there is no improve run "{name}" in {output_dir}', hint=hint)


def improve_folders(output_dir: Path) -> list[ImproveFolder]:
    """Return the improve runs in *output_dir*, the newest first."""
    folders = sorted((path.parent for path in output_dir.glob(f"*/{FILE}")), reverse=True)
    return [ImproveFolder(folder) for folder in folders if not folder.is_symlink()]


def utc_now() -> str:
    """Return the current time as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")

"""Verify the folder of an improve run: its chain, its candidates, and each of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from whet.errors import StoreError
from whet.improve.propose.versions import version_diff, version_digest
from whet.record.folder import RUN_FILE
from whet.record.improve.chain import chain_problems
from whet.record.improve.document import PATCH, ImproveDocument
from whet.record.improve.folder import ImproveFolder
from whet.record.verify.verify import Verification, verify


def verify_improvement(folder: ImproveFolder) -> Verification:
    """Return what is not as it was written, and how many steps there are."""
    try:
        document = folder.read()
    except StoreError as error:
        return Verification(problems=(error.message,), notes=(), lines=0, link=None)
    problems = [*chain_problems(document), *_version_problems(folder, document), *_patch_problems(folder, document)]
    notes: list[str] = []
    for run in runs_in(folder):
        verification = verify(run)
        place = folder.place_of(run)
        problems += (f"{place}: {problem}" for problem in verification.problems)
        notes += (f"{place}: {note}" for note in verification.notes)
    named_runs = {name for step in document.steps if (name := step.run) is not None}
    problems += (f"{name} is missing" for name in sorted(named_runs) if not (folder.path / name / RUN_FILE).is_file())
    return Verification(
        problems=tuple(problems),
        notes=tuple(dict.fromkeys(notes)),
        lines=len(document.steps),
        link=document.steps[-1].chain if document.steps else None,
    )


def runs_in(folder: ImproveFolder) -> tuple[Path, ...]:
    """Return the runs of all phases, and those that made candidates."""
    made = sorted(path.parent for path in (folder.path / "proposals").glob(f"*/**/{RUN_FILE}"))
    return (*folder.run_folders(), *(path for path in made if not path.is_symlink() and path.parent.name != "latest"))


def _version_problems(folder: ImproveFolder, document: ImproveDocument) -> Iterator[str]:
    first = next(iter(sorted(folder.start(1).glob("*/"))), None)
    if first is None or version_digest(first) != document.start:
        yield "the version that the run started from has changed"
    for record in document.rounds:
        for candidate in record.candidates:
            place = folder.candidate(candidate.id)
            if candidate.digest and (not place.is_dir() or version_digest(place) != candidate.digest):
                yield f"candidate {candidate.id} has changed"


def _patch_problems(folder: ImproveFolder, document: ImproveDocument) -> Iterator[str]:
    """Yield that the patch is not what was accepted."""
    if document.outcome != "succeeded":
        return
    accepted_id = [record.accepted for record in document.rounds if record.accepted][-1]
    first = next(iter(sorted(folder.start(1).glob("*/"))), None)
    patch = folder.path / PATCH
    text = patch.read_text(encoding="utf-8", errors="surrogateescape") if patch.is_file() else None
    if first is not None and text != version_diff(first, folder.candidate(accepted_id)):
        yield f"{PATCH} has changed"

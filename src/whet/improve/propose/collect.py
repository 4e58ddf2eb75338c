"""What becomes of the session of a proposer: a candidate in its folder, or the reason why there is none."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import StoreError
from whet.improve.lint.shape import finding_of_shape
from whet.improve.lint.version import token_growth
from whet.improve.propose.session_run import ProposalRun
from whet.improve.propose.task import SKILL_FOLDER, ProposalTask
from whet.improve.propose.versions import copy_skill, version_diff, version_digest
from whet.model import codec
from whet.model.run import TrialResult
from whet.reading.text import count, listed, middle
from whet.record.improve.document import CandidateRecord, LintFinding
from whet.workspace.changes import ARCHIVE_FILE, LIST_FILE, RecordedChanges
from whet.workspace.copy import clear, remove_tree

_INSIDE = f"{SKILL_FOLDER}/"
_LONGEST_CHANGES, LONGEST_DIFF = 4_000, 200_000
_LARGEST_KEPT = 8 * 1024 * 1024
_MOST_NAMED = 5
# What Python leaves beside a script that the proposer has tried.
_CACHE = "__pycache__"


class _LeftBehind(Struct):
    """What a session left in the folder of the skill, by the paths that cannot be taken."""

    links: list[str]
    missing: list[str]
    masked: list[str]

    def findings(self) -> Iterator[LintFinding]:
        """Yield why the version is refused, if something in it cannot be taken."""
        if self.links:
            yield finding_of_shape(f"has links where the skill had none: {listed(self.links, _MOST_NAMED)}")
        if self.missing:
            yield finding_of_shape(f"has what cannot be taken: {listed(self.missing, _MOST_NAMED)}")
        if self.masked:
            message = f"has secrets of this machine in {listed(self.masked, _MOST_NAMED)}"
            yield LintFinding(rule="secrets", message=message, told=message)


def collect_candidates(task: ProposalTask, run: ProposalRun) -> tuple[CandidateRecord, ...]:
    """Return the candidates of *run* in order, and write each that there is into its folder."""
    start = version_digest(_start_copy(task))
    by_digest = {
        candidate.digest: candidate.id
        for last in task.earlier
        for candidate in last.candidates
        if candidate.digest and candidate.fate != "refused"
    }
    by_digest[start] = ""
    return tuple(_mark_same(_collect(task, run, candidate), by_digest) for candidate in task.ids)


def _mark_same(record: CandidateRecord, by_digest: dict[str, str]) -> CandidateRecord:
    """Return *record* as the same as an earlier one, if it is; what has no change is a dud."""
    # What left something that cannot be taken does not stand in for one that is clean.
    if not record.digest or record.fate == "refused":
        return record
    if record.digest not in by_digest:
        by_digest[record.digest] = record.id
        return record
    other = by_digest[record.digest]
    if not other:
        return replace(record, fate="dud", digest="", reason="nothing was changed")
    return replace(record, fate="same", reason=f"the same as {other}")


def _start_copy(task: ProposalTask) -> Path:
    """Return a copy of the skill that the round starts from, without what no agent is given."""
    place = task.place / "start" / SKILL_FOLDER
    if not place.exists():
        draft = task.place / "start.new"
        remove_tree(draft)
        copy_skill(task.skill, draft / SKILL_FOLDER)
        draft.rename(place.parent)
    return place


def _collect(task: ProposalTask, run: ProposalRun, candidate: str) -> CandidateRecord:
    result = run.results.get(candidate)
    if result is None:
        return CandidateRecord(id=candidate, digest="", fate="dud", reason="it was not made: the money was spent")
    session = run.folder / result.artifact_dir
    _keep_session(session, task.session_of(candidate))
    cost = sum(attempt.usage.cost_usd or 0.0 for attempt in result.attempts) or None
    record = CandidateRecord(
        id=candidate,
        digest="",
        fate="proposed",
        changes=middle(result.final_output.strip(), _LONGEST_CHANGES),
        cost_usd=cost,
    )
    if (why := _why_dud(result)) is not None:
        return _dud(record, why)
    return take_version(task, record, session)


def _why_dud(result: TrialResult) -> str | None:
    if result.failure is None or result.failure.is_of_checks:
        return None
    return f"the proposer did not finish in {count(len(result.attempts), 'attempt')}: {result.failure.message}"


def _dud(record: CandidateRecord, reason: str) -> CandidateRecord:

    return replace(record, fate="dud", reason=reason)


def take_version(task: ProposalTask, record: CandidateRecord, session: Path) -> CandidateRecord:
    """Write the version that *session* left into its folder; return its record."""

    start, place = _start_copy(task), task.skill_of(record.id)
    draft = place.parent / f".{SKILL_FOLDER}"
    remove_tree(draft)
    draft.parent.mkdir(parents=True, exist_ok=True)
    copy_skill(start, draft)
    try:
        left_behind = _apply(session, draft)
    except (OSError, ValueError, tarfile.TarError, StoreError) as error:
        remove_tree(draft)
        return _dud(record, f"what it left cannot be read: {error}")
    if not draft.is_dir():
        return _dud(record, "it removed the skill")
    remove_tree(place)
    draft.rename(place)
    findings = tuple(left_behind.findings())
    return replace(
        record,
        digest=version_digest(place),
        fate="refused" if findings else "proposed",
        lint=findings,
        diff=middle(version_diff(start, place), LONGEST_DIFF),
        token_growth=token_growth(start, place),
    )


def _apply(session: Path, skill: Path) -> _LeftBehind:
    """Bring the changes of a session below its folder of the skill into *skill*; plain files only.

    The session chose the names. What is no plain path is refused by raising `ValueError`.
    """
    listing = session / LIST_FILE
    changes = codec.decode_file(listing, RecordedChanges) if listing.is_file() else RecordedChanges()
    for path in changes.deleted:
        if path.startswith(_INSIDE):
            clear(_place(skill, path))
    for path in sorted((path for path in changes.gone if path.startswith(_INSIDE)), key=len, reverse=True):
        folder = _place(skill, path)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    left_behind = _LeftBehind(
        links=[],
        missing=[f"{path}: {why}" for path, why in changes.missing.items() if path.startswith(_INSIDE)],
        masked=[path for path in changes.masked if path.startswith(_INSIDE)],
    )
    archive = session / ARCHIVE_FILE
    if SKILL_FOLDER in (*changes.created, *changes.modified, *changes.deleted):
        raise ValueError("the folder of the skill was replaced")
    if archive.is_file():
        with tarfile.open(archive, "r:") as members:
            for member in members:
                if not member.name.startswith(_INSIDE) or _CACHE in member.name.split("/"):
                    continue
                place = _place(skill, member.name)
                clear(place)
                if not member.isreg():
                    left_behind.links.append(member.name)
                    continue
                content = members.extractfile(member)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.read() if content is not None else b"")
                place.chmod(0o755 if member.mode & 0o100 else 0o644)
    return left_behind


def _place(skill: Path, path: str) -> Path:
    parts = path.removeprefix(_INSIDE).split("/")
    if not path.startswith(_INSIDE) or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{path!r} is no path below a skill")
    place = skill.joinpath(*parts)
    if any(parent.is_symlink() for parent in place.parents if parent.is_relative_to(skill)):
        raise ValueError(f"{path!r} leads through a link")
    return place


def _keep_session(session: Path, place: Path) -> None:
    """Keep what is in the folder of the last attempt beside the candidate, so that it outlives the run."""
    if place.exists() or not session.is_dir():
        return
    draft = place.parent / ".session"
    remove_tree(draft)
    draft.mkdir(parents=True)
    for path in sorted(session.iterdir()):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST_KEPT:
            shutil.copyfile(path, draft / path.name)
            (draft / path.name).chmod(0o600)
    draft.rename(place)

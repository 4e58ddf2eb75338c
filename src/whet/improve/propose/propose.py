"""Make the candidates of a round: by a proposer in its sandbox, or from folders that people wrote."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from whet.errors import UsageError
from whet.improve.lint.version import token_growth
from whet.improve.propose.collect import LONGEST_DIFF, collect_candidates
from whet.improve.propose.evidence import tell_practice
from whet.improve.propose.folder import write_folders
from whet.improve.propose.session_run import folders_of, make_readable, run_proposer
from whet.improve.propose.task import ProposalTask, ProposedRound
from whet.improve.propose.versions import copy_skill, version_diff, version_digest
from whet.reading.text import middle
from whet.record.improve.document import CandidateRecord
from whet.workspace.copy import remove_tree
from whet.workspace.make import MANIFEST


def propose(task: ProposalTask) -> ProposedRound:
    """Make the candidates of *task*; what was made before a kill is not made again.

    They are not linted yet; those whose files cannot be taken are refused all the same. Raises `EndedEarly` if the
    proposer cannot work, the money is spent, or somebody interrupts.
    """
    if task.options.own_candidates:
        return ProposedRound(candidates=bring_candidates(task))
    task.place.mkdir(parents=True, exist_ok=True)
    write_folders(task, tell_practice(task), folders_of(task))
    make_readable(folders_of(task))
    run = run_proposer(task)
    return ProposedRound(
        candidates=collect_candidates(task, run),
        cost_usd=run.cost_usd or 0.0,
        run=run.folder,
    )


def bring_candidates(task: ProposalTask) -> tuple[CandidateRecord, ...]:
    """Take the versions that people wrote; one without a change is a dud, and of two that are equal one is raced."""
    records: list[CandidateRecord] = []
    start = task.place / "start"
    remove_tree(start)
    start.parent.mkdir(parents=True, exist_ok=True)
    copy_skill(task.skill, start)
    digests = {version_digest(start): ""}
    for candidate, name in zip(task.ids, task.options.own_candidates, strict=True):
        record = _bring(task, candidate, Path(name), start)
        other = digests.setdefault(record.digest, candidate)
        if not other:
            record = replace(record, fate="dud", digest="", reason="it is the same as the skill")
        elif other != candidate:
            record = replace(record, fate="same", reason=f"the same as {other}")
        records.append(record)
    return tuple(records)


def _bring(task: ProposalTask, candidate: str, folder: Path, start: Path) -> CandidateRecord:
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"--candidate: {folder} has no {MANIFEST}", hint="name the folder of a version of the skill")
    place = task.skill_of(candidate)
    remove_tree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    copy_skill(folder, place)
    return CandidateRecord(
        id=candidate,
        digest=version_digest(place),
        fate="proposed",
        diff=middle(version_diff(start, place), LONGEST_DIFF),
        token_growth=token_growth(start, place),
        changes=f"from {folder}",
    )

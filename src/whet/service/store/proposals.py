"""Proposals: the version that an improve run accepted, beside the one that it started from, until people decide."""

from __future__ import annotations

import hashlib
import io
import uuid
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from sqlalchemy import Connection, Select, insert, select, update

from whet.reading.skill_manifest import manifest_text, take_apart
from whet.reading.text import count
from whet.record.improve.document import ConfirmRecord, ImproveDocument, SkillPart
from whet.service.database import now_us, proposals, runs
from whet.service.errors import Refused, invalid_request, not_found
from whet.service.http import Moment, NextCursor, Page, Strict
from whet.service.service import Service
from whet.service.store.improve_folder import ImproveRunFolder
from whet.service.store.runs import NewEvent, add_events, shown_time
from whet.service.store.skills import UPLOADED, SkillError, get_bundle, keep_bundle, label_bundle
from whet.workspace.make import MANIFEST, described

ProposalType = Literal["description", "body", "package"]
ProposalStatus = Literal["pending", "approved", "rejected", "applied"]
DRAFT = "draft"
_TYPES: dict[SkillPart, ProposalType] = {"description": "description", "body": "body", "all": "package"}


class ProposedVersion(Strict):
    """What a proposal says, which never changes."""

    skill_name: str
    proposal_type: ProposalType
    candidate_id: str
    current_value: str = Field(description="The text that changes; of a package, the digest of its archive.")
    proposed_value: str = Field(description="The same of the version that is proposed.")
    reason: str
    confidence: None = Field(description="Always null: difference, low and high say more.")
    difference: float = Field(description="Of the rates on held-out cases.")
    low: float
    high: float
    candidate_count: int
    pass_rate_before: float = Field(description="Of held-out cases, with the version before.")
    projected_pass_rate: float = Field(description="Of held-out cases, with this version.")


class Proposal(ProposedVersion):
    """A proposal, and what people made of it."""

    organisation_id: SkipJsonSchema[str] = Field(exclude=True)
    id: str
    improve_run_id: str
    status: ProposalStatus
    created_at: Moment
    applied_at: Moment | None
    skill: str | None = Field(description="The uploaded skill that it was applied as: sha256:DIGEST.")

    @classmethod
    def of(cls, row: Any) -> Proposal:
        """Return the proposal in a row of the table."""
        return cls.model_construct(
            **msgspec.json.decode(row.document),
            organisation_id=row.organisation_id,
            id=row.id,
            improve_run_id=row.run_id,
            status=row.status,
            created_at=shown_time(row.created_us),
            applied_at=shown_time(row.applied_us),
            skill=f"{UPLOADED}{row.applied_sha256}" if row.applied_sha256 is not None else None,
        )


class ProposalAnswer(Strict):
    """One proposal."""

    proposal: Proposal


class ProposalPage(Strict):
    """Proposals, newest first."""

    proposals: list[Proposal]
    next_cursor: NextCursor


# Making one, when an improve run has ended.


def read_proposal(improvement: ImproveDocument, folder: ImproveRunFolder) -> ProposedVersion | None:
    """Return what an improve run that succeeded proposes; None if it accepted nothing."""
    rounds = [round_ for round_ in improvement.rounds if round_.accepted is not None]
    last = rounds[-1] if rounds else None
    candidate = folder.candidate(last.accepted) if last is not None and last.accepted is not None else None
    skill, archive = folder.skill, folder.archive
    if last is None or last.confirm is None or candidate is None or skill is None or archive is None:
        return None
    part = improvement.options.part
    before, after = _rates(last.confirm)
    return ProposedVersion(
        skill_name=described(skill).name,
        proposal_type=_TYPES[part],
        candidate_id=str(last.accepted),
        current_value=_text(skill, part) if part != "all" else _digest(archive.read_bytes()),
        proposed_value=_text(candidate, part) if part != "all" else _digest(folder.draft(str(last.accepted)) or b""),
        reason=_reason(improvement, len(rounds)),
        confidence=None,
        difference=last.confirm.difference,
        low=last.confirm.low,
        high=last.confirm.high,
        candidate_count=sum(len(round_.candidates) for round_ in improvement.rounds),
        pass_rate_before=before,
        projected_pass_rate=after,
    )


def _rates(confirm: ConfirmRecord) -> tuple[float, float]:
    cases = confirm.cases
    if not cases:
        return 0.0, confirm.difference
    return sum(case.before for case in cases) / len(cases), sum(case.after for case in cases) / len(cases)


def _reason(improvement: ImproveDocument, accepted: int) -> str:
    reason = improvement.reason or "it held up on held-out cases"
    if accepted == 1:
        return reason
    return f"{reason} ({count(accepted, 'round')} accepted a version: the figures are those of the last one)"


def _text(skill: Path, part: SkillPart) -> str:
    return described(skill).description if part == "description" else take_apart(manifest_text(skill / MANIFEST)).body


def _digest(archive: bytes) -> str:
    return f"{UPLOADED}{hashlib.sha256(archive).hexdigest()}"


def add_proposal(connection: Connection, organisation_id: str, run_id: str, version: ProposedVersion) -> None:
    """Keep what an improve run proposes, unless it is kept already, and tell of it."""
    if connection.execute(select(proposals.c.id).where(proposals.c.run_id == run_id)).first() is not None:
        return
    id_ = str(uuid.uuid4())
    connection.execute(
        insert(proposals).values(
            id=id_,
            organisation_id=organisation_id,
            run_id=run_id,
            status="pending",
            document=version.model_dump_json().encode(),
            created_us=now_us(),
        )
    )
    payload = {"proposal_id": id_, "candidate_id": version.candidate_id}
    add_events(connection, run_id, [NewEvent("proposal", "proposal_created", msgspec.json.encode(payload))])


# What people make of one.


def get_proposal(connection: Connection, organisation_id: str, id_: str, *, lock: bool = False) -> Proposal:
    """Return a proposal of the organisation; raises Refused if there is none. With *lock*, it stays as it is."""
    query = _visible(organisation_id).where(proposals.c.id == id_)
    row = connection.execute(query.with_for_update(of=proposals) if lock else query).first()
    if row is None:
        raise not_found("proposal")
    return Proposal.of(row)


def _visible(organisation_id: str) -> Select[Any]:
    """Return the query for proposals whose improve runs were not deleted."""
    query = select(proposals).join(runs, runs.c.id == proposals.c.run_id)
    return query.where(proposals.c.organisation_id == organisation_id, runs.c.deleted_us.is_(None))


def list_proposals(
    connection: Connection, organisation_id: str, page: Page, *, status: ProposalStatus | None
) -> tuple[list[Proposal], str | None]:
    """Return a page of the organisation's proposals, newest first, and the cursor of the next one."""
    query = _visible(organisation_id)
    if status is not None:
        query = query.where(proposals.c.status == status)
    rows, cursor = page.split(list(connection.execute(page.select(query, proposals))))
    return [Proposal.of(row) for row in rows], cursor


def change_proposal(connection: Connection, organisation_id: str, id_: str, status: ProposalStatus) -> Proposal:
    """Give a proposal another status; one that was applied keeps it."""
    proposal = get_proposal(connection, organisation_id, id_, lock=True)
    if proposal.status == status:
        return proposal
    if proposal.status == "applied":
        raise Refused(409, "the proposal was applied: what was applied cannot be taken back here")
    # Somebody applied it by hand, elsewhere.
    applied_us = now_us() if status == "applied" else None
    connection.execute(update(proposals).where(proposals.c.id == id_).values(status=status, applied_us=applied_us))
    return get_proposal(connection, organisation_id, id_)


def apply_proposal(service: Service, organisation_id: str, id_: str, candidate_id: str | None) -> Proposal:
    """Upload the version that is proposed with the label `draft`. No other label moves, and none is taken away."""
    with service.database.reading() as connection:
        proposal = get_proposal(connection, organisation_id, id_)
    if candidate_id not in (None, proposal.candidate_id):
        raise invalid_request(("candidate_id", f"must be {proposal.candidate_id}, the version that was accepted"))
    if proposal.status == "rejected":
        raise Refused(409, "the proposal was rejected: approve it first")
    if proposal.status == "applied":
        return proposal
    archive = _archive(service, proposal)
    sha256 = hashlib.sha256(archive).hexdigest()
    try:
        keep_bundle(service, organisation_id, io.BytesIO(archive))
    except SkillError as error:
        raise Refused(409, f"the version cannot be uploaded: {error}") from None
    with service.database.writing() as connection:
        if get_proposal(connection, organisation_id, id_, lock=True).status not in ("pending", "approved"):
            raise Refused(409, "somebody else decided about this proposal at the same time: get it again")
        bundle = get_bundle(connection, organisation_id, sha256)
        if bundle.label not in (None, DRAFT):
            message = f'this version was uploaded before, and has the label "{bundle.label}", which it keeps'
            raise Refused(409, message)
        label_bundle(connection, organisation_id, sha256, DRAFT)
        connection.execute(
            update(proposals)
            .where(proposals.c.id == id_)
            .values(status="applied", applied_us=now_us(), applied_sha256=sha256)
        )
        return get_proposal(connection, organisation_id, id_)


def _archive(service: Service, proposal: Proposal) -> bytes:
    archive = ImproveRunFolder.of(service.data_dir, proposal.improve_run_id).draft(proposal.candidate_id)
    if archive is None:
        raise Refused(409, "the files of its improve run are gone")
    return archive

"""The routes of proposals: what improve runs found, to read, to decide about, and to apply as a draft."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Query, Request
from sqlalchemy.exc import IntegrityError
from starlette.responses import Response

from whet.service import http
from whet.service.api.auth import At, Reader, Writer
from whet.service.api.improve_request import ApplyBody, ProposalBody
from whet.service.api.runs import who
from whet.service.errors import Refused, problems
from whet.service.service import in_thread
from whet.service.store import proposals
from whet.service.store.proposals import ProposalAnswer, ProposalPage, ProposalStatus

log = logging.getLogger("whet.service")
router = APIRouter(prefix="/api/v1/proposals", tags=["proposals"])


@router.get("", response_model=ProposalPage, responses=problems(422))
async def list_proposals(
    caller: Reader, service: At, page: http.Paged, status: Annotated[ProposalStatus | None, Query()] = None
) -> Response:
    """List the proposals of the organisation, newest first."""
    page_proposals, following = await service.read(
        proposals.list_proposals, caller.organisation_id, page, status=status
    )
    return http.answer({"proposals": page_proposals, "next_cursor": following})


@router.get("/{id}", response_model=ProposalAnswer, responses=problems(404, 422))
async def get_proposal(caller: Reader, service: At, id_: http.ProposalId) -> Response:
    """Get a proposal."""
    return http.answer({"proposal": await service.read(proposals.get_proposal, caller.organisation_id, id_)})


@router.patch(
    "/{id}",
    response_model=ProposalAnswer,
    responses=problems(400, 404, 408, 409, 413, 415, 422),
    openapi_extra=http.document_body("ProposalBody"),
)
async def change_proposal(request: Request, caller: Writer, service: At, id_: http.ProposalId) -> Response:
    """Approve or reject a proposal, or say that somebody applied it elsewhere."""
    body = http.checked(ProposalBody, (await http.read_json(request, service.limits))[1])
    proposal = await service.write(proposals.change_proposal, caller.organisation_id, id_, body.status)
    log.info("proposal %s is %s, by %s", proposal.id, proposal.status, who(caller))
    return http.answer({"proposal": proposal})


@router.post(
    "/{id}/apply",
    response_model=ProposalAnswer,
    responses=problems(400, 404, 408, 409, 413, 415, 422),
    openapi_extra=http.document_body("ApplyBody"),
)
async def apply_proposal(request: Request, caller: Writer, service: At, id_: http.ProposalId) -> Response:
    """Upload the version that is proposed as a skill with the label draft. It is never released by this."""
    body = http.checked(ApplyBody, (await http.read_json(request, service.limits))[1])
    try:
        proposal = await in_thread(proposals.apply_proposal, service, caller.organisation_id, id_, body.candidate_id)
    except IntegrityError:
        raise Refused(409, "somebody else makes a draft at the same time: try again") from None
    log.info("proposal %s applied as %s, by %s", proposal.id, proposal.skill, who(caller))
    return http.answer({"proposal": proposal})

"""The routes of skills: upload an archive, list archives, label and delete them."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from sqlalchemy.exc import IntegrityError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from whet.service import http
from whet.service.api.auth import At, Reader, Starter, Writer
from whet.service.errors import Refused, invalid_request, not_found, problems
from whet.service.service import MB, Service, ServiceLimits, in_thread
from whet.service.store import skills
from whet.service.store.skills import Skill, SkillAnswer, SkillPage

router = APIRouter(prefix="/api/v1/skills", tags=["skills"])
log = logging.getLogger("whet.service")

FORM = "multipart/form-data"
MOST_JSON = MB
_DIGEST_LENGTH = 64
Digest = Annotated[str, Path(max_length=100, description="The SHA-256 of the archive.")]
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["skill"],
                    "properties": {"skill": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}


class SkillLabelBody(http.Strict):
    """The label that an archive should have; null for none."""

    label: Annotated[str, Field(pattern=skills.LABEL)] | None


@router.get("", response_model=SkillPage, responses=problems(422))
async def list_skills(
    caller: Reader,
    service: At,
    limit: http.Limit = http.DEFAULT_LIMIT,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """List the archives of the organisation, sorted by digest."""
    if cursor is not None and not _is_digest(cursor):
        raise invalid_request(("query.cursor", "must be a next_cursor of this service"))
    bundles = await service.read(skills.list_bundles, caller.organisation_id, limit, cursor)
    page, following = http.split_page(bundles, limit, lambda skill: skill.sha256)
    return http.answer({"skills": page, "next_cursor": following})


@router.post(
    "",
    status_code=201,
    response_model=SkillAnswer,
    responses=problems(400, 408, 409, 413, 415, 422),
    openapi_extra=_UPLOAD,
)
async def upload_skill(request: Request, caller: Starter, service: At) -> Response:
    """Upload an archive with one skill. If you upload it again, nothing changes."""
    if http.content_type(request) != FORM:
        raise Refused(415, f"the content type must be {FORM}")
    _, upload = await read_form(request, service.limits, None)
    if upload is None:
        raise invalid_request(("skill", "is missing: send the archive as a file"))
    bundle = await in_thread(keep_upload, service, caller.organisation_id, upload)
    return http.answer({"skill": bundle}, 201, {"location": f"{router.prefix}/{bundle.sha256}"})


@router.get("/{sha256}", response_model=SkillAnswer, responses=problems(404, 422))
async def get_skill(caller: Reader, service: At, sha256: Digest) -> Response:
    """Get what is known of an archive."""
    return http.answer({"skill": await service.read(skills.get_bundle, caller.organisation_id, _known(sha256))})


@router.patch(
    "/{sha256}",
    response_model=SkillAnswer,
    responses=problems(400, 404, 408, 409, 413, 415, 422),
    openapi_extra=http.document_body("SkillLabelBody"),
)
async def change_skill(request: Request, caller: Writer, service: At, sha256: Digest) -> Response:
    """Give an archive a label, or none. Another archive that has the label loses it."""
    body = http.checked(SkillLabelBody, (await http.read_json(request, service.limits))[1])
    try:
        bundle = await service.write(skills.label_bundle, caller.organisation_id, _known(sha256), body.label)
    except IntegrityError:
        raise Refused(409, "somebody else is giving away this label at the same time: try again") from None
    return http.answer({"skill": bundle})


@router.delete("/{sha256}", status_code=204, response_model=None, responses=problems(404, 409, 422))
async def delete_skill(caller: Writer, service: At, sha256: Digest) -> Response:
    """Delete an archive that no waiting run needs. Runs that have ended keep their own copy."""
    await in_thread(skills.delete_bundle, service, caller.organisation_id, _known(sha256))
    log.info("skill %s deleted by %s of %s", sha256, caller.prefix, caller.organisation)
    return Response(status_code=204)


def _is_digest(text: str) -> bool:
    return len(text) == _DIGEST_LENGTH and set(text) <= set("0123456789abcdef")


def _known(sha256: str) -> str:
    if not _is_digest(sha256):
        raise not_found("skill")
    return sha256


async def read_form(request: Request, limits: ServiceLimits, field: str | None) -> tuple[str | None, UploadFile | None]:
    """Return the text of *field* and the archive in a form, as far as they are there; refuses anything else."""
    http.limit_body(request, limits.max_bundle_bytes + MOST_JSON, limits.body_timeout_s)
    try:
        form = await request._get_form(max_files=1, max_fields=1, max_part_size=MOST_JSON)  # noqa: SLF001
    except MultiPartException as error:
        raise Refused(400, f"the form cannot be read: {error.message}") from None
    except ClientDisconnect:
        raise Refused(400, "the body ended early") from None
    unknown = [(name, "is not a field of this form") for name in form if name not in (field, "skill")]
    if unknown:
        raise invalid_request(*unknown)
    text: Any = form.get(field) if field is not None else None
    upload = form.get("skill")
    if text is not None and not isinstance(text, str):
        raise invalid_request((str(field), "must be a field with JSON, not a file"))
    if isinstance(upload, str):
        raise invalid_request(("skill", "must be a file"))
    return text, upload


def keep_upload(service: Service, organisation_id: str, upload: UploadFile) -> Skill:
    """Store the archive that came with a request."""
    try:
        return skills.keep_bundle(service, organisation_id, upload.file)
    except skills.SkillError as error:
        raise invalid_request(("skill", str(error))) from None

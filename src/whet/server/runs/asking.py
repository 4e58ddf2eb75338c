"""Reading the request for a run: JSON alone, or a form of JSON and an archive."""

from __future__ import annotations

import msgspec
from fastapi import Request
from pydantic import ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect

from whet.server.bodies import decode_json, limit_body, read_body
from whet.server.limits import MB, Limits
from whet.server.problems import JSON, Refused, invalid_values
from whet.server.shapes import RunBody

FORM = "multipart/form-data"
_MOST_JSON = MB
_FIELDS = ("request", "skill")


async def read_run_request(request: Request, limits: Limits) -> tuple[RunBody, UploadFile | None]:
    """What was asked, and the archive that came with it, if one did."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == JSON:
        body = await read_body(request, _MOST_JSON, limits.body_timeout_s)
        return _asked(body), None
    if kind != FORM:
        raise Refused(415, f"the content type must be {JSON} or {FORM}")
    return await _form(request, limits)


async def _form(request: Request, limits: Limits) -> tuple[RunBody, UploadFile | None]:
    limit_body(request, limits.max_bundle_bytes + _MOST_JSON, limits.body_timeout_s)
    try:
        form = await request._get_form(max_files=1, max_fields=1, max_part_size=_MOST_JSON)  # noqa: SLF001
    except MultiPartException as error:
        raise Refused(400, f"the form cannot be read: {error.message}") from None
    except ClientDisconnect:
        raise Refused(400, "the body ended early") from None
    unknown = [(name, "is no field of this form") for name in form if name not in _FIELDS]
    if unknown:
        raise Refused(422, "the request is not valid", details=unknown)
    said, upload = form.get("request", "{}"), form.get("skill")
    if not isinstance(said, str):
        raise Refused(422, "the request is not valid", details=[("request", "must be a field with JSON, not a file")])
    if isinstance(upload, str):
        raise Refused(422, "the request is not valid", details=[("skill", "must be a file")])
    return _asked(said.encode(errors="replace")), upload


def _asked(body: bytes) -> RunBody:
    try:
        return RunBody.model_validate(decode_json(body))
    except ValidationError as error:
        raise invalid_values(error.errors(include_url=False, include_input=False)) from None


def fingerprint_of(asked: RunBody) -> bytes:
    """What tells one request from another, whatever the order of its fields."""
    return msgspec.json.encode(asked.model_dump(), order="sorted")

"""Answers as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from starlette.responses import Response

from whet.server.problems import JSON, Refused, not_found
from whet.server.storage.paging import BadCursor, Page


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """*value* as JSON."""
    return Response(msgspec.json.encode(value), status, headers, media_type=JSON)


def id_in(text: str, what: str) -> str:
    """The id that a path names; one that cannot be an id is simply not found."""
    try:
        return str(UUID(text))
    except ValueError:
        raise not_found(what) from None


def page_of(limit: int, cursor: str | None) -> Page:
    """The part of a list that was asked for."""
    try:
        return Page.of(limit, cursor)
    except BadCursor:
        wrong = [("query.cursor", "must be a next_cursor that this service gave")]
        raise Refused(422, "the request is not valid", details=wrong) from None

"""Headers that requests are made conditional by: entity tags, and keys of requests that may come twice."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header

from whet.server.problems import Refused

_TAG = re.compile(r'\s*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*(?:,|$)')
MOST_KEY = 200

IfMatch = Annotated[str | None, Header(description='The ETag that the suite must still have, such as "3".')]
IfNoneMatch = Annotated[str | None, Header(description="Answer 304 where the suite still has this ETag.")]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=MOST_KEY, description="Sent twice within a day, the request is done once."),
]


def etag(version: int) -> str:
    """The entity tag of a version of a suite."""
    return f'"{version}"'


def require_match(header: str | None, version: int) -> None:
    """Refuse where somebody changed the suite since the caller saw it."""
    if header is None or header.strip() == "*":
        return
    if str(version) not in _strong(header):
        raise Refused(412, f"the suite is at version {version} by now: get it again", headers={"etag": etag(version)})


def unchanged(header: str | None, version: int) -> bool:
    """Whether the caller has this version already."""
    return header is not None and (header.strip() == "*" or str(version) in _all(header))


def _strong(header: str) -> set[str]:
    return {tag for weak, tag in _TAG.findall(header) if not weak}


def _all(header: str) -> set[str]:
    return {tag for _, tag in _TAG.findall(header)}

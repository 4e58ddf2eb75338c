"""Requests that an agent may make of its provider, as people write them: `POST /v1/embeddings`, `GET /v1/files/*`."""

from __future__ import annotations

import re

_REQUEST = re.compile(r"(?P<method>[A-Z]+|\*) (?P<path>/[!-~]*)")


def request_problem(text: str) -> str | None:
    """Return what is wrong with a request that is allowed, or None."""
    match = _REQUEST.fullmatch(text)
    if match is None or "?" in match["path"] or "#" in match["path"]:
        return 'must be a method and a path, such as "POST /v1/embeddings" or "GET /v1/files/*"'
    return None


def fits_request(method: str, path: str, allowed: str) -> bool:
    """Return whether a request is the one that is *allowed*; `*` matches any method, or a part of the path."""
    allowed_method, _, pattern = allowed.partition(" ")
    parts = (re.escape(part) for part in pattern.split("*"))
    return allowed_method in ("*", method) and re.fullmatch("[^/]*".join(parts), path) is not None

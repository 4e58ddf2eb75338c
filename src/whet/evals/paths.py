"""Paths and addresses that a case names."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

REMOTE = ("r2://", "s3://", "http://", "https://")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BUCKET = re.compile(r"(?:r2|s3)://[^/]+/.+")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_POINTER = re.compile(r"(?:/(?:[^~/]|~0|~1)*)*")


def inside_problem(path: str) -> str | None:
    """Why *path* is no path below the root of a package, if it is none."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or "\\" in path:
        return "must be a relative path with forward slashes"
    if ".." in parts:
        return 'must not lead out of the package by ".."'
    return None


def reference_problem(reference: str, *, remote_only: bool) -> str | None:
    """Why *reference* names no archive, if it names none."""
    lowered = reference.lower()
    if lowered.startswith(REMOTE):
        if lowered.startswith(("r2://", "s3://")) and not _BUCKET.fullmatch(reference.lower()):
            return "must name a bucket and a key, such as r2://bucket/folder/archive.tar.gz"
        return None
    if remote_only:
        return f"must begin with one of {', '.join(REMOTE)}"
    if _SCHEME.match(reference) and not lowered.startswith("file://"):
        return f"has an unknown scheme; known: {', '.join(REMOTE)}, file:// and paths"
    return None


def digest_problem(text: str) -> str | None:
    """Why *text* is no SHA-256, if it is none."""
    return None if _DIGEST.fullmatch(text) else "must be 64 hexadecimal digits"


def pointer_problem(text: str) -> str | None:
    """Why *text* is no JSON pointer, if it is none."""
    return None if _POINTER.fullmatch(text) else "must be a JSON pointer, such as /items/0/name"

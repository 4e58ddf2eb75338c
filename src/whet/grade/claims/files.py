"""Claims about paths, decided by looking."""

from __future__ import annotations

import os
from pathlib import Path

from whet.claims.forms import Absent, Changed, Contains, Created, Exists, Matches, PathClaim
from whet.grade.claims.content import contains, matches
from whet.grade.claims.outcome import Outcome, failed, passed, undecided
from whet.workspace.baseline import Before, Found, digest_of, find

_NOUNS = {"file": "a file", "folder": "a folder", "other": "neither a file nor a folder"}


def decide(claim: PathClaim, workspace: Path, before: Before) -> Outcome:
    """Whether *claim* holds of the workspace now, given what was there before."""
    try:
        return _decide(claim, workspace, before)
    except OSError as error:
        return undecided(f"{claim.path} cannot be looked at: {error.strerror or error}")


def _decide(claim: PathClaim, workspace: Path, before: Before) -> Outcome:
    if isinstance(claim, Absent):
        return _absent(claim.path, workspace, before)
    found = find(workspace, claim.path.rstrip("/"))
    problem = _problem(claim.path, found)
    if problem is None:
        return _said(claim, found, before)
    return failed(_gone(claim.path, before) or problem if isinstance(claim, Changed) else problem)


def _said(claim: Exists | Created | Contains | Matches | Changed, found: Found, before: Before) -> Outcome:
    """Whether what is said of something that is there is true."""
    match claim:
        case Exists(path):
            return passed(f"{path} is {_NOUNS[found.kind]}", _preexisting(before))
        case Created(path):
            return passed(f"{path} was created") if before.kind == "absent" else failed(f"{path} was there before")
        case Contains(path, text):
            return contains(path, found, text)
        case Matches(path, pattern):
            return matches(path, found, pattern)
        case Changed(path):
            return _changed(path, found, before)


def _problem(path: str, found: Found) -> str | None:
    """Why nothing can be said about *path*, if so."""
    if found.kind == "outside":
        return f"{path} is a link that leads out of the workspace"
    if found.kind == "absent":
        return f"{path} is a link to nothing" if found.linked else f"{path} was not found"
    if path.endswith("/") and found.kind != "folder":
        return f"{path} is not a folder"
    return None


def _absent(path: str, workspace: Path, before: Before) -> Outcome:
    """Nothing may be there, not even a link that leads nowhere."""
    if os.path.lexists(workspace / path.rstrip("/")):
        return failed(f"{path} exists")
    was_there = before.kind != "absent"
    return passed(f"{path} does not exist", None if was_there else "it did not exist before the agent started either")


def _gone(path: str, before: Before) -> str | None:
    there = before.kind in ("file", "folder", "other")
    return f"{path} was deleted; to ask for that, use no-file:{path}" if there else None


def _changed(path: str, found: Found, before: Before) -> Outcome:
    if before.kind == "absent":
        return passed(f"{path} was created")
    if before.changed is not None:
        differs = before.changed
    else:
        differs = before.kind != found.kind or digest_of(found) != before.digest
    return passed(f"{path} was changed") if differs else failed(f"{path} has the same content as before")


def _preexisting(before: Before) -> str | None:
    return None if before.kind == "absent" else "it existed before the agent started"

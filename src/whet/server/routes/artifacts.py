"""The evidence of a run: its trials as they ended, and every file that was kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from fastapi import Path as InPath
from starlette.responses import FileResponse, Response

from whet.server import shapes
from whet.server.answers import answer
from whet.server.auth import At, Reader
from whet.server.problems import Refused, not_found
from whet.server.routes.runs import RunId, find_run
from whet.server.routes.suites import Limit
from whet.server.runs.files import file_in, files_of
from whet.server.runs.folder import place_of
from whet.server.runs.tail import journal_lines
from whet.server.storage.paging import DEFAULT_LIMIT
from whet.server.threads import in_thread

router = APIRouter(prefix="/api/v1", tags=["evidence"])

_MOST_FILES = 1000
_LARGEST = 2**53
# What a file of an agent says must never run in the browser of somebody who looks at it.
_HARMLESS = {"content-security-policy": "sandbox; default-src 'none'", "content-disposition": "attachment"}
_FILE = {200: {"description": "The file, as bytes.", "content": {"application/octet-stream": {}}}}


@router.get("/runs/{id}/trials", response_model=shapes.TrialPage, responses=shapes.problems(404, 422))
async def list_trials(
    id: RunId,  # noqa: A002
    caller: Reader,
    service: At,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Annotated[int, Query(ge=0, le=_LARGEST)] = 0,
) -> Response:
    """Trials that have ended so far, with grades and reasons; `next_cursor` is where later ones will be found."""
    run = await find_run(service, caller, id)

    def look() -> tuple[list[bytes], int]:
        journal = place_of(service.data_dir, run.id).journal
        return journal_lines(journal, cursor, limit) if journal is not None else ([], cursor)

    lines, following = await in_thread(look)
    try:
        trials = [msgspec.json.decode(line) for line in lines]
    except msgspec.DecodeError:
        trials = [None]
    if not all(isinstance(trial, dict) for trial in trials):
        wrong = [("query.cursor", "must be a next_cursor that this run gave")]
        raise Refused(422, "the request is not valid", details=wrong)
    return answer({"trials": trials, "next_cursor": str(following)})


@router.get("/runs/{id}/artifacts", response_model=shapes.ArtifactPage, responses=shapes.problems(404, 422))
async def list_artifacts(
    id: RunId,  # noqa: A002
    caller: Reader,
    service: At,
    below: Annotated[str, Query(max_length=1000, description="Only files in this folder.")] = "",
    limit: Annotated[int, Query(ge=1, le=_MOST_FILES)] = _MOST_FILES,
    cursor: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    """The files of a run, by path."""
    run = await find_run(service, caller, id)
    record = place_of(service.data_dir, run.id)
    found = await in_thread(files_of, record, below, cursor, limit + 1)
    following = found[limit - 1][0] if len(found) > limit else None
    shown = [{"path": path, "size": size} for path, size in found[:limit]]
    return answer({"artifacts": shown, "next_cursor": following})


@router.get(
    "/runs/{id}/artifacts/{path:path}",
    response_class=FileResponse,
    responses={**_FILE, **shapes.problems(404, 422)},  # type: ignore[dict-item]
)
async def get_artifact(
    id: RunId,  # noqa: A002
    path: Annotated[str, InPath(max_length=4000)],
    caller: Reader,
    service: At,
) -> Response:
    """One file of a run."""
    run = await find_run(service, caller, id)
    found: Path | None = await in_thread(file_in, place_of(service.data_dir, run.id), path)
    if found is None:
        raise not_found("artifact")
    return FileResponse(found, media_type="application/octet-stream", headers=_HARMLESS)

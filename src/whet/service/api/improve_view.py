"""The routes of the documents that pages show of improve runs: those of `whet view`, with what the service knows."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from whet.model import codec
from whet.record.improve.document import ImproveDocument, ImproveOptions, Outcome
from whet.service import http
from whet.service.api.auth import At, Reader
from whet.service.api.improve_runs import OneImproveRun
from whet.service.errors import problems
from whet.service.service import Service, in_thread
from whet.service.store.improve_folder import ImproveRunFolder
from whet.service.store.improve_runs import ImproveRun, ImproveStatus, list_improve_runs
from whet.version import __version__
from whet.view.improve.documents import ImproveList, ImprovePage
from whet.view.improve.page import improve_page

router = APIRouter(prefix="/api/v1/view/improve", tags=["view"])

_REF = "#/components/schemas/View{name}"
_MOST_RUNS = 100
DOCUMENTS: tuple[Any, ...] = (ImproveList, ImprovePage)
_OUTCOMES: dict[ImproveStatus, Outcome] = {
    "succeeded": "succeeded",
    "no_winner": "no_winner",
    "undecided": "undecided",
    "failed_transient": "failed",
    "failed_terminal": "refused",
    "cancelled": "interrupted",
}


def _document(kind: type[Any]) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": _REF.format(name=kind.__name__)}
    return {200: {"description": kind.__doc__, "content": {http.JSON: {"schema": schema}}}}


@router.get("", response_model=None, responses={**_document(ImproveList), **problems()})
async def view_improve_runs(caller: Reader, service: At) -> Response:
    """List the newest improve runs of the organisation."""
    page = http.Page(_MOST_RUNS, None)
    page_runs, _ = await service.read(list_improve_runs, caller.organisation_id, page, suite_id=None, status=None)
    heads = await in_thread(lambda: tuple(_page(service, run).shown for run in page_runs))
    return _answer(ImproveList(project=caller.organisation, runs=heads))


@router.get("/{id}", response_model=None, responses={**_document(ImprovePage), **problems(404, 422)})
async def view_improve_run(run: OneImproveRun, service: At) -> Response:
    """Get an improve run with all its candidates."""
    return _answer(await in_thread(_page, service, run))


def _answer(document: ImproveList | ImprovePage) -> Response:
    return Response(codec.encode(document), media_type=http.JSON)


def _page(service: Service, run: ImproveRun) -> ImprovePage:
    page = improve_page(_record(service, run), running=not run.ended)
    shown = page.shown
    shown.id, shown.waiting = run.id, run.status == "queued"
    shown.began_at, shown.ended_at = run.created_at, run.ended_at
    if shown.waiting:
        shown.headline = "It waits for its turn"
    return page


def _record(service: Service, run: ImproveRun) -> ImproveDocument:
    """Return what the record says, as it counts here; before there is one, what was asked for."""
    data = ImproveRunFolder.of(service.data_dir, run.id).shown(service.without_places)
    record = codec.decode(data, ImproveDocument) if data is not None else _asked(run)
    if not run.ended:
        return record
    summary = run.summary
    return msgspec.structs.replace(
        record,
        outcome=_OUTCOMES[run.status],
        phase=None,
        reason=run.error or (summary.reason if summary is not None else None),
        # A command would be one for the machine of the service.
        hint=summary.hint if summary is not None and run.error is None else None,
    )


def _asked(run: ImproveRun) -> ImproveDocument:
    options = run.options
    return ImproveDocument(
        id=run.id,
        began_at=run.created_at,
        whet=__version__,
        skill="",
        skill_name=run.skill_label or "a skill",
        start="",
        suite="",
        suite_name=run.eval_suite_id,
        runner=run.runner,
        proposer=run.proposer,
        seed=0,
        options=ImproveOptions(
            part=options.part or "body",
            goal=options.goal,
            candidates=options.candidates,
            rounds=options.rounds,
            max_cost_usd=options.max_cost_usd,
            accept=options.accept or "like-these",
        ),
    )

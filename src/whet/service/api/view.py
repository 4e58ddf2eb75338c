"""The routes of the documents that pages show: the same as those of `whet view`, at the same addresses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, unquote

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import FileResponse, Response

from whet.errors import UsageError
from whet.model import codec
from whet.record.notes import Note, new_note
from whet.record.read.rows import RowKey
from whet.service import http
from whet.service.api import improve_view, labels
from whet.service.api._listings import OrganisationViews
from whet.service.api.auth import At, Reader, Starter
from whet.service.api.evidence import send_file
from whet.service.api.runs import OneRun
from whet.service.errors import Refused, invalid_request, not_found, problems
from whet.service.service import MB, Service, in_thread
from whet.service.store import notes, runs
from whet.service.store.run_folder import RunFolder
from whet.service.store.runs import Run
from whet.service.store.suites import require_suite
from whet.view.addresses import NoteBody, notes_document
from whet.view.case import case_document
from whet.view.compare import compare_document
from whet.view.documents import (
    CaseByArms,
    CompareDocument,
    NotesDocument,
    RowsDocument,
    RunDocument,
    RunList,
    RunStatus,
    ShownRun,
    TrialDocument,
    trial_key,
)
from whet.view.history.document import MOST_POINTS, history_document
from whet.view.history.documents import HistoryDocument
from whet.view.run import RunView
from whet.view.trial import MOST_EVENTS, TrialViews, events_document


class _TrialConvertor(PathConvertor):
    """The key of a trial in a path: it ends in a number, so that its notes are at other addresses."""

    regex = ".*/[0-9]{1,9}"


register_url_convertor("trial", _TrialConvertor())
router = APIRouter(prefix="/api/v1/view", tags=["view"])

T = TypeVar("T")
_REF = "#/components/schemas/View{name}"
_MOST_RUNS = 100
_LARGEST = 2**53
_KEY_PARTS = 4
_LONGEST_PATH = 4000
_UUID = re.compile("[0-9a-fA-F-]{36}")
_views = OrganisationViews()
_EVENTS = msgspec.defstruct("EventsDocument", [("from", int), ("total", int | None), ("events", list[dict[str, Any]])])
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file, as bytes.", "content": {"application/octet-stream": {}}}
}
_DOCUMENTS: tuple[Any, ...] = (
    *(
        RunList,
        RunDocument,
        RowsDocument,
        CaseByArms,
        TrialDocument,
        NotesDocument,
        CompareDocument,
        HistoryDocument,
        Note,
    ),
    *(NoteBody, _EVENTS),
    *improve_view.DOCUMENTS,
    *labels.DOCUMENTS,
)
TrialKey = Annotated[
    str, Path(max_length=_LONGEST_PATH, description="Case, runner, arm and number, each encoded, with / between them.")
]

CaseName = Annotated[str, Path(max_length=_LONGEST_PATH, description="The case, encoded.")]


async def _find_noted(caller: Starter, service: At, id_: http.RunId) -> Run:
    return await service.read(runs.get_run, caller.organisation_id, id_)


# The run in the path, for callers who may add notes to it: they need not be able to read all of it.
NotedRun = Annotated[Run, Depends(_find_noted)]


def view_schemas() -> dict[str, Any]:
    """Return the schemas of the documents, for OpenAPI."""
    _, schemas = msgspec.json.schema_components(_DOCUMENTS, ref_template=_REF)
    return {f"View{name}": schema for name, schema in schemas.items()}


def _document(kind: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": _REF.format(name=kind.__name__)}
    return {status: {"description": kind.__doc__ or "Events.", "content": {http.JSON: {"schema": schema}}}}


def _answer(document: Any, status: int = 200) -> Response:
    return Response(document if isinstance(document, bytes) else codec.encode(document), status, media_type=http.JSON)


@router.get("/runs", response_model=None, responses={**_document(RunList), **problems()})
async def view_runs(caller: Reader, service: At) -> Response:
    """List the newest runs of the organisation."""
    page_runs, _ = await service.read(
        runs.list_runs, caller.organisation_id, http.Page(_MOST_RUNS, None), suite_id=None, status=None
    )
    heads = await in_thread(lambda: tuple(_head(service, run) for run in page_runs))
    return _answer(RunList(project=caller.organisation, runs=heads))


@router.get("/runs/{id}", response_model=None, responses={**_document(RunDocument), **problems(404, 422)})
async def view_run(run: OneRun, service: At) -> Response:
    """Get a run with all its trials."""
    run_notes = await service.read(notes.notes_of, run.id)
    previous = await _previous(service, run)

    def look(view: RunView, _: TrialViews) -> RunDocument:
        document = view.document(previous=previous, label=run.label)
        document.run = _of_service(document.run, run)
        document.notes = {trial_key(key): len(trial_notes) for key, trial_notes in run_notes.items()}
        return document

    record = RunFolder.of(service.data_dir, run.id).record
    if record is None:
        return _answer(RunDocument(run=_head(service, run), previous=previous))
    return _answer(await _looked(service, run, look))


@router.get("/runs/{id}/rows", response_model=None, responses={**_document(RowsDocument), **problems(404, 422)})
async def view_rows(run: OneRun, service: At, offset: Annotated[int, Query(ge=0, le=_LARGEST)] = 0) -> Response:
    """Get the trials that ended since the journal was so long."""

    def look(view: RunView, _: TrialViews) -> RowsDocument:
        rows = view.rows_after(offset)
        rows.status = _status(view.status, run)
        rows.run = _of_service(rows.run, run) if rows.run else None
        return rows

    record = RunFolder.of(service.data_dir, run.id).record
    if record is None:
        return _answer(RowsDocument(offset=0, status=run.status, rows=()))
    return _answer(await _looked(service, run, look))


@router.get("/runs/{id}/notes", response_model=None, responses={**_document(NotesDocument), **problems(404, 422)})
async def view_notes(run: OneRun, service: At) -> Response:
    """Get the notes of people on the trials of a run."""
    run_notes = await service.read(notes.notes_of, run.id)
    return _answer(await _looked(service, run, lambda view, _: notes_document(view, run_notes)))


@router.post(
    "/runs/{id}/trials/{key:path}/notes",
    status_code=201,
    response_model=None,
    responses={**_document(Note, 201), **problems(400, 404, 408, 413, 415, 422)},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {http.JSON: {"schema": {"$ref": _REF.format(name="NoteBody")}}},
        }
    },
)
async def add_note(request: Request, caller: Starter, run: NotedRun, service: At, key: TrialKey) -> Response:  # noqa: ARG001 - for OpenAPI
    """Add a note to a trial."""
    if http.content_type(request) != http.JSON:
        raise Refused(415, f"the content type must be {http.JSON}")
    note = _read_note(await http.read_body(request, MB, service.limits.body_timeout_s), caller.prefix)
    trial = _key(_below(request, "trials")[:-1])
    known = await _looked(service, run, lambda view, _: trial in view.rows.rows)
    if not known:
        raise not_found("trial")
    await service.write(notes.add_note, run.id, trial, note)
    return _answer(note, 201)


@router.delete(
    "/runs/{id}/trials/{key:path}/notes/{note}", status_code=204, response_model=None, responses=problems(404, 422)
)
async def remove_note(
    request: Request,
    run: NotedRun,
    service: At,
    key: TrialKey,  # noqa: ARG001 - for OpenAPI
    note: Annotated[str, Path(max_length=100)],
) -> Response:
    """Remove a note from a trial."""
    await service.write(notes.remove_note, run.id, _key(_below(request, "trials")[:-2]), note)
    return Response(status_code=204)


@router.get(
    "/runs/{id}/trials/{key:trial}", response_model=None, responses={**_document(TrialDocument), **problems(404, 422)}
)
async def view_trial(request: Request, run: OneRun, service: At, key: TrialKey) -> Response:  # noqa: ARG001 - for OpenAPI
    """Get a trial with all that it left, but its events."""
    trial = _key(_below(request, "trials"))
    run_notes = await service.read(notes.notes_of, run.id)

    def look(_: RunView, trials: TrialViews) -> TrialDocument | None:
        document = trials.document(trial)
        if document is not None:
            document.notes = run_notes.get(trial, ())
        return document

    document = await _looked(service, run, look)
    if document is None:
        raise not_found("trial")
    return _answer(document)


@router.get(
    "/runs/{id}/cases/{case:path}", response_model=None, responses={**_document(CaseByArms), **problems(404, 422)}
)
async def view_case(request: Request, run: OneRun, service: At, case: CaseName) -> Response:
    """Get a case in each arm: its checks, and why its trials failed."""
    # Its own part of the address keeps slashes apart; here it is only described.
    del case
    names = _below(request, "cases")
    document = await _looked(service, run, lambda view, _: case_document(view, names[0]) if len(names) == 1 else None)
    if document is None:
        raise not_found("case")
    return _answer(document)


@router.get(
    "/runs/{id}/events/{path:path}", response_model=None, responses={**_document(_EVENTS), **problems(404, 422)}
)
async def view_events(
    request: Request,
    run: OneRun,
    service: At,
    path: Annotated[str, Path(max_length=_LONGEST_PATH, description="The folder of an attempt.")],  # noqa: ARG001
    first: Annotated[int, Query(alias="from", ge=0, le=_LARGEST)] = 0,
    count: Annotated[int, Query(ge=0, le=MOST_EVENTS)] = MOST_EVENTS,
) -> Response:
    """Get events of an attempt, from a place on."""
    folder = "/".join(_below(request, "events"))
    document = await _looked(service, run, lambda view, _: events_document(view, folder, first, count))
    if document is None:
        raise not_found("attempt")
    return _answer(document)


@router.get("/runs/{id}/files/{path:path}", response_class=FileResponse, responses={**_FILE, **problems(404, 422)})
async def view_file(
    request: Request,
    run: OneRun,
    service: At,
    path: Annotated[str, Path(max_length=_LONGEST_PATH)],  # noqa: ARG001 - for OpenAPI
) -> Response:
    """Get a file of a run."""
    return await send_file(service, run, "/".join(_below(request, "files")), "file")


@router.get("/compare/{a}/{b}", response_model=None, responses={**_document(CompareDocument), **problems(404, 422)})
async def view_comparison(
    caller: Reader, service: At, a: Annotated[str, Path(max_length=100)], b: Annotated[str, Path(max_length=100)]
) -> Response:
    """Get two runs beside each other."""
    pair = [await service.read(runs.get_run, caller.organisation_id, http.read_id(id_, "run")) for id_ in (a, b)]

    def work() -> CompareDocument:
        records = [RunFolder.of(service.data_dir, run.id).record for run in pair]
        if None in records:
            raise not_found("record of one of these runs yet")
        views = [
            RunView(record, name=run.id, private=True) for run, record in zip(pair, records, strict=True) if record
        ]
        return compare_document(views[0], views[1])

    return _answer(await in_thread(work))


@router.get(
    "/history/{suite:path}", response_model=None, responses={**_document(HistoryDocument), **problems(404, 422)}
)
async def view_history(caller: Reader, service: At, suite: Annotated[str, Path(max_length=200)]) -> Response:
    """Get how a suite did over time; *suite* is its id, or the name of one that was run."""
    by_id = _UUID.fullmatch(suite) is not None
    if by_id:
        await service.read(require_suite, caller.organisation_id, http.read_id(suite, "suite"))
    page, only = http.Page(MOST_POINTS, None), http.read_id(suite, "suite") if by_id else None
    suite_runs, _ = await service.read(runs.list_runs, caller.organisation_id, page, suite_id=only, status=None)

    def look() -> HistoryDocument:
        folders = {run.id: RunFolder.of(service.data_dir, run.id).record for run in reversed(suite_runs) if run.ended}
        views = [RunView(folder, name=name, private=True) for name, folder in folders.items() if folder is not None]
        suite_views = views if by_id else [view for view in views if view.asked.suite == suite]
        if not suite_views and not by_id:
            raise not_found("suite that was run")
        return history_document(suite, suite_views)

    return _answer(await in_thread(look))


async def _looked(service: Service, run: Run, look: Callable[[RunView, TrialViews], T]) -> T:
    """Return what *look* finds in the record of a run, on a thread."""

    def work() -> T:
        record = RunFolder.of(service.data_dir, run.id).record
        if record is None:
            raise not_found("record of this run yet")
        views = _views.of(run.organisation_id)
        with views.lock:
            return look(*views.find(run.id, record))

    return await in_thread(work)


async def _previous(service: Service, run: Run) -> str | None:
    """Return the run of the same suite before that one."""
    earlier, _ = await service.read(
        runs.list_runs, run.organisation_id, http.Page(_MOST_RUNS, None), suite_id=run.suite_id, status="completed"
    )
    return next((earlier_run.id for earlier_run in earlier if earlier_run.created_at < run.created_at), None)


def _head(service: Service, run: Run) -> ShownRun:
    record = RunFolder.of(service.data_dir, run.id).record
    if record is None:
        head = ShownRun(id=run.id, status=run.status)
    else:
        views = _views.of(run.organisation_id)
        with views.lock:
            head = views.head(run.id, record)
    return _of_service(head, run)


def _of_service(head: ShownRun, run: Run) -> ShownRun:
    """Return a run with what only the service knows of it."""
    run_head = msgspec.structs.replace(head, status=_status(head.status, run), label=run.label)
    run_head.started_at = run_head.started_at or run.started_at
    run_head.problem = run_head.problem or run.error
    run_head.suite_id, run_head.suite_version, run_head.asked_by = run.suite_id, run.suite_version, run.asked_by
    run_head.skill_label = run.skill_label
    run_head.cancelling = run.cancel_requested_at is not None and not run.ended
    return run_head


def _status(seen: RunStatus, run: Run) -> RunStatus:
    return seen if run.status == "completed" and seen != "running" else run.status


def _below(request: Request, word: str) -> list[str]:
    """Return the parts of the address after *word*, each decoded by itself: names may have slashes."""
    raw = request.scope.get("raw_path") or quote(request.url.path).encode()
    parts = raw.decode("ascii", "replace").split("/")
    # /api/v1/view/runs/ID/WORD/...
    return [unquote(part, errors="replace") for part in parts[parts.index(word, 5) + 1 :]]


def _key(parts: list[str]) -> RowKey:
    if len(parts) != _KEY_PARTS or not parts[3].isascii() or not parts[3].isdecimal() or len(parts[3]) > len("9" * 9):
        raise not_found("trial")
    return RowKey(parts[0], parts[1], parts[2], int(parts[3]))


def _read_note(body: bytes, prefix: str) -> Note:
    try:
        note_body = msgspec.convert(http.decode_json(body), NoteBody)
        return new_note(note_body.text, note_body.verdict, note_body.by or prefix)
    except msgspec.ValidationError as error:
        raise invalid_request(("", str(error))) from None
    except UsageError as error:
        raise invalid_request(("", error.message)) from None

"""The routes of labels: what people say of what a judge decided, for keys that may label and need see nothing else."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path as FilePath
from threading import Lock
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request
from msgspec import Struct
from starlette.responses import Response

from whet.decide.judging.units import JudgedUnit, Label, LabelLine
from whet.errors import UsageError
from whet.model import codec
from whet.record.judging.judged import judged_units
from whet.record.judging.labels_file import line_of
from whet.record.read.run import read_run
from whet.service import http
from whet.service.api.auth import At, Labeller
from whet.service.api.runs import OneRun
from whet.service.errors import Refused, invalid_request, not_found, problems
from whet.service.service import MB, Service, in_thread
from whet.service.store import labels, runs
from whet.service.store.run_folder import RunFolder
from whet.service.store.runs import Run
from whet.view.addresses import Missing
from whet.view.labels.documents import (
    JudgeReasonDocument,
    KeptLabel,
    LabelItemDocument,
    LabelQueueDocument,
    SentLabel,
)
from whet.view.labels.queue import LabelQueue, QueueOptions

router = APIRouter(prefix="/api/v1", tags=["labels"])

T = TypeVar("T")
_MOST_DRAWN = 10_000
_KEPT_RUNS = 8
_REF = "#/components/schemas/View{name}"
_LINES = "application/jsonl"
DOCUMENTS: tuple[Any, ...] = (LabelQueueDocument, LabelItemDocument, JudgeReasonDocument, SentLabel, KeptLabel)
Name = Annotated[str, Path(max_length=100, description="The name of a statement in the queue.")]
Drawn = Annotated[int, Query(ge=1, le=_MOST_DRAWN, description="How many statements are drawn.")]
Second = Annotated[bool, Query(description="Ask about a third of what one other person has labelled.")]


async def _find_judged(caller: Labeller, service: At, id_: http.RunId) -> Run:
    return await service.read(runs.get_run, caller.organisation_id, id_)


# The run in the path, for callers who may label it: they need not be able to read it, and then see no verdict.
JudgedRun = Annotated[Run, Depends(_find_judged)]


class _LabelsOfRun:
    """The labels of a run as they were read, to which one is added at most."""

    place = "the service"
    policy = None
    policy_text = None

    def __init__(self, lines: list[LabelLine]) -> None:
        self._lines = lines
        self.added: Label | None = None

    def lines(self) -> list[LabelLine]:
        """Return the labels."""
        return self._lines

    def add(self, label: Label) -> LabelLine:
        """Keep a label, for the database."""
        self.added = label
        return line_of(label)[0]

    def remove(self, line_id: str, by: str) -> bool:
        """Remove nothing: the database does."""
        del line_id, by
        return False


class _Judged(Struct, frozen=True):
    """What was judged in an ended run."""

    units: list[JudgedUnit]
    record: FilePath


class _RecentlyJudged:
    """The runs that people label now, so that each request does not read all of one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Judged] = OrderedDict()
        self._lock = Lock()

    def of(self, service: Service, run: Run) -> _Judged:
        """Return what was judged in a run; refuses one that has not ended, and one in which nobody judged."""
        if not run.ended:
            raise Refused(409, "the run has not ended")
        with self._lock:
            judged = self._kept.get(run.id) or self._read(service, run)
            self._kept[run.id] = judged
            self._kept.move_to_end(run.id)
            while len(self._kept) > _KEPT_RUNS:
                self._kept.popitem(last=False)
        return judged

    def _read(self, service: Service, run: Run) -> _Judged:
        record = RunFolder.of(service.data_dir, run.id).record
        if record is None:
            raise not_found("record of this run")
        units = judged_units(read_run(record))
        if not units:
            raise Refused(409, "nothing in the run was decided by a judge, so there is nothing to label")
        return _Judged(units, record)


_recently_judged = _RecentlyJudged()


def _answers(kind: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": _REF.format(name=kind.__name__)}
    return {status: {"description": kind.__doc__, "content": {http.JSON: {"schema": schema}}}}


def _answer(document: Any, status: int = 200) -> Response:
    return Response(codec.encode(document), status, media_type=http.JSON)


@router.get(
    "/view/runs/{id}/labels", response_model=None, responses={**_answers(LabelQueueDocument), **problems(404, 409, 422)}
)
async def view_labels(caller: Labeller, run: JudgedRun, service: At, n: Drawn = 60, second: Second = False) -> Response:
    """Get what is left to label, in an order that says nothing."""
    options = QueueOptions(n=n, seed=run.id, second=second)
    queue, _ = await _queue(service, run, options)
    return _answer(await in_thread(lambda: queue.document(caller.prefix)))


@router.get(
    "/view/runs/{id}/labels/{name}",
    response_model=None,
    responses={**_answers(LabelItemDocument), **problems(404, 409, 422)},
)
async def view_label_item(run: JudgedRun, service: At, name: Name) -> Response:
    """Get a statement with the answer that it is about."""
    queue, _ = await _queue(service, run)
    return _answer(await _work(lambda: queue.item(name)))


@router.get(
    "/view/runs/{id}/labels/{name}/reason",
    response_model=None,
    responses={**_answers(JudgeReasonDocument), **problems(404, 409, 422)},
)
async def view_label_reason(caller: Labeller, run: JudgedRun, service: At, name: Name) -> Response:
    """Get what the judge said of a statement that you have labelled."""
    queue, _ = await _queue(service, run)
    document = await _work(lambda: queue.reason(name, caller.prefix))
    # Kept before it is shown, also for a server that starts anew.
    await service.write(labels.mark_revealed, run.id, queue.labels_on(name, caller.prefix))
    return _answer(document)


@router.post(
    "/view/runs/{id}/labels/{name}",
    status_code=201,
    response_model=None,
    responses={**_answers(KeptLabel, 201), **problems(400, 404, 408, 409, 413, 415, 422)},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {http.JSON: {"schema": {"$ref": _REF.format(name="SentLabel")}}},
        }
    },
)
async def add_label(request: Request, caller: Labeller, run: JudgedRun, service: At, name: Name) -> Response:
    """Label a statement, in the name of your key."""
    if http.content_type(request) != http.JSON:
        raise Refused(415, f"the content type must be {http.JSON}")
    sent = _read_label(await http.read_body(request, MB, service.limits.body_timeout_s))
    queue, store = await _queue(service, run)
    kept = await _work(lambda: queue.label(name, sent.label, caller.prefix, sent.note))
    assert store.added is not None
    await service.write(labels.add_label, run.id, store.added)
    return _answer(kept, 201)


@router.delete(
    "/view/runs/{id}/labels/{name}/kept/{label}", status_code=204, response_model=None, responses=problems(404, 422)
)
async def remove_label(
    caller: Labeller,
    run: JudgedRun,
    service: At,
    name: Name,
    label: Annotated[str, Path(max_length=100)],
) -> Response:
    """Take a label of your key back."""
    # The address of a label is below its statement.
    del name
    await service.write(labels.remove_label, run.id, label, caller.prefix)
    return Response(status_code=204)


@router.get(
    "/runs/{id}/labels.jsonl",
    response_class=Response,
    responses={
        200: {
            "description": "Labels as `whet judge report` reads them.",
            "content": {_LINES: {"schema": {"type": "string"}}},
        },
        **problems(404, 422),
    },
)
async def get_labels(run: OneRun, service: At) -> Response:
    """Get the labels on a run as the file that lies beside a suite."""
    lines = await service.read(labels.raw_lines, run.id)
    return Response(b"".join(line + b"\n" for line in lines), media_type=_LINES)


async def _queue(service: Service, run: Run, options: QueueOptions | None = None) -> tuple[LabelQueue, _LabelsOfRun]:
    store = _LabelsOfRun(await service.read(labels.lines_of, run.id))
    revealed_ids = await service.read(labels.revealed_ids, run.id)
    judged = await in_thread(lambda: _recently_judged.of(service, run))
    folders = {judged.record.name: judged.record}
    options = options or QueueOptions(n=_MOST_DRAWN, seed=run.id)
    revealed: set[tuple[str, str]] = set()
    queue = LabelQueue(judged.units, folders, store, options, revealed)
    revealed.update((queue.name_of(line.label), line.label.by) for line in store.lines() if line.id in revealed_ids)
    return queue, store


async def _work(look: Callable[[], T]) -> T:
    """Return what *look* finds, on a thread; what it refuses is refused to the caller."""
    try:
        return await in_thread(look)
    except Missing:
        raise not_found("statement") from None
    except UsageError as error:
        raise Refused(409, error.message) from None


def _read_label(body: bytes) -> SentLabel:
    try:
        sent = msgspec.convert(http.decode_json(body), SentLabel)
    except msgspec.ValidationError as error:
        raise invalid_request(("", str(error))) from None
    return sent

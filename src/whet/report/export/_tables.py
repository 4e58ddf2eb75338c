"""Tables with one row for each trial: CSV, JSON lines and Parquet, written while the record is read."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from typing import Any, Literal, TypeAlias

from whet.model import codec
from whet.model.session import TOKEN_FIGURES
from whet.record.notes import Notes, last_verdict, read_notes
from whet.record.read.rows import RowKey
from whet.record.read.stream import RecordedTrial, TrialStream
from whet.record.run_file import RunFile

Kind = Literal["text", "whole", "number", "yes", "list"]
Row: TypeAlias = dict[str, Any]
# In this order, and with these types, in every table. New ones are added at the end.
COLUMNS: dict[str, Kind] = {
    "run": "text",
    "suite": "text",
    "case": "text",
    "runner": "text",
    "arm": "text",
    "trial": "whole",
    "attempt": "whole",
    "status": "text",
    "passed": "yes",
    "flaky": "yes",
    "score": "number",
    "value": "number",
    "vacuous": "yes",
    "cause": "text",
    "failure_phase": "text",
    "failure_code": "text",
    "failure_class": "text",
    "failure_message": "text",
    "started_at": "text",
    "duration_s": "number",
    "session_s": "number",
    "steps": "whole",
    "changed_files": "whole",
    "input_tokens": "whole",
    "output_tokens": "whole",
    "cached_tokens": "whole",
    "cache_write_tokens": "whole",
    "reasoning_tokens": "whole",
    "total_tokens": "whole",
    "tokens_guessed": "yes",
    "cost_usd": "number",
    "cost_source": "text",
    "paid_tokens": "whole",
    "paid_usd": "number",
    "agent": "text",
    "agent_version": "text",
    "model": "text",
    "session_id": "text",
    "skills": "list",
    "skill_digest": "text",
    "suite_digest": "text",
    "tags": "list",
    "weight": "number",
    "folder": "text",
    "regraded_from": "text",
    "whet_version": "text",
    "human_verdict": "text",
    "human_notes": "list",
}
_BATCH = 1000
# What spreadsheets take for the beginning of a formula, also in its wide forms.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001


def rows(stream: TrialStream) -> Iterator[Row]:
    """Yield a row for each trial, with every column."""
    notes = read_notes(stream.run_dir)
    for trial in stream:
        row = _verdict(trial) | _usage(trial) | _origin(trial, stream.asked) | _note_columns(trial, notes)
        yield {name: row[name] for name in COLUMNS}


def _verdict(trial: RecordedTrial) -> Row:
    result, failure = trial.result, trial.result.failure
    return {
        "run": trial.run,
        "suite": result.key.suite,
        "case": result.key.case,
        "runner": result.key.runner,
        "arm": result.key.arm,
        "trial": result.key.number,
        "attempt": result.attempts[-1].number if result.attempts else 1,
        "status": result.status,
        "passed": result.passed,
        "flaky": result.flaky,
        "score": result.score,
        "value": result.compared,
        "vacuous": result.vacuous,
        "cause": failure.cause if failure else None,
        "failure_phase": failure.phase if failure else None,
        "failure_code": failure.code if failure else None,
        "failure_class": result.failure_class.id if result.failure_class else None,
        "failure_message": failure.message if failure else None,
        "started_at": result.started_at,
        "duration_s": round(result.duration_s, 3),
        "session_s": None if result.session_s is None else round(result.session_s, 3),
        "steps": result.steps,
        "changed_files": result.changed_files,
    }


def _usage(trial: RecordedTrial) -> Row:
    usage, paid_usage = trial.result.usage, trial.result.paid_usage
    return {name: getattr(usage, name) for name in (*TOKEN_FIGURES, "total_tokens", "cost_usd", "cost_source")} | {
        "tokens_guessed": usage.tokens_guessed,
        "paid_tokens": paid_usage.total_tokens,
        "paid_usd": paid_usage.cost_usd,
    }


def _origin(trial: RecordedTrial, run_file: RunFile) -> Row:
    *_, last = trial.attempts()
    session, arm = last.session, trial.result.key.arm
    digest = run_file.arm_facts[arm].get("skill") if arm in run_file.arm_facts else run_file.skill_digest
    return {
        "agent": session.agent if session else trial.agent,
        "agent_version": session.version if session else None,
        "model": (session.model if session else None) or trial.model,
        "session_id": session.session_id if session else None,
        "skills": [detection.skill for detection in trial.result.detected_skills],
        "skill_digest": None if digest == "none" else digest,
        "suite_digest": run_file.suite_digest,
        "tags": list(trial.tags),
        "weight": trial.weight,
        "folder": trial.result.artifact_dir,
        "regraded_from": run_file.regraded_from,
        "whet_version": run_file.whet_version,
    }


def _note_columns(trial: RecordedTrial, notes: Notes) -> Row:
    """Return what people said of a trial: their last verdict, and their texts."""
    key = trial.result.key
    trial_notes = notes.get(RowKey(key.case, key.runner, key.arm, key.number), ())
    return {"human_verdict": last_verdict(trial_notes), "human_notes": [note.text for note in trial_notes if note.text]}


def json_lines(stream: TrialStream) -> Iterator[bytes]:
    """Yield a line of JSON for each trial."""
    for row in rows(stream):
        yield codec.encode(row) + b"\n"


def csv_lines(stream: TrialStream) -> Iterator[bytes]:
    """Yield a line with the names of the columns, and one for each trial."""
    sheet = io.StringIO(newline="")
    writer = csv.writer(sheet, lineterminator="\n")
    for cells in _cells(stream):
        writer.writerow(cells)
        yield sheet.getvalue().encode()
        sheet.seek(0)
        sheet.truncate()


def _cells(stream: TrialStream) -> Iterator[Iterable[Any]]:
    yield COLUMNS
    yield from (map(_cell, row.values()) for row in rows(stream))


def _cell(value: Any) -> Any:
    """Return what a cell shows; a text that a spreadsheet would run as a formula gets an apostrophe before it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        value = ";".join(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def parquet(stream: TrialStream) -> Iterator[bytes]:
    """Yield the pieces of a Parquet file, a thousand trials at a time."""
    arrow, files = import_module("pyarrow"), import_module("pyarrow.parquet")
    types = {
        "text": arrow.string(),
        "whole": arrow.int64(),
        "number": arrow.float64(),
        "yes": arrow.bool_(),
        "list": arrow.list_(arrow.string()),
    }
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    sink = _Sink()
    with files.ParquetWriter(sink, schema, compression="zstd") as writer:
        row_stream = rows(stream)
        while batch := list(islice(row_stream, _BATCH)):
            writer.write_batch(arrow.RecordBatch.from_pylist(batch, schema=schema))
            yield sink.take()
    yield sink.take()


class _Sink(io.RawIOBase):
    """A file that hands on what was written to it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        self._size += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        """Return what was written since the last time."""
        data, self._pieces = b"".join(self._pieces), []
        return data

"""Export a recorded run to other tools: tables, trajectories and traces."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from whet.errors import UsageError
from whet.reading.text import count
from whet.record.read.stream import TrialStream
from whet.report.export._atif import write_trajectories
from whet.report.export._otlp import otlp_lines, send_traces
from whet.report.export._tables import csv_lines, json_lines, parquet
from whet.version import install_command

# The library that a format needs, and the extra that brings it.
_NEEDS = {"parquet": ("pyarrow", "parquet"), "otlp": ("opentelemetry.proto", "otlp")}


class ExportRequest(Struct, frozen=True, kw_only=True):
    """What to export, and where to; `content` adds what was said to traces."""

    run_dir: Path
    format: str
    output: Path | None = None
    endpoint: str | None = None
    content: bool = False


def check_request(request: ExportRequest) -> None:
    """Refuse what cannot be done, before anything is read."""
    if request.format != "otlp" and (request.endpoint or request.content):
        raise UsageError(f"--{'endpoint' if request.endpoint else 'content'} is for --format otlp")
    if request.endpoint and request.output:
        raise UsageError("--endpoint and --output cannot be used together", hint="leave out one of them")
    if request.format == "atif" and request.output is None:
        raise UsageError("atif is a folder of files", hint="name a new one with --output")
    if request.format == "parquet" and request.output is None and sys.stdout.isatty():
        raise UsageError("a Parquet file cannot be shown on a terminal", hint="name a file with --output")
    library, extra = _NEEDS.get(request.format, ("", ""))
    if library and not _is_installed(library):
        raise UsageError(f"--format {request.format} needs {library}", hint=install_command(extra))


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:
        # Something above it is missing.
        return False


def export(
    request: ExportRequest, write: Callable[[Iterator[bytes]], None], environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Carry out *request*, whose documents go to *write*; return what a person should know."""
    stream = TrialStream(request.run_dir)
    if not len(stream):
        raise UsageError(f"no trial of {request.run_dir.name} has ended, so it holds nothing yet")
    notes = [f"the run is not finished: {count(stream.missing, 'trial')} missing"] if stream.missing else []
    if request.format == "atif":
        notes += _export_folder(stream, request)
    elif request.endpoint:
        send_traces(stream, request.endpoint, content=request.content, environ=environ)
    else:
        write(_document(stream, request))
    return tuple(notes)


def _export_folder(stream: TrialStream, request: ExportRequest) -> list[str]:
    assert request.output
    without = write_trajectories(stream, request.output)
    return [f"{count(without, 'attempt')} without a session left out"] if without else []


def _document(stream: TrialStream, request: ExportRequest) -> Iterator[bytes]:
    if request.format == "otlp":
        return otlp_lines(stream, content=request.content)

    return {"csv": csv_lines, "jsonl": json_lines, "parquet": parquet}[request.format](stream)

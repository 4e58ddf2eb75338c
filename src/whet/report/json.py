"""Writing whole documents: to a file that appears complete or not at all, or to stdout."""

from __future__ import annotations

import codecs
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO

from whet.model.event import RunEnded, RunEvent
from whet.report.reporter import NotWritten, ReporterContext
from whet.report.screen import printing


def write_document(chunks: Iterable[bytes], context: ReporterContext) -> None:
    """Write *chunks* to the target, or to stdout where there is none."""
    if context.target is None:
        with printing(context.stdout):
            _write_stdout(chunks, context.stdout)
        return
    try:
        with replacing(context.target) as file:
            file.writelines(chunks)
    except OSError as error:
        raise NotWritten(f"could not write {context.target}: {error.strerror or error}") from error


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file that takes *target*'s place once it is whole; after an error the old one stays."""
    if is_written_into(target):
        with target.open("ab") as file:
            yield file
        return
    # What a link points at is replaced, not the link.
    target = target.resolve()
    temporary = target.with_name(f".whet-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        os.replace(temporary, target)  # noqa: PTH105 - named for what it does: one step, the old file or the new
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_written_into(target: Path) -> bool:
    """Whether *target* is a device, a pipe or a stream of ours: to take its place would be to destroy it."""
    is_stream = str(target).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    return target.exists() and (is_stream or not target.is_file())


def _write_stdout(chunks: Iterable[bytes], stdout: TextIO) -> None:
    stdout.flush()
    # Documents are UTF-8 whatever the terminal speaks; a stream without bytes below it takes text.
    raw = getattr(stdout, "buffer", None)
    if raw is not None:
        for chunk in chunks:
            raw.write(chunk)
    else:
        stdout.writelines(codecs.iterdecode(chunks, "utf-8", "replace"))
    stdout.flush()


_CHUNK_BYTES = 1 << 16


class JsonReporter:
    """Copies what the store has written, so that there is one document and one truth."""

    document = True

    def __init__(self, context: ReporterContext) -> None:
        self._context = context

    def __call__(self, event: RunEvent) -> None:
        """At the end, copy the document."""
        if isinstance(event, RunEnded):
            write_document(_chunks(event.info.run_dir / "results.json"), self._context)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk

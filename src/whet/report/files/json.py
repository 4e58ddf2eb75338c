"""Write whole documents to a file, in one step, or to stdout; and the JSON reporter, which copies results.json."""

from __future__ import annotations

import codecs
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO

from whet.model.run_events import RunEnded, RunEvent
from whet.record.folder import PRIVATE
from whet.report.contract import NotWritten, ReporterContext
from whet.report.screen import printing

_CHUNK_BYTES = 1 << 16


class DocumentReporter(ABC):
    """Writes one document when the run ends; a subclass makes its chunks."""

    document = True

    def __init__(self, context: ReporterContext) -> None:
        self.context = context

    def __call__(self, event: RunEvent) -> None:
        """At the end, write the document."""
        if isinstance(event, RunEnded):
            write_document(self.chunks(event), self.context)

    @abstractmethod
    def chunks(self, event: RunEnded) -> Iterable[bytes]:
        """Return the document in pieces."""


class JsonReporter(DocumentReporter):
    """Copies the results.json of the run."""

    def chunks(self, event: RunEnded) -> Iterator[bytes]:
        """Yield the file in pieces."""
        with (event.info.run_dir / "results.json").open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk


def write_document(chunks: Iterable[bytes], context: ReporterContext) -> None:
    """Write *chunks* to the target, or to stdout if there is none."""
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
    """Yield a file that replaces *target* once it is complete; after an error, *target* stays as it was."""
    if is_written_into(target):
        with target.open("ab") as file:
            yield file
        return
    # Replace the file that a link points to, not the link.
    target = target.resolve()
    temporary = target.with_name(f".whet-{os.urandom(8).hex()}.tmp")
    try:
        # A report says what the record says, which only its owner may read. A file that was there keeps its mode.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE), "wb") as file:
            yield file
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        os.replace(temporary, target)  # noqa: PTH105 - named for what it does: one step, the old file or the new
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_written_into(target: Path) -> bool:
    """Return whether *target* is a device, a pipe or a stream, which replacing would destroy."""
    is_stream = str(target).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    return target.exists() and (is_stream or not target.is_file())


def _write_stdout(chunks: Iterable[bytes], stdout: TextIO) -> None:
    stdout.flush()
    # Documents are UTF-8, whatever the encoding of stdout. A stream without a binary buffer takes text.
    raw = getattr(stdout, "buffer", None)
    if raw is not None:
        for chunk in chunks:
            raw.write(chunk)
    else:
        stdout.writelines(codecs.iterdecode(chunks, "utf-8", "replace"))
    stdout.flush()

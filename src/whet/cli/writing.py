"""Where commands put what they made: a file in one step, or stdout."""

from __future__ import annotations

import sys
from pathlib import Path


def write_out(data: bytes, output: Path | None) -> None:
    """Write *data* to a file, which is there whole or as it was, or to stdout where none is named."""
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    # Only now: what is printed needs none of it.
    from whet.errors import UsageError
    from whet.report.document import replacing

    try:
        with replacing(output) as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error


def write_new(path: Path, text: str, hint: str | None = None) -> None:
    """Write a file that is not there yet; *hint* says what to do with one that is."""
    from whet.errors import UsageError

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and nothing is overwritten", hint=hint) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error

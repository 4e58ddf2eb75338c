"""Reading a file as a document, by its ending."""

from __future__ import annotations

from pathlib import Path

from whet.formats.document.base import Document, DocumentError
from whet.formats.document.json import read_json
from whet.formats.document.yaml import read_yaml

_READERS = {".json": read_json, ".yaml": read_yaml, ".yml": read_yaml}
SUFFIXES = tuple(_READERS)


def read_document(path: Path) -> Document:
    """What *path* holds; a `DocumentError` where it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror}") from error
    return _READERS[path.suffix.lower()](_text(data))


def _text(data: bytes) -> str:
    """UTF-8, with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError("is not UTF-8", line=line, hint="save it in UTF-8") from None

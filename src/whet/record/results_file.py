"""The one reader of results.json: in the shape that a caller asks for, its head alone, or as a stream of bytes.

A run may have any number of trials: a shape that leaves them out takes no memory for them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from whet.errors import StoreError
from whet.model import codec
from whet.reading.files import open_file
from whet.record.document import (
    CASES_OPENING,
    DIGEST_CLOSING,
    DIGEST_OPENING,
    RECORD_OPENING,
    RESULTS_FORMAT,
    ResultsPart,
)
from whet.record.folder import RESULTS_FILE
from whet.record.run_file import check_format

T = TypeVar("T")
P = TypeVar("P", bound=ResultsPart)
_LARGEST_HEAD = 64 * 1024 * 1024
_PIECE = 1 << 20
_DIGITS = 64


class ResultsFile:
    """The results.json of a run folder, which a run that was killed has not."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / RESULTS_FILE

    def exists(self) -> bool:
        """Return whether there is one."""
        return self.path.exists()

    def read(self, kind: type[P]) -> P | None:
        """Return what it says, as *kind*, which may leave out parts; None without one. Raises `StoreError`."""
        return self._readable(lambda: self.decode(kind))

    def read_head(self, kind: type[P]) -> P | None:
        """Return what it says before its cases and after them, as *kind*; None without one. Raises `StoreError`."""
        return self._readable(lambda: self._decode_head(kind))

    def decode(self, kind: type[T]) -> T:
        """Return what it says, as *kind*; raises `OSError`, and `WireError` with what does not fit."""
        return codec.decode_file(self.path, kind)

    def open(self) -> BinaryIO:
        """Open it as a stream of bytes."""
        return open_file(self.path)

    def check_format(self) -> None:
        """Refuse another format than ours; a document that cannot be read is left to `read`."""
        check_format(self.path, RESULTS_FORMAT)

    def fits_digest(self) -> bool:
        """Return whether it fits the hash that it ends in."""
        tail_size = len(DIGEST_OPENING) + _DIGITS + len(DIGEST_CLOSING)
        with self.open() as file:
            size = max(0, file.seek(0, os.SEEK_END) - tail_size)
            file.seek(size)
            tail = file.read()
            # First, because what does not end in a hash may be of any size.
            if not (tail.startswith(DIGEST_OPENING) and tail.endswith(DIGEST_CLOSING)):
                return False
            file.seek(0)
            digest = hashlib.sha256()
            while piece := file.read(min(_PIECE, size - file.tell())):
                digest.update(piece)
        return tail == DIGEST_OPENING + digest.hexdigest().encode() + DIGEST_CLOSING

    def _readable(self, decode: Callable[[], T]) -> T | None:
        try:
            return decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}") from error
        except codec.WireError as error:
            # If it is of another format, that is the reason, whatever the decoder says.
            self.check_format()
            raise StoreError(f"{self.path} cannot be read: {error.message}") from error

    def _decode_head(self, kind: type[T]) -> T:
        with self.open() as file:
            data = bytearray()
            while data.find(CASES_OPENING, max(0, len(data) - _PIECE - len(CASES_OPENING))) < 0:
                piece = file.read(_PIECE)
                data += piece
                # JSON has no zeros, and a file may have a hole of any size.
                if not piece or len(data) > _LARGEST_HEAD or b"\0" in piece:
                    # Another tool wrote it.
                    return self.decode(kind)
            file.seek(max(0, self.path.stat().st_size - _PIECE))
            _, separator, record = file.read().rpartition(RECORD_OPENING)
        document = bytes(data[: data.index(CASES_OPENING)]) + (b',"record":' + record if separator else b"}")
        return codec.decode(document, kind)

"""The chain of a journal: each line ends in a hash of the line before and its own content, so that a change shows.

A line reads `{RESULT,"files":{...},"chain":"HASH"}`. HASH is the SHA-256 of the hash before it, as it is written, and
of every byte of the line up to `,"chain":"`. The hash before the first one is that of nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from msgspec import Struct, field, structs

from whet.errors import (
    DiskFailed,
    JudgeRefused,
    KeyRefused,
    ProviderUnreachable,
    RecordChanged,
    RunBudgetSpent,
    UserRefused,
)
from whet.model import codec
from whet.model.comparison import RoundAnalysis
from whet.model.run import TrialKey, TrialResult
from whet.reading.files import LONGEST_LINE, next_line
from whet.record.folder import RUN_FILE, file_hash

_OPENING, _CLOSING = b',"chain":"', b'"}\n'
# What every line begins with.
_BEGINNING = b'{"'
_DIGITS = 64
_TAIL = len(_OPENING) + _DIGITS + len(_CLOSING)
# The hash before the first line.
_NOTHING = hashlib.sha256().hexdigest()


class _LineAnnex(Struct, omit_defaults=True):
    """What a line holds after its result: hashes of the trial's files, and in the first line the hash of run.json.

    The first line after a run was made longer says by how many trials per case and arm. The last line of a round says
    what was seen then, so that no round is complete without its look.
    """

    files: dict[str, str]
    run: str | None = None
    grown: int | None = None
    look: RoundAnalysis | None = None


class JournalLine(Struct, frozen=True):
    """A line that fits, and where it is; `link` is the hash that it ends in."""

    number: int
    offset: int
    raw: bytes
    result: TrialResult
    link: str | None
    files: dict[str, str] = {}
    run: str | None = None
    grown: int | None = None
    look: RoundAnalysis | None = None


class RoundProgress(Struct):
    """How far a run has come: its last round, those that were added, after which it grew, and what was seen."""

    last: int = 0
    # By how many trials per case and arm the run was made longer, and the rounds that were done each time.
    added: int = 0
    grown_from: tuple[int, ...] = ()
    # What was seen after each round of a run until decided.
    looks: tuple[RoundAnalysis, ...] = ()

    @property
    def stop(self) -> RoundAnalysis | None:
        """The look that stopped the run."""
        return next((look for look in self.looks if look.stop), None)

    def note(self, line: JournalLine) -> None:
        """Note the next line."""
        if line.grown:
            self.added += line.grown
            self.grown_from += (self.last,)
        if line.look is not None:
            self.looks += (line.look,)
        self.last = max(self.last, line.result.key.number)


class ChainedLine(Protocol):
    """What a line says of itself, however much of it is read."""

    @property
    def number(self) -> int:
        """Which line it is, from 1."""

    @property
    def link(self) -> str | None:
        """The hash that it ends in."""

    @property
    def run(self) -> str | None:
        """The hash of run.json."""


L = TypeVar("L", bound=ChainedLine)
# Reads a line, from its bytes, its number and its offset.
Reader = Callable[[bytes, int, int], L]


class Chain:
    """Makes the next line, or checks whether a line is the next one."""

    def __init__(self) -> None:
        self.link: str | None = None
        self.lines = 0
        self.size = 0

    def forge(
        self,
        result: TrialResult,
        files: Mapping[str, str],
        run: str | None,
        grown: int | None = None,
        look: RoundAnalysis | None = None,
    ) -> bytes:
        """Return the next line; call `accept` once it is written."""
        body = codec.encode(result)[:-1] + b"," + codec.encode(_LineAnnex(dict(files), run, grown, look))[1:-1]
        return body + _OPENING + self._next(body).encode() + _CLOSING

    def take(self, raw: bytes, read: Reader[L]) -> L:
        """Check and accept a whole line, and return what *read* makes of it; raises `ValueError` if it does not fit."""
        body, link = raw[:-_TAIL], link_of(raw)
        if link is None:
            raise ValueError("it does not end in a hash")
        if link != self._next(body):
            raise ValueError("its hash does not fit its content and the line before")
        try:
            line = read(raw, self.lines + 1, self.size)
        except codec.WireError as error:
            raise ValueError(str(error)) from error
        self._accept(raw, link)
        return line

    def accept(self, raw: bytes) -> str | None:
        """Make *raw*, which fits, the last line, and return the hash that it ends in."""
        self._accept(raw, link_of(raw))
        return self.link

    def _accept(self, raw: bytes, link: str | None) -> None:
        self.link = link
        self.lines += 1
        self.size += len(raw)

    def _next(self, body: bytes) -> str:
        before = self.link or _NOTHING
        return hashlib.sha256(before.encode() + body).hexdigest()


def link_of(raw: bytes) -> str | None:
    """Return the hash that a line ends in, or None if any byte around it is different."""
    if raw[-_TAIL : -_TAIL + len(_OPENING)] != _OPENING or not raw.endswith(_CLOSING):
        return None
    return raw[-_TAIL + len(_OPENING) : -len(_CLOSING)].decode("latin-1")


def read_line(raw: bytes, number: int, offset: int) -> JournalLine:
    """Return what a line says, whether it fits or not; raises `WireError`."""
    result, annex = read_result(raw), codec.decode(raw, _LineAnnex)
    return JournalLine(number, offset, raw, result, link_of(raw), annex.files, annex.run, annex.grown, annex.look)


def read_result(raw: bytes) -> TrialResult:
    """Return the result in a line."""
    return codec.decode(raw, TrialResult)


class JournalReader(Struct):
    """A journal as far as it was read; `torn` is the size of a last line that was cut off."""

    chain: Chain = field(default_factory=Chain)
    torn: int = 0

    def read(self, file: BinaryIO, path: Path, read: Reader[L]) -> Iterator[L]:
        """Yield what *read* makes of each line; raises `RecordChanged` at the first that does not fit."""

        def of_this_run(raw: bytes, number: int, offset: int) -> L:
            line = read(raw, number, offset)
            if line.run is not None and line.run != file_hash(path.with_name(RUN_FILE)):
                raise change_error(
                    path.with_name(RUN_FILE), f"has changed since line {number} of the journal was written"
                )
            return line

        self.torn = 0
        while raw := next_line(file, LONGEST_LINE):
            number = self.chain.lines + 1
            if len(raw) == LONGEST_LINE:
                raise change_error(path, "has a line that is too long to be read")
            if not raw.endswith(b"\n"):
                _refuse_complete(raw, path, number)
                self.torn = len(raw)
                return
            try:
                yield self.chain.take(raw, of_this_run)
            except ValueError as error:
                raise change_error(path, f"line {number} has changed: {error}") from error


def _refuse_complete(piece: bytes, path: Path, number: int) -> None:
    """Refuse a last line that was changed; one that a crash cut off is fine.

    A crash leaves the beginning of a line, on some file systems followed by zeros. If only the newline was changed,
    something follows the last brace.
    """
    content = piece.rstrip(b"\0")
    if content[: len(_BEGINNING)] != _BEGINNING[: len(content)]:
        raise change_error(path, f"line {number} has changed: it does not begin as a line does")
    try:
        _, end = json.JSONDecoder().raw_decode(piece.decode("latin-1"))
    except ValueError:
        return
    if end < len(piece):
        raise change_error(path, f"line {number} has changed: it goes on where it should end")


def change_error(path: Path, what: str, run_dir: Path | None = None) -> RecordChanged:
    """Return the error for a record that does not fit together."""
    return RecordChanged(
        f"{path}: {what}",
        hint="something other than whet changed the record: restore a copy of it, or start a new run\n"
        f"whet verify {run_dir or path.parent} lists all that does not fit",
    )


# What says nothing about the agent, and somebody can mend without a change of the run.
_TRIED_AGAIN = frozenset(
    error.code for error in (DiskFailed, RunBudgetSpent, KeyRefused, ProviderUnreachable, JudgeRefused, UserRefused)
)


def is_done(result: TrialResult) -> bool:
    """Return whether a trial has a result."""
    return result.failure is None or not is_tried_again(result.failure.code)


def is_tried_again(code: str | None) -> bool:
    """Return whether a resume tries a trial again that failed so.

    A full disk, the end of the money, or a provider that refused the key stopped it.
    """
    return code in _TRIED_AGAIN


def select_lines(lines: Iterable[JournalLine]) -> list[JournalLine]:
    """Return one line for each trial: the first, or the next one if it was stopped and tried again."""
    lines_by_key: dict[TrialKey, JournalLine] = {}
    for line in lines:
        before = lines_by_key.get(line.result.key)
        if before is None:
            lines_by_key[line.result.key] = line
        elif not is_done(before.result):
            # The journal says once that the run was made longer, in the line of a trial that may have been stopped.
            lines_by_key[line.result.key] = structs.replace(line, grown=line.grown or before.grown)
    return list(lines_by_key.values())

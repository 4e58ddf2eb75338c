"""Labels of people in `labels.jsonl` beside the suite: one line a label, only ever added to, meant to be committed."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import UNSET, Struct

from whet.decide.judging.units import LABEL_FORMAT, Label, LabelLine, LabelLineHead, LabelRemoval
from whet.errors import StoreError, UsageError
from whet.model import codec
from whet.reading.files import read_file
from whet.reading.text import count

LABELS_FILE, POLICY_FILE = "labels.jsonl", "labelling.md"
LONGEST_NAME, LONGEST_NOTE = 200, 20_000
_MOST_BYTES, _LONGEST_LINE, _MOST_LABELS = 64 * 1024 * 1024, 256 * 1024, 100_000
_MOST_PROBLEMS = 10
_ID_DIGITS = 16
_NAME_IT = "name the file that it leads to: --labels FILE"


def labels_path(suite: Path) -> Path:
    """Return where the labels of a suite are: beside its file, or in its folder."""
    return (suite if suite.is_dir() else suite.parent) / LABELS_FILE


def policy_of(path: Path) -> str | None:
    """Return what identifies the text beside the labels at *path* that says what counts as true; None without one."""
    try:
        data = read_file(path.with_name(POLICY_FILE))
    except OSError:
        return None
    return hashlib.sha256(data).hexdigest()[:_ID_DIGITS]


def now() -> str:
    """Return this moment, as a label has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class _LabelsRead(Struct):
    labels: dict[str, LabelLine]
    problems: list[str]


def read_labels(path: Path) -> list[LabelLine]:
    """Return the labels that nobody removed, the oldest first; none without a file.

    Raises `StoreError` with one line for each bad line.
    """
    try:
        data = read_file(path, _MOST_BYTES)
    except FileNotFoundError:
        _refuse_broken_link(path)
        return []
    except OSError as error:
        _refuse_broken_link(path)
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    contents = _LabelsRead(labels={}, problems=[])
    for number, raw in enumerate(data.split(b"\n"), start=1):
        if raw.strip():
            _take(contents, raw, number)
    if contents.problems:
        raise StoreError(
            "\n".join(f"{path}:{problem}" for problem in _shorten(contents.problems)),
            hint="mend or remove these lines; each line is one label that `whet judge label` wrote",
        )
    return list(contents.labels.values())


def _take(contents: _LabelsRead, raw: bytes, number: int) -> None:
    if len(raw) > _LONGEST_LINE:
        contents.problems.append(f"{number}: is not a label: it has more than {_LONGEST_LINE:,} bytes")
        return
    try:
        if codec.decode(raw, LabelLineHead).removes is not UNSET:
            contents.labels.pop(codec.decode(raw, LabelRemoval).removes, None)
            return
        label = codec.decode(raw, Label)
    except codec.WireError as error:
        contents.problems.append(f"{number}: is not a label: {error.message}")
        return
    if len(contents.labels) == _MOST_LABELS:
        contents.problems.append(f"{number}: is one more than {_MOST_LABELS:,} labels, which is the most")
        return
    line_id = _id_of(raw)
    contents.labels[line_id] = LabelLine(id=line_id, label=label)


def _shorten(problems: Sequence[str]) -> Iterator[str]:
    yield from problems[:_MOST_PROBLEMS]
    if len(problems) > _MOST_PROBLEMS:
        yield f" {count(len(problems) - _MOST_PROBLEMS, 'more line')} like these"


def add_labels(path: Path, labels: Iterable[Label]) -> list[LabelLine]:
    """Add *labels* to the file in one write, which two people may do at once; return them with their ids."""
    lines: list[LabelLine] = []
    data: list[bytes] = []
    for label in labels:
        if len(label.note or "") > LONGEST_NOTE or not 0 < len(label.by) <= LONGEST_NAME:
            raise UsageError(
                f"a label has a name of 1 to {LONGEST_NAME} characters, and a note of at most {LONGEST_NOTE:,}"
            )
        line, raw = line_of(label)
        lines.append(line)
        data.append(raw + b"\n")
    if data:
        _append(path, b"".join(data))
    return lines


def remove_label(path: Path, line_id: str, by: str) -> bool:
    """Take a label back, and return whether there was one."""
    if not any(line.id == line_id for line in read_labels(path)):
        return False
    removal = LabelRemoval(schema=LABEL_FORMAT, removes=line_id, at=now(), by=by)
    _append(path, codec.encode(removal) + b"\n")
    return True


def line_of(label: Label) -> tuple[LabelLine, bytes]:
    """Return *label* with its id, and as the bytes that the id is made of."""
    raw = codec.encode(label)
    return LabelLine(id=_id_of(raw), label=label), raw


def _append(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o666)
        try:
            # Ended with the descriptor, however this process ends.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _end_line(descriptor)
            written = os.write(descriptor, data)
            if written < len(data):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
                raise StoreError(f"{path} cannot be written: the disk is full")
        finally:
            os.close(descriptor)
    except OSError as error:
        _refuse_broken_link(path)
        if path.is_symlink():
            raise StoreError(f"{path} is a link, and labels are only added to a file", hint=_NAME_IT) from error
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def _refuse_broken_link(path: Path) -> None:
    """Refuse a link to nothing, or to itself: nobody meant to lose what it should lead to."""
    if path.is_symlink() and not path.exists():
        raise StoreError(f"{path} is a link that leads nowhere", hint="remove it, or put the file where it leads")


def _end_line(descriptor: int) -> None:
    """End the last line; half a label, which a crash cut off, is removed."""
    size = os.fstat(descriptor).st_size
    if not size or os.pread(descriptor, 1, size - 1) == b"\n":
        return
    tail = os.pread(descriptor, _LONGEST_LINE, max(0, size - _LONGEST_LINE))
    last = tail.rpartition(b"\n")[2]
    try:
        codec.decode(last, LabelLineHead)
    except codec.WireError:
        os.ftruncate(descriptor, size - len(last))
        return
    os.write(descriptor, b"\n")


def _id_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:_ID_DIGITS]

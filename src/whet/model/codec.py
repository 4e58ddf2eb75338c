"""One JSON codec for journal, API and workers: the model's structs in and out."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from whet.errors import WhetError
from whet.model.events import EVENT_TYPES, Event
from whet.reading.files import open_file
from whet.reading.text import escape_surrogates

T = TypeVar("T")


class WireError(WhetError):
    """Bytes that are not JSON, or not of the expected type."""

    code = "wire"


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def encode(value: Any) -> bytes:
    """Encode *value* as one line of JSON."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # A lone surrogate, from a file name or the output of a program: write it as an escape rather than fail.
        return _encoder.encode(_without_surrogates(msgspec.to_builtins(value, enc_hook=_plain)))


def encode_exact(value: Any) -> bytes:
    """Encode *value* for our own processes, which open files by these names: keeps lone surrogates."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, enc_hook=_plain)).encode()


def encode_lines(values: Sequence[Any]) -> bytes:
    """Encode each of *values* as a line of JSON with its newline; quicker than one by one."""
    try:
        return _encoder.encode_lines(values)
    except UnicodeEncodeError:
        return b"".join(encode(value) + b"\n" for value in values)


def encode_pretty(value: Any) -> bytes:
    """Encode *value* as indented JSON for files that people open, with a final newline."""
    return msgspec.json.format(encode(value), indent=2) + b"\n"


def decode(data: bytes | str | memoryview, kind: type[T]) -> T:
    """Read one value of *kind*."""
    try:
        value: T = _decoder(kind).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from error
    return value


# A larger file is mapped, which takes a moment.
_SMALL = 1024 * 1024


def decode_file(path: Path, kind: type[T]) -> T:
    """Read the value in a regular file, and of a large one no copy of all of it; raises `OSError` and `WireError`."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise WireError("it is empty")
        if size <= _SMALL:
            return decode(file.read(_SMALL), kind)
        # A view of its own: an error keeps hold of it, and what is still seen cannot be closed.
        with mmap(file.fileno(), 0, access=ACCESS_READ) as data, memoryview(data) as view:
            return decode(view, kind)


def decode_exact(data: bytes, kind: type[T]) -> T:
    """Read what `encode_exact` wrote."""
    try:
        return decode(data, kind)
    except WireError:
        if b"\\ud" not in data:
            raise
    try:
        # Only Python's own reader takes lone surrogates.
        return msgspec.convert(json.loads(data), kind)
    except ValueError as error:
        raise WireError(str(error)) from error


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    return _decoders[kind]


class _Tag(msgspec.Struct):
    type: str


# `type` is the first field of each event.
_EVENTS: dict[str, type[Event]] = {str(kind.__struct_defaults__[0]): kind for kind in EVENT_TYPES}
EVENT_NAMES: tuple[str, ...] = tuple(_EVENTS)


def decode_event(line: bytes) -> Event:
    """Read one session event; `type` says of which kind."""
    try:
        name = _decoder(_Tag).decode(line).type
        kind = _EVENTS.get(name)
        if kind is None:
            raise WireError(f'no event is called "{name}"')
        event: Event = _decoder(kind).decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from error
    return event


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return escape_surrogates(value)
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case _:
            return value

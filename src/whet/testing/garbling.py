"""Lines as they should not be: cut off, broken, and with values of another kind than ever seen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

_NONSENSE = (
    b"", b"{", b"{}", b"[]", b"null", b"0", b'"text"', b"plain text", b"\x00\xff\xfe", b'{"type":', b'{"type":null}',
    b'{"type":"never.seen"}', b'{"type":["list"]}', b"[" * 5000, b'{"a":' * 5000, b'{"type":"\\ud800"}',
)  # fmt: skip
# No true or false: to Python they are numbers too, and no program mistakes one for the other.
_OTHERS: tuple[Any, ...] = (None, -1, 1.5, "text", [], ["text"], {}, {"type": "text"})
_CUTS = 8
# A record may hold thousands of values, and the kinds of mistakes are found in the first few.
_MOST_PLACES = 60
_MOST_OF_A_KIND = 3


def garbled(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Nonsense, then each line cut off in several places, then with each of its values exchanged."""
    yield from _NONSENSE
    seen: dict[str, int] = {}
    for line in lines:
        kind = _kind(line)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] > _MOST_OF_A_KIND:
            continue
        yield from (line[: len(line) * part // _CUTS] for part in range(1, _CUTS))
        yield line[: len(line) // 2] + b"\xff\x00" + line[len(line) // 2 :]
        yield from _exchanged(line)


def _kind(line: bytes) -> str:
    """Which values a record has, so that many records of a kind are tried but a few times."""
    try:
        record = json.loads(line)
    except ValueError:
        return "not JSON"
    return repr(sorted(map(str, _places(record)))) + str(record.get("type") if isinstance(record, dict) else "")


def _exchanged(line: bytes) -> Iterator[bytes]:
    try:
        record = json.loads(line)
    except ValueError:
        return
    for place in list(_places(record))[:_MOST_PLACES]:
        holder = record
        for key in place[:-1]:
            holder = holder[key]
        kept = holder[place[-1]]
        for other in _OTHERS:
            holder[place[-1]] = other
            yield json.dumps(record).encode()
        holder[place[-1]] = kept
        if isinstance(holder, dict):
            del holder[place[-1]]
            yield json.dumps(record).encode()
            holder[place[-1]] = kept


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of a record, outer ones first; of a list, its first value only."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    inner = []
    for key, each in items:
        yield (*above, key)
        inner.append((each, (*above, key)))
    for each, place in inner:
        yield from _places(each, place)
